//! Admin calls, and cells written and read without the API.

use stele_bigtable::proto::admin::gc_rule::Rule;
use stele_bigtable::proto::admin::{
    ColumnFamily, CreateTableRequest, GcRule, GetTableRequest, Table,
};
use stele_engine::{CommitBuilder, Durability, ScanSpec, Txn};
use tonic::{Code, Response, Status};

use crate::server::Server;

pub const PARENT: &str = "projects/p/instances/i";

impl Server {
    /// Creates a table with these families.
    pub async fn create(&self, id: &str, families: &[&str]) -> Table {
        let families = families.iter().map(|name| (name.to_string(), ColumnFamily::default()));
        let table = Table { column_families: families.collect(), ..Table::default() };
        self.tables().create_table(request(id, table)).await.unwrap().into_inner()
    }

    pub async fn get(&self, id: &str) -> Result<Table, Status> {
        let request = GetTableRequest { name: name(id), ..GetTableRequest::default() };
        self.tables().get_table(request).await.map(Response::into_inner)
    }

    /// Writes one cell, bypassing the API.
    pub fn write(&self, id: &str, row: &[u8], family: &str, value: &[u8]) {
        let table = self.api().tables().get(&name(id)).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(row).set(family.as_bytes(), b"q", 1, value);
        let store = self.store();
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    }

    /// Returns all cells as `row/family=value`.
    pub fn cells(&self, id: &str) -> Vec<String> {
        let table = self.api().tables().get(&name(id)).unwrap();
        let mut found = Vec::new();
        let store = self.store();
        let read = store.read(table.id, ScanSpec::default(), |cell| {
            let parts = [cell.row, cell.family, cell.value].map(|part| part.escape_ascii());
            let [row, family, value] = parts;
            found.push(format!("{row}/{family}={value}"));
        });
        read.unwrap();
        found
    }
}

pub fn name(id: &str) -> String {
    format!("{PARENT}/tables/{id}")
}

pub fn request(id: &str, table: Table) -> CreateTableRequest {
    CreateTableRequest {
        parent: PARENT.into(),
        table_id: id.into(),
        table: Some(table),
        initial_splits: vec![],
    }
}

pub fn rule(rule: Rule) -> GcRule {
    GcRule { rule: Some(rule) }
}

/// Returns a family without settings, as it is shown.
pub fn plain() -> ColumnFamily {
    ColumnFamily { gc_rule: Some(GcRule::default()), ..ColumnFamily::default() }
}

/// Returns a family that keeps this many versions.
pub fn versions(versions: i32) -> ColumnFamily {
    let gc_rule = Some(rule(Rule::MaxNumVersions(versions)));
    ColumnFamily { gc_rule, ..ColumnFamily::default() }
}

/// Asserts that a call failed with this code and a message that contains this
/// text.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.expect_err("should have been refused");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().contains(text), "{:?} lacks {text:?}", status.message());
}
