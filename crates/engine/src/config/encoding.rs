//! The encoding of the config as protobuf messages (`messages`), so that fields
//! can be added without a new format version.

use std::sync::Arc;

use prost::Message;

use super::messages::{
    BatchMessage, ChainMessage, CheckpointMessage, EditKind, EditMessage, FactsMessage,
    FileNameMessage, JoinMessage, PinMessage, ReferenceKeyMessage, ReferenceMessage,
    RowRangeMessage, SetFlushedMessage, SnapshotMessage, SpliceMessage, SplitMessage, TableMessage,
    TabletIdMessage, TabletMessage,
};
use super::schema_encoding::{schema_from_message, schema_to_message};
use super::{
    ChainConfig, Checkpoint, ConfigEdit, Configs, FileFacts, FileName, Join, LegacySplice,
    Reference, ReferenceKey, Splice, Split, TableConfig, TableState, TabletConfig, TabletId,
    TabletRows,
};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::txn::Txn;

/// The error names the invalid field of a decoded message.
pub type Decoded<T> = Result<T, String>;

pub fn encode_snapshot(configs: &Configs) -> Vec<u8> {
    SnapshotMessage {
        revision: configs.revision,
        store_id: configs.store_id,
        incarnation: configs.incarnation,
        last_table: configs.last_table,
        log_head: configs.log_head,
        tables: configs.tables.values().map(|table| table_to_message(table)).collect(),
        last_checkpoint: configs.last_checkpoint,
        checkpoints: configs.checkpoints.values().map(|c| checkpoint_to_message(c)).collect(),
        flushed_index: configs.flushed_index,
        generation: Some(configs.generation),
        last_tablet: configs.last_tablet,
    }
    .encode_to_vec()
}

