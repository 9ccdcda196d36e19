//! Who may do what. Knows neither the network nor storage: servers pass in headers,
//! certificates and resource names, and act on the decisions.
//!
//! A request travels down this list:
//!
//! | module | what it does |
//! |---|---|
//! | [`authenticate`] | turns the credential of a request into a [`Caller`] |
//! | `token`, `jwt`, `keys`, [`certificate`] | the kinds of credentials: static tokens, signed tokens and their keys, client certificates |
//! | [`credentials`] | the file of tokens and service-account keys |
//! | [`methods`], [`pages`] | what each gRPC method and HTTP page requires |
//! | [`message`] | finds the names of resources in the bytes of a request |
//! | [`policy`], [`role`], [`permission`], [`member`] | bindings of roles to members, and the policy file |
//! | [`decide`] | [`authorize`](decide::Rights::authorize): may this caller do that? Pure, without I/O |
//! | [`iam`] | policies of Bigtable resources |
//! | [`audit`] | the log of decisions |
//!
//! ```
//! use stele_auth::{Caller, Permission, Policy, Rights};
//!
//! let policy = Policy::parse(
//!     r#"
//!     [[binding]]
//!     role = "bigtable.reader"
//!     members = ["user:ada"]
//!     resource = "projects/p/instances/i"
//!     "#,
//! )
//! .unwrap();
//! let rights = Rights::new(&policy, []);
//! let ada = Caller::named("user:ada");
//! let table = "projects/p/instances/i/tables/t";
//! assert!(rights.authorize(&ada, Permission::TablesReadRows, table).is_ok());
//! assert!(rights.authorize(&ada, Permission::TablesMutateRows, table).is_err());
//! assert!(rights.authorize(&Caller::anonymous(), Permission::TablesReadRows, table).is_err());
//! ```
#![forbid(unsafe_code)]

pub mod audit;
pub mod authenticate;
mod caller;
pub mod certificate;
pub mod credentials;
pub mod decide;
mod der;
mod hex;
pub mod iam;
mod jwt;
mod keys;
pub mod member;
pub mod message;
pub mod methods;
pub mod pages;
pub mod permission;
pub mod policy;
pub mod role;
mod token;

pub use authenticate::{Authenticator, Presented, Unauthenticated};
pub use caller::{Caller, Credential};
pub use credentials::Credentials;
pub use decide::{Denied, Explanation, Grant, Rights};
pub use member::Member;
pub use permission::{Permission, PermissionSet};
pub use policy::{Policy, PolicyError};
pub use role::Role;
pub use token::sha256;
