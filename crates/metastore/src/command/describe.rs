//! Names commands for the log.

use super::Command;

/// The maximum number of bytes of a key in a description.
const KEY_BYTES: usize = 64;

impl Command {
    /// Returns the name of the command, and its key if it has one.
    pub fn describe(&self) -> String {
        let (name, key) = match self {
            Command::Put(put) => ("put", Some(&put.key)),
            Command::Delete(delete) => ("delete", Some(&delete.range.start)),
            Command::Txn(_) => ("transaction", None),
            Command::Compact { .. } => ("compact", None),
            Command::LeaseGrant { .. } => ("lease grant", None),
            Command::LeaseRevoke { .. } => ("lease revoke", None),
            Command::Expire { .. } => ("lease expiry", None),
            Command::Alarm(_) => ("alarm", None),
            Command::Execute(_) => ("native transaction", None),
            Command::Acquire(acquire) => ("acquire", Some(&acquire.key)),
            Command::Release { key, .. } => ("release", Some(key)),
            Command::Sample { .. } => ("sample", None),
            Command::Waterline { .. } => ("waterline", None),
            Command::Restore(_) | Command::RestoreHistory(_) => ("restore", None),
            Command::Auth(_) => ("users and roles", None),
            Command::RaiseLevel { .. } => ("raise level", None),
            Command::LeaseDeadlines { .. } => ("lease deadlines", None),
            Command::SetQuota { prefix, .. } => ("set quota", Some(prefix)),
        };
        match key {
            Some(key) => format!("{name} \"{}\"", key[..key.len().min(KEY_BYTES)].escape_ascii()),
            None => name.to_string(),
        }
    }
}
