//! Checks that a store keeps the promises that correctness depends on, with objects of
//! its own that it deletes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::bucket::{Bucket, Created};
use crate::key;
use crate::{Error, Result, new_cluster};

/// Races between creates of one object.
const ROUNDS: usize = 3;
const RACERS: usize = 16;

/// Probes a store. Its objects are deleted also if it fails.
pub async fn probe(bucket: &Arc<Bucket>, until: Instant) -> Result<()> {
    let folder = format!("{}/{}", key::PROBES, new_cluster()?);
    let outcome = check(bucket, &folder, until).await;
    let deleted = delete(bucket, &folder, until).await;
    outcome.and(deleted)
}

async fn check(bucket: &Arc<Bucket>, folder: &str, until: Instant) -> Result<()> {
    let unfit = |why: &str| {
        Err(Error::Unfit { address: bucket.address().to_string(), why: why.to_string() })
    };
    let object = format!("{folder}/object");
    let first = [Bytes::from_static(b"0123456789")];
    bucket.create_own(&object, &first, until).await?;
    let second = [Bytes::from_static(b"a second object")];
    if bucket.create(&object, &second, until).await? != Created::Exists {
        return unfit("an object was created a second time");
    }
    if bucket.get_whole(&object, until).await?.as_ref() != Some(&first[0]) {
        return unfit("an object that was written was not read back");
    }
    if bucket.get(&object, 3..7, until).await? != first[0][3..7] {
        return unfit("a read of some bytes of an object returned others");
    }
    if bucket.list(folder, until).await? != [(object.clone(), first[0].len() as u64)] {
        return unfit("an object that was written is not listed");
    }
    for round in 0..ROUNDS {
        if !race(bucket, &format!("{folder}/race-{round}"), until).await? {
            return unfit("several concurrent creates of one object succeeded");
        }
    }
    bucket.delete(&object, until).await?;
    if bucket.get_whole(&object, until).await?.is_some() {
        return unfit("an object that was deleted can be read");
    }
    Ok(())
}

/// Lets many create the same object. Reports whether at most one was told that it did, and
/// the object is its own. None may be told so if the answer was lost.
async fn race(bucket: &Arc<Bucket>, object: &str, until: Instant) -> Result<bool> {
    let create = |racer: usize| {
        let (bucket, object) = (bucket.clone(), object.to_string());
        // Tasks, so that the requests run on all threads.
        tokio::spawn(async move { bucket.create(&object, &[mark(racer)], until).await })
    };
    let outcomes = join_all((0..RACERS).map(create)).await;
    let mut winners = Vec::new();
    for (racer, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.map_err(|error| Error::Settings(format!("probe: {error}")))?;
        if outcome? == Created::New {
            winners.push(racer);
        }
    }
    let Some(found) = bucket.get_whole(object, until).await? else { return Ok(false) };
    let expected = match winners[..] {
        [] => (0..RACERS).any(|racer| found == mark(racer)),
        [winner] => found == mark(winner),
        _ => false,
    };
    Ok(expected)
}

/// Returns the contents that a racer writes.
fn mark(racer: usize) -> Bytes {
    Bytes::from(format!("racer {racer} {}", "x".repeat(1000)))
}

async fn delete(bucket: &Bucket, folder: &str, until: Instant) -> Result<()> {
    for (object, _) in bucket.list(folder, until).await? {
        bucket.delete(&object, until).await?;
    }
    Ok(())
}
