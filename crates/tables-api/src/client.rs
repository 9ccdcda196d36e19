//! The client of the administration of tablets and locality groups.

use std::time::Duration;

use bytes::Bytes;
use stele_engine::schema::Schema as EngineSchema;
use stele_grpc::{Pending, Services, Tls, Transport};
use tonic::{Request, Status, Streaming};

use crate::error::Error;
use crate::proto::tablet_admin_client::TabletAdminClient;
use crate::proto::*;

const MESSAGE_BYTES_MAX: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(600);

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    timeout: Duration,
}

/// The messages of a long call.
pub struct Replies<T> {
    messages: Streaming<T>,
    timeout: Duration,
}

impl<T> Replies<T> {
    /// Returns the next message; `None` after the last. Fails if it does not arrive
    /// within the client's timeout.
    pub async fn next(&mut self) -> Result<Option<T>, Status> {
        let next = tokio::time::timeout(self.timeout, self.messages.message()).await;
        next.unwrap_or_else(|_| Err(Status::deadline_exceeded("the server does not answer")))
    }
}

impl Client {
    /// Connects to `host:port` in plain text, or `https://host` with TLS.
    pub fn connect<'a>(endpoint: &'a str, tls: &'a Tls) -> Pending<'a, Result<Client, Status>> {
        Box::pin(async move {
            let transport = Transport::connect(endpoint, tls).await?;
            Ok(Client { transport, timeout: TIMEOUT })
        })
    }

    /// Calls services of this process.
    pub fn in_process(services: impl Into<Services>) -> Client {
        Client { transport: Transport::InProcess(services.into()), timeout: TIMEOUT }
    }

