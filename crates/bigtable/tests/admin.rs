//! Table administration through the services, without a network: what is
//! accepted, what is rejected and how, and what survives a restart.

#[path = "admin/server.rs"]
mod server;

#[path = "admin/create.rs"]
mod create;
#[path = "admin/families.rs"]
mod families;
#[path = "admin/instances.rs"]
mod instances;
#[path = "admin/lifetime.rs"]
mod lifetime;
#[path = "admin/rows.rs"]
mod rows;
#[path = "admin/shown.rs"]
mod shown;
