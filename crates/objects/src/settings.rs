//! Settings of a store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Variables that take precedence over those of the process, such as
/// `AWS_ENDPOINT`. Only their names are shown.
#[derive(Clone, Default)]
pub struct Environment(pub Vec<(String, String)>);

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// How a store is opened. Endpoint, region and credentials come from the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the cache. It is created if it does not exist.
    pub cache_dir: PathBuf,
    /// The maximum size of the cache.
    pub cache_bytes: u64,
    /// The id of the cluster that the caller's data belongs to. Without one, the store
    /// must be unused; it then gets a new id. Keep the id of [`new_cluster`](crate::new_cluster)
    /// before the first `open`, so that a crash between the two cannot lose it.
    pub cluster: Option<String>,
    pub environment: Environment,
    /// Whether the store is probed before it is used.
    pub probe: bool,
    /// Nothing is written: the store must belong to `cluster` already, and is not probed.
    pub read_only: bool,
    /// The time limit of one HTTP request, until its response begins and between any two
    /// pieces of it.
    pub request_timeout: Duration,
    /// How long a failed operation is retried.
    pub retry_for: Duration,
    /// The same while the store is opened.
    pub retry_open_for: Duration,
    /// Requests that run at the same time.
    pub requests_max: usize,
    /// Bytes that prefetches may hold at the same time.
    pub prefetch_bytes_max: u64,
}

impl Settings {
    pub fn new(cache_dir: impl Into<PathBuf>, cache_bytes: u64) -> Settings {
        Settings {
            cache_dir: cache_dir.into(),
            cache_bytes,
            cluster: None,
            environment: Environment::default(),
            probe: true,
            read_only: false,
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(60),
            retry_open_for: Duration::from_secs(10),
            requests_max: 64,
            prefetch_bytes_max: 64 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_are_not_shown() {
        let mut settings = Settings::new("/cache", 1 << 30);
        settings.environment.0.push(("AWS_SECRET_ACCESS_KEY".into(), "hidden".into()));
        let shown = format!("{settings:?}");
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("hidden"), "{shown}");
    }
}
