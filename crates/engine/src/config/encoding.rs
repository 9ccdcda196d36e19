//! The encoding of the config as protobuf messages (`messages`), so that fields
//! can be added without a new format version.

use std::sync::Arc;

use prost::Message;

use super::messages::{
    BatchMessage, ChainMessage, CheckpointMessage, EditKind, EditMessage, FamilyMessage,
    FileMessage, FileNameMessage, GroupMessage, PinMessage, PurgeListMessage, PurgeMessage,
    PurgeRule, RowRangeMessage, SchemaMessage, SnapshotMessage, SpliceMessage, TableMessage,
    TabletMessage,
};
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

pub fn encode_snapshot(configs: &Configs) -> Vec<u8> {
    let tables = configs.tables.values().map(table_to_message).collect();
    SnapshotMessage {
        revision: configs.revision,
        store_id: configs.store_id,
        epoch: configs.epoch,
        last_table: configs.last_table,
        log_head: configs.log_head,
        tables,
        last_checkpoint: configs.last_checkpoint,
        checkpoints: configs.checkpoints.values().map(checkpoint_to_message).collect(),
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
        let checkpoint = checkpoint_from_message(checkpoint)?;
        configs.checkpoints.insert(checkpoint.id, checkpoint);
    }
    for table in message.tables {
        let table = table_from_message(table)?;
        configs.tables.insert(table.id, table);
    }
    Ok(configs)
}

pub fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    checkpoint_to_message(checkpoint).encode_to_vec()
}

pub fn decode_checkpoint(bytes: &[u8]) -> Decoded<Checkpoint> {
    checkpoint_from_message(CheckpointMessage::decode(bytes).map_err(|error| error.to_string())?)
}

pub fn encode_batch(revision: u64, edits: &[ConfigEdit]) -> Vec<u8> {
    let edits =
        edits.iter().map(|edit| EditMessage { edit: Some(edit_to_message(edit)) }).collect();
    BatchMessage { revision, edits }.encode_to_vec()
}

/// Decodes a batch into the revision after it and its edits.
pub fn decode_batch(bytes: &[u8]) -> Decoded<(u64, Vec<ConfigEdit>)> {
    let message = BatchMessage::decode(bytes).map_err(|error| error.to_string())?;
    let edits = message
        .edits
        .into_iter()
        .map(|edit| edit_from_message(edit.edit.ok_or("unknown kind of edit")?))
        .collect::<Decoded<_>>()?;
    Ok((message.revision, edits))
}

fn edit_to_message(edit: &ConfigEdit) -> EditKind {
    match edit {
        ConfigEdit::TakeEpoch => EditKind::TakeEpoch(true),
        ConfigEdit::CreateTable { name, schema } => EditKind::CreateTable(TableMessage {
            name: name.clone(),
            schema: Some(schema_to_message(schema)),
            ..TableMessage::default()
        }),
        ConfigEdit::DropTable { table } => EditKind::DropTable(table.0),
        ConfigEdit::SetSchema { table, schema } => EditKind::SetSchema(TableMessage {
            id: table.0,
            schema: Some(schema_to_message(schema)),
            ..TableMessage::default()
        }),
        ConfigEdit::Splice(splice) => EditKind::Splice(SpliceMessage {
            table: splice.table.0,
            tablet: splice.tablet as u32,
            group: splice.group as u32,
            remove: splice.remove.iter().map(name_to_message).collect(),
            add: splice.add.iter().map(file_to_message).collect(),
            flushed_through: splice.flushed_through.map(Txn::raw),
        }),
        ConfigEdit::Pin { tables, txn } => EditKind::Pin(PinMessage {
            tables: tables.iter().map(|table| table.0).collect(),
            txn: txn.raw(),
        }),
        ConfigEdit::Unpin { checkpoint } => EditKind::Unpin(*checkpoint),
        ConfigEdit::SetLogHead { segment } => EditKind::SetLogHead(*segment),
        ConfigEdit::SetFlushedIndex { index } => EditKind::SetFlushedIndex(*index),
    }
}

