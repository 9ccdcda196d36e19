//! The effective settings, resolved from all sources.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};

use super::super::auth::AuthSettings;
use super::super::cluster::ClusterSettings;
use super::super::inject::{Injector, Rules};
use super::super::metastore::MetastoreSettings;
use super::super::names::NameSettings;
use super::super::sites::Sites;
use super::super::tls;
use super::sources::{ConsoleMode, Flags, LogFormat, PartialSettings};
use super::values::{Port, Size, TimeSpan};

const DATA_DIR: &str = "stele-data";
const LISTEN: &str = "127.0.0.1";
const GRPC_PORT: Port = Port::Number(8086);
const HTTP_PORT: Port = Port::Number(8080);
const METASTORE_PORT: Port = Port::Number(2379);
const REQUEST_WAIT: Duration = Duration::from_secs(30);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
const KEEP_DELETED: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MEMORY: Size = Size(512 << 20);
const CACHE_SIZE: Size = Size(4 << 30);
const READ_AHEAD: Size = Size(64 << 20);
/// A smaller cache cannot hold what one compaction reads.
const CACHE_SIZE_MIN: Size = Size(64 << 20);
const STORE_GC: Duration = Duration::from_secs(3600);
/// Less memory cannot hold blocks, cells and requests at once.
const MEMORY_MIN: Size = Size(32 << 20);

/// Where the data is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Dir(PathBuf),
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

/// The object store that holds the files of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub url: String,
    /// `None` means inside the data directory.
    pub cache: Option<PathBuf>,
    pub cache_size: Size,
    pub read_ahead: Size,
    /// How often unused files are deleted; `None` means never.
    pub gc: Option<Duration>,
}

/// The effective settings, merged from all sources.
#[derive(Clone, Debug)]
pub struct EffectiveSettings {
    pub data: Data,
    /// `None` means that the files of tables are in the data directory.
    pub store: Option<StoreSettings>,
    /// Set if the server belongs to a cluster.
    pub cluster: Option<ClusterSettings>,
    pub listen: String,
    pub grpc_port: Port,
    pub http_port: Port,
    pub names: NameSettings,
    pub metastore_port: Port,
    pub metastore: MetastoreSettings,
    pub memory: Size,
    /// `None` means a share of the memory.
    pub request_memory: Option<Size>,
    pub request_wait: Duration,
    pub tls: Option<Tls>,
    pub auth: AuthSettings,
    pub allowed_hosts: Vec<String>,
    pub cors_origins: Vec<String>,
    /// `None` means that the address of the HTTP port decides.
    pub console: Option<ConsoleMode>,
    /// The rules of fault injection and their seed; `None` disables injection.
    pub inject: Option<(Vec<String>, u64)>,
    pub log: Option<String>,
    pub log_format: LogFormat,
    pub shutdown_grace: Duration,
    /// How long deleted tables are kept.
    pub keep_deleted: Duration,
    /// Whether instances have to be created before they are used.
    pub strict: bool,
    /// Whether catalogues are served.
    pub catalogue: bool,
}

impl EffectiveSettings {
    /// Resolves flags and variables (already combined by `clap`) and the file.
    pub fn resolve(flags: Flags) -> anyhow::Result<EffectiveSettings> {
        let file = match &flags.config {
            Some(path) => PartialSettings::read(path)?,
            None => PartialSettings::default(),
        };
        EffectiveSettings::merge(flags.settings, file)
    }

    /// Returns the fault injector, if injection is enabled.
    pub fn injector(&self) -> anyhow::Result<Option<Arc<Injector>>> {
        let Some((rules, seed)) = &self.inject else { return Ok(None) };
        let rules = Rules::parse_known(rules, *seed).map_err(|why| anyhow!("--inject: {why}"))?;
        Ok(Some(Arc::new(Injector::new(rules))))
    }

    /// Returns the rules for browser requests.
    pub fn sites(&self) -> anyhow::Result<Sites> {
        let certified = self.tls.as_ref().map(tls::certificate_names).transpose()?;
        let hosts = self.allowed_hosts.iter().cloned().chain(certified.unwrap_or_default());
        Sites::new(hosts.chain([self.listen.clone()]), self.cors_origins.clone())
    }

