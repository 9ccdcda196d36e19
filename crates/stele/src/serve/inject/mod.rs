//! Fault injection: delays calls or answers them with errors on purpose, to test how
//! programs retry. Off unless the server was started with `--inject`.
//!
//! A `rule` selects calls and their faults. The `injector` sits between the gRPC ports and
//! their services and applies all `rules` (`peek` finds the table of a call, `known` lists
//! the methods). `admin` lists and replaces the rules of a running server.

mod admin;
mod injector;
mod known;
mod peek;
mod rule;
mod rules;

pub use admin::{PATH, RuleList, RuleUpdate, router};
pub use injector::{Injector, Totals};
pub use rule::Rule;
pub use rules::Rules;
