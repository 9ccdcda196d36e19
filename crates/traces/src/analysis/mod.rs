//! What results mean: pure functions over what the store has read.
//!
//! `change` finds where one trace changed; `diff` compares two commits;
//! `standing` tells what was decided about the newest digests; `blame` names
//! the commits that may have brought untriaged ones; `steps` finds where
//! numbers moved for good.

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
