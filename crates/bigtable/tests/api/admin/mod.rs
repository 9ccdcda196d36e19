//! Table administration through the services: what is accepted, what is rejected
//! and how, and what survives a restart.

pub mod calls;

mod create;
mod families;
mod instances;
mod lifecycle;
mod rows;
mod views;
