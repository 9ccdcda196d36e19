//! Clients of the kinds of stores.

use std::path::Path as FilePath;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use crate::address::Bucket as Named;
use crate::transport::{Limits, Transport};
use crate::{Address, Error, Result, Settings};

pub struct Connected {
    pub store: Arc<dyn ObjectStore>,
    pub parts: Option<Arc<dyn MultipartStore>>,
    pub prefix: String,
}

/// Creates the client of a store.
pub fn connect(address: &Address, settings: &Settings) -> Result<Connected> {
    let failed = |why: object_store::Error| Error::Client {
        address: address.to_string(),
        why: why.to_string(),
    };
    match address {
        Address::S3(bucket) => {
            let builder = s3(address, bucket, settings)?;
            let s3 = builder.build().map_err(failed)?;
            Ok(Connected::in_parts(s3, bucket))
        }
        Address::Google(bucket) => {
            let store = google(bucket, settings).build().map_err(failed)?;
            Ok(Connected::in_parts(store, bucket))
        }
        Address::Azure(bucket) => {
            let store = azure(bucket, settings).build().map_err(failed)?;
            Ok(Connected::in_parts(store, bucket))
        }
        Address::Directory(dir) => directory(dir)
            .map_err(|why| Error::Client { address: address.to_string(), why: why.to_string() }),
    }
}

impl Connected {
    fn in_parts<S: ObjectStore + MultipartStore>(store: S, bucket: &Named) -> Connected {
        let store = Arc::new(store);
        Connected { store: store.clone(), parts: Some(store), prefix: bucket.prefix.clone() }
    }
}

/// Retries are those of `Bucket`: they know which outcomes are in doubt.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn transport(settings: &Settings, conditional_complete: bool) -> Transport {
    Transport::new(Limits { timeout: settings.request_timeout, conditional_complete })
}

/// Returns the given variables whose names are options of a store.
fn options<K: FromStr>(settings: &Settings) -> impl Iterator<Item = (K, &str)> {
    settings.environment.0.iter().filter_map(|(name, value)| {
        let key = name.to_ascii_lowercase().parse().ok()?;
        Some((key, value.as_str()))
    })
}

fn s3(address: &Address, bucket: &Named, settings: &Settings) -> Result<AmazonS3Builder> {
    let builder = options(settings)
        .fold(AmazonS3Builder::from_env(), |builder, (key, value)| builder.with_config(key, value));
    let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint).or(value(AmazonS3ConfigKey::Endpoint));
    let plain_text = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    if is_plain && plain_text.as_deref() != Some("true") {
        let why = "its endpoint is plain http: use https, or set AWS_ALLOW_HTTP=true";
        return Err(Error::Client { address: address.to_string(), why: why.into() });
    }
    Ok(builder
        .with_bucket_name(&bucket.name)
        .with_http_connector(transport(settings, true))
        .with_retry(no_retries())
        .with_disable_bulk_delete(true))
}

fn google(bucket: &Named, settings: &Settings) -> GoogleCloudStorageBuilder {
    options::<GoogleConfigKey>(settings)
        .fold(GoogleCloudStorageBuilder::from_env(), |builder, (key, value)| {
            builder.with_config(key, value)
        })
        .with_bucket_name(&bucket.name)
        .with_http_connector(transport(settings, false))
        .with_retry(no_retries())
}

fn azure(bucket: &Named, settings: &Settings) -> MicrosoftAzureBuilder {
    options::<AzureConfigKey>(settings)
        .fold(MicrosoftAzureBuilder::from_env(), |builder, (key, value)| {
            builder.with_config(key, value)
        })
        .with_container_name(&bucket.name)
        .with_http_connector(transport(settings, false))
        .with_retry(no_retries())
}

/// Opens a directory. Files and their directory entries are synced before a write
/// succeeds.
fn directory(dir: &FilePath) -> std::io::Result<Connected> {
    std::fs::create_dir_all(dir)?;
    let store = LocalFileSystem::new_with_prefix(dir).map_err(std::io::Error::other)?;
    let store = Arc::new(store.with_fsync(true));
    Ok(Connected { store, parts: None, prefix: String::new() })
}
