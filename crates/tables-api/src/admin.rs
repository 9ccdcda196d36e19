//! The service that administers tablets and locality groups.

use std::sync::Arc;

use stele_engine::TableId;
use stele_engine::schema::Schema as EngineSchema;
use stele_engine::verify::TableCheck;
use stele_grpc::offload::Cost;
use stele_tables::Tables;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::convert::config_parts;
use crate::error::{Error, Result};
use crate::progress::{Ended, Messages, Output, stream};
use crate::proto::tablet_admin_server::{TabletAdmin, TabletAdminServer};
use crate::proto::*;
use crate::schema::Definitions;

/// The number of tablets per message of ListTablets.
const TABLETS_PER_REPLY: usize = 256;

/// Checks read whole files, so they run one at a time.
static CHECKING: Semaphore = Semaphore::const_new(1);

/// The cost of each call.
pub(crate) mod cost {
    use super::Cost;

    /// Describes all tablets of a table, or copies the config.
    pub const LIST: Cost = Cost::Long;
    /// Waits for other changes of the tablets, and for the disk.
    pub const SPLIT: Cost = Cost::Blocking;
    /// May have to flush memory first.
    pub const JOIN: Cost = Cost::Blocking;
    /// Rewrites the files of a tablet.
    pub const COMPACT: Cost = Cost::Long;
    /// Waits for other loads, and for the disk.
    pub const LOAD: Cost = Cost::Blocking;
    /// Flushes the memory of the table.
    pub const UNLOAD: Cost = Cost::Long;
    /// Lists all files of the object store, and deletes some.
    pub const COLLECT: Cost = Cost::Long;
    /// Flushes the memory of the table and opens its files.
    pub const ALTER: Cost = Cost::Long;
    /// Reads a whole file.
    pub const VERIFY: Cost = Cost::Long;
    /// Flushes the memory of the table.
    pub const BACK_UP: Cost = Cost::Long;
    /// Copies the references of all tablets, and waits for the disk.
    pub const RESTORE: Cost = Cost::Blocking;
}

/// Decides whether a call with these extensions may name a table.
pub type Access = fn(&http::Extensions, &str) -> Result<(), Status>;

/// Called on a thread that may block, after a table was restored or undeleted.
pub type Added = Arc<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// Serves the administration of tablets, backups and deleted tables.
#[derive(Clone)]
pub struct Admin {
    pub(crate) tables: Tables,
    definitions: Arc<dyn Definitions>,
    access: Access,
    added: Added,
}

impl Admin {
    /// Creates a service whose callers may name all tables.
    pub fn new(tables: Tables) -> Admin {
        let definitions = Arc::new(tables.clone());
        Admin { tables, definitions, access: |_, _| Ok(()), added: Arc::new(|| Ok(())) }
    }

    /// Notifies another service of tables that appear.
    pub fn with_added(self, added: Added) -> Admin {
        Admin { added, ..self }
    }

    /// Creates and changes tables through `definitions`.
    pub fn with_definitions(self, definitions: Arc<dyn Definitions>) -> Admin {
        Admin { definitions, ..self }
    }

    /// Restricts the tables that callers may name; the others are not listed.
    pub fn with_access(self, access: Access) -> Admin {
        Admin { access, ..self }
    }

    /// Returns the service, to be added to a gRPC server.
    pub fn service(self) -> TabletAdminServer<Admin> {
        TabletAdminServer::new(self)
    }

    /// Returns an error unless a caller may name a table.
    pub(crate) fn check(&self, extensions: &http::Extensions, name: &str) -> Result<(), Status> {
        (self.access)(extensions, name)
    }

    pub(crate) fn added(&self) -> Added {
        self.added.clone()
    }

    pub(crate) fn find(
        &self,
        extensions: &http::Extensions,
        name: &str,
    ) -> Result<TableId, Status> {
        (self.access)(extensions, name)?;
        let found = self.tables.table(name);
        Ok(found.ok_or_else(|| Error::UnknownTable(excerpt(name).to_string()))?)
    }

