//! What the coordinator has of a cluster, at one moment.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use stele_cluster::{Directory, ListedTable};
use stele_engine::TableId;
use stele_tables::ServerInfo;
use stele_tables::coordinate::{Op, Transaction};
use stele_tables::rows::{Holder, OwnedRow, Owner, StoredRow};

use crate::serve::cluster::{Access, ClusterRecord};

pub struct View {
    pub record: ClusterRecord,
    /// By id.
    pub servers: BTreeMap<String, ServerInfo>,
    pub tables: Vec<ListedTable>,
    /// In the order of their keys.
    pub rows: Vec<(TableId, OwnedRow)>,
    /// Rows that cannot be decoded.
    pub damaged: Vec<String>,
}

impl View {
    pub async fn read(access: &Access) -> anyhow::Result<View> {
        let Some(record) = access.record().await? else {
            bail!(
                "there is no cluster {} in {}: create it with `stele cluster init`",
                access.name,
                access.address
            );
        };
        let directory = Directory::new(access.coordinator.clone(), access.keys.clone());
        access.retry(|| directory.refresh()).await?;
        let keys = &access.keys;
        let then = vec![Op::GetAll(keys.servers()), Op::GetAll(keys.all_tablets())];
        let read = Transaction { then, ..Transaction::default() };
        let read = access.retry(|| access.coordinator.run(read.clone())).await?;
        let (mut servers, mut rows, mut damaged) = (BTreeMap::new(), Vec::new(), Vec::new());
        for found in read.found {
            let name = String::from_utf8_lossy(&found.key).into_owned();
            if let Some(id) = found.key.strip_prefix(&keys.servers()[..]) {
                let id = String::from_utf8_lossy(id).into_owned();
                match ServerInfo::decode(&found.value) {
                    Some(info) => drop(servers.insert(id, info)),
                    None => damaged.push(name),
                }
                continue;
            }
            match StoredRow::of(keys, found) {
                Ok(stored) => rows.push((stored.table, stored.row)),
                Err(error) => damaged.push(format!("{name}: {error}")),
            }
        }
        Ok(View { record, servers, tables: directory.all(), rows, damaged })
    }

    /// Returns the rows of the tablets of a table, in row order.
    pub fn rows_of(&self, table: TableId) -> Vec<&OwnedRow> {
        let mut rows: Vec<&OwnedRow> =
            self.rows.iter().filter(|(of, _)| *of == table).map(|(_, row)| row).collect();
        rows.sort_by(|a, b| a.config.rows.start.cmp(&b.config.rows.start));
        rows
    }

    pub fn is_live(&self, holder: &Holder) -> bool {
        self.servers.get(&holder.id).is_some_and(|info| info.epoch == holder.epoch)
    }

    /// Returns the live server that serves a tablet.
    pub fn server_of<'r>(&self, row: &'r OwnedRow) -> Option<&'r Holder> {
        match &row.owner {
            Owner::Server(holder) if self.is_live(holder) => Some(holder),
            _ => None,
        }
    }

    pub fn table(&self, name: &str) -> anyhow::Result<&ListedTable> {
        let found = self.tables.iter().find(|table| table.name == name);
        found.with_context(|| format!("table {name} not found"))
    }

    /// Returns the live server whose id begins with this.
    pub fn server(&self, beginning: &str) -> anyhow::Result<(&String, &ServerInfo)> {
        let mut found = self.servers.iter().filter(|(id, _)| id.starts_with(beginning));
        match (found.next(), found.next()) {
            (Some(one), None) if !beginning.is_empty() => Ok(one),
            (None, _) => {
                bail!("no live server has the id {beginning}: see `stele cluster servers`")
            }
            _ => bail!("several servers have ids that begin with {beginning:?}: give more of it"),
        }
    }
}
