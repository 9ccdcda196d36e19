//! The encoding of the config as protobuf messages (`messages`), so that fields
//! can be added without a new format version.

use std::sync::Arc;

use prost::Message;

use super::messages::{
    BatchMessage, ChainMessage, CheckpointMessage, EditKind, EditMessage, FactsMessage,
    FileNameMessage, JoinMessage, OriginMessage, PinMessage, ReferenceKeyMessage, ReferenceMessage,
    RowRangeMessage, SetFlushedMessage, SetLoadedMessage, SnapshotMessage, SpliceMessage,
    SplitMessage, TableMessage, TabletIdMessage, TabletMessage, TabletStartMessage,
};
use super::regroup_encoding::{regroup_from_message, regroup_to_message};
use super::schema_encoding::{schema_from_message, schema_to_message};
use super::{
    BackupOrigin, ChainConfig, Checkpoint, ConfigEdit, Configs, FileFacts, FileName, Join,
    LegacySplice, Reference, ReferenceKey, Splice, Split, TableConfig, TableState, TabletConfig,
    TabletConfigs, TabletId,
};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::txn::Txn;

const STATE_ACTIVE: u32 = 0;
const STATE_BACKUP: u32 = 1;
const STATE_DELETED: u32 = 2;

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

pub fn encode_tablet(tablet: &TabletConfig) -> Vec<u8> {
    tablet_to_message(tablet).encode_to_vec()
}

pub fn decode_tablet(bytes: &[u8]) -> Decoded<TabletConfig> {
    let message = TabletMessage::decode(bytes).map_err(|error| error.to_string())?;
    tablet_from_message(message)
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
        ConfigEdit::TakeIncarnation => EditKind::TakeIncarnation(true),
        ConfigEdit::TakeGeneration => EditKind::TakeGeneration(true),
        ConfigEdit::CreateTable { name, schema, splits } => EditKind::CreateTable(TableMessage {
            name: name.clone(),
            schema: Some(schema_to_message(schema)),
            splits: splits.clone(),
            ..TableMessage::default()
        }),
        ConfigEdit::DropTable { table } => EditKind::DropTable(table.0),
        ConfigEdit::CopyTable { source, name, state } => {
            let copy = TableMessage { id: source.0, name: name.clone(), ..TableMessage::default() };
            EditKind::CopyTable(with_state(copy, state))
        }
        ConfigEdit::SetState { table, state } => {
            let changed = TableMessage { id: table.0, ..TableMessage::default() };
            EditKind::SetState(with_state(changed, state))
        }
        ConfigEdit::SetSchema { table, schema } => EditKind::SetSchema(TableMessage {
            id: table.0,
            schema: Some(schema_to_message(schema)),
            ..TableMessage::default()
        }),
        ConfigEdit::Regroup(regroup) => EditKind::Regroup(regroup_to_message(regroup)),
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
        ConfigEdit::SetLoaded { table, tablets, loaded } => EditKind::SetLoaded(SetLoadedMessage {
            table: table.0,
            tablets: tablets
                .iter()
                .map(|(id, start)| TabletStartMessage {
                    tablet: Some(id_to_message(*id)),
                    start: start.clone(),
                })
                .collect(),
            loaded: *loaded,
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
        EditKind::TakeIncarnation(_) => ConfigEdit::TakeIncarnation,
        EditKind::TakeGeneration(_) => ConfigEdit::TakeGeneration,
        EditKind::CreateTable(table) => ConfigEdit::CreateTable {
            name: table.name,
            schema: schema_from_message(table.schema)?,
            splits: table.splits,
        },
        EditKind::DropTable(table) => ConfigEdit::DropTable { table: TableId(table) },
        EditKind::CopyTable(copy) => ConfigEdit::CopyTable {
            source: TableId(copy.id),
            state: state_from_message(&copy)?,
            name: copy.name,
        },
        EditKind::SetState(table) => {
            ConfigEdit::SetState { table: TableId(table.id), state: state_from_message(&table)? }
        }
        EditKind::SetSchema(table) => ConfigEdit::SetSchema {
            table: TableId(table.id),
            schema: schema_from_message(table.schema)?,
        },
        EditKind::Regroup(regroup) => ConfigEdit::Regroup(regroup_from_message(regroup)?),
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
        EditKind::SetLoaded(edit) => ConfigEdit::SetLoaded {
            table: TableId(edit.table),
            tablets: edit
                .tablets
                .into_iter()
                .map(|tablet| (id_from_message(tablet.tablet), tablet.start))
                .collect(),
            loaded: edit.loaded,
        },
        EditKind::Pin(pin) => ConfigEdit::Pin {
            tables: pin.tables.into_iter().map(TableId).collect(),
            txn: txn_from_raw(pin.txn)?,
        },
        EditKind::Unpin(checkpoint) => ConfigEdit::Unpin { checkpoint },
        EditKind::SetLogHead(segment) => ConfigEdit::SetLogHead { segment },
        EditKind::SetFlushedIndex(index) => ConfigEdit::SetFlushedIndex { index },
    })
}

pub(super) fn files_to_message(flushed: Txn, files: &[Reference]) -> ChainMessage {
    let files = files.iter().map(reference_to_message).collect();
    ChainMessage { flushed: flushed.raw(), files }
}