    /// Sets the timeout of a call, or of each message of a long one.
    pub fn with_timeout(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    fn calls(&self) -> TabletAdminClient<Transport> {
        TabletAdminClient::new(self.transport.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    fn replies<T>(&self, messages: Streaming<T>) -> Replies<T> {
        Replies { messages, timeout: self.timeout }
    }

    /// Returns the tablets of a table, in row order.
    pub fn tablets<'a>(&'a self, table: &'a str) -> Pending<'a, Result<Vec<Tablet>, Status>> {
        Box::pin(async move {
            let request = self.request(ListTabletsRequest { table: table.into() });
            let mut messages = self.calls().list_tablets(request).await?.into_inner();
            let mut tablets = Vec::new();
            while let Some(message) = messages.message().await? {
                tablets.extend(message.tablets);
            }
            Ok(tablets)
        })
    }

    /// Splits the tablet with `row` before that row. Returns whether it did: the row may
    /// already be the first of a tablet.
    pub fn split<'a>(&'a self, table: &'a str, row: &'a [u8]) -> Pending<'a, Result<bool, Status>> {
        Box::pin(async move {
            let (table, row) = (table.into(), Bytes::copy_from_slice(row));
            let request = self.request(SplitTabletRequest { table, row });
            Ok(self.calls().split_tablet(request).await?.into_inner().created)
        })
    }

    /// Joins the two tablets that meet at `row`.
    pub fn join<'a>(&'a self, table: &'a str, row: &'a [u8]) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let (table, row) = (table.into(), Bytes::copy_from_slice(row));
            let request = self.request(JoinTabletsRequest { table, row });
            self.calls().join_tablets(request).await.map(drop)
        })
    }

    /// Loads the unloaded tablets that have rows in a range. Returns how many.
    pub fn load<'a>(&'a self, table: &'a str, rows: RowRange) -> Pending<'a, Result<u64, Status>> {
        Box::pin(async move {
            let (table, rows) = (table.into(), Some(rows));
            let request = self.request(LoadTabletsRequest { table, rows });
            Ok(self.calls().load_tablets(request).await?.into_inner().loaded)
        })
    }

    /// Unloads the tablets that have rows in a range. Returns how many.
    pub fn unload<'a>(
        &'a self,
        table: &'a str,
        rows: RowRange,
    ) -> Pending<'a, Result<u64, Status>> {
        Box::pin(async move {
            let (table, rows) = (table.into(), Some(rows));
            let request = self.request(UnloadTabletsRequest { table, rows });
            Ok(self.calls().unload_tablets(request).await?.into_inner().unloaded)
        })
    }

    /// Deletes unused files of the server's object store; with `dry_run` only reports them.
    pub fn collect(&self, dry_run: bool) -> Pending<'_, Result<CollectFilesReply, Status>> {
        Box::pin(async move {
            let request = self.request(CollectFilesRequest { dry_run });
            Ok(self.calls().collect_files(request).await?.into_inner())
        })
    }

    /// Returns the locality groups of a table.
    pub fn schema<'a>(&'a self, table: &'a str) -> Pending<'a, Result<EngineSchema, Status>> {
        Box::pin(async move {
            let request = self.request(GetSchemaRequest { table: table.into() });
            let schema = self.calls().get_schema(request).await?.into_inner().schema;
            let schema = EngineSchema::try_from(schema.ok_or(Error::NoSchema)?)?;
            Ok(schema)
        })
    }

    /// Creates a table with locality groups, split at some rows.
    pub fn create<'a>(
        &'a self,
        table: &'a str,
        schema: &'a EngineSchema,
        splits: Vec<Bytes>,
    ) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let (table, schema) = (table.into(), Some(schema.into()));
            let request = self.request(CreateTableRequest { table, schema, splits });
            self.calls().create_table(request).await.map(drop)
        })
    }

    /// Replaces the families and locality groups of a table. Families that the schema
    /// lacks are dropped only if `drop_families` is set.
    pub fn alter<'a>(
        &'a self,
        table: &'a str,
        schema: &'a EngineSchema,
        drop_families: bool,
    ) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let (table, schema) = (table.into(), Some(schema.into()));
            let request = self.request(AlterTableRequest { table, schema, drop_families });
            self.calls().alter_table(request).await.map(drop)
        })
    }

    /// Flushes and compacts a table. Dropping the replies ends the work after the
    /// current tablet.
    pub fn compact<'a>(
        &'a self,
        table: &'a str,
    ) -> Pending<'a, Result<Replies<CompactTableReply>, Status>> {
        Box::pin(async move {
            let request = CompactTableRequest { table: table.into() };
            Ok(self.replies(self.calls().compact_table(request).await?.into_inner()))
        })
    }

    /// Checks all files of a table. Dropping the replies ends the work after the current
    /// file.
    pub fn verify<'a>(
        &'a self,
        table: &'a str,
    ) -> Pending<'a, Result<Replies<VerifyTableReply>, Status>> {
        Box::pin(async move {
            let request = VerifyTableRequest { table: table.into() };
            Ok(self.replies(self.calls().verify_table(request).await?.into_inner()))
        })
    }

    /// Returns the config of the server, or the part about one table.
    pub fn dump_config<'a>(
        &'a self,
        table: Option<&'a str>,
    ) -> Pending<'a, Result<Replies<DumpConfigReply>, Status>> {
        Box::pin(async move {
            let request = DumpConfigRequest { table: table.unwrap_or_default().into() };
            Ok(self.replies(self.calls().dump_config(request).await?.into_inner()))
        })
    }

    /// Creates a backup of a table, which expires at a time in microseconds since 1970 or
    /// never.
    pub fn create_backup<'a>(
        &'a self,
        table: &'a str,
        backup: &'a str,
        expires_micros: Option<i64>,
    ) -> Pending<'a, Result<Backup, Status>> {
        Box::pin(async move {
            let (table, backup) = (table.into(), backup.into());
            let request = self.request(CreateBackupRequest { table, backup, expires_micros });
            Ok(self.calls().create_backup(request).await?.into_inner())
        })
    }

    /// Returns all backups, or those of one table, oldest first.
    pub fn backups<'a>(
        &'a self,
        table: Option<&'a str>,
    ) -> Pending<'a, Result<Vec<Backup>, Status>> {
        Box::pin(async move {
            let table = table.unwrap_or_default().into();
            let request = self.request(ListBackupsRequest { table });
            Ok(self.calls().list_backups(request).await?.into_inner().backups)
        })
    }

    /// Returns a backup.
    pub fn backup<'a>(&'a self, backup: &'a str) -> Pending<'a, Result<Backup, Status>> {
        Box::pin(async move {
            let request = self.request(GetBackupRequest { backup: backup.into() });
            Ok(self.calls().get_backup(request).await?.into_inner())
        })
    }

    /// Deletes a backup.
    pub fn delete_backup<'a>(&'a self, backup: &'a str) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let request = self.request(DeleteBackupRequest { backup: backup.into() });
            self.calls().delete_backup(request).await.map(drop)
        })
    }

    /// Creates a table from a backup.
    pub fn restore<'a>(
        &'a self,
        backup: &'a str,
        table: &'a str,
    ) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let (backup, table) = (backup.into(), table.into());
            let request = self.request(RestoreTableRequest { backup, table });
            self.calls().restore_table(request).await.map(drop)
        })
    }

    /// Returns the deleted tables that can be brought back.
    pub fn deleted(&self) -> Pending<'_, Result<Vec<DeletedTable>, Status>> {
        Box::pin(async move {
            let request = self.request(ListDeletedTablesRequest {});
            Ok(self.calls().list_deleted_tables(request).await?.into_inner().tables)
        })
    }

    /// Brings a deleted table back.
    pub fn undelete<'a>(&'a self, table: &'a str) -> Pending<'a, Result<(), Status>> {
        Box::pin(async move {
            let request = self.request(UndeleteTableRequest { table: table.into() });
            self.calls().undelete_table(request).await.map(drop)
        })
    }
}