fn edit_from_message(edit: EditKind) -> Decoded<ConfigEdit> {
    Ok(match edit {
        EditKind::TakeEpoch(_) => ConfigEdit::TakeEpoch,
        EditKind::CreateTable(table) => {
            ConfigEdit::CreateTable { name: table.name, schema: schema_from_message(table.schema)? }
        }
        EditKind::DropTable(table) => ConfigEdit::DropTable { table: TableId(table) },
        EditKind::SetSchema(table) => ConfigEdit::SetSchema {
            table: TableId(table.id),
            schema: schema_from_message(table.schema)?,
        },
        EditKind::Splice(splice) => ConfigEdit::Splice(Splice {
            table: TableId(splice.table),
            tablet: splice.tablet as usize,
            group: splice.group as usize,
            remove: splice.remove.into_iter().map(name_from_message).collect(),
            add: splice.add.into_iter().map(file_from_message).collect::<Decoded<_>>()?,
            flushed_through: splice.flushed_through.map(txn_from_raw).transpose()?,
        }),
        EditKind::Pin(pin) => ConfigEdit::Pin {
            tables: pin.tables.into_iter().map(TableId).collect(),
            txn: txn_from_raw(pin.txn)?,
        },
        EditKind::Unpin(checkpoint) => ConfigEdit::Unpin { checkpoint },
        EditKind::SetLogHead(segment) => ConfigEdit::SetLogHead { segment },
        EditKind::SetFlushedIndex(index) => ConfigEdit::SetFlushedIndex { index },
    })
}

fn checkpoint_to_message(checkpoint: &Checkpoint) -> CheckpointMessage {
    CheckpointMessage {
        id: checkpoint.id,
        txn: checkpoint.txn.raw(),
        epoch: checkpoint.epoch,
        tables: checkpoint.tables.iter().map(table_to_message).collect(),
    }
}

fn checkpoint_from_message(message: CheckpointMessage) -> Decoded<Checkpoint> {
    Ok(Checkpoint {
        id: message.id,
        txn: txn_from_raw(message.txn)?,
        epoch: message.epoch,
        tables: message.tables.into_iter().map(table_from_message).collect::<Decoded<_>>()?,
    })
}

fn table_to_message(table: &TableConfig) -> TableMessage {
    TableMessage {
        id: table.id.0,
        name: table.name.clone(),
        schema: Some(schema_to_message(&table.schema)),
        tablets: table.tablets.iter().map(tablet_to_message).collect(),
    }
}

fn table_from_message(message: TableMessage) -> Decoded<TableConfig> {
    let schema = schema_from_message(message.schema)?;
    let tablets: Vec<_> =
        message.tablets.into_iter().map(tablet_from_message).collect::<Decoded<_>>()?;
    let groups = schema.groups().len();
    if tablets.is_empty() || tablets.iter().any(|tablet| tablet.chains.len() != groups) {
        return Err(format!("table {} has a tablet with missing chains", message.name));
    }
    Ok(TableConfig { id: TableId(message.id), name: message.name, schema, tablets })
}

fn tablet_to_message(tablet: &TabletConfig) -> TabletMessage {
    let chains = tablet
        .chains
        .iter()
        .map(|chain| ChainMessage {
            flushed_through: chain.flushed_through.raw(),
            files: chain.files.iter().map(file_to_message).collect(),
        })
        .collect();
    TabletMessage { rows: Some(rows_to_message(&tablet.rows)), chains }
}

fn tablet_from_message(message: TabletMessage) -> Decoded<TabletConfig> {
    let chains = message
        .chains
        .into_iter()
        .map(|chain| {
            let chain = ChainConfig {
                flushed_through: txn_from_raw(chain.flushed_through)?,
                files: chain.files.into_iter().map(file_from_message).collect::<Decoded<_>>()?,
            };
            if !chain.is_valid() {
                return Err("the files of a run are not in row order".into());
            }
            Ok(chain)
        })
        .collect::<Decoded<_>>()?;
    Ok(TabletConfig { rows: rows_from_message(message.rows)?, chains })
}