pub(super) fn chain_from_message(chain: ChainMessage) -> Decoded<ChainConfig> {
    let files = chain.files.into_iter().map(reference_from_message);
    Ok(ChainConfig { flushed: txn_from_raw(chain.flushed)?, files: files.collect::<Decoded<_>>()? })
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
    let message = TableMessage {
        id: table.id.0,
        name: table.name.clone(),
        schema: Some(schema_to_message(&table.schema)),
        tablets: table.tablets.iter().map(|tablet| tablet_to_message(tablet)).collect(),
        flushed: table.flushed.iter().map(|txn| txn.raw()).collect(),
        ..TableMessage::default()
    };
    with_state(message, &table.state)
}

/// Returns the message of a table with its state.
fn with_state(message: TableMessage, state: &TableState) -> TableMessage {
    match state {
        TableState::Active => TableMessage { state: STATE_ACTIVE, ..message },
        TableState::Backup(origin) => TableMessage {
            state: STATE_BACKUP,
            since: origin.created,
            origin: Some(OriginMessage {
                table: origin.table.0,
                name: origin.name.clone(),
                txn: origin.txn.raw(),
                expires: origin.expires,
            }),
            ..message
        },
        TableState::Deleted { since } => {
            TableMessage { state: STATE_DELETED, since: *since, ..message }
        }
    }
}

fn state_from_message(message: &TableMessage) -> Decoded<TableState> {
    match message.state {
        STATE_ACTIVE => Ok(TableState::Active),
        STATE_BACKUP => {
            let origin = message.origin.as_ref().ok_or("a backup does not state its table")?;
            Ok(TableState::Backup(BackupOrigin {
                table: TableId(origin.table),
                name: origin.name.clone(),
                txn: txn_from_raw(origin.txn)?,
                created: message.since,
                expires: origin.expires,
            }))
        }
        STATE_DELETED => Ok(TableState::Deleted { since: message.since }),
        other => Err(format!("unknown state of a table: {other}")),
    }
}

fn table_from_message(message: TableMessage) -> Decoded<TableConfig> {
    let state = state_from_message(&message)?;
    let schema = schema_from_message(message.schema)?;
    let tablets =
        message.tablets.into_iter().map(|tablet| tablet_from_message(tablet).map(Arc::new));
    let tablets: Vec<Arc<TabletConfig>> = tablets.collect::<Decoded<_>>()?;
    let groups = schema.groups().len();
    if tablets.is_empty() || tablets.iter().any(|tablet| tablet.chains.len() != groups) {
        return Err(format!("table {} has a tablet with missing chains", message.name));
    }
    let meet = |pair: &[Arc<TabletConfig>]| pair[0].rows.end.as_ref() == Some(&pair[1].rows.start);
    let ends = tablets.first().zip(tablets.last());
    let are_all = ends.is_some_and(|(first, last)| {
        first.rows.start.is_empty() && last.rows.end.is_none() && tablets.windows(2).all(meet)
    });
    let ascend = tablets.windows(2).all(|pair| pair[0].rows.start < pair[1].rows.start);
    if !are_all || !ascend {
        return Err(format!("the tablets of table {} do not cover its rows", message.name));
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
        state,
        flushed,
        tablets: TabletConfigs::new(tablets),
    })
}

fn tablet_to_message(tablet: &TabletConfig) -> TabletMessage {
    let chains = tablet.chains.iter();
    let chains = chains.map(|chain| files_to_message(chain.flushed, &chain.files)).collect();
    TabletMessage {
        rows: Some(rows_to_message(&tablet.rows)),
        chains,
        id: Some(id_to_message(tablet.id)),
        load: tablet.load,
        rev: tablet.rev,
        loaded: (!tablet.loaded).then_some(false),
    }
}

fn tablet_from_message(message: TabletMessage) -> Decoded<TabletConfig> {
    let rows = rows_from_message(message.rows)?;
    let chains = message.chains.into_iter().map(chain_from_message).collect::<Decoded<_>>()?;
    let tablet = TabletConfig {
        id: id_from_message(message.id),
        load: message.load.max(1),
        rev: message.rev.max(1),
        loaded: message.loaded.unwrap_or(true),
        rows,
        chains,
    };
    if !tablet.is_valid() {
        return Err("a reference is invalid, or the files of a run are not in row order".into());
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
        families: file.families.clone().unwrap_or_default(),
        no_families: is_empty(&file.families),
    }
}

/// Whether a list of families is there and empty.
fn is_empty(families: &Option<Vec<Vec<u8>>>) -> bool {
    families.as_ref().is_some_and(Vec::is_empty)
}

/// Returns the families in use; `None` for all.
fn families_from(families: Vec<Vec<u8>>, none: bool) -> Option<Vec<Vec<u8>>> {
    (none || !families.is_empty()).then_some(families)
}

fn reference_from_message(message: ReferenceMessage) -> Decoded<Reference> {
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
        families: families_from(message.families, message.no_families),
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
        families: key.families.clone().unwrap_or_default(),
        no_families: is_empty(&key.families),
    }
}

fn key_from_message(message: ReferenceKeyMessage) -> Decoded<ReferenceKey> {
    Ok(ReferenceKey {
        name: name_from_message(message.name.ok_or("a file has no name")?),
        rows: message.rows.map(|rows| rows_from_message(Some(rows))).transpose()?,
        families: families_from(message.families, message.no_families),
    })
}

pub(super) fn id_to_message(id: TabletId) -> TabletIdMessage {
    TabletIdMessage { incarnation: id.incarnation, number: id.number }
}

pub(super) fn id_from_message(message: Option<TabletIdMessage>) -> TabletId {
    let message = message.unwrap_or_default();
    TabletId { incarnation: message.incarnation, number: message.number }
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
