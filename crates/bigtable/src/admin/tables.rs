//! The table admin service: each method validates its request and delegates to
//! the registry.

use std::sync::Arc;

use stele_engine::world::Clock;
use stele_engine::{RowRange, Txn};
use tonic::{Request, Response, Status};

use super::operations::TableUpdate;
use super::services::blocking;
use super::update::Update;
use super::view::TableView;
use super::{consistency_token, create, list, modify};
use crate::error::{Error, Result};
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdmin;
use crate::proto::admin::drop_row_range_request::Target;
use crate::proto::admin::{
    CheckConsistencyRequest, CheckConsistencyResponse, CreateTableRequest, DeleteTableRequest,
    DropRowRangeRequest, GenerateConsistencyTokenRequest, GenerateConsistencyTokenResponse,
    GetTableRequest, ListTablesRequest, ListTablesResponse, ModifyColumnFamiliesRequest, Table,
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
        let table = blocking(move || tables.create(&name, definition)).await?;
        Ok(Response::new(TableView::Schema.render(&table)))
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
        Ok(Response::new(view.render(&table)))
    }

    async fn update_table(
        &self,
        request: Request<UpdateTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = request.get_ref().table.as_ref().map_or("", |table| &table.name);
        reserved::check(request.extensions(), name)?;
        let start_micros = self.clock.now_micros();
        let update = Update::from_request(request.into_inner())?;
        let tables = self.tables.clone();
        let table = blocking(move || {
            tables.alter(&update.name, |definition| Ok(update.successor(definition)))
        });
        let table = table.await?;
        let done = TableUpdate { start_micros, end_micros: self.clock.now_micros() };
        Ok(Response::new(done.operation(self.tables.store_id(), &table)))
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
        Ok(Response::new(TableView::Schema.render(&*table.await?)))
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