pub fn decode_snapshot(bytes: &[u8]) -> Decoded<Configs> {
    let message = SnapshotMessage::decode(bytes).map_err(|error| error.to_string())?;
    let mut configs = Configs {
        revision: message.revision,
        store_id: message.store_id,
        incarnation: message.incarnation,
        // Earlier versions had one counter for both.
        generation: message.generation.unwrap_or(message.incarnation),
        last_table: message.last_table,
        last_tablet: message.last_tablet,
        log_head: message.log_head,
        last_checkpoint: message.last_checkpoint,
        flushed_index: message.flushed_index,
        ..Configs::default()
    };
    for checkpoint in message.checkpoints {
        let checkpoint = checkpoint_from_message(checkpoint)?;
        configs.checkpoints.insert(checkpoint.id, Arc::new(checkpoint));
    }
    for table in message.tables {
        let table = table_from_message(table)?;
        configs.tables.insert(table.id, Arc::new(table));
    }
    configs.assign_tablet_ids()?;
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
        ConfigEdit::TakeGeneration => EditKind::TakeGeneration(true),
        ConfigEdit::CreateTable { name, schema, splits } => EditKind::CreateTable(TableMessage {
            name: name.clone(),
            schema: Some(schema_to_message(schema)),
            splits: splits.clone(),
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
            group: splice.group as u32,
            add: splice.add.iter().map(reference_to_message).collect(),
            flushed: splice.flushed.map(Txn::raw),
            tablet: Some(id_to_message(splice.tablet)),
            load: splice.load,
            start: splice.start.clone(),
            remove: splice.remove.iter().map(key_to_message).collect(),
            ..SpliceMessage::default()
        }),
        ConfigEdit::LegacySplice(splice) => EditKind::Splice(SpliceMessage {
            table: splice.table.0,
            legacy_tablet: splice.tablet as u32,
            group: splice.group as u32,
            legacy_remove: splice.remove.iter().map(name_to_message).collect(),
            add: splice.add.iter().map(reference_to_message).collect(),
            flushed: splice.flushed.map(Txn::raw),
            ..SpliceMessage::default()
        }),
        ConfigEdit::SetFlushed { table, group, txn } => EditKind::SetFlushed(SetFlushedMessage {
            table: table.0,
            group: *group as u32,
            txn: txn.raw(),
        }),
        ConfigEdit::Split(split) => EditKind::Split(SplitMessage {
            table: split.table.0,
            tablet: Some(id_to_message(split.tablet)),
            load: split.load,
            row: split.row.clone(),
            shares: split.shares.clone(),
        }),
        ConfigEdit::Join(join) => EditKind::Join(JoinMessage {
            table: join.table.0,
            row: join.row.clone(),
            lower: Some(id_to_message(join.lower.0)),
            lower_load: join.lower.1,
            upper: Some(id_to_message(join.upper.0)),
            upper_load: join.upper.1,
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
        EditKind::TakeGeneration(_) => ConfigEdit::TakeGeneration,
        EditKind::CreateTable(table) => ConfigEdit::CreateTable {
            name: table.name,
            schema: schema_from_message(table.schema)?,
            splits: table.splits,
        },
        EditKind::DropTable(table) => ConfigEdit::DropTable { table: TableId(table) },
        EditKind::SetSchema(table) => ConfigEdit::SetSchema {
            table: TableId(table.id),
            schema: schema_from_message(table.schema)?,
        },
        EditKind::Splice(splice) => splice_from_message(splice)?,
        EditKind::SetFlushed(flushed) => ConfigEdit::SetFlushed {
            table: TableId(flushed.table),
            group: flushed.group as usize,
            txn: txn_from_raw(flushed.txn)?,
        },
        EditKind::Split(split) => ConfigEdit::Split(Split {
            table: TableId(split.table),
            tablet: id_from_message(split.tablet),
            load: split.load,
            row: split.row,
            shares: split.shares,
        }),
        EditKind::Join(join) => ConfigEdit::Join(Join {
            table: TableId(join.table),
            row: join.row,
            lower: (id_from_message(join.lower), join.lower_load),
            upper: (id_from_message(join.upper), join.upper_load),
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

fn splice_from_message(splice: SpliceMessage) -> Decoded<ConfigEdit> {
    let (table, group) = (TableId(splice.table), splice.group as usize);
    let add = splice.add.into_iter().map(reference_from_message).collect::<Decoded<_>>()?;
    let flushed = splice.flushed.map(txn_from_raw).transpose()?;
    let Some(tablet) = splice.tablet else {
        let remove = splice.legacy_remove.into_iter().map(name_from_message).collect();
        let tablet = splice.legacy_tablet as usize;
        return Ok(ConfigEdit::LegacySplice(LegacySplice {
            table,
            tablet,
            group,
            remove,
            add,
            flushed,
        }));
    };
    Ok(ConfigEdit::Splice(Splice {
        table,
        tablet: id_from_message(Some(tablet)),
        load: splice.load,
        start: splice.start,
        group,
        remove: splice.remove.into_iter().map(key_from_message).collect::<Decoded<_>>()?,
        add,
        flushed,
    }))
}

fn checkpoint_to_message(checkpoint: &Checkpoint) -> CheckpointMessage {
    CheckpointMessage {
        id: checkpoint.id,
        txn: checkpoint.txn.raw(),
        epoch: checkpoint.epoch,
        tables: checkpoint.tables.iter().map(|table| table_to_message(table)).collect(),
    }
}

fn checkpoint_from_message(message: CheckpointMessage) -> Decoded<Checkpoint> {
    let tables = message.tables.into_iter().map(|table| table_from_message(table).map(Arc::new));
    let mut checkpoint = Checkpoint {
        id: message.id,
        txn: txn_from_raw(message.txn)?,
        epoch: message.epoch,
        tables: tables.collect::<Decoded<_>>()?,
    };
    checkpoint.complete()?;
    Ok(checkpoint)
}

fn table_to_message(table: &TableConfig) -> TableMessage {
    TableMessage {
        id: table.id.0,
        name: table.name.clone(),
        schema: Some(schema_to_message(&table.schema)),
        tablets: table.tablets.iter().map(|tablet| tablet_to_message(tablet)).collect(),
        flushed: table.flushed.iter().map(|txn| txn.raw()).collect(),
        state: match table.state {
            TableState::Active => 0,
            TableState::Backup => 1,
            TableState::Deleted => 2,
        },
        splits: Vec::new(),
    }
}

fn table_from_message(message: TableMessage) -> Decoded<TableConfig> {
    let schema = schema_from_message(message.schema)?;
    let tablets =
        message.tablets.into_iter().map(|tablet| tablet_from_message(tablet).map(Arc::new));
    let tablets: Vec<Arc<TabletConfig>> = tablets.collect::<Decoded<_>>()?;
    let groups = schema.groups().len();
    if tablets.is_empty() || tablets.iter().any(|tablet| tablet.chains.len() != groups) {
        return Err(format!("table {} has a tablet with missing chains", message.name));
    }
    let flushed = if message.flushed.is_empty() {
        // Earlier versions had only one txn per tablet and group.
        let of_group =
            |group: usize| tablets.iter().map(|tablet| tablet.chains[group].flushed).min();
        (0..groups).map(|group| of_group(group).unwrap_or(Txn::ZERO)).collect()
    } else {
        message.flushed.into_iter().map(txn_from_raw).collect::<Decoded<Vec<Txn>>>()?
    };
    if flushed.len() != groups {
        return Err(format!("table {} does not state what is flushed", message.name));
    }
    Ok(TableConfig {
        id: TableId(message.id),
        name: message.name,
        schema,
        state: match message.state {
            0 => TableState::Active,
            1 => TableState::Backup,
            2 => TableState::Deleted,
            other => return Err(format!("unknown state of a table: {other}")),
        },
        flushed,
        tablets: TabletRows::new(tablets),
    })
}

fn tablet_to_message(tablet: &TabletConfig) -> TabletMessage {
    let chains = tablet
        .chains
        .iter()
        .map(|chain| ChainMessage {
            flushed: chain.flushed.raw(),
            files: chain.files.iter().map(reference_to_message).collect(),
        })
        .collect();
    TabletMessage {
        rows: Some(rows_to_message(&tablet.rows)),
        chains,
        id: Some(id_to_message(tablet.id)),
        load: tablet.load,
        rev: tablet.rev,
    }
}

fn tablet_from_message(message: TabletMessage) -> Decoded<TabletConfig> {
    let rows = rows_from_message(message.rows)?;
    let chains = message
        .chains
        .into_iter()
        .map(|chain| {
            Ok(ChainConfig {
                flushed: txn_from_raw(chain.flushed)?,
                files: chain
                    .files
                    .into_iter()
                    .map(reference_from_message)
                    .collect::<Decoded<_>>()?,
            })
        })
        .collect::<Decoded<_>>()?;
    let tablet = TabletConfig {
        id: id_from_message(message.id),
        load: message.load.max(1),
        rev: message.rev.max(1),
        rows,
        chains,
    };
    if !tablet.is_valid() {
        return Err("the files of a run are not in row order".into());
    }
    Ok(tablet)
}

fn reference_to_message(file: &Reference) -> ReferenceMessage {
    let facts = file.facts.as_ref().map(|facts| FactsMessage {
        meta_bytes: facts.meta_bytes,
        dead_bytes: facts.dead_bytes,
        held: Some(rows_to_message(&facts.held)),
        has_spans: facts.has_spans,
        timestamp_max: facts.timestamp_max,
    });
    ReferenceMessage {
        name: Some(name_to_message(&file.name)),
        bytes: file.bytes,
        cells: file.cells,
        rows: file.rows.as_ref().map(rows_to_message),
        txn_min: file.txn_min.raw(),
        txn_max: file.txn_max.raw(),
        joins: file.joins,
        facts,
        share: Some(file.share),
        unit: file.unit,
        families: Vec::new(),
    }
}

fn reference_from_message(message: ReferenceMessage) -> Decoded<Reference> {
    if !message.families.is_empty() {
        return Err("a file is restricted to some families, which needs a newer stele".into());
    }
    let facts = message.facts.map(|facts| {
        Ok::<_, String>(FileFacts {
            meta_bytes: facts.meta_bytes,
            dead_bytes: facts.dead_bytes,
            held: rows_from_message(facts.held)?,
            has_spans: facts.has_spans,
            timestamp_max: facts.timestamp_max,
        })
    });
    let facts = facts.transpose()?;
    let rows = message.rows.map(|rows| rows_from_message(Some(rows))).transpose()?;
    if rows.is_none() && facts.is_none() {
        return Err("a range of rows is missing".into());
    }
    Ok(Reference {
        name: name_from_message(message.name.ok_or("a file has no name")?),
        bytes: message.bytes,
        cells: message.cells,
        txn_min: txn_from_raw(message.txn_min)?,
        txn_max: txn_from_raw(message.txn_max)?,
        rows,
        facts,
        share: message.share.unwrap_or(message.bytes),
        unit: message.unit,
        joins: message.joins,
    })
}

fn key_to_message(key: &ReferenceKey) -> ReferenceKeyMessage {
    ReferenceKeyMessage {
        name: Some(name_to_message(&key.name)),
        rows: key.rows.as_ref().map(rows_to_message),
    }
}

fn key_from_message(message: ReferenceKeyMessage) -> Decoded<ReferenceKey> {
    Ok(ReferenceKey {
        name: name_from_message(message.name.ok_or("a file has no name")?),
        rows: message.rows.map(|rows| rows_from_message(Some(rows))).transpose()?,
    })
}

fn id_to_message(id: TabletId) -> TabletIdMessage {
    TabletIdMessage { epoch: id.epoch, number: id.number }
}

fn id_from_message(message: Option<TabletIdMessage>) -> TabletId {
    let message = message.unwrap_or_default();
    TabletId { epoch: message.epoch, number: message.number }
}

fn name_to_message(name: &FileName) -> FileNameMessage {
    FileNameMessage { incarnation: name.incarnation, number: name.number }
}

fn name_from_message(message: FileNameMessage) -> FileName {
    FileName { incarnation: message.incarnation, number: message.number }
}

pub(super) fn txn_from_raw(raw: u64) -> Decoded<Txn> {
    Txn::from_raw(raw).ok_or_else(|| format!("txn {raw} is out of range"))
}

fn rows_to_message(rows: &RowRange) -> RowRangeMessage {
    RowRangeMessage { start: rows.start.clone(), end: rows.end.clone() }
}

fn rows_from_message(message: Option<RowRangeMessage>) -> Decoded<RowRange> {
    let message = message.ok_or("a range of rows is missing")?;
    Ok(RowRange { start: message.start, end: message.end })
}
