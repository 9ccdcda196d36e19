//! Users, roles and permissions, with etcd's rules.
//!
//! An [`AuthState`] (`state`) is part of the replicated state; `change` applies
//! [`AuthCommand`](crate::command::AuthCommand)s to it. [`permit`](permit::permit)
//! decides whether a caller may make a request; services call it before a read,
//! and every proposal is checked by it again when it is applied, so that a change
//! of permissions takes effect between two log entries. `intervals` has the keys
//! that a user may access. A caller is identified by a token: a random one that
//! members remember (`tokens`), or one that is signed (`jwt`, with keys from
//! `pem`). A password buys a token (`login`, `password`).

mod change;
mod error;
mod intervals;
mod jwt;
mod login;
mod password;
mod pem;
mod permit;
mod shared;
mod state;
mod tokens;

pub use error::AuthError;
pub use jwt::Jwt;
pub use login::{Login, NewToken, ROUNDS, TokenKind};
pub use permit::{Access, KeysOfLease, permit};
pub use shared::SharedAuth;
pub use state::{AuthState, ROOT};
pub(crate) use state::{ROW, Row};
