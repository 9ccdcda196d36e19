//! Long-running operations. The work of an operation is done when its request is answered;
//! what remains is its record, which clients poll, also after a restart.

use std::sync::Arc;

use prost::Message;
use prost_types::{Any, Timestamp};
use tonic::{Request, Response, Status};

use super::paging::{PAGE_ITEMS_MAX, Page, page_size};
use super::services::blocking;
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::longrunning::operation;
use crate::proto::longrunning::operations_server::Operations;
use crate::proto::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest,
};
use crate::records::{Change, Records};
use crate::reserved;
use crate::table::Tables;

const PREFIX: &str = "operations/";
const INFIX: &str = "/operations/";
const TYPE_URL_PREFIX: &str = "type.googleapis.com/google.bigtable.admin.v2.";
/// Beyond this number, the oldest operations are forgotten.
const OPERATIONS_MAX: usize = 10_000;

/// Returns an operation that is done, and the changes that record it. Called while records
/// change, so that its name is unique.
pub fn finished(
    records: &Records,
    now_micros: i64,
    resource: &str,
    metadata: Any,
    response: Any,
) -> (Vec<Change>, Operation) {
    let known = records.names(PREFIX);
    let numbers = known.iter().filter_map(|name| Some((number_of(name)?, name)));
    let newest = numbers.clone().map(|(number, _)| number).max().unwrap_or(0);
    let number = newest.saturating_add(1).max(u64::try_from(now_micros).unwrap_or(0));
    let operation = Operation {
        name: format!("{PREFIX}{resource}{INFIX}{number}"),
        metadata: Some(metadata),
        done: true,
        result: Some(operation::Result::Response(response)),
    };
    let mut changes = vec![Change::put(operation.name.clone(), &operation)];
    if known.len() >= OPERATIONS_MAX
        && let Some((_, oldest)) = numbers.min()
    {
        changes.push(Change::delete(oldest.clone()));
    }
    (changes, operation)
}

/// Records an operation whose work was done without records.
pub fn record(
    records: &Records,
    now_micros: i64,
    resource: &str,
    metadata: Any,
    response: Any,
) -> Result<Operation> {
    records.change(|| Ok(finished(records, now_micros, resource, metadata, response)))
}

fn number_of(name: &str) -> Option<u64> {
    name.rsplit_once(INFIX)?.1.parse().ok()
}

/// Serves operations by name.
pub struct OperationsAdmin {
    tables: Arc<Tables>,
}

impl OperationsAdmin {
    pub fn new(tables: Arc<Tables>) -> OperationsAdmin {
        OperationsAdmin { tables }
    }

    fn find<T>(&self, request: &Request<T>, name: &str) -> Result<Operation, Status> {
        reserved::check(request.extensions(), name.trim_start_matches(PREFIX))?;
        let found = match name.starts_with(PREFIX) {
            true => self.tables.records().get(name)?,
            false => None,
        };
        Ok(found.ok_or_else(|| not_found(name))?)
    }
}

fn not_found(name: &str) -> Error {
    Error::NotFound(format!("Operation not found: {}", excerpt(name)))
}

#[tonic::async_trait]
impl Operations for OperationsAdmin {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.find(&request, &request.get_ref().name).map(Response::new)
    }

    /// Lists the operations of a resource and of those below it, by name.
    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let ListOperationsRequest { name, filter, page_size: size, page_token, .. } =
            request.get_ref();
        let resource = name.trim_start_matches(PREFIX).trim_matches('/');
        let resource = resource.strip_suffix("/operations").unwrap_or(resource);
        let resource = if resource == "operations" { "" } else { resource };
        reserved::check(request.extensions(), resource)?;
        if !filter.is_empty() {
            let what = "Error in field 'filter' : operations cannot be filtered: all are done";
            return Err(Error::invalid(what).into());
        }
        let is_shown = |name: &str| {
            let of = &name[PREFIX.len()..];
            let below = of.strip_prefix(resource);
            below.is_some_and(|rest| resource.is_empty() || rest.starts_with('/'))
                && reserved::check(request.extensions(), of).is_ok()
        };
        let size = page_size(*size, PAGE_ITEMS_MAX)?;
        let found = self.tables.records().list::<Operation>(PREFIX, is_shown)?;
        let page = Page::of(found, size, page_token, PREFIX)?;
        Ok(Response::new(ListOperationsResponse {
            operations: page.items,
            next_page_token: page.next_token,
            unreachable: Vec::new(),
        }))
    }

    /// Returns at once: every operation is done.
    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.find(&request, &request.get_ref().name).map(Response::new)
    }

    /// Changes nothing: an operation that is done cannot be cancelled.
    async fn cancel_operation(
        &self,
        request: Request<CancelOperationRequest>,
    ) -> Result<Response<()>, Status> {
        self.find(&request, &request.get_ref().name)?;
        Ok(Response::new(()))
    }

    async fn delete_operation(
        &self,
        request: Request<DeleteOperationRequest>,
    ) -> Result<Response<()>, Status> {
        self.find(&request, &request.get_ref().name)?;
        let (tables, name) = (self.tables.clone(), request.into_inner().name);
        let forget = move || {
            let records = tables.records();
            records.change(|| match records.contains(&name) {
                true => Ok((vec![Change::delete(name.clone())], ())),
                false => Err(not_found(&name)),
            })
        };
        blocking(forget).await?;
        Ok(Response::new(()))
    }
}

/// Wraps a message of the admin API.
pub fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPE_URL_PREFIX}{name}"), value: message.encode_to_vec() }
}

pub fn timestamp(micros: i64) -> Timestamp {
    let nanos = micros.rem_euclid(1_000_000) * 1000;
    Timestamp { seconds: micros.div_euclid(1_000_000), nanos: nanos as i32 }
}
