//! The encoding of the config: protobuf messages, so that fields can be added
//! without a new format version. `docs/format-manifest.md` lists them.

use std::sync::Arc;

use prost::Message;

use super::{
    ChainConfig, Checkpoint, ConfigEdit, Configs, FileConfig, FileName, Splice, TableConfig,
    TabletConfig,
};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::schema::{Compression, Family, Group, PURGE_DEPTH_MAX, Purge, Schema};
use crate::txn::Txn;

/// The error names the invalid field of a decoded message.
pub type Decoded<T> = Result<T, String>;

#[derive(Clone, PartialEq, Message)]
struct SnapshotMessage {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(fixed64, tag = "2")]
    store_id: u64,
    #[prost(uint64, tag = "3")]
    epoch: u64,
    #[prost(uint32, tag = "4")]
    last_table: u32,
    #[prost(uint64, tag = "5")]
    log_head: u64,
    #[prost(message, repeated, tag = "6")]
    tables: Vec<TableMessage>,
    #[prost(uint64, tag = "7")]
    last_checkpoint: u64,
    #[prost(message, repeated, tag = "8")]
    checkpoints: Vec<CheckpointMessage>,
    #[prost(uint64, optional, tag = "9")]
    flushed_index: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct CheckpointMessage {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    txn: u64,
    #[prost(uint64, tag = "3")]
    epoch: u64,
    #[prost(message, repeated, tag = "4")]
    tables: Vec<TableMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct TableMessage {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    schema: Option<SchemaMessage>,
    #[prost(message, repeated, tag = "4")]
    tablets: Vec<TabletMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct TabletMessage {
    #[prost(message, optional, tag = "1")]
    rows: Option<RowRangeMessage>,
    #[prost(message, repeated, tag = "2")]
    chains: Vec<ChainMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ChainMessage {
    #[prost(uint64, tag = "1")]
    flushed_through: u64,
    #[prost(message, repeated, tag = "2")]
    files: Vec<FileMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct FileMessage {
    #[prost(message, optional, tag = "1")]
    name: Option<FileNameMessage>,
    #[prost(uint64, tag = "2")]
    bytes: u64,
    #[prost(uint64, tag = "3")]
    cells: u64,
    #[prost(message, optional, tag = "4")]
    rows: Option<RowRangeMessage>,
    #[prost(uint64, tag = "5")]
    txn_min: u64,
    #[prost(uint64, tag = "6")]
    txn_max: u64,
    #[prost(bool, tag = "7")]
    joins: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct FileNameMessage {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RowRangeMessage {
    #[prost(bytes = "vec", tag = "1")]
    start: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    end: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct SchemaMessage {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<GroupMessage>,
    #[prost(bytes = "vec", tag = "2")]
    annotation: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct GroupMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    families: Vec<FamilyMessage>,
    #[prost(bool, tag = "3")]
    wildcard: bool,
    #[prost(message, optional, tag = "4")]
    purge: Option<PurgeMessage>,
    #[prost(uint32, tag = "5")]
    compression: u32,
    #[prost(uint32, optional, tag = "6")]
    block_bytes: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct FamilyMessage {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    purge: Option<PurgeMessage>,
    #[prost(uint64, tag = "3")]
    since: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PurgeMessage {
    #[prost(oneof = "PurgeRule", tags = "1, 2, 3, 4, 5")]
    rule: Option<PurgeRule>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum PurgeRule {
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
struct PurgeListMessage {
    #[prost(message, repeated, tag = "1")]
    terms: Vec<PurgeMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct BatchMessage {
    /// The revision after the batch.
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(message, repeated, tag = "2")]
    edits: Vec<EditMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct EditMessage {
    #[prost(oneof = "Edit", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    edit: Option<Edit>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Edit {
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
struct PinMessage {
    #[prost(uint32, repeated, tag = "1")]
    tables: Vec<u32>,
    #[prost(uint64, tag = "2")]
    txn: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SpliceMessage {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(uint32, tag = "2")]
    tablet: u32,
    #[prost(uint32, tag = "3")]
    group: u32,
    #[prost(message, repeated, tag = "4")]
    remove: Vec<FileNameMessage>,
    #[prost(message, repeated, tag = "5")]
    add: Vec<FileMessage>,
    #[prost(uint64, optional, tag = "6")]
    flushed_through: Option<u64>,
}

pub fn encode_snapshot(configs: &Configs) -> Vec<u8> {
    let tables = configs.tables.values().map(table_out).collect();
    SnapshotMessage {
        revision: configs.revision,
        store_id: configs.store_id,
        epoch: configs.epoch,
        last_table: configs.last_table,
        log_head: configs.log_head,
        tables,
        last_checkpoint: configs.last_checkpoint,
        checkpoints: configs.checkpoints.values().map(checkpoint_out).collect(),
        flushed_index: configs.flushed_index,
    }
    .encode_to_vec()
}

pub fn decode_snapshot(bytes: &[u8]) -> Decoded<Configs> {
    let message = SnapshotMessage::decode(bytes).map_err(|error| error.to_string())?;
    let mut configs = Configs {
        revision: message.revision,
        store_id: message.store_id,
        epoch: message.epoch,
        last_table: message.last_table,
        log_head: message.log_head,
        last_checkpoint: message.last_checkpoint,
        flushed_index: message.flushed_index,
        ..Configs::default()
    };
    for checkpoint in message.checkpoints {
        let checkpoint = checkpoint_in(checkpoint)?;
        configs.checkpoints.insert(checkpoint.id, checkpoint);
    }
    for table in message.tables {
        let table = table_in(table)?;
        configs.tables.insert(table.id, table);
    }
    Ok(configs)
}

pub fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    checkpoint_out(checkpoint).encode_to_vec()
}

pub fn decode_checkpoint(bytes: &[u8]) -> Decoded<Checkpoint> {
    checkpoint_in(CheckpointMessage::decode(bytes).map_err(|error| error.to_string())?)
}

pub fn encode_batch(revision: u64, edits: &[ConfigEdit]) -> Vec<u8> {
    let edits = edits.iter().map(|edit| EditMessage { edit: Some(edit_out(edit)) }).collect();
    BatchMessage { revision, edits }.encode_to_vec()
}

/// Decodes a batch into the revision after it and its edits.
pub fn decode_batch(bytes: &[u8]) -> Decoded<(u64, Vec<ConfigEdit>)> {
    let message = BatchMessage::decode(bytes).map_err(|error| error.to_string())?;
    let edits = message
        .edits
        .into_iter()
        .map(|edit| edit_in(edit.edit.ok_or("an edit of an unknown kind")?))
        .collect::<Decoded<_>>()?;
    Ok((message.revision, edits))
}

fn edit_out(edit: &ConfigEdit) -> Edit {
    match edit {
        ConfigEdit::TakeEpoch => Edit::TakeEpoch(true),
        ConfigEdit::CreateTable { name, schema } => Edit::CreateTable(TableMessage {
            name: name.clone(),
            schema: Some(schema_out(schema)),
            ..TableMessage::default()
        }),
        ConfigEdit::DropTable { table } => Edit::DropTable(table.0),
        ConfigEdit::SetSchema { table, schema } => Edit::SetSchema(TableMessage {
            id: table.0,
            schema: Some(schema_out(schema)),
            ..TableMessage::default()
        }),
        ConfigEdit::Splice(splice) => Edit::Splice(SpliceMessage {
            table: splice.table.0,
            tablet: splice.tablet as u32,
            group: splice.group as u32,
            remove: splice.remove.iter().map(name_out).collect(),
            add: splice.add.iter().map(file_out).collect(),
            flushed_through: splice.flushed_through.map(Txn::raw),
        }),
        ConfigEdit::Pin { tables, txn } => Edit::Pin(PinMessage {
            tables: tables.iter().map(|table| table.0).collect(),
            txn: txn.raw(),
        }),
        ConfigEdit::Unpin { checkpoint } => Edit::Unpin(*checkpoint),
        ConfigEdit::SetLogHead { segment } => Edit::SetLogHead(*segment),
        ConfigEdit::SetFlushedIndex { index } => Edit::SetFlushedIndex(*index),
    }
}

fn edit_in(edit: Edit) -> Decoded<ConfigEdit> {
    Ok(match edit {
        Edit::TakeEpoch(_) => ConfigEdit::TakeEpoch,
        Edit::CreateTable(table) => {
            ConfigEdit::CreateTable { name: table.name, schema: schema_in(table.schema)? }
        }
        Edit::DropTable(table) => ConfigEdit::DropTable { table: TableId(table) },
        Edit::SetSchema(table) => {
            ConfigEdit::SetSchema { table: TableId(table.id), schema: schema_in(table.schema)? }
        }
        Edit::Splice(splice) => ConfigEdit::Splice(Splice {
            table: TableId(splice.table),
            tablet: splice.tablet as usize,
            group: splice.group as usize,
            remove: splice.remove.into_iter().map(name_in).collect(),
            add: splice.add.into_iter().map(file_in).collect::<Decoded<_>>()?,
            flushed_through: splice.flushed_through.map(txn_in).transpose()?,
        }),
        Edit::Pin(pin) => ConfigEdit::Pin {
            tables: pin.tables.into_iter().map(TableId).collect(),
            txn: txn_in(pin.txn)?,
        },
        Edit::Unpin(checkpoint) => ConfigEdit::Unpin { checkpoint },
        Edit::SetLogHead(segment) => ConfigEdit::SetLogHead { segment },
        Edit::SetFlushedIndex(index) => ConfigEdit::SetFlushedIndex { index },
    })
}

fn checkpoint_out(checkpoint: &Checkpoint) -> CheckpointMessage {
    CheckpointMessage {
        id: checkpoint.id,
        txn: checkpoint.txn.raw(),
        epoch: checkpoint.epoch,
        tables: checkpoint.tables.iter().map(table_out).collect(),
    }
}

fn checkpoint_in(message: CheckpointMessage) -> Decoded<Checkpoint> {
    Ok(Checkpoint {
        id: message.id,
        txn: txn_in(message.txn)?,
        epoch: message.epoch,
        tables: message.tables.into_iter().map(table_in).collect::<Decoded<_>>()?,
    })
}

fn table_out(table: &TableConfig) -> TableMessage {
    TableMessage {
        id: table.id.0,
        name: table.name.clone(),
        schema: Some(schema_out(&table.schema)),
        tablets: table.tablets.iter().map(tablet_out).collect(),
    }
}

fn table_in(message: TableMessage) -> Decoded<TableConfig> {
    let schema = schema_in(message.schema)?;
    let tablets: Vec<_> = message.tablets.into_iter().map(tablet_in).collect::<Decoded<_>>()?;
    let groups = schema.groups().len();
    if tablets.is_empty() || tablets.iter().any(|tablet| tablet.chains.len() != groups) {
        return Err(format!("table {} has a tablet with missing chains", message.name));
    }
    Ok(TableConfig { id: TableId(message.id), name: message.name, schema, tablets })
}

fn tablet_out(tablet: &TabletConfig) -> TabletMessage {
    let chains = tablet
        .chains
        .iter()
        .map(|chain| ChainMessage {
            flushed_through: chain.flushed_through.raw(),
            files: chain.files.iter().map(file_out).collect(),
        })
        .collect();
    TabletMessage { rows: Some(rows_out(&tablet.rows)), chains }
}

fn tablet_in(message: TabletMessage) -> Decoded<TabletConfig> {
    let chains = message
        .chains
        .into_iter()
        .map(|chain| {
            let chain = ChainConfig {
                flushed_through: txn_in(chain.flushed_through)?,
                files: chain.files.into_iter().map(file_in).collect::<Decoded<_>>()?,
            };
            if !chain.is_sound() {
                return Err("the files of a run are not in row order".into());
            }
            Ok(chain)
        })
        .collect::<Decoded<_>>()?;
    Ok(TabletConfig { rows: rows_in(message.rows)?, chains })
}

fn file_out(file: &FileConfig) -> FileMessage {
    FileMessage {
        name: Some(name_out(&file.name)),
        bytes: file.bytes,
        cells: file.cells,
        rows: Some(rows_out(&file.rows)),
        txn_min: file.txn_min.raw(),
        txn_max: file.txn_max.raw(),
        joins: file.joins,
    }
}

fn file_in(message: FileMessage) -> Decoded<FileConfig> {
    Ok(FileConfig {
        name: name_in(message.name.ok_or("a file without a name")?),
        bytes: message.bytes,
        cells: message.cells,
        rows: rows_in(message.rows)?,
        txn_min: txn_in(message.txn_min)?,
        txn_max: txn_in(message.txn_max)?,
        joins: message.joins,
    })
}

fn name_out(name: &FileName) -> FileNameMessage {
    FileNameMessage { epoch: name.epoch, number: name.number }
}

fn name_in(message: FileNameMessage) -> FileName {
    FileName { epoch: message.epoch, number: message.number }
}

fn txn_in(raw: u64) -> Decoded<Txn> {
    Txn::from_raw(raw).ok_or_else(|| format!("txn {raw} is out of range"))
}

fn rows_out(rows: &RowRange) -> RowRangeMessage {
    RowRangeMessage { start: rows.start.clone(), end: rows.end.clone() }
}

fn rows_in(message: Option<RowRangeMessage>) -> Decoded<RowRange> {
    let message = message.ok_or("a range of rows is missing")?;
    Ok(RowRange { start: message.start, end: message.end })
}

fn schema_out(schema: &Schema) -> SchemaMessage {
    let groups = schema
        .groups()
        .iter()
        .map(|group| GroupMessage {
            name: group.name.clone(),
            families: group
                .families
                .iter()
                .map(|family| FamilyMessage {
                    name: family.name.clone(),
                    purge: family.purge.as_ref().map(purge_out),
                    since: family.since.raw(),
                })
                .collect(),
            wildcard: group.wildcard,
            purge: Some(purge_out(&group.purge)),
            compression: u32::from(group.compression.to_byte()),
            block_bytes: group.block_bytes,
        })
        .collect();
    SchemaMessage { groups, annotation: schema.annotation().to_vec() }
}

fn schema_in(message: Option<SchemaMessage>) -> Decoded<Arc<Schema>> {
    let message = message.ok_or("a schema is missing")?;
    let groups = message.groups.into_iter().map(group_in).collect::<Decoded<_>>()?;
    let schema = Schema::new(groups).map_err(|error| error.to_string())?;
    Ok(Arc::new(schema.annotated(message.annotation)))
}

fn group_in(message: GroupMessage) -> Decoded<Group> {
    let families = message
        .families
        .into_iter()
        .map(|family| {
            let purge = family.purge.map(|purge| purge_in(purge, 0)).transpose()?;
            Ok(Family { name: family.name, purge, since: txn_in(family.since)? })
        })
        .collect::<Decoded<_>>()?;
    Ok(Group {
        name: message.name,
        families,
        wildcard: message.wildcard,
        purge: message.purge.map_or(Ok(Purge::Never), |purge| purge_in(purge, 0))?,
        compression: u8::try_from(message.compression)
            .ok()
            .and_then(Compression::from_byte)
            .ok_or_else(|| format!("unknown compression {}", message.compression))?,
        block_bytes: message.block_bytes,
    })
}

fn purge_out(purge: &Purge) -> PurgeMessage {
    let list = |terms: &[Purge]| PurgeListMessage { terms: terms.iter().map(purge_out).collect() };
    let rule = match purge {
        Purge::Never => None,
        Purge::MaxVersions(kept) => Some(PurgeRule::MaxVersions(*kept)),
        Purge::MaxAge(age) => Some(PurgeRule::MaxAge(*age)),
        Purge::Waterline(line) => Some(PurgeRule::Waterline(*line)),
        Purge::All(terms) => Some(PurgeRule::All(list(terms))),
        Purge::Any(terms) => Some(PurgeRule::Any(list(terms))),
    };
    PurgeMessage { rule }
}

fn purge_in(message: PurgeMessage, depth: usize) -> Decoded<Purge> {
    if depth > PURGE_DEPTH_MAX {
        return Err("a purge policy nests too deep".into());
    }
    let list = |list: PurgeListMessage| {
        list.terms.into_iter().map(|term| purge_in(term, depth + 1)).collect::<Decoded<_>>()
    };
    Ok(match message.rule {
        None => Purge::Never,
        Some(PurgeRule::MaxVersions(kept)) => Purge::MaxVersions(kept),
        Some(PurgeRule::MaxAge(age)) => Purge::MaxAge(age),
        Some(PurgeRule::Waterline(line)) => Purge::Waterline(line),
        Some(PurgeRule::All(terms)) => Purge::All(list(terms)?),
        Some(PurgeRule::Any(terms)) => Purge::Any(list(terms)?),
    })
}
