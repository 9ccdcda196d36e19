//! Tables that are served within the process.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Options, TableId};
use stele_grpc::{Services, Transport};
use stele_tables::Tables;
use stele_tables_api::proto::tables_client::TablesClient;
use stele_tables_api::proto::*;
use stele_tables_api::{
    AllTables, Native, Row, RowCommit, ScanOptions, ScannerLimits, Table, TableClient, reason,
};
use tonic::{Code, Status};

pub const TABLE: &str = "projects/p/instances/i/tables/t";

pub struct Served {
    pub tables: Tables,
    pub native: Native,
    pub client: TableClient,
    pub calls: TablesClient<Transport>,
    pub id: u32,
    pub dir: tempfile::TempDir,
}

impl Served {
    /// Serves a table with the families f and g and a hidden one.
    pub fn new() -> Served {
        Served::with_limits(ScannerLimits::default())
    }

    pub fn with_limits(limits: ScannerLimits) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let tables = open(dir.path());
        let groups = vec![
            Group::new("data", [Family::new("f"), Family::new("g")]),
            Group::new("tokens", [Family::hidden("~hidden", Purge::MaxAge(1))]),
        ];
        tables.create(TABLE, Schema::new(groups).unwrap()).unwrap();
        Served::serve(dir, tables, limits)
    }

    fn serve(dir: tempfile::TempDir, tables: Tables, limits: ScannerLimits) -> Served {
        let rules = Arc::new(AllTables(tables.clone()));
        let native = Native::with_limits(tables.clone(), rules, limits).unwrap();
        let services = Services::default().with(native.clone().service());
        let client = TableClient::in_process(services.clone());
        let calls =
            TablesClient::new(Transport::InProcess(services)).max_decoding_message_size(64 << 20);
        let id = tables.table(TABLE).unwrap().0;
        Served { tables, native, client, calls, id, dir }
    }

    /// Closes the tables and serves them again.
    pub fn reopened(self) -> Served {
        let Served { dir, tables, native, client, calls, .. } = self;
        drop((tables, native, client, calls));
        let tables = open(dir.path());
        Served::serve(dir, tables, ScannerLimits::default())
    }

    pub async fn table(&self) -> Table {
        self.client.open(TABLE).await.unwrap()
    }

    pub fn table_id(&self) -> TableId {
        TableId(self.id)
    }

    /// Sets one cell of each row.
    pub async fn fill<'r>(&self, rows: impl IntoIterator<Item = &'r str>) -> u64 {
        let mut commit = RowCommit::new();
        for row in rows {
            commit.set(row.to_string(), "f", "q", 1000, format!("value of {row}"));
        }
        self.table().await.apply(&commit).await.unwrap()
    }

    pub async fn keys(&self, options: ScanOptions) -> Vec<String> {
        let mut scan = self.table().await.scan(options);
        let mut keys = Vec::new();
        while let Some(row) = scan.next().await.unwrap() {
            keys.push(key(&row));
        }
        keys
    }

    /// Applies packed bytes, unconditionally.
    pub async fn apply_packed(&self, commit: Bytes) -> Result<u64, Status> {
        let request = ApplyRequest { commit, ..self.apply_request() };
        Ok(self.calls.clone().apply(request).await?.into_inner().txn)
    }

    /// Applies what `build` adds to a packed commit of the table.
    pub async fn apply_built(&self, build: impl FnOnce(&mut CommitBuilder)) -> Result<u64, Status> {
        let mut commit = CommitBuilder::new();
        commit.table(self.table_id());
        build(&mut commit);
        self.apply_packed(commit.finish().bytes().clone()).await
    }

    pub fn apply_request(&self) -> ApplyRequest {
        ApplyRequest { table: TABLE.into(), table_id: self.id, ..ApplyRequest::default() }
    }

    pub fn scan_request(&self) -> ScanRequest {
        ScanRequest { table: TABLE.into(), table_id: self.id, ..ScanRequest::default() }
    }

    pub async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Status> {
        Ok(self.calls.clone().scan(request).await?.into_inner())
    }

    /// Requests a block of one cell.
    pub async fn get(&self, scanner: u64, sequence: u64) -> Result<ScanReply, Status> {
        self.get_as(GetRequest { scanner, sequence, max_cells: 1, ..GetRequest::default() }).await
    }

    pub async fn get_as(&self, request: GetRequest) -> Result<ScanReply, Status> {
        let request = GetRequest { table: TABLE.into(), table_id: self.id, ..request };
        Ok(self.calls.clone().get(request).await?.into_inner())
    }
}

fn open(dir: &Path) -> Tables {
    Tables::open(dir, Options::default(), World::real()).unwrap()
}

pub fn key(row: &Row) -> String {
    String::from_utf8(row.key.to_vec()).unwrap()
}

/// Returns the code and the reason of a refusal.
pub fn refusal<T: std::fmt::Debug>(refused: Result<T, Status>) -> (Code, String) {
    let status = refused.unwrap_err();
    let reason = reason(&status).unwrap_or_else(|| panic!("no reason: {status:?}"));
    (status.code(), reason)
}
