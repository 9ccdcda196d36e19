//! Operations that outlast their request: there are none. Clients that poll
//! one get a clear answer.

use tonic::{Request, Response, Status};

use crate::error::Error;
use crate::name::excerpt;
use crate::proto::longrunning::operations_server::Operations;
use crate::proto::longrunning::{
    GetOperationRequest, ListOperationsRequest, ListOperationsResponse, Operation,
};

/// Serves an empty list of operations.
pub struct NoOperations;

#[tonic::async_trait]
impl Operations for NoOperations {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = excerpt(&request.get_ref().name);
        Err(Error::NotFound(format!("Operation not found: {name}")).into())
    }

    async fn list_operations(
        &self,
        _: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        Ok(Response::new(ListOperationsResponse::default()))
    }
}
