//! The table admin service: each method validates its request and delegates to
//! the registry.

use std::sync::Arc;

use stele_engine::world::Clock;
use stele_engine::{RowRange, Txn};
use tonic::{Request, Response, Status};

use super::instances::Context;
use super::operations::{any, record, timestamp};
use super::services::blocking;
use super::update::Update;
use super::view::TableView;
use super::{authorized_views, backups, consistency_token, create, list, modify};
use crate::error::{Error, Result};
use crate::name::TableName;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdmin;
use crate::proto::admin::drop_row_range_request::Target;
use crate::proto::admin::restore_table_request::Source;
use crate::proto::admin::{
    AuthorizedView, Backup, CheckConsistencyRequest, CheckConsistencyResponse, CopyBackupRequest,
    CreateAuthorizedViewRequest, CreateBackupRequest, CreateTableRequest,
    DeleteAuthorizedViewRequest, DeleteBackupRequest, DeleteTableRequest, DropRowRangeRequest,
    GenerateConsistencyTokenRequest, GenerateConsistencyTokenResponse, GetAuthorizedViewRequest,
    GetBackupRequest, GetTableRequest, ListAuthorizedViewsRequest, ListAuthorizedViewsResponse,
    ListBackupsRequest, ListBackupsResponse, ListTablesRequest, ListTablesResponse,
    ModifyColumnFamiliesRequest, RestoreTableRequest, Table, UndeleteTableMetadata,
    UndeleteTableRequest, UpdateAuthorizedViewRequest, UpdateBackupRequest, UpdateTableMetadata,
    UpdateTableRequest,
};
use crate::proto::longrunning::Operation;
use crate::reserved;
use crate::table::{self, Definition, ROW_KEY_BYTES_MAX, Tables};

/// Administers the tables of a server.
pub struct TableAdmin {
    tables: Arc<Tables>,
    clock: Arc<dyn Clock>,
}

impl TableAdmin {
    pub fn new(tables: Arc<Tables>, clock: Arc<dyn Clock>) -> TableAdmin {
        TableAdmin { tables, clock }
    }

    /// Makes a change of the named resources on a thread that may block.
    async fn change<R, T>(
        &self,
        request: Request<R>,
        names: impl for<'r> Fn(&'r R) -> Vec<&'r str>,
        change: impl FnOnce(&Context, R) -> Result<T> + Send + 'static,
    ) -> Result<Response<T>, Status>
    where
        R: Send + 'static,
        T: Send + 'static,
    {
        for name in names(request.get_ref()) {
            reserved::check(request.extensions(), name)?;
        }
        let context = Context { tables: self.tables.clone(), now_micros: self.clock.now_micros() };
        let request = request.into_inner();
        blocking(move || change(&context, request)).await.map(Response::new)
    }

    /// Returns the newest durable and the newest accepted txn of a table.
    fn progress(&self, table: &table::Table) -> Result<(Txn, Txn)> {
        let local = self.tables.local(table.id, b"");
        Ok(self.tables.tenure().open(local.progress())?)
    }
}

