//! The calls of the generated service. Each runs the core on a thread suited to its
//! cost, and replies when the commits that the reply is based on are durable. A
//! streamed vector is received completely before it is processed (`stream`).

use std::pin::Pin;
use std::sync::Arc;

use stele_engine::Txn;
use stele_grpc::offload::Cost;
use stele_tables::Misses;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::error::Result;
use crate::proto::catalogues_server::Catalogues as Served;
use crate::proto::*;
use crate::server::routed;
use crate::service::{Cancellation, Catalogues, Waiting, Written};
use crate::stream::{Capacity, receive};

/// The number of elements that are processed in less than about a millisecond.
const SHORT_MAX: usize = 1000;

/// The cost of each call. Reads and writes of a short vector run on the current thread:
/// a write that has to wait for a lock or for capacity notifies the runtime itself.
mod cost {
    use super::{Cost, SHORT_MAX};

    /// Waits for other creations.
    pub const CREATE: Cost = Cost::Blocking;
    /// Waits for writers of the catalogues, and for the disk.
    pub const DELETE: Cost = Cost::Blocking;
    /// Reads a part of the meta-catalogue, and opens the listed catalogues.
    pub const LIST: Cost = Cost::Long;
    /// Counts all records of a range.
    pub const COUNT: Cost = Cost::Long;
    pub const DEL_RANGE: Cost = Cost::Long;
    /// Counts the records of the service's own catalogues.
    pub const STAT: Cost = Cost::Long;
    /// A vector that was received in several messages.
    pub const STREAM: Cost = Cost::Long;

    /// Returns the cost of a put, delete or lookup of each element of a vector.
    pub fn of_vector(elements: usize) -> Cost {
        if elements > SHORT_MAX { Cost::Long } else { Cost::Small }
    }
}

pub struct Calls {
    service: Arc<Catalogues>,
    /// The capacity for streamed requests in progress.
    capacity: Capacity,
}

impl Calls {
    pub fn new(service: Arc<Catalogues>) -> Calls {
        Calls { service, capacity: Capacity::default() }
    }

