//! Table views: how much of a table is returned.

use std::collections::BTreeMap;

use stele_engine::TableId;

use crate::error::{Error, Result};
use crate::name::TableName;
use crate::proto::admin;
use crate::proto::admin::encryption_info::EncryptionType;
use crate::proto::admin::table::cluster_state::ReplicationState;
use crate::proto::admin::table::{ClusterState, View as WireView};
use crate::table::{Table, Tables};

/// How much of a table a request wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableView {
    Name,
    Schema,
    Replication,
    Encryption,
    Full,
}

impl TableView {
    /// Returns the requested view.
    pub fn from_request(wire: i32, default: TableView) -> Result<TableView> {
        match WireView::try_from(wire) {
            Ok(WireView::Unspecified) => Ok(default),
            Ok(WireView::NameOnly) => Ok(TableView::Name),
            Ok(WireView::SchemaView) => Ok(TableView::Schema),
            Ok(WireView::ReplicationView) => Ok(TableView::Replication),
            Ok(WireView::EncryptionView) => Ok(TableView::Encryption),
            Ok(WireView::Full) => Ok(TableView::Full),
            Err(_) => Err(Error::Invalid(format!("Error in field 'view' : unknown view {wire}"))),
        }
    }

    /// Returns the table as this view shows it.
    pub fn render(self, tables: &Tables, table: &Table) -> admin::Table {
        let name = table.name.clone();
        let states = |encrypted| cluster_states(tables, &table.name, encrypted);
        match self {
            TableView::Name => admin::Table { name, ..Default::default() },
            TableView::Schema => schema(tables, table),
            TableView::Replication => {
                admin::Table { name, cluster_states: states(false), ..Default::default() }
            }
            TableView::Encryption => {
                admin::Table { name, cluster_states: states(true), ..Default::default() }
            }
            TableView::Full => {
                admin::Table { cluster_states: states(true), ..schema(tables, table) }
            }
        }
    }
}

/// Returns the table as declared. A family without settings is shown with an
/// empty rule: otherwise it would have no value in the map of families, which
/// some clients cannot parse.
fn schema(tables: &Tables, table: &Table) -> admin::Table {
    let mut message = table.definition.message(&table.name);
    // The table is shown even if its record cannot be read.
    message.restore_info = tables.records().get(&restored_name(table.id)).unwrap_or_default();
    let empty = admin::ColumnFamily::default();
    for family in message.column_families.values_mut().filter(|family| **family == empty) {
        family.gc_rule = Some(admin::GcRule::default());
    }
    message
}

/// The name of the record of the backup that a table was restored from.
pub fn restored_name(table: TableId) -> String {
    format!("restored/{}", table.0)
}

/// Returns the states of the clusters, which are always ready.
fn cluster_states(tables: &Tables, table: &str, encrypted: bool) -> BTreeMap<String, ClusterState> {
    let name = TableName::parse(table).expect("the name was validated when the table was created");
    let encryption = admin::EncryptionInfo {
        encryption_type: EncryptionType::GoogleDefaultEncryption.into(),
        ..Default::default()
    };
    let state = ClusterState {
        replication_state: ReplicationState::Ready.into(),
        encryption_info: if encrypted { vec![encryption] } else { vec![] },
    };
    let clusters = tables.instances().cluster_ids(name.instance).unwrap_or_default();
    clusters.into_iter().map(|cluster| (cluster, state.clone())).collect()
}
