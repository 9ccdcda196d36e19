//! Long-running operations. Each is done when its request is answered, so no
//! state is kept: its name encodes what a polling client needs, sealed for one
//! table of one store, and stays valid across restarts.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use prost_types::{Any, Timestamp};
use tonic::{Request, Response, Status};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::view::TableView;
use crate::error::Error;
use crate::name::excerpt;
use crate::proto::admin::UpdateTableMetadata;
use crate::proto::longrunning::operation;
use crate::proto::longrunning::operations_server::Operations;
use crate::proto::longrunning::{
    GetOperationRequest, ListOperationsRequest, ListOperationsResponse, Operation,
};
use crate::reserved;
use crate::table::{Table, Tables};

const PREFIX: &str = "operations/";
const INFIX: &str = "/operations/";
const TYPE_URL_PREFIX: &str = "type.googleapis.com/google.bigtable.admin.v2.";
/// The length of an operation id: start, end and seal.
const ID_BYTES: usize = 8 + 8 + 8;

/// A completed UpdateTable operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableUpdate {
    pub start_micros: i64,
    pub end_micros: i64,
}

impl TableUpdate {
    /// Returns the operation message, with the table in its current state.
    pub fn operation(self, store_id: u64, table: &Table) -> Operation {
        let metadata = UpdateTableMetadata {
            name: table.name.clone(),
            start_time: Some(timestamp(self.start_micros)),
            end_time: Some(timestamp(self.end_micros)),
        };
        let response = any("Table", &TableView::Schema.render(table));
        Operation {
            name: format!("{PREFIX}{}{INFIX}{}", table.name, self.seal(store_id, table)),
            metadata: Some(any("UpdateTableMetadata", &metadata)),
            done: true,
            result: Some(operation::Result::Response(response)),
        }
    }

    fn seal(self, store_id: u64, table: &Table) -> String {
        let mut bytes = [0; ID_BYTES];
        bytes[..8].copy_from_slice(&self.start_micros.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end_micros.to_be_bytes());
        let sealed = [&bytes[..16], &table.id.0.to_be_bytes()].concat();
        bytes[16..].copy_from_slice(&xxh3_64_with_seed(&sealed, store_id).to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn open(store_id: u64, table: &Table, id: &str) -> Option<TableUpdate> {
        let bytes: [u8; ID_BYTES] = URL_SAFE_NO_PAD.decode(id).ok()?.try_into().ok()?;
        let number = |at: usize| Some(i64::from_be_bytes(bytes[at..at + 8].try_into().ok()?));
        let update = TableUpdate { start_micros: number(0)?, end_micros: number(8)? };
        (update.seal(store_id, table) == id).then_some(update)
    }
}

/// Serves operations by name.
pub struct TableOperations {
    tables: Arc<Tables>,
}

impl TableOperations {
    pub fn new(tables: Arc<Tables>) -> TableOperations {
        TableOperations { tables }
    }

    fn find(&self, name: &str) -> Option<Operation> {
        let (table, id) = name.strip_prefix(PREFIX)?.rsplit_once(INFIX)?;
        let table = self.tables.get(table).ok()?;
        let update = TableUpdate::open(self.tables.store_id(), &table, id)?;
        Some(update.operation(self.tables.store_id(), &table))
    }
}

#[tonic::async_trait]
impl Operations for TableOperations {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = &request.get_ref().name;
        reserved::check(request.extensions(), name.trim_start_matches(PREFIX))?;
        let operation = self.find(name).ok_or_else(|| {
            Status::from(Error::NotFound(format!("Operation not found: {}", excerpt(name))))
        })?;
        Ok(Response::new(operation))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let name = &request.get_ref().name;
        reserved::check(request.extensions(), name.trim_start_matches(PREFIX))?;
        Ok(Response::new(ListOperationsResponse::default()))
    }
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPE_URL_PREFIX}{name}"), value: message.encode_to_vec() }
}

fn timestamp(micros: i64) -> Timestamp {
    let nanos = micros.rem_euclid(1_000_000) * 1000;
    Timestamp { seconds: micros.div_euclid(1_000_000), nanos: nanos as i32 }
}
