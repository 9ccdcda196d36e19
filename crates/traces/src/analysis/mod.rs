//! Analysis of results: pure functions of data that the store has read.
//!
//! `change` finds where one trace changed; `diff` compares two commits; `standing`
//! reports the triage status of the newest digests; `blame` finds the commits that may
//! have introduced untriaged digests; `steps` finds lasting changes of numbers.

mod blame;
mod change;
mod diff;
mod standing;
mod steps;

pub use blame::{Blame, blame};
pub use change::{Change, FirstBad, changes, first_bad};
pub use diff::{Difference, Result as Compared, diff};
pub use standing::{Standing, standings};
pub use steps::{Step, StepOptions, steps};
