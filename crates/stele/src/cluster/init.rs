//! `stele cluster init`.

use anyhow::{Context, bail};

use super::ClusterFlags;
use crate::Outcome;
use crate::output::print_line;

/// The store is only probed; a cache of this size is created and removed.
const CACHE_BYTES: u64 = 64 << 20;

pub async fn run(flags: &ClusterFlags, store: &str) -> anyhow::Result<Outcome> {
    let access = flags.open().await?;
    let (record, is_new) = access.create(store).await?;
    if !is_new && record.store != store {
        bail!(
            "cluster {} exists, with its files in {}: choose another name, or that store",
            flags.name,
            record.store
        );
    }
    let (url, id) = (store.to_string(), record.id.clone());
    let claimed = tokio::task::spawn_blocking(move || claim(&url, &id)).await?;
    if let Err(error) = claimed {
        if is_new {
            // So that the same name can be used with another store.
            access.remove(&record).await?;
        }
        return Err(error);
    }
    let what = if is_new { "created" } else { "exists already" };
    print_line(&format!("cluster {} {what}: id {}, files in {store}", flags.name, record.id))?;
    print_line(&format!(
        "start its servers with: stele serve --cluster {} --coordinator {} --store {store}",
        flags.name, flags.coordinator
    ))?;
    Ok(Outcome::Sound)
}

/// Probes the store and makes it that of the cluster.
fn claim(url: &str, id: &str) -> anyhow::Result<()> {
    let cache = tempfile::tempdir().context("creating a temporary directory")?;
    let mut open = stele_objects::Settings::new(cache.path(), CACHE_BYTES);
    open.cluster = Some(id.to_string());
    stele_objects::open(url, open).with_context(|| format!("--store {url}"))?.close();
    Ok(())
}
