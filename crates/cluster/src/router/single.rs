//! Calls about one row: MutateRow, CheckAndMutateRow, ReadModifyWriteRow.

use bytes::Bytes;
use stele_grpc::MessageBody;
use stele_grpc::frame::PREFIX_BYTES;
use tonic::body::Body;
use tonic::{Code, Status};

use super::call::Call;
use super::front::{Front, NoAnswer, lost, unreachable};
use super::patience::{Patience, nobody_serves};
use super::reply::{End, Reply, is_not_loaded};
use super::wire;

/// The fields that all of these requests have.
const TABLE_NAME: u32 = 1;
const ROW_KEY: u32 = 2;

pub async fn answer(
    front: &Front,
    call: Call,
    frame: Bytes,
) -> Result<http::Response<Body>, Status> {
    let Ok([name, row]) = wire::bytes_of(&frame[PREFIX_BYTES..], [TABLE_NAME, ROW_KEY]) else {
        return Ok(front.here(&call, frame).await);
    };
    let Some(table) = front.table(&call, name).await? else {
        return Ok(front.here(&call, frame).await);
    };
    let mut patience = Patience::of(&call);
    let mut outdated = None;
    loop {
        let routes = front.routes().table(table, outdated).await;
        let route = routes.map_err(|error| unreachable(&error))?.route(row);
        let obstacle = match &route.owner {
            None => nobody_serves(),
            Some(owner) => match front.send(owner, &call, frame.clone()).await {
                Ok(response) => match Reply::new(response).all().await {
                    (messages, End::Status(status)) if status.code() == Code::Ok => {
                        return Ok(MessageBody::of(messages));
                    }
                    (_, End::Status(status)) if is_not_loaded(&status) => status,
                    (_, End::Status(status)) => return Err(status),
                    (_, End::Broken(why)) => return Err(lost(owner, &why)),
                },
                Err(NoAnswer::NotSent(status)) => status,
                Err(NoAnswer::Lost(status)) => return Err(status),
            },
        };
        patience.wait(obstacle).await?;
        outdated = Some(route.version);
    }
}
