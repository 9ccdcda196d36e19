//! Table views: how much of a table is returned.

use std::collections::BTreeMap;

use super::cluster;
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::proto::admin;
use crate::proto::admin::encryption_info::EncryptionType;
use crate::proto::admin::table::cluster_state::ReplicationState;
use crate::proto::admin::table::{ClusterState, View as Wire};
use crate::table::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Name,
    Schema,
    Replication,
    Encryption,
    Full,
}

impl View {
    /// Returns the requested view.
    pub fn asked(wire: i32, default: View) -> Result<View> {
        match Wire::try_from(wire) {
            Ok(Wire::Unspecified) => Ok(default),
            Ok(Wire::NameOnly) => Ok(View::Name),
            Ok(Wire::SchemaView) => Ok(View::Schema),
            Ok(Wire::ReplicationView) => Ok(View::Replication),
            Ok(Wire::EncryptionView) => Ok(View::Encryption),
            Ok(Wire::Full) => Ok(View::Full),
            Err(_) => {
                Err(Error::Invalid(format!("Error in field 'view' : there is no view {wire}")))
            }
        }
    }

    pub fn of(self, table: &Table) -> admin::Table {
        let name = table.name.clone();
        let states = |encrypted| cluster_states(&table.name, encrypted);
        match self {
            View::Name => admin::Table { name, ..Default::default() },
            View::Schema => schema(table),
            View::Replication => {
                admin::Table { name, cluster_states: states(false), ..Default::default() }
            }
            View::Encryption => {
                admin::Table { name, cluster_states: states(true), ..Default::default() }
            }
            View::Full => admin::Table { cluster_states: states(true), ..schema(table) },
        }
    }
}

/// Returns the table as declared. A family without settings is shown with an
/// empty rule: otherwise it would have no value in the map of families, which
/// some clients cannot parse.
fn schema(table: &Table) -> admin::Table {
    let mut message = table.definition.message(&table.name);
    let empty = admin::ColumnFamily::default();
    for family in message.column_families.values_mut().filter(|family| **family == empty) {
        family.gc_rule = Some(admin::GcRule::default());
    }
    message
}

/// Returns the state of the one cluster, which is always ready.
fn cluster_states(table: &str, encrypted: bool) -> BTreeMap<String, ClusterState> {
    let name = TableName::parse(table).expect("a table is only made under a sound name");
    let encryption = admin::EncryptionInfo {
        encryption_type: EncryptionType::GoogleDefaultEncryption.into(),
        ..Default::default()
    };
    let state = ClusterState {
        replication_state: ReplicationState::Ready.into(),
        encryption_info: if encrypted { vec![encryption] } else { vec![] },
    };
    BTreeMap::from([(cluster::cluster_id(name.instance), state)])
}