    /// Runs work on a thread that its cost permits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        cost: Cost,
        work: impl FnOnce(&Tables) -> stele_engine::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let tables = self.tables.clone();
        Ok(cost.run(move || work(&tables)).await?.map_err(Error::from)?)
    }

    /// Runs a call of the definitions, which may block.
    async fn define<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Definitions) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let definitions = self.definitions.clone();
        cost::ALTER.run(move || work(&*definitions)).await?
    }

    /// Flushes and compacts a table, tablet by tablet.
    async fn compact(self, table: TableId, out: Output<CompactTableReply>) -> Result<(), Ended> {
        let mut last = CompactTableReply::default();
        out.attend(&last, self.run(cost::COMPACT, move |tables| tables.flush(table))).await??;
        let mut row = Some(Vec::new());
        while let Some(start) = row {
            let step = self.run(cost::COMPACT, move |tables| {
                let next = tables.compact_tablet(table, &start)?;
                Ok((next.as_ref() != Some(&start), next, tables.tablet_count(table)?))
            });
            let (done, next, tablets) = out.attend(&last, step).await??;
            row = next;
            last.tablets = tablets as u64;
            // Tablets may be split and joined meanwhile.
            last.tablets_done = match row {
                Some(_) => (last.tablets_done + u64::from(done)).min(last.tablets),
                None => last.tablets,
            };
            out.send(last).await?;
        }
        Ok(())
    }

    /// Checks a table, file by file.
    async fn verify(self, table: TableId, out: Output<VerifyTableReply>) -> Result<(), Ended> {
        let mut last = VerifyTableReply::default();
        let waiting = out.attend(&last, CHECKING.acquire()).await?;
        let _only = waiting.map_err(|_| Status::internal("the semaphore is never closed"))?;
        let begin = self.run(cost::LIST, move |tables| tables.check(table));
        let mut check = out.attend(&last, begin).await??;
        let (files, bytes) = check.pending();
        last = VerifyTableReply { tablets: check.tablets(), files, bytes, ..last };
        let problems = check.problems().iter().map(Into::into).collect();
        out.send(VerifyTableReply { problems, ..last.clone() }).await?;
        loop {
            let step = self.run(cost::VERIFY, move |_| {
                let checked = check.check_next()?;
                Ok((check, checked))
            });
            let (rest, checked): (TableCheck, _) = out.attend(&last, step).await??;
            check = rest;
            let Some(checked) = checked else { return Ok(()) };
            last.files_done += 1;
            last.bytes_done += checked.report.bytes;
            let problems = checked.problems.iter().map(Into::into).collect();
            let checked = Some((&checked.report).into());
            out.send(VerifyTableReply { problems, checked, ..last.clone() }).await?;
        }
    }
}

/// Returns the rows that a request names.
pub(crate) fn rows(given: Option<RowRange>) -> Result<stele_engine::RowRange> {
    let RowRange { start, end } = given.unwrap_or_default();
    let range = stele_engine::RowRange { start: start.into(), end: end.map(Into::into) };
    if range.is_empty() { Err(Error::EmptyRange) } else { Ok(range) }
}

/// Returns the schema of a request.
fn schema(given: Option<Schema>) -> Result<EngineSchema> {
    given.ok_or(Error::NoSchema)?.try_into()
}

/// Returns a prefix of client-supplied text, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

fn replied<T>(reply: T) -> Result<Response<T>, Status> {
    Ok(Response::new(reply))
}

#[tonic::async_trait]
impl TabletAdmin for Admin {
    type ListTabletsStream = Messages<ListTabletsReply>;
    type CompactTableStream = Messages<CompactTableReply>;
    type VerifyTableStream = Messages<VerifyTableReply>;
    type DumpConfigStream = Messages<DumpConfigReply>;

