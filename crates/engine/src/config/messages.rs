//! The protobuf messages of the manifest. `docs/format-manifest.md` lists them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SnapshotMessage {
    #[prost(uint64, tag = "1")]
    pub(super) revision: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) store_id: u64,
    /// Up to version 3 also the generation.
    #[prost(uint64, tag = "3")]
    pub(super) incarnation: u64,
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
    #[prost(uint64, optional, tag = "10")]
    pub(super) generation: Option<u64>,
    #[prost(uint32, tag = "11")]
    pub(super) last_tablet: u32,
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
    /// One txn per group.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) flushed: Vec<u64>,
    #[prost(uint32, tag = "6")]
    pub(super) state: u32,
    /// Only in the edit that creates a table.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub(super) splits: Vec<Vec<u8>>,
    /// Of a backup and of a deleted table.
    #[prost(int64, tag = "8")]
    pub(super) since: i64,
    /// Of a backup.
    #[prost(message, optional, tag = "9")]
    pub(super) origin: Option<OriginMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OriginMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(uint64, tag = "3")]
    pub(super) txn: u64,
    #[prost(int64, optional, tag = "4")]
    pub(super) expires: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TabletMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) rows: Option<RowRangeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(super) chains: Vec<ChainMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) id: Option<TabletIdMessage>,
    #[prost(uint64, tag = "4")]
    pub(super) load: u64,
    #[prost(uint64, tag = "5")]
    pub(super) rev: u64,
    /// Absent if the tablet is loaded.
    #[prost(bool, optional, tag = "6")]
    pub(super) loaded: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TabletIdMessage {
    #[prost(uint32, tag = "1")]
    pub(super) incarnation: u32,
    #[prost(uint32, tag = "2")]
    pub(super) number: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChainMessage {
    #[prost(uint64, tag = "1")]
    pub(super) flushed: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) files: Vec<ReferenceMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReferenceMessage {
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
    #[prost(message, optional, tag = "8")]
    pub(super) facts: Option<FactsMessage>,
    #[prost(uint64, optional, tag = "9")]
    pub(super) share: Option<u64>,
    #[prost(uint64, tag = "10")]
    pub(super) unit: u64,
    /// The families in use; empty for all.
    #[prost(bytes = "vec", repeated, tag = "11")]
    pub(super) families: Vec<Vec<u8>>,
    /// Whether no family is in use, only deletes of rows.
    #[prost(bool, tag = "12")]
    pub(super) no_families: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FactsMessage {
    #[prost(uint64, tag = "1")]
    pub(super) meta_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub(super) dead_bytes: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) held: Option<RowRangeMessage>,
    #[prost(bool, tag = "4")]
    pub(super) has_spans: bool,
    #[prost(sint64, optional, tag = "5")]
    pub(super) timestamp_max: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReferenceKeyMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) name: Option<FileNameMessage>,
    #[prost(message, optional, tag = "2")]
    pub(super) rows: Option<RowRangeMessage>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(super) families: Vec<Vec<u8>>,
    #[prost(bool, tag = "4")]
    pub(super) no_families: bool,
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
    /// Absent if the table may be split.
    #[prost(bool, optional, tag = "3")]
    pub(super) splittable: Option<bool>,
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
    #[prost(bool, tag = "7")]
    pub(super) in_memory: bool,
    #[prost(uint64, tag = "8")]
    pub(super) since: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FamilyMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub(super) purge: Option<PurgeMessage>,
    #[prost(uint64, tag = "3")]
    pub(super) since: u64,
    #[prost(bool, tag = "4")]
    pub(super) hidden: bool,
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
    #[prost(
        oneof = "EditKind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 30"
    )]
    pub(super) edit: Option<EditKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum EditKind {
    #[prost(bool, tag = "1")]
    TakeIncarnation(bool),
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
    #[prost(bool, tag = "10")]
    TakeGeneration(bool),
    #[prost(message, tag = "11")]
    SetFlushed(SetFlushedMessage),
    #[prost(message, tag = "12")]
    Split(SplitMessage),
    #[prost(message, tag = "13")]
    Join(JoinMessage),
    #[prost(message, tag = "14")]
    SetLoaded(SetLoadedMessage),
    /// With the id of the source, and the name and state of the copy.
    #[prost(message, tag = "15")]
    CopyTable(TableMessage),
    #[prost(message, tag = "16")]
    SetState(TableMessage),
    #[prost(message, tag = "30")]
    Regroup(RegroupMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RegroupMessage {
    /// The id and the new schema.
    #[prost(message, optional, tag = "1")]
    pub(super) table: Option<TableMessage>,
    /// Commits up to this txn are in files.
    #[prost(uint64, tag = "2")]
    pub(super) flushed: u64,
    /// All tablets, in row order.
    #[prost(message, repeated, tag = "3")]
    pub(super) tablets: Vec<RegroupedMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RegroupedMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) tablet: Option<TabletIdMessage>,
    #[prost(uint64, tag = "2")]
    pub(super) load: u64,
    /// One per group of the new schema.
    #[prost(message, repeated, tag = "3")]
    pub(super) chains: Vec<ChainMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SetLoadedMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(message, repeated, tag = "2")]
    pub(super) tablets: Vec<TabletStartMessage>,
    #[prost(bool, tag = "3")]
    pub(super) loaded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TabletStartMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) tablet: Option<TabletIdMessage>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) start: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct SetFlushedMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(uint32, tag = "2")]
    pub(super) group: u32,
    #[prost(uint64, tag = "3")]
    pub(super) txn: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SplitMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(message, optional, tag = "2")]
    pub(super) tablet: Option<TabletIdMessage>,
    #[prost(uint64, tag = "3")]
    pub(super) load: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) row: Vec<u8>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) shares: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct JoinMessage {
    #[prost(uint32, tag = "1")]
    pub(super) table: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) row: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    pub(super) lower: Option<TabletIdMessage>,
    #[prost(uint64, tag = "4")]
    pub(super) lower_load: u64,
    #[prost(message, optional, tag = "5")]
    pub(super) upper: Option<TabletIdMessage>,
    #[prost(uint64, tag = "6")]
    pub(super) upper_load: u64,
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
    /// Up to version 3: the position of the tablet.
    #[prost(uint32, tag = "2")]
    pub(super) legacy_tablet: u32,
    #[prost(uint32, tag = "3")]
    pub(super) group: u32,
    /// Up to version 3.
    #[prost(message, repeated, tag = "4")]
    pub(super) legacy_remove: Vec<FileNameMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(super) add: Vec<ReferenceMessage>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) flushed: Option<u64>,
    #[prost(message, optional, tag = "7")]
    pub(super) tablet: Option<TabletIdMessage>,
    #[prost(uint64, tag = "8")]
    pub(super) load: u64,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) start: Vec<u8>,
    #[prost(message, repeated, tag = "10")]
    pub(super) remove: Vec<ReferenceKeyMessage>,
}
