//! Tablets and the config as messages.

use bytes::Bytes;
use stele_engine::config::{self, Configs};
use stele_engine::schema::Group;
use stele_engine::verify;
use stele_engine::{ChainInfo, Collected, TabletInfo, TabletState, UnusedFile};

use crate::proto;
use crate::proto::dump_config_reply::Part;

impl From<TabletInfo> for proto::Tablet {
    fn from(tablet: TabletInfo) -> proto::Tablet {
        proto::Tablet {
            id: tablet.id.to_string(),
            load: tablet.load,
            state: state(tablet.state).into(),
            start_row: tablet.rows.start.into(),
            end_row: tablet.rows.end.map(Bytes::from),
            disk_bytes: tablet.disk_bytes,
            groups: tablet.chains.into_iter().map(Into::into).collect(),
        }
    }
}

fn state(state: TabletState) -> proto::TabletState {
    match state {
        TabletState::Unloaded => proto::TabletState::Unloaded,
        TabletState::Active => proto::TabletState::Active,
        state if state.is_loading() => proto::TabletState::Loading,
        _ => proto::TabletState::Unloading,
    }
}

impl From<ChainInfo> for proto::TabletGroup {
    fn from(chain: ChainInfo) -> proto::TabletGroup {
        proto::TabletGroup {
            name: chain.group,
            runs: saturating(chain.runs),
            files: saturating(chain.files),
            disk_bytes: chain.disk_bytes,
            damaged_files: saturating(chain.damaged),
        }
    }
}

/// The maximum number of unused files that a reply names.
const UNUSED_FILES_MAX: usize = 1000;

impl From<Collected> for proto::CollectFilesReply {
    fn from(collected: Collected) -> proto::CollectFilesReply {
        let named = collected.unused.iter().take(UNUSED_FILES_MAX);
        proto::CollectFilesReply {
            files: collected.listed,
            bytes: collected.listed_bytes,
            used: collected.used,
            pending: collected.pending,
            unused: collected.unused.len() as u64,
            unused_bytes: collected.unused.iter().map(|file| file.bytes).sum(),
            deleted: collected.deleted,
            deleted_bytes: collected.deleted_bytes,
            failed: collected.failed,
            unused_files: named.map(Into::into).collect(),
        }
    }
}

impl From<&UnusedFile> for proto::UnusedFile {
    fn from(file: &UnusedFile) -> proto::UnusedFile {
        let UnusedFile { name, bytes, marked } = *file;
        proto::UnusedFile { name: name.to_string(), bytes, marked }
    }
}

fn saturating(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl From<&verify::Problem> for proto::Problem {
    fn from(problem: &verify::Problem) -> proto::Problem {
        proto::Problem {
            file: file_name(&problem.path),
            offset: problem.offset,
            description: problem.what.clone(),
        }
    }
}

impl From<&verify::FragmentReport> for proto::CheckedFile {
    fn from(report: &verify::FragmentReport) -> proto::CheckedFile {
        proto::CheckedFile {
            name: file_name(&report.path),
            group: report.group.clone(),
            sound: report.sound,
            bytes: report.bytes,
            blocks: report.blocks,
            rows: report.rows,
            cells: report.cells,
        }
    }
}

/// Returns the name of a file without the directory of the server.
fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the config in the order of DumpConfig, with those tables that `shows` accepts.
pub fn config_parts<'a>(
    configs: &'a Configs,
    shows: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = proto::DumpConfigReply> + 'a {
    // Whoever may see a table may see its backups.
    let tables = configs.tables.values().filter(move |table| match &table.state {
        config::TableState::Backup(origin) => shows(&origin.name),
        _ => shows(&table.name),
    });
    let of_tables = tables.flat_map(|table| {
        let tablets = table.tablets.iter().map(|tablet| Part::Tablet(tablet_config(table, tablet)));
        std::iter::once(Part::Table(table_config(table))).chain(tablets)
    });
    let parts = std::iter::once(Part::Store(store_config(configs))).chain(of_tables);
    parts.map(|part| proto::DumpConfigReply { part: Some(part) })
}

fn store_config(configs: &Configs) -> proto::StoreConfig {
    proto::StoreConfig {
        store_id: configs.store_id,
        revision: configs.revision,
        incarnation: configs.incarnation,
        log_head: configs.log_head,
        tables: configs.tables.len() as u64,
        tablets: configs.tables.values().map(|table| table.tablets.len() as u64).sum(),
        checkpoints: configs.checkpoints.len() as u64,
    }
}

fn table_config(table: &config::TableConfig) -> proto::TableConfig {
    let group = |(at, group): (usize, &Group)| {
        let mut families: Vec<String> =
            group.families.iter().map(|family| escaped(&family.name)).collect();
        if group.wildcard {
            families.push("*".into());
        }
        proto::GroupConfig {
            name: group.name.clone(),
            families,
            compression: group.compression.to_string(),
            block_bytes: group.block_bytes(),
            flushed: table.flushed.get(at).map(ToString::to_string).unwrap_or_default(),
            in_memory: group.in_memory,
        }
    };
    proto::TableConfig {
        id: table.id.0,
        name: table.name.clone(),
        groups: table.schema.groups().iter().enumerate().map(group).collect(),
        tablets: table.tablets.len() as u64,
        state: match table.state {
            config::TableState::Active => proto::TableState::TableActive,
            config::TableState::Backup(_) => proto::TableState::TableBackup,
            config::TableState::Deleted { .. } => proto::TableState::TableDeleted,
        }
        .into(),
    }
}

/// Returns the name of a family, which may be any bytes.
fn escaped(family: &[u8]) -> String {
    family.escape_ascii().to_string()
}

fn tablet_config(
    table: &config::TableConfig,
    tablet: &config::TabletConfig,
) -> proto::TabletConfig {
    let groups = table.schema.groups().iter().zip(&tablet.chains);
    proto::TabletConfig {
        table_id: table.id.0,
        id: tablet.id.to_string(),
        load: tablet.load,
        revision: tablet.rev,
        start_row: Bytes::copy_from_slice(&tablet.rows.start),
        end_row: tablet.rows.end.as_deref().map(Bytes::copy_from_slice),
        chains: groups.map(|(group, chain)| chain_config(group, chain)).collect(),
        loaded: tablet.loaded,
    }
}

fn chain_config(group: &Group, chain: &config::ChainConfig) -> proto::ChainConfig {
    let files = chain.runs().enumerate().flat_map(|(run, files)| {
        files.iter().map(move |file| proto::FileConfig {
            name: file.name.to_string(),
            run: saturating(run),
            bytes: file.bytes,
            share_bytes: file.share,
            cells: file.cells,
            txn_min: file.txn_min.to_string(),
            txn_max: file.txn_max.to_string(),
            rows: file.rows.as_ref().map(|rows| proto::RowRange {
                start: Bytes::copy_from_slice(&rows.start),
                end: rows.end.as_deref().map(Bytes::copy_from_slice),
            }),
            unit: file.unit,
            families: file.families.iter().flatten().map(|family| escaped(family)).collect(),
            no_families: file.families.as_ref().is_some_and(Vec::is_empty),
        })
    });
    proto::ChainConfig {
        group: group.name.clone(),
        flushed: chain.flushed.to_string(),
        files: files.collect(),
    }
}
