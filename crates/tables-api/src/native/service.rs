//! The calls of the service.

use std::sync::Arc;

use stele_engine::Txn;
use stele_grpc::memory::CallMemory;
use stele_grpc::offload::Cost;
use stele_tables::{Placement, Tables};
use tonic::{Request, Response, Status};

use super::rules::{ServedTable, TableRules};
use super::scanners::{ScannerLimits, Scanners};
use super::schema_version::schema_version;
use crate::admin::rows;
use crate::error::{Error, Result};
use crate::proto::tables_server::{Tables as Calls, TablesServer};
use crate::proto::*;

/// The maximum size of a request.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Serves the rows of tables. A clone serves the same scanners.
#[derive(Clone)]
pub struct Native {
    pub(super) tables: Tables,
    pub(super) scanners: Arc<Scanners>,
    rules: Arc<dyn TableRules>,
    /// The newest txn of earlier runs of the server.
    pub(super) opened_at: Txn,
}

impl Native {
    /// Creates a service of the tables that `rules` serves.
    pub fn new(tables: Tables, rules: Arc<dyn TableRules>) -> Result<Native> {
        Native::with_limits(tables, rules, ScannerLimits::default())
    }

    /// Creates a service with other limits of its scanners.
    pub fn with_limits(
        tables: Tables,
        rules: Arc<dyn TableRules>,
        limits: ScannerLimits,
    ) -> Result<Native> {
        let any = stele_engine::TableId(0);
        let Placement::Here(local) = tables.place(any, b"");
        let (_, opened_at) = tables.tenure().open(local.progress())?;
        let scanners = Arc::new(Scanners::new(limits));
        Ok(Native { tables, scanners, rules, opened_at })
    }

    /// Returns the service, to be added to a gRPC server.
    pub fn service(self) -> TablesServer<Native> {
        TablesServer::new(self).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Returns the number of open scanners, and the memory of the idle ones.
    pub fn scanner_usage(&self) -> (usize, usize) {
        self.scanners.usage()
    }

    /// Finds the table of a call by its handle.
    fn find(
        &self,
        extensions: &http::Extensions,
        name: &str,
        id: u32,
    ) -> Result<ServedTable, Status> {
        self.rules.check_access(extensions, name)?;
        let table = self.rules.table(name)?;
        if table.id.0 != id {
            return Err(Error::StaleHandle(name.to_string()).into());
        }
        Ok(table)
    }

    /// Reads the schema of a table again.
    pub(super) async fn reload_table(&self, name: &str) -> Result<ServedTable, Status> {
        let (rules, name) = (self.rules.clone(), name.to_string());
        Cost::Blocking.run(move || rules.reload(&name)).await?
    }
}

fn replied<T>(reply: T) -> Result<Response<T>, Status> {
    Ok(Response::new(reply))
}

#[tonic::async_trait]
impl Calls for Native {
    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenReply>, Status> {
        let name = &request.get_ref().table;
        self.rules.check_access(request.extensions(), name)?;
        let table = self.rules.table(name)?;
        let Placement::Here(local) = self.tables.place(table.id, b"");
        let (durable, newest) = self.progress(local)?;
        let groups = table.schema.groups().iter();
        let families = groups.flat_map(|group| &group.families).filter(|family| !family.hidden);
        replied(OpenReply {
            table_id: table.id.0,
            schema_version: schema_version(&table.schema),
            last_txn: newest.raw(),
            durable_txn: durable.raw(),
            families: families
                .map(|family| String::from_utf8_lossy(&family.name).into_owned())
                .collect(),
        })
    }

    async fn apply(&self, request: Request<ApplyRequest>) -> Result<Response<ApplyReply>, Status> {
        let ApplyRequest { table, table_id, .. } = request.get_ref();
        let table = self.find(request.extensions(), table, *table_id)?;
        replied(self.apply_commit(table, request.into_inner()).await?)
    }

    async fn sync(&self, request: Request<SyncRequest>) -> Result<Response<SyncReply>, Status> {
        let SyncRequest { table, table_id, .. } = request.get_ref();
        let table = self.find(request.extensions(), table, *table_id)?;
        replied(self.sync_to(table, request.into_inner()).await?)
    }

    async fn scan(&self, request: Request<ScanRequest>) -> Result<Response<ScanReply>, Status> {
        let ScanRequest { table, table_id, .. } = request.get_ref();
        let table = self.find(request.extensions(), table, *table_id)?;
        let memory = memory_of(&request);
        replied(self.open_scan(table, request.into_inner(), &memory).await?)
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<ScanReply>, Status> {
        let GetRequest { table, table_id, .. } = request.get_ref();
        let table = self.find(request.extensions(), table, *table_id)?;
        let memory = memory_of(&request);
        replied(self.next_block(table, request.into_inner(), &memory).await?)
    }

    async fn close(&self, request: Request<CloseRequest>) -> Result<Response<CloseReply>, Status> {
        let CloseRequest { table, table_id, scanner } = request.get_ref();
        let table = self.find(request.extensions(), table, *table_id)?;
        self.scanners.close(table.id, *scanner)?;
        replied(CloseReply {})
    }

    async fn load_tablets(
        &self,
        request: Request<LoadTabletsRequest>,
    ) -> Result<Response<LoadTabletsReply>, Status> {
        let name = &request.get_ref().table;
        self.rules.check_access(request.extensions(), name)?;
        // Tablets are not loaded under a schema that is invalid.
        let (id, tables) = (self.reload_table(name).await?.id, self.tables.clone());
        let rows = rows(request.into_inner().rows)?;
        let loaded = Cost::Blocking.run(move || tables.load(id, &rows)).await?;
        replied(LoadTabletsReply { loaded: loaded.map_err(Error::from)? as u64 })
    }

    async fn unload_tablets(
        &self,
        request: Request<UnloadTabletsRequest>,
    ) -> Result<Response<UnloadTabletsReply>, Status> {
        let name = &request.get_ref().table;
        self.rules.check_access(request.extensions(), name)?;
        let (id, tables) = (self.rules.table(name)?.id, self.tables.clone());
        let rows = rows(request.into_inner().rows)?;
        let unloaded = Cost::Long.run(move || tables.unload(id, &rows)).await?;
        replied(UnloadTabletsReply { unloaded: unloaded.map_err(Error::from)? as u64 })
    }

    async fn reload_schema(
        &self,
        request: Request<ReloadSchemaRequest>,
    ) -> Result<Response<ReloadSchemaReply>, Status> {
        let name = &request.get_ref().table;
        self.rules.check_access(request.extensions(), name)?;
        let table = self.reload_table(name).await?;
        replied(ReloadSchemaReply { schema_version: schema_version(&table.schema) })
    }
}

/// Returns the memory of a call.
fn memory_of<T>(request: &Request<T>) -> CallMemory {
    request.extensions().get::<CallMemory>().cloned().unwrap_or_else(CallMemory::current)
}
