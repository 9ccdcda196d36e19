//! The state machine, which turns proposals into changes.
//!
//! An [`Applier`] applies log entries in order. The proposals of an entry run one
//! after another (`run`) on an [`Overlay`](overlay::Overlay), in which later ones
//! see the changes of earlier ones. The overlay becomes one engine commit together
//! with the position in the log, so an entry is applied atomically; `parts` bounds
//! the memory of large entries. A proposal is refused before it changes anything,
//! so a refusal has no effect. After the commit, the changes are published to
//! readers and watchers. `stall` waits while the disk is full. The state is sent to
//! other members as a `checkpoint`, and received and installed by `staging`; `current`
//! says which directory holds it.
//!
//! The commands: `kv` (put, delete, range), `txn` (etcd's transactions), `execute`
//! (serializable transactions), `lease`, `lock`, `retention` (compaction, samples,
//! waterline, alarms), `level` (feature levels, quotas of prefixes), `restore` and
//! `auth` (users and roles, and the check of callers). `newest` runs the same rules on
//! the newest
//! state, without a log entry. `inquiry` answers questions of other members.

mod applier;
mod auth;
mod checkpoint;
mod current;
mod execute;
#[cfg(test)]
pub(crate) mod fixture;
mod inquiry;
mod kv;
mod lease;
mod level;
mod lock;
mod newest;
mod open;
mod overlay;
mod parts;
mod restore;
mod retention;
mod run;
mod settings;
mod staging;
mod stall;
mod txn;

pub use applier::Applier;
pub use current::{clear_other, state_dir};
pub use inquiry::Inquiry;
pub use kv::RESULT_BYTES_MAX;
pub use lease::{EXPIRED_BYTES_MAX, EXPIRED_KEYS_MAX};
pub use newest::{check_compares, measure, read_txn};
pub use open::{MachineParts, open};
pub use run::takes_space;
pub use settings::MachineSettings;
pub use txn::COMPARED_KEYS_MAX;