    /// Runs a call. Work that fails because a tablet is being loaded, or because bytes of a
    /// file are not on this machine, which it does before it writes, is repeated when they
    /// are.
    async fn run<R: Send + 'static, T: Send + 'static>(
        &self,
        cost: Cost,
        mut request: R,
        work: impl Fn(&Arc<Catalogues>, &R) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T, Status> {
        let mut misses = Misses::default();
        loop {
            let (service, work) = (self.service.clone(), work.clone());
            let run = cost.run(move || (work(&service, &request), request));
            let (outcome, same) = run.await?;
            match outcome {
                Ok(done) => return Ok(done),
                Err(error) => self.service.available(error, &mut misses).await?,
            }
            request = same;
        }
    }

    /// Like [`Calls::run`], for long work: it ends when the call is dropped.
    async fn run_cancellable<R: Send + 'static, T: Send + 'static>(
        &self,
        cost: Cost,
        request: R,
        work: impl Fn(&Arc<Catalogues>, &R, &Cancellation) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T, Status> {
        let waiting = Waiting::default();
        let cancellation = waiting.cancellation();
        let done = self.run(cost, request, move |service, it| work(service, it, &cancellation));
        let done = done.await;
        drop(waiting);
        done
    }

    /// Runs a call that may write: the reply waits until the write is durable.
    async fn write<R: Send + 'static, T: Send + 'static>(
        &self,
        cost: Cost,
        request: R,
        work: impl Fn(&Arc<Catalogues>, &R) -> Result<Written<T>> + Clone + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let written = self.run(cost, request, work).await?;
        replied(self.service.when_durable(written).await?)
    }
}

fn replied<T>(reply: T) -> Result<Response<T>, Status> {
    Ok(Response::new(reply))
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Served for Calls {
    type GetStream = Streamed<GetReply>;
    type NextStream = Streamed<NextReply>;
    type PrevStream = Streamed<NextReply>;

    async fn create(
        &self,
        request: Request<CreateRequest>,
    ) -> Result<Response<CataloguesReply>, Status> {
        self.write(cost::CREATE, request.into_inner(), |service, it| service.create(it)).await
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<CataloguesReply>, Status> {
        self.write(cost::DELETE, request.into_inner(), |service, it| service.delete(it)).await
    }

    async fn lookup(
        &self,
        request: Request<LookupRequest>,
    ) -> Result<Response<CataloguesReply>, Status> {
        let request = request.into_inner();
        let cost = cost::of_vector(request.fids.len());
        replied(self.run(cost, request, |service, it| service.lookup(it)).await?)
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListReply>, Status> {
        replied(
            self.run_cancellable(cost::LIST, request.into_inner(), |service, it, cancellation| {
                service.list(it, cancellation)
            })
            .await?,
        )
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<WriteReply>, Status> {
        let request = request.into_inner();
        let cost = cost::of_vector(request.records.len());
        self.write(cost, request, |service, it| service.put(it)).await
    }

    async fn put_stream(
        &self,
        request: Request<Streaming<PutRequest>>,
    ) -> Result<Response<WriteReply>, Status> {
        let received = receive(request.into_inner(), &self.capacity).await?;
        // The capacity is released when the vector has been written.
        self.write(cost::STREAM, received, |service, (all, _)| service.put(all)).await
    }

    async fn del(&self, request: Request<DelRequest>) -> Result<Response<WriteReply>, Status> {
        let request = request.into_inner();
        let cost = cost::of_vector(request.keys.len());
        self.write(cost, request, |service, it| service.del(it)).await
    }

    async fn del_stream(
        &self,
        request: Request<Streaming<DelRequest>>,
    ) -> Result<Response<WriteReply>, Status> {
        let received = receive(request.into_inner(), &self.capacity).await?;
        self.write(cost::STREAM, received, |service, (all, _)| service.del(all)).await
    }

    async fn del_range(
        &self,
        request: Request<DelRangeRequest>,
    ) -> Result<Response<WriteReply>, Status> {
        let written = self
            .run_cancellable(cost::DEL_RANGE, request.into_inner(), |service, it, cancellation| {
                service.del_range(it, cancellation)
            })
            .await?;
        replied(self.service.when_durable(written).await?)
    }

    async fn get(&self, _: Request<GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        routed()
    }

    async fn next(&self, _: Request<NextRequest>) -> Result<Response<Self::NextStream>, Status> {
        routed()
    }

    async fn prev(&self, _: Request<NextRequest>) -> Result<Response<Self::PrevStream>, Status> {
        routed()
    }

    async fn count(&self, request: Request<CountRequest>) -> Result<Response<CountReply>, Status> {
        replied(
            self.run_cancellable(cost::COUNT, request.into_inner(), |service, it, cancellation| {
                service.count(it, cancellation)
            })
            .await?,
        )
    }

    async fn stat(&self, request: Request<StatRequest>) -> Result<Response<StatReply>, Status> {
        let written = self
            .run_cancellable(cost::STAT, request.into_inner(), |service, it, cancellation| {
                service.stat(it, cancellation)
            })
            .await?;
        replied(self.service.when_durable(written).await?)
    }

    async fn pin(&self, _: Request<PinRequest>) -> Result<Response<PinReply>, Status> {
        replied(PinReply { txn: self.service.pin()?.raw() })
    }

    async fn unpin(&self, request: Request<UnpinRequest>) -> Result<Response<UnpinReply>, Status> {
        let txn = Txn::from_raw(request.get_ref().txn);
        let held = txn.is_some_and(|txn| self.service.unpin(txn));
        replied(UnpinReply { held })
    }

    async fn fsync(&self, request: Request<FsyncRequest>) -> Result<Response<FsyncReply>, Status> {
        let txn = self.service.known_txn(request.get_ref().txn)?;
        self.service.durable(txn).await?;
        replied(FsyncReply { durable: self.service.durable_txn()?.raw() })
    }

    async fn await_deathrow(
        &self,
        _: Request<AwaitDeathrowRequest>,
    ) -> Result<Response<AwaitDeathrowReply>, Status> {
        self.service.await_deathrow().await;
        replied(AwaitDeathrowReply {})
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use stele_engine::Options;
    use stele_engine::world::World;
    use stele_tables::Tables;

    use super::*;

    #[tokio::test]
    async fn long_work_ends_when_its_call_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Options::default(), World::real()).unwrap();
        let calls = Calls::new(Arc::new(Catalogues::open(tables).unwrap()));
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let (ended, ends) = mpsc::channel();
        let work = move |_: &Arc<Catalogues>, (): &(), cancellation: &Cancellation| {
            begun.send(()).unwrap();
            while cancellation.check().is_ok() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Ok(())
        };
        tokio::select! {
            _ = calls.run_cancellable(Cost::Long, (), work) => panic!("nobody ends it"),
            begun = begins.recv() => begun.unwrap(),
        }
        ends.recv().unwrap();
    }
}
