//! The objects of logs on a bucket, for servers that share it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use stele_engine::world::{Created, Done, LogSlot, LogStore};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::bucket::{Bucket, Created as Put};
use crate::key;
use crate::reply::Reply;

/// The logs in a store. Their requests end when the store is dropped.
pub struct LogObjects {
    bucket: Arc<Bucket>,
    handle: Handle,
}

impl LogObjects {
    pub(crate) fn new(bucket: Arc<Bucket>, handle: Handle) -> LogObjects {
        LogObjects { bucket, handle }
    }

    /// Runs a request and reports its outcome.
    fn spawn<T: Send + 'static>(
        &self,
        done: Done<T>,
        request: impl Future<Output = crate::Result<T>> + Send + 'static,
    ) {
        let reply = Reply::new(done);
        self.handle.spawn(async move { reply.send(request.await.map_err(io::Error::from)) });
    }
}

/// Creates an object in one attempt: the log itself decides when to make another, because
/// it must stop when its lease has lapsed.
async fn create(bucket: &Bucket, key: &str, bytes: Bytes) -> crate::Result<Created> {
    match bucket.create(key, &[bytes], Instant::now()).await? {
        Put::New => Ok(Created::New),
        // Stores report a conflict with a concurrent write in the same way, although that
        // write may still fail. To the log an object that exists and is then missing means
        // that another server has taken over.
        Put::Exists if bucket.exists(key, bucket.deadline()).await? => Ok(Created::Exists),
        Put::Exists => Err(bucket.conflict(key)),
    }
}

impl LogStore for LogObjects {
    fn create(&self, at: LogSlot, bytes: Bytes, done: Done<Created>) {
        let bucket = self.bucket.clone();
        self.spawn(done, async move { create(&bucket, &key::of_log(at), bytes).await });
    }

    fn read(&self, at: LogSlot, done: Done<Option<Bytes>>) {
        let bucket = self.bucket.clone();
        self.spawn(
            done,
            async move { bucket.get_whole(&key::of_log(at), bucket.deadline()).await },
        );
    }

    fn delete(&self, at: LogSlot, done: Done<()>) {
        let bucket = self.bucket.clone();
        self.spawn(done, async move { bucket.delete(&key::of_log(at), bucket.deadline()).await });
    }

    fn list(&self, epoch: u64, done: Done<Vec<u64>>) {
        let bucket = self.bucket.clone();
        self.spawn(done, async move {
            let objects = bucket.list(&key::log_folder(epoch), bucket.deadline()).await?;
            let slot = |(key, _): &(String, u64)| {
                key::parse_log(key).filter(|at| at.epoch == epoch).map(|at| at.slot)
            };
            let mut slots: Vec<u64> = objects.iter().filter_map(slot).collect();
            slots.sort_unstable();
            Ok(slots)
        });
    }

    fn address(&self) -> String {
        self.bucket.address().to_string()
    }
}
