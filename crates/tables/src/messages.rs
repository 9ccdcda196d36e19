//! Values of the coordinator that are more than a number.

use bytes::Bytes;
use prost::Message;

/// A live server, as its key describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    pub epoch: u64,
    /// Where other servers reach it.
    pub address: String,
}

impl ServerInfo {
    /// Decodes the value of a key of a server; `None` if it is damaged.
    pub fn decode(value: &[u8]) -> Option<ServerInfo> {
        let ServerMessage { epoch, address, .. } = ServerMessage::of(value)?;
        Some(ServerInfo { epoch, address })
    }
}

/// A live server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) epoch: u64,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    /// The lowest number of a file that may not be named by a row yet.
    #[prost(uint64, tag = "3")]
    pub(crate) oldest_pending: u64,
}

impl ServerMessage {
    pub(crate) fn bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// Decodes a value; `None` if it is damaged.
    pub(crate) fn of(value: &[u8]) -> Option<ServerMessage> {
        ServerMessage::decode(value).ok()
    }
}

/// A row of a tablet.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RowMessage {
    /// Encoded by the engine.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) tablet: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(crate) owner: Option<HolderMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) recoverer: Option<HolderMessage>,
    #[prost(message, optional, tag = "4")]
    pub(crate) log: Option<LogMessage>,
    #[prost(message, optional, tag = "5")]
    pub(crate) op: Option<OpMessage>,
}

/// An incarnation of a server.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HolderMessage {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(uint64, tag = "2")]
    pub(crate) epoch: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LogMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) epoch: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) from: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct OpMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) incarnation: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}