    /// Merges two sources, of which the first takes precedence, and the defaults.
    fn merge(first: PartialSettings, then: PartialSettings) -> anyhow::Result<EffectiveSettings> {
        let data = data(&first, &then)?;
        let given = first.or(then);
        let memory = given.memory.unwrap_or(MEMORY);
        if memory < MEMORY_MIN {
            bail!("--memory {memory} is too small: use at least {MEMORY_MIN}");
        }
        let duration = |time: Option<TimeSpan>, default| time.map_or(default, |time| time.0);
        Ok(EffectiveSettings {
            auth: AuthSettings::new(&given),
            store: store(&data, &given)?,
            cluster: ClusterSettings::new(&given, &data)?,
            data,
            names: NameSettings::new(&given),
            metastore: MetastoreSettings::new(&given)?,
            listen: given.listen.unwrap_or_else(|| LISTEN.into()),
            grpc_port: given.grpc_port.unwrap_or(GRPC_PORT),
            http_port: given.http_port.unwrap_or(HTTP_PORT),
            metastore_port: given.metastore_port.unwrap_or(METASTORE_PORT),
            memory,
            request_memory: given.request_memory,
            request_wait: duration(given.request_wait, REQUEST_WAIT),
            tls: tls(given.tls_cert, given.tls_key, given.tls_client_ca)?,
            allowed_hosts: given.allowed_host.unwrap_or_default(),
            cors_origins: given.cors_origin.unwrap_or_default(),
            console: given.console,
            inject: given.inject.map(|rules| (rules, given.inject_seed.unwrap_or(0))),
            log: given.log,
            log_format: given.log_format.unwrap_or_default(),
            shutdown_grace: duration(given.shutdown_grace, SHUTDOWN_GRACE),
            keep_deleted: duration(given.keep_deleted, KEEP_DELETED),
            strict: given.strict.unwrap_or(false),
            catalogue: given.catalogue.enabled.unwrap_or(true),
        })
    }
}

/// Chooses where the data is stored. `--ephemeral=false` cancels `ephemeral = true` of a
/// later source and does not affect the directory.
fn data(first: &PartialSettings, then: &PartialSettings) -> anyhow::Result<Data> {
    for (given, ephemeral) in [(first, first.ephemeral), (then, first.ephemeral.or(then.ephemeral))]
    {
        match (&given.data, ephemeral == Some(true)) {
            (Some(dir), true) => bail!(
                "--data {} conflicts with --ephemeral: pass either --data or --ephemeral",
                dir.display()
            ),
            (Some(dir), false) => return Ok(Data::Dir(dir.clone())),
            (None, true) => return Ok(Data::Ephemeral),
            (None, false) => {}
        }
    }
    Ok(Data::Dir(DATA_DIR.into()))
}

/// Returns the object store, if one is given.
fn store(data: &Data, given: &PartialSettings) -> anyhow::Result<Option<StoreSettings>> {
    let Some(url) = given.store.clone() else {
        for (flag, is_given) in [
            ("--cache", given.cache.is_some()),
            ("--cache-size", given.cache_size.is_some()),
            ("--read-ahead", given.read_ahead.is_some()),
            ("--store-gc", given.store_gc.is_some()),
        ] {
            if is_given {
                bail!("{flag} requires --store");
            }
        }
        return Ok(None);
    };
    if *data == Data::Ephemeral {
        bail!("--store conflicts with --ephemeral: without the data directory its files are lost");
    }
    let cache_size = given.cache_size.unwrap_or(CACHE_SIZE);
    if cache_size < CACHE_SIZE_MIN {
        bail!("--cache-size {cache_size} is too small: use at least {CACHE_SIZE_MIN}");
    }
    let gc = given.store_gc.map_or(STORE_GC, |time| time.0);
    let gc = Some(gc).filter(|gc| !gc.is_zero());
    let read_ahead = given.read_ahead.unwrap_or(READ_AHEAD);
    Ok(Some(StoreSettings { url, cache: given.cache.clone(), cache_size, read_ahead, gc }))
}

