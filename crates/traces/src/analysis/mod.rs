//! What results mean: pure functions over what the store has read.
//!
//! `change` finds where one trace changed; `diff` compares two commits;
//! `blame` names the commits that may have brought untriaged digests; `steps`
//! finds where numbers moved for good.

mod blame;
mod change;
mod diff;
mod steps;

pub use blame::{Blame, blame};
pub use change::{Change, FirstBad, changes, first_bad};
pub use diff::{Difference, diff};
pub use steps::{Step, StepOptions, steps};
