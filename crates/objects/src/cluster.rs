//! The object that says to which cluster a prefix belongs.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::bucket::Bucket;
use crate::key;
use crate::{Error, Result};

const VERSION: u32 = 1;

/// The contents of `cluster.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    version: u32,
    cluster: String,
}

/// Returns a new random id of a cluster.
pub fn new_cluster() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Settings(format!("the system has no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the prefix that of `expected`, or of a new cluster, unless it belongs to another
/// one. Returns the id.
pub async fn join(bucket: &Bucket, expected: Option<&str>, until: Instant) -> Result<String> {
    let own = match expected {
        Some(cluster) => cluster.to_string(),
        None => new_cluster()?,
    };
    let identity = Identity { version: VERSION, cluster: own.clone() };
    let text = serde_json::to_vec(&identity).expect("an identity is plain data");
    // Whoever creates it first is read back by all.
    bucket.create(key::CLUSTER, &[Bytes::from(text)], until).await?;
    let found = read(bucket, until).await?;
    if found == own {
        return Ok(own);
    }
    Err(other(bucket, found, expected))
}

/// Fails unless the prefix belongs to `expected`. Writes nothing. Returns the id.
pub async fn check(bucket: &Bucket, expected: Option<&str>, until: Instant) -> Result<String> {
    let found = read(bucket, until).await?;
    if Some(found.as_str()) == expected {
        return Ok(found);
    }
    Err(other(bucket, found, expected))
}

fn other(bucket: &Bucket, found: String, expected: Option<&str>) -> Error {
    let address = bucket.address().to_string();
    let expected = expected.unwrap_or("no cluster yet").to_string();
    Error::OtherCluster { address, found, expected }
}

async fn read(bucket: &Bucket, until: Instant) -> Result<String> {
    let damaged = |why: String| Error::Identity {
        address: bucket.address().to_string(),
        key: key::CLUSTER.into(),
        why,
    };
    let bytes = bucket
        .get_whole(key::CLUSTER, until)
        .await?
        .ok_or_else(|| damaged("it is missing".into()))?;
    let identity: Identity =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if identity.version != VERSION {
        let why = format!("its version is {}, this program knows {VERSION}", identity.version);
        return Err(damaged(why));
    }
    Ok(identity.cluster)
}