    async fn list_tablets(
        &self,
        request: Request<ListTabletsRequest>,
    ) -> Result<Response<Self::ListTabletsStream>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let tablets = self.run(cost::LIST, move |tables| tables.tablets(table)).await?;
        Ok(stream(|out| async move {
            let mut tablets = tablets.into_iter().map(Tablet::from).peekable();
            while tablets.peek().is_some() {
                let some = tablets.by_ref().take(TABLETS_PER_REPLY).collect();
                out.send(ListTabletsReply { tablets: some }).await?;
            }
            Ok(())
        }))
    }

    async fn split_tablet(
        &self,
        request: Request<SplitTabletRequest>,
    ) -> Result<Response<SplitTabletReply>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let row = request.into_inner().row;
        let created = self.run(cost::SPLIT, move |tables| tables.split(table, &row)).await?;
        replied(SplitTabletReply { created })
    }

    async fn join_tablets(
        &self,
        request: Request<JoinTabletsRequest>,
    ) -> Result<Response<JoinTabletsReply>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let row = request.into_inner().row;
        self.run(cost::JOIN, move |tables| tables.join(table, &row)).await?;
        replied(JoinTabletsReply {})
    }

    async fn compact_table(
        &self,
        request: Request<CompactTableRequest>,
    ) -> Result<Response<Self::CompactTableStream>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let this = self.clone();
        Ok(stream(|out| this.compact(table, out)))
    }

    async fn load_tablets(
        &self,
        request: Request<LoadTabletsRequest>,
    ) -> Result<Response<LoadTabletsReply>, Status> {
        let name = request.get_ref().table.clone();
        let table = self.find(request.extensions(), &name)?;
        let rows = rows(request.into_inner().rows)?;
        self.define(move |definitions| definitions.check(&name)).await?;
        let loaded = self.run(cost::LOAD, move |tables| tables.load(table, &rows)).await?;
        replied(LoadTabletsReply { loaded: loaded as u64 })
    }

    async fn unload_tablets(
        &self,
        request: Request<UnloadTabletsRequest>,
    ) -> Result<Response<UnloadTabletsReply>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let rows = rows(request.into_inner().rows)?;
        let unloaded = self.run(cost::UNLOAD, move |tables| tables.unload(table, &rows)).await?;
        replied(UnloadTabletsReply { unloaded: unloaded as u64 })
    }

    async fn verify_table(
        &self,
        request: Request<VerifyTableRequest>,
    ) -> Result<Response<Self::VerifyTableStream>, Status> {
        let table = self.find(request.extensions(), &request.get_ref().table)?;
        let this = self.clone();
        Ok(stream(|out| this.verify(table, out)))
    }

    async fn collect_files(
        &self,
        request: Request<CollectFilesRequest>,
    ) -> Result<Response<CollectFilesReply>, Status> {
        let dry_run = request.get_ref().dry_run;
        let collected = self.run(cost::COLLECT, move |tables| tables.collect(dry_run)).await?;
        replied(collected.ok_or(Error::NoObjectStore)?.into())
    }

    async fn get_schema(
        &self,
        request: Request<GetSchemaRequest>,
    ) -> Result<Response<GetSchemaReply>, Status> {
        self.find(request.extensions(), &request.get_ref().table)?;
        let table = request.into_inner().table;
        let schema = self.define(move |definitions| definitions.schema(&table)).await?;
        replied(GetSchemaReply { schema: Some((&schema).into()) })
    }

    async fn create_table(
        &self,
        request: Request<CreateTableRequest>,
    ) -> Result<Response<CreateTableReply>, Status> {
        (self.access)(request.extensions(), &request.get_ref().table)?;
        let CreateTableRequest { table, schema: given, splits } = request.into_inner();
        let (schema, splits) = (schema(given)?, splits.into_iter().map(Vec::from).collect());
        self.define(move |definitions| definitions.create(&table, schema, splits)).await?;
        replied(CreateTableReply {})
    }

    async fn alter_table(
        &self,
        request: Request<AlterTableRequest>,
    ) -> Result<Response<AlterTableReply>, Status> {
        self.find(request.extensions(), &request.get_ref().table)?;
        let AlterTableRequest { table, schema: given, drop_families } = request.into_inner();
        let schema = schema(given)?;
        self.define(move |definitions| definitions.alter(&table, schema, drop_families)).await?;
        replied(AlterTableReply {})
    }

    async fn dump_config(
        &self,
        request: Request<DumpConfigRequest>,
    ) -> Result<Response<Self::DumpConfigStream>, Status> {
        let name = request.get_ref().table.clone();
        if !name.is_empty() {
            self.find(request.extensions(), &name)?;
        }
        let (access, extensions) = (self.access, request.extensions().clone());
        let shows = move |table: &str| {
            (name.is_empty() || name == table) && access(&extensions, table).is_ok()
        };
        let configs = self.run(cost::LIST, |tables| tables.configs()).await?;
        Ok(stream(|out| async move {
            for part in config_parts(&configs, shows) {
                out.send(part).await?;
            }
            Ok(())
        }))
    }

    async fn create_backup(
        &self,
        request: Request<CreateBackupRequest>,
    ) -> Result<Response<Backup>, Status> {
        let (_, extensions, request) = request.into_parts();
        replied(self.back_up(&extensions, request).await?)
    }

    async fn list_backups(
        &self,
        request: Request<ListBackupsRequest>,
    ) -> Result<Response<ListBackupsReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let backups = self.backups(&extensions, &request.table).await?;
        replied(ListBackupsReply { backups })
    }

    async fn get_backup(
        &self,
        request: Request<GetBackupRequest>,
    ) -> Result<Response<Backup>, Status> {
        let (_, extensions, request) = request.into_parts();
        replied(self.backup(&extensions, request.backup).await?.into())
    }

    async fn delete_backup(
        &self,
        request: Request<DeleteBackupRequest>,
    ) -> Result<Response<DeleteBackupReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let name = self.backup(&extensions, request.backup).await?.name;
        self.run(cost::RESTORE, move |tables| tables.delete_backup(&name)).await?;
        replied(DeleteBackupReply {})
    }

    async fn restore_table(
        &self,
        request: Request<RestoreTableRequest>,
    ) -> Result<Response<RestoreTableReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        self.restore(&extensions, request).await?;
        replied(RestoreTableReply {})
    }

    async fn list_deleted_tables(
        &self,
        request: Request<ListDeletedTablesRequest>,
    ) -> Result<Response<ListDeletedTablesReply>, Status> {
        let tables = self.deleted(request.extensions()).await?;
        replied(ListDeletedTablesReply { tables })
    }

    async fn undelete_table(
        &self,
        request: Request<UndeleteTableRequest>,
    ) -> Result<Response<UndeleteTableReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        self.undelete(&extensions, request.table).await?;
        replied(UndeleteTableReply {})
    }
}
