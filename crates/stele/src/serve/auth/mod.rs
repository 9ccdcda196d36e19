//! Who may do what at the ports of a server. The decisions are those of `stele_auth`;
//! here they are applied.
//!
//! `mode` decides at startup whether callers are checked at all. If they are, one [`Gate`]
//! is before all services: each port has a `Guard`, which identifies the caller of every
//! call and page (`guard`), checks what the method needs (`gate`), and lets the body
//! through as far as the resources that it names are allowed (`body`). `pages` does the
//! same for HTTP, `iam` serves the policies of Bigtable resources, `files` reads changed
//! files again.

mod body;
mod files;
mod gate;
mod guard;
mod iam;
mod iam_store;
mod mode;
mod pages;

pub use files::follow as follow_files;
pub use gate::{Ended, Gate};
pub use guard::{Admitted, Guard, NAMES_ADMIN, PortName};
pub use iam_store::{IamStore, follow as follow_policies};
pub use mode::{AuthMode, AuthSettings, open};
pub use pages::{guard as guard_pages, router};