#[tonic::async_trait]
impl BigtableTableAdmin for TableAdmin {
    async fn create_table(
        &self,
        request: Request<CreateTableRequest>,
    ) -> Result<Response<Table>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let compression = create::compression(request.metadata())?;
        let (name, definition) = create::validate(request.into_inner())?;
        let definition = Definition { compression, ..definition };
        let tables = self.tables.clone();
        let create = move || {
            if tables.is_strict() {
                tables.instances().check(TableName::parse(&name)?.instance)?;
            }
            tables.create(&name, definition)
        };
        let table = blocking(create).await?;
        Ok(Response::new(TableView::Schema.render(&self.tables, &table)))
    }

    async fn list_tables(
        &self,
        request: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        Ok(Response::new(list::page(&self.tables, request.get_ref())?))
    }

    async fn get_table(
        &self,
        request: Request<GetTableRequest>,
    ) -> Result<Response<Table>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let request = request.get_ref();
        let view = TableView::from_request(request.view, TableView::Schema)?;
        let table = self.tables.get(&request.name)?;
        Ok(Response::new(view.render(&self.tables, &table)))
    }

    async fn update_table(
        &self,
        request: Request<UpdateTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn name_of(request: &UpdateTableRequest) -> Vec<&str> {
            vec![request.table.as_ref().map_or("", |table| &table.name)]
        }
        let update = |context: &Context, request| {
            let Context { tables, now_micros } = context;
            let update = Update::from_request(request)?;
            let table =
                tables.alter(&update.name, |definition| Ok(update.successor(definition)))?;
            let time = Some(timestamp(*now_micros));
            let metadata =
                UpdateTableMetadata { name: table.name.clone(), start_time: time, end_time: time };
            let metadata = any("UpdateTableMetadata", &metadata);
            let response = any("Table", &TableView::Schema.render(tables, &table));
            record(tables.records(), *now_micros, &table.name, metadata, response)
        };
        self.change(request, name_of, update).await
    }

    async fn undelete_table(
        &self,
        request: Request<UndeleteTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        let undelete = |context: &Context, request: UndeleteTableRequest| {
            let Context { tables, now_micros } = context;
            let table = tables.undelete(&request.name)?;
            let time = Some(timestamp(*now_micros));
            let metadata = UndeleteTableMetadata {
                name: table.name.clone(),
                start_time: time,
                end_time: time,
            };
            let metadata = any("UndeleteTableMetadata", &metadata);
            let response = any("Table", &TableView::Schema.render(tables, &table));
            record(tables.records(), *now_micros, &table.name, metadata, response)
        };
        self.change(request, |request| vec![&request.name], undelete).await
    }

    async fn delete_table(
        &self,
        request: Request<DeleteTableRequest>,
    ) -> Result<Response<()>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = request.into_inner().name;
        let tables = self.tables.clone();
        blocking(move || tables.drop_table(&name)).await?;
        Ok(Response::new(()))
    }

    async fn modify_column_families(
        &self,
        request: Request<ModifyColumnFamiliesRequest>,
    ) -> Result<Response<Table>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        // There are no warnings here, so there is nothing to ignore.
        let ModifyColumnFamiliesRequest { name, modifications, ignore_warnings: _ } =
            request.into_inner();
        let tables = self.tables.clone();
        let table = blocking(move || {
            tables.alter(&name, |definition| modify::successor(&name, definition, modifications))
        });
        Ok(Response::new(TableView::Schema.render(&self.tables, &*table.await?)))
    }

    async fn drop_row_range(
        &self,
        request: Request<DropRowRangeRequest>,
    ) -> Result<Response<()>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let request = request.into_inner();
        let table = self.tables.get(&request.name)?;
        if let Some(rows) = rows_to_drop(request.target.as_ref())? {
            let tables = self.tables.clone();
            blocking(move || tables.drop_rows(&table, &rows)).await?;
        }
        Ok(Response::new(()))
    }

    async fn generate_consistency_token(
        &self,
        request: Request<GenerateConsistencyTokenRequest>,
    ) -> Result<Response<GenerateConsistencyTokenResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let table = self.tables.get(&request.get_ref().name)?;
        let (_, latest) = self.progress(&table)?;
        let consistency_token = consistency_token::seal(self.tables.store_id(), table.id, latest);
        Ok(Response::new(GenerateConsistencyTokenResponse { consistency_token }))
    }

    async fn check_consistency(
        &self,
        request: Request<CheckConsistencyRequest>,
    ) -> Result<Response<CheckConsistencyResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        // There is one copy of the data, so both modes are equivalent.
        let CheckConsistencyRequest { name, consistency_token, mode: _ } = request.get_ref();
        let table = self.tables.get(name)?;
        let txn = consistency_token::open(self.tables.store_id(), table.id, consistency_token)
            .ok_or_else(|| {
                Error::Invalid(format!("Invalid consistency token: it was not issued for {name}"))
            })?;
        let (durable, _) = self.progress(&table)?;
        Ok(Response::new(CheckConsistencyResponse { consistent: durable >= txn }))
    }

    async fn create_authorized_view(
        &self,
        request: Request<CreateAuthorizedViewRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.change(request, |request| vec![&request.parent], authorized_views::create).await
    }

    async fn list_authorized_views(
        &self,
        request: Request<ListAuthorizedViewsRequest>,
    ) -> Result<Response<ListAuthorizedViewsResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        Ok(Response::new(authorized_views::list(&self.tables, request.get_ref())?))
    }

    async fn get_authorized_view(
        &self,
        request: Request<GetAuthorizedViewRequest>,
    ) -> Result<Response<AuthorizedView>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        Ok(Response::new(authorized_views::get(&self.tables, request.get_ref())?))
    }

    async fn update_authorized_view(
        &self,
        request: Request<UpdateAuthorizedViewRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn name_of(request: &UpdateAuthorizedViewRequest) -> Vec<&str> {
            vec![request.authorized_view.as_ref().map_or("", |view| &view.name)]
        }
        self.change(request, name_of, authorized_views::update).await
    }

    async fn delete_authorized_view(
        &self,
        request: Request<DeleteAuthorizedViewRequest>,
    ) -> Result<Response<()>, Status> {
        self.change(request, |request| vec![&request.name], authorized_views::delete).await
    }

    async fn create_backup(
        &self,
        request: Request<CreateBackupRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn names_of(request: &CreateBackupRequest) -> Vec<&str> {
            let table = request.backup.as_ref().map_or("", |backup| &backup.source_table);
            vec![&request.parent, table]
        }
        self.change(request, names_of, backups::create).await
    }

    async fn get_backup(
        &self,
        request: Request<GetBackupRequest>,
    ) -> Result<Response<Backup>, Status> {
        let get = |context: &Context, request: GetBackupRequest| {
            Ok(backups::find(&context.tables, &request.name)?.message)
        };
        self.change(request, |request| vec![&request.name], get).await
    }

    async fn update_backup(
        &self,
        request: Request<UpdateBackupRequest>,
    ) -> Result<Response<Backup>, Status> {
        fn name_of(request: &UpdateBackupRequest) -> Vec<&str> {
            vec![request.backup.as_ref().map_or("", |backup| &backup.name)]
        }
        self.change(request, name_of, backups::update).await
    }

    async fn delete_backup(
        &self,
        request: Request<DeleteBackupRequest>,
    ) -> Result<Response<()>, Status> {
        self.change(request, |request| vec![&request.name], backups::delete).await
    }

    async fn list_backups(
        &self,
        request: Request<ListBackupsRequest>,
    ) -> Result<Response<ListBackupsResponse>, Status> {
        let list = |context: &Context, request: ListBackupsRequest| {
            backups::page(&context.tables, &request)
        };
        self.change(request, |request| vec![&request.parent], list).await
    }

    async fn restore_table(
        &self,
        request: Request<RestoreTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn names_of(request: &RestoreTableRequest) -> Vec<&str> {
            let backup = match &request.source {
                Some(Source::Backup(backup)) => backup,
                None => "",
            };
            vec![&request.parent, backup]
        }
        self.change(request, names_of, backups::restore).await
    }

    async fn copy_backup(
        &self,
        request: Request<CopyBackupRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn names_of(request: &CopyBackupRequest) -> Vec<&str> {
            vec![&request.parent, &request.source_backup]
        }
        self.change(request, names_of, backups::copy).await
    }
}

/// Returns the rows that a request deletes, if any.
fn rows_to_drop(target: Option<&Target>) -> Result<Option<RowRange>> {
    match target {
        None => Err(Error::invalid(
            "Error in field 'target' : one of row_key_prefix and delete_all_data_from_table \
             must be set",
        )),
        Some(Target::DeleteAllDataFromTable(all)) => Ok(all.then(RowRange::all)),
        Some(Target::RowKeyPrefix(prefix)) if prefix.is_empty() => {
            Err(Error::invalid("Error in field 'row_key_prefix' : must be non-empty"))
        }
        Some(Target::RowKeyPrefix(prefix)) if prefix.len() > ROW_KEY_BYTES_MAX => {
            Err(Error::Invalid(format!(
                "Error in field 'row_key_prefix' : {} bytes exceed the limit of {ROW_KEY_BYTES_MAX}",
                prefix.len()
            )))
        }
        Some(Target::RowKeyPrefix(prefix)) => Ok(Some(RowRange::prefix(prefix))),
    }
}