fn tls(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> anyhow::Result<Option<Tls>> {
    match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => Ok(Some(Tls { cert, key, client_ca })),
        (None, None, None) => Ok(None),
        (None, None, Some(_)) => bail!("--tls-client-ca requires --tls-cert and --tls-key"),
        (Some(_), None, _) => bail!("--tls-cert requires --tls-key"),
        (None, Some(_), _) => bail!("--tls-key requires --tls-cert"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::shares::Shares;

    fn file(text: &str) -> PartialSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_comes_first_wins_and_the_rest_is_default() {
        let first = PartialSettings { grpc_port: Some(Port::Off), ..PartialSettings::default() };
        let then =
            file("grpc-port = 1\nhttp-port = \"off\"\nmemory = \"64MiB\"\nshutdown-grace = \"1s\"");
        let settings = EffectiveSettings::merge(first, then).unwrap();
        assert_eq!((settings.grpc_port, settings.http_port), (Port::Off, Port::Off));
        assert_eq!((settings.memory, settings.request_memory), (Size(64 << 20), None));
        let shares = Shares::of(&settings);
        assert_eq!((shares.cells, shares.requests), (16 << 20, 12 << 20));
        assert_eq!((shares.metastore_cells, shares.metastore_cache), (4 << 20, 3 << 20));
        assert_eq!((shares.metastore_changes, shares.metastore_ranges), (1 << 20, 4 << 20));
        assert_eq!(settings.shutdown_grace, Duration::from_secs(1));
        assert_eq!(settings.listen, "127.0.0.1");
        assert_eq!(settings.data, Data::Dir("stele-data".into()));
    }

    #[test]
    fn an_earlier_place_decides_where_data_lives() {
        let flags = PartialSettings { ephemeral: Some(true), ..PartialSettings::default() };
        let merged = EffectiveSettings::merge(flags.clone(), file("data = 'x'")).unwrap();
        assert_eq!(merged.data, Data::Ephemeral);
        let flags = PartialSettings { data: Some("y".into()), ..flags };
        let both = EffectiveSettings::merge(flags.clone(), PartialSettings::default()).unwrap_err();
        assert!(both.to_string().contains("either --data or --ephemeral"), "{both}");
        let flags = PartialSettings { ephemeral: None, ..flags };
        let merged = EffectiveSettings::merge(flags, file("ephemeral = true")).unwrap();
        assert_eq!(merged.data, Data::Dir("y".into()));
    }

    #[test]
    fn ephemeral_false_leaves_the_directory_to_the_file() {
        let flags = PartialSettings { ephemeral: Some(false), ..PartialSettings::default() };
        let merged = |text| EffectiveSettings::merge(flags.clone(), file(text)).unwrap().data;
        assert_eq!(merged("data = 'x'"), Data::Dir("x".into()));
        assert_eq!(merged("data = 'x'\nephemeral = true"), Data::Dir("x".into()));
        assert_eq!(merged("ephemeral = true"), Data::Dir("stele-data".into()));
        assert_eq!(merged(""), Data::Dir("stele-data".into()));
    }

    #[test]
    fn the_settings_of_the_cache_need_a_store_and_a_store_needs_a_directory() {
        let merged = |text| EffectiveSettings::merge(file(text), PartialSettings::default());
        assert_eq!(merged("").unwrap().store, None);
        let store = merged("store = 's3://b/p'\nstore-gc = '0s'").unwrap().store.unwrap();
        assert_eq!((store.url.as_str(), store.gc), ("s3://b/p", None));
        assert_eq!((store.cache, store.cache_size), (None, Size(4 << 30)));
        assert_eq!(store.read_ahead, Size(64 << 20));
        let store = merged("store = 's3://b/p'\nread-ahead = '0'").unwrap().store.unwrap();
        assert_eq!(store.read_ahead, Size(0));
        for wrong in [
            "cache = 'c'",
            "cache-size = '1GiB'",
            "read-ahead = '1MiB'",
            "store-gc = '1h'",
            "store = 's3://b/p'\nephemeral = true",
            "store = 's3://b/p'\ncache-size = '1MiB'",
        ] {
            let error = merged(wrong).unwrap_err().to_string();
            assert!(error.contains("--store") || error.contains("--cache-size"), "{error}");
        }
    }

    #[test]
    fn catalogues_are_served_unless_the_file_says_otherwise() {
        let served = |text| {
            EffectiveSettings::merge(PartialSettings::default(), file(text)).unwrap().catalogue
        };
        assert!(served("") && served("[catalogue]\nenabled = true"));
        assert!(!served("[catalogue]\nenabled = false"));
        assert!(toml::from_str::<PartialSettings>("[catalogue]\nenable = false").is_err());
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_line() {
        let error = toml::from_str::<PartialSettings>("data = 'x'\ngrpc_port = 1\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2") && error.contains("grpc_port"), "{error}");
        let error =
            toml::from_str::<PartialSettings>("memory = '5 loaves'").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("512MiB"), "{error}");
    }

    #[test]
    fn half_a_tls_setting_is_refused() {
        for text in ["tls-cert = 'c'", "tls-key = 'k'", "tls-client-ca = 'a'"] {
            assert!(
                EffectiveSettings::merge(file(text), PartialSettings::default()).is_err(),
                "{text}"
            );
        }
        let tls =
            EffectiveSettings::merge(file("tls-cert='c'\ntls-key='k'"), PartialSettings::default())
                .unwrap()
                .tls;
        assert_eq!(tls, Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None }));
    }
}
