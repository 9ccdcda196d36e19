//! A row: the config of a tablet, its owner, and the log that has its newest commits.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use stele_engine::Result;
use stele_engine::config::{OpId, TabletConfig};

use crate::messages::{HolderMessage, LogMessage, OpMessage, RowMessage};

/// An incarnation of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub id: String,
    pub epoch: u64,
}

/// Who may change a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    #[default]
    Nobody,
    /// Serves the tablet.
    Server(Holder),
    /// Recovers it from the log of its last owner.
    Recoverer(Holder),
}

impl Owner {
    pub(crate) fn is_recoverer(&self) -> bool {
        matches!(self, Owner::Recoverer(_))
    }
}

/// The log with the commits to a tablet that may not be in files: nothing before the slot
/// `from` belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    pub epoch: u64,
    pub from: u64,
}

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRow {
    pub config: Arc<TabletConfig>,
    pub owner: Owner,
    pub log: Option<LogStart>,
    /// The id of the last mutation.
    pub op: Option<OpId>,
}

impl OwnedRow {
    /// Returns the row of a new tablet.
    pub fn new(config: TabletConfig) -> OwnedRow {
        OwnedRow { config: Arc::new(config), owner: Owner::Nobody, log: None, op: None }
    }

    pub fn encode(&self) -> Bytes {
        let holder = |holder: &Holder| HolderMessage { id: holder.id.clone(), epoch: holder.epoch };
        let (owner, recoverer) = match &self.owner {
            Owner::Nobody => (None, None),
            Owner::Server(server) => (Some(holder(server)), None),
            Owner::Recoverer(recoverer) => (None, Some(holder(recoverer))),
        };
        let message = RowMessage {
            tablet: self.config.encode().into(),
            owner,
            recoverer,
            log: self.log.map(|LogStart { epoch, from }| LogMessage { epoch, from }),
            op: self.op.map(|OpId { incarnation, number }| OpMessage { incarnation, number }),
        };
        message.encode_to_vec().into()
    }

    /// Decodes a value of `encode`.
    pub fn decode(value: &[u8]) -> Result<OwnedRow> {
        let invalid = |what: String| stele_engine::Error::InvalidPackedFormat { at: 0, what };
        let message =
            RowMessage::decode(value).map_err(|error| invalid(format!("a row: {error}")))?;
        let holder = |holder: HolderMessage| Holder { id: holder.id, epoch: holder.epoch };
        let owner = match (message.owner, message.recoverer) {
            (None, None) => Owner::Nobody,
            (Some(server), None) => Owner::Server(holder(server)),
            (None, Some(recoverer)) => Owner::Recoverer(holder(recoverer)),
            (Some(_), Some(_)) => return Err(invalid("a row has two owners".into())),
        };
        Ok(OwnedRow {
            config: Arc::new(TabletConfig::decode(&message.tablet)?),
            owner,
            log: message.log.map(|LogMessage { epoch, from }| LogStart { epoch, from }),
            op: message.op.map(|OpMessage { incarnation, number }| OpId { incarnation, number }),
        })
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::{RowRange, TabletId};

    use super::*;

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        let id = TabletId { incarnation: 3, number: 5 };
        let mut row = OwnedRow::new(TabletConfig::new(id, RowRange::all(), 2));
        let holder = Holder { id: "s1".into(), epoch: 9 };
        for owner in [Owner::Nobody, Owner::Server(holder.clone()), Owner::Recoverer(holder)] {
            row.owner = owner;
            assert_eq!(OwnedRow::decode(&row.encode()).unwrap(), row);
            row.log = Some(LogStart { epoch: 9, from: 4 });
            row.op = Some(OpId { incarnation: 9, number: 1 });
        }
        let bytes = row.encode();
        for length in 0..bytes.len() {
            // Whatever it is, it is no panic.
            let _ = OwnedRow::decode(&bytes[..length]);
        }
    }
}
