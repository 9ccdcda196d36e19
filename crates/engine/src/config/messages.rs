//! The protobuf messages of the manifest. `docs/format-manifest.md` lists them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SnapshotMessage {
    #[prost(uint64, tag = "1")]
    pub(super) revision: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) store_id: u64,
    #[prost(uint64, tag = "3")]
    pub(super) epoch: u64,
    #[prost(uint32, tag = "4")]
    pub(super) last_table: u32,
    #[prost(uint64, tag = "5")]
    pub(super) log_head: u64,
    #[prost(message, repeated, tag = "6")]
    pub(super) tables: Vec<TableMessage>,
    #[prost(uint64, tag = "7")]
    pub(super) last_checkpoint: u64,
    #[prost(message, repeated, tag = "8")]
    pub(super) checkpoints: Vec<CheckpointMessage>,
    #[prost(uint64, optional, tag = "9")]
    pub(super) flushed_index: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckpointMessage {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) txn: u64,
    #[prost(uint64, tag = "3")]
    pub(super) epoch: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) tables: Vec<TableMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TableMessage {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) schema: Option<SchemaMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(super) tablets: Vec<TabletMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TabletMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) rows: Option<RowRangeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(super) chains: Vec<ChainMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChainMessage {
    #[prost(uint64, tag = "1")]
    pub(super) flushed_through: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) files: Vec<FileMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) name: Option<FileNameMessage>,
    #[prost(uint64, tag = "2")]
    pub(super) bytes: u64,
    #[prost(uint64, tag = "3")]
    pub(super) cells: u64,
    #[prost(message, optional, tag = "4")]
    pub(super) rows: Option<RowRangeMessage>,
    #[prost(uint64, tag = "5")]
    pub(super) txn_min: u64,
    #[prost(uint64, tag = "6")]
    pub(super) txn_max: u64,
    #[prost(bool, tag = "7")]
    pub(super) joins: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct FileNameMessage {
    #[prost(uint64, tag = "1")]
    pub(super) incarnation: u64,
    #[prost(uint64, tag = "2")]
    pub(super) number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RowRangeMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) start: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) end: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SchemaMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) groups: Vec<GroupMessage>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) annotation: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GroupMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) families: Vec<FamilyMessage>,
    #[prost(bool, tag = "3")]
    pub(super) wildcard: bool,
    #[prost(message, optional, tag = "4")]
    pub(super) purge: Option<PurgeMessage>,
    #[prost(uint32, tag = "5")]
    pub(super) compression: u32,
    #[prost(uint32, optional, tag = "6")]
    pub(super) block_bytes: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FamilyMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub(super) purge: Option<PurgeMessage>,
    #[prost(uint64, tag = "3")]
    pub(super) since: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PurgeMessage {
    #[prost(oneof = "PurgeRule", tags = "1, 2, 3, 4, 5")]
    pub(super) rule: Option<PurgeRule>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum PurgeRule {
    #[prost(uint32, tag = "1")]
    MaxVersions(u32),
    #[prost(int64, tag = "2")]
    MaxAge(i64),
    #[prost(sint64, tag = "3")]
    Waterline(i64),
    #[prost(message, tag = "4")]
    All(PurgeListMessage),
    #[prost(message, tag = "5")]
    Any(PurgeListMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PurgeListMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) terms: Vec<PurgeMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchMessage {
    /// The revision after the batch.
    #[prost(uint64, tag = "1")]
    pub(super) revision: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) edits: Vec<EditMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EditMessage {
    #[prost(oneof = "EditKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub(super) edit: Option<EditKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum EditKind {
    #[prost(bool, tag = "1")]
    TakeEpoch(bool),
    #[prost(message, tag = "2")]
    CreateTable(TableMessage),
    #[prost(uint32, tag = "3")]
    DropTable(u32),
    #[prost(message, tag = "4")]
    SetSchema(TableMessage),
    #[prost(message, tag = "5")]
    Splice(SpliceMessage),
    #[prost(uint64, tag = "6")]
    SetLogHead(u64),
    #[prost(message, tag = "7")]
    Pin(PinMessage),
    #[prost(uint64, tag = "8")]
    Unpin(u64),
    #[prost(uint64, tag = "9")]
    SetFlushedIndex(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PinMessage {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) tables: Vec<u32>,
    #[prost(uint64, tag = "2")]
    pub(super) txn: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SpliceMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(uint32, tag = "2")]
    pub(super) tablet: u32,
    #[prost(uint32, tag = "3")]
    pub(super) group: u32,
    #[prost(message, repeated, tag = "4")]
    pub(super) remove: Vec<FileNameMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(super) add: Vec<FileMessage>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) flushed_through: Option<u64>,
}
