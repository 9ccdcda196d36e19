//! Authorized views: parts of a table that a caller can be restricted to.
//!
//! A [`Subset`] is the rows and columns of a view. A read through the view is narrowed to
//! it before the scan is opened, a write outside of it is refused before the commit.
//! [`Views`] finds views by name. A view belongs to one table: a table that is created
//! later under the same name has none of them, and one that is undeleted has them again.

mod registry;
mod subset;

pub use registry::{View, Views, not_found};
pub use subset::Subset;