fn file_to_message(file: &FileConfig) -> FileMessage {
    FileMessage {
        name: Some(name_to_message(&file.name)),
        bytes: file.bytes,
        cells: file.cells,
        rows: Some(rows_to_message(&file.rows)),
        txn_min: file.txn_min.raw(),
        txn_max: file.txn_max.raw(),
        joins: file.joins,
    }
}

fn file_from_message(message: FileMessage) -> Decoded<FileConfig> {
    Ok(FileConfig {
        name: name_from_message(message.name.ok_or("a file has no name")?),
        bytes: message.bytes,
        cells: message.cells,
        rows: rows_from_message(message.rows)?,
        txn_min: txn_from_raw(message.txn_min)?,
        txn_max: txn_from_raw(message.txn_max)?,
        joins: message.joins,
    })
}

fn name_to_message(name: &FileName) -> FileNameMessage {
    FileNameMessage { incarnation: name.incarnation, number: name.number }
}

fn name_from_message(message: FileNameMessage) -> FileName {
    FileName { incarnation: message.incarnation, number: message.number }
}

fn txn_from_raw(raw: u64) -> Decoded<Txn> {
    Txn::from_raw(raw).ok_or_else(|| format!("txn {raw} is out of range"))
}

fn rows_to_message(rows: &RowRange) -> RowRangeMessage {
    RowRangeMessage { start: rows.start.clone(), end: rows.end.clone() }
}

fn rows_from_message(message: Option<RowRangeMessage>) -> Decoded<RowRange> {
    let message = message.ok_or("a range of rows is missing")?;
    Ok(RowRange { start: message.start, end: message.end })
}

fn schema_to_message(schema: &Schema) -> SchemaMessage {
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
                    purge: family.purge.as_ref().map(purge_to_message),
                    since: family.since.raw(),
                })
                .collect(),
            wildcard: group.wildcard,
            purge: Some(purge_to_message(&group.purge)),
            compression: u32::from(group.compression.to_byte()),
            block_bytes: group.block_bytes,
        })
        .collect();
    SchemaMessage { groups, annotation: schema.annotation().to_vec() }
}

fn schema_from_message(message: Option<SchemaMessage>) -> Decoded<Arc<Schema>> {
    let message = message.ok_or("a schema is missing")?;
    let groups = message.groups.into_iter().map(group_from_message).collect::<Decoded<_>>()?;
    let schema = Schema::new(groups).map_err(|error| error.to_string())?;
    Ok(Arc::new(schema.annotated(message.annotation)))
}

fn group_from_message(message: GroupMessage) -> Decoded<Group> {
    let families = message
        .families
        .into_iter()
        .map(|family| {
            let purge = family.purge.map(|purge| purge_from_message(purge, 0)).transpose()?;
            Ok(Family { name: family.name, purge, since: txn_from_raw(family.since)? })
        })
        .collect::<Decoded<_>>()?;
    Ok(Group {
        name: message.name,
        families,
        wildcard: message.wildcard,
        purge: message.purge.map_or(Ok(Purge::Never), |purge| purge_from_message(purge, 0))?,
        compression: u8::try_from(message.compression)
            .ok()
            .and_then(Compression::from_byte)
            .ok_or_else(|| format!("unknown compression {}", message.compression))?,
        block_bytes: message.block_bytes,
    })
}

fn purge_to_message(purge: &Purge) -> PurgeMessage {
    let list =
        |terms: &[Purge]| PurgeListMessage { terms: terms.iter().map(purge_to_message).collect() };
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

fn purge_from_message(message: PurgeMessage, depth: usize) -> Decoded<Purge> {
    if depth > PURGE_DEPTH_MAX {
        return Err("a purge policy is nested too deeply".into());
    }
    let list = |list: PurgeListMessage| {
        list.terms
            .into_iter()
            .map(|term| purge_from_message(term, depth + 1))
            .collect::<Decoded<_>>()
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
