//! The instance admin service: `service` has its methods; `instance`, `cluster` and
//! `app_profile` make the changes, each in one step that is durable before it is
//! acknowledged.

mod app_profile;
mod cluster;
mod instance;
mod service;

pub use service::{Context, InstanceAdmin};
