//! The settings of `stele serve`, from flags, environment variables and a file. Flags
//! override variables, variables override the file, and the file overrides the defaults.
//! All three use the same names.

mod units;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum, builder::BoolishValueParser};
use serde::Deserialize;
pub use units::{ClusterId, Port, Size, Time};

use super::inject::{Injector, Rules};
use super::metastore::MetastoreSettings;
use super::names::NameSettings;
use super::sites::Sites;
use super::tls;

const DATA_DIR: &str = "stele-data";
const MEMORY: Size = Size(512 << 20);
/// Less memory cannot hold blocks, cells and requests at once.
const MEMORY_MIN: Size = Size(32 << 20);

#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Read settings from a TOML file, named like the flags
    #[arg(long, value_name = "FILE", env = "STELE_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub given: Given,
}

/// Settings from one source; a setting that it does not mention is `None`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Given {
    /// Data directory [default: ./stele-data]
    #[arg(long, value_name = "DIR", env = "STELE_DATA")]
    pub data: Option<PathBuf>,
    /// Keep the data in a temporary directory, without syncing, and remove it at exit
    #[arg(
        long,
        env = "STELE_EPHEMERAL",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    pub ephemeral: Option<bool>,
    /// Address that every port listens on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", env = "STELE_LISTEN")]
    pub listen: Option<String>,
    /// Port of the Bigtable API; 0 for any free port, or `off` [default: 8086]
    #[arg(long, value_name = "PORT", env = "STELE_GRPC_PORT")]
    pub grpc_port: Option<Port>,
    /// Port of the status page, /health and /metrics [default: 8080]
    #[arg(long, value_name = "PORT", env = "STELE_HTTP_PORT")]
    pub http_port: Option<Port>,
    /// Port of DNS for names, UDP and TCP; 0 for any free port, or `off` [default: 8053
    /// if free]
    #[arg(long, value_name = "PORT", env = "STELE_DNS_PORT")]
    pub dns_port: Option<Port>,
    /// Zone that DNS answers for [default: stele]
    #[arg(long, value_name = "ZONE", env = "STELE_DNS_ZONE")]
    pub dns_zone: Option<String>,
    /// Name or IP address of this server in the zone's NS record [default: where DNS
    /// listens]
    #[arg(long, value_name = "HOST", env = "STELE_DNS_HOST")]
    pub dns_host: Option<String>,
    /// JSON file with nodes of the tree of names and their permissions; missing nodes are
    /// created
    #[arg(long, value_name = "FILE", env = "STELE_NAMES_PERMISSIONS")]
    pub names_permissions: Option<PathBuf>,
    /// File with one token per line, followed by the blessings of callers that present it
    #[arg(long, value_name = "FILE", env = "STELE_NAMES_TOKENS")]
    pub names_tokens: Option<PathBuf>,
    /// Patterns of callers with full access to names, separated by commas
    #[arg(long, value_name = "PATTERNS", env = "STELE_NAMES_ADMIN")]
    pub names_admin: Option<String>,
    /// Maximum number of name nodes per user; 0 for no limit [default: 10000]
    #[arg(long, value_name = "N", env = "STELE_NAMES_MAX_NODES")]
    pub names_max_nodes: Option<i64>,
    /// Maximum number of servers mounted on one user's nodes; 0 for no limit [default:
    /// 10000]
    #[arg(long, value_name = "N", env = "STELE_NAMES_MAX_SERVERS")]
    pub names_max_servers: Option<i64>,
    /// How long to keep empty nodes of names [default: 60s]
    #[arg(long, value_name = "TIME", env = "STELE_NAMES_GRACE")]
    pub names_grace: Option<Time>,
    /// How often to sweep all names for garbage that no operation visits; 0s for never
    /// [default: 60m]
    #[arg(long, value_name = "TIME", env = "STELE_NAMES_SWEEP")]
    pub names_sweep: Option<Time>,
    /// Port of the metastore (etcd's API); 0 for any free port, or `off` [default: 2379]
    #[arg(long, value_name = "PORT", env = "STELE_METASTORE_PORT")]
    pub metastore_port: Option<Port>,
    /// Id of the cluster that the metastore must belong to; a new metastore takes this id
    #[arg(long, value_name = "ID", env = "STELE_METASTORE_CLUSTER")]
    pub metastore_cluster: Option<ClusterId>,
    /// Maximum size of the metastore's keys and values; 0 for no limit [default: 0]
    #[arg(long, value_name = "SIZE", env = "STELE_METASTORE_QUOTA")]
    pub metastore_quota: Option<Size>,
    /// How long the metastore keeps history [default: 24h]
    #[arg(long, value_name = "TIME", env = "STELE_METASTORE_RETENTION")]
    pub metastore_retention: Option<Time>,
    /// Maximum size of the metastore's history; the oldest is dropped first [default:
    /// 4GiB]
    #[arg(long, value_name = "SIZE", env = "STELE_METASTORE_HISTORY")]
    pub metastore_history: Option<Size>,
    /// Memory for data, requests and responses, including the metastore [default: 512MiB]
    #[arg(long, value_name = "SIZE", env = "STELE_MEMORY")]
    pub memory: Option<Size>,
    /// Memory for requests in progress [default: 3/16 of --memory]
    #[arg(long, value_name = "SIZE", env = "STELE_REQUEST_MEMORY")]
    pub request_memory: Option<Size>,
    /// How long a large request waits for memory before it is refused [default: 30s]
    #[arg(long, value_name = "TIME", env = "STELE_REQUEST_WAIT")]
    pub request_wait: Option<Time>,
    /// Certificate chain (PEM) for every port; without it, ports use plain text
    #[arg(long, value_name = "FILE", env = "STELE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", env = "STELE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities (PEM)
    #[arg(long, value_name = "FILE", env = "STELE_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// More host names to accept in HTTP requests, separated by commas
    #[arg(long, value_name = "HOSTS", env = "STELE_ALLOWED_HOST", value_delimiter = ',')]
    pub allowed_host: Option<Vec<String>>,
    /// Web origins whose pages may use the HTTP ports, such as https://host, separated by
    /// commas
    #[arg(long, value_name = "ORIGINS", env = "STELE_CORS_ORIGIN", value_delimiter = ',')]
    pub cors_origin: Option<Vec<String>>,
    /// Delay or fail calls on purpose, as in "ReadRows:latency=50ms,unavailable=1%"; may
    /// be repeated; '' only enables `stele inject`
    #[arg(long, value_name = "RULE", env = "STELE_INJECT")]
    pub inject: Option<Vec<String>>,
    /// Seed that selects the affected calls; the same seed selects the same calls
    /// [default: 0]
    #[arg(long, value_name = "N", env = "STELE_INJECT_SEED")]
    pub inject_seed: Option<u64>,
    /// Log level (error, warn, info, debug, trace) or filter [default: $RUST_LOG or info]
    #[arg(long, value_name = "LEVEL", env = "STELE_LOG")]
    pub log: Option<String>,
    /// Format of the log [default: text]
    #[arg(long, value_name = "FORMAT", env = "STELE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// How long requests may continue after a stop signal [default: 5s]
    #[arg(long, value_name = "TIME", env = "STELE_SHUTDOWN_GRACE")]
    pub shutdown_grace: Option<Time>,
    /// Catalogues; can be set only in the file.
    #[arg(skip)]
    pub catalogue: Part,
}

/// An optional part of the server: `enabled = false` turns it off.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Part {
    pub enabled: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

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

/// The effective settings, merged from all sources.
#[derive(Clone, Debug)]
pub struct Settings {
    pub data: Data,
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
    pub allowed_hosts: Vec<String>,
    pub cors_origins: Vec<String>,
    /// The rules of fault injection and their seed; `None` disables injection.
    pub inject: Option<(Vec<String>, u64)>,
    pub log: Option<String>,
    pub log_format: LogFormat,
    pub shutdown_grace: Duration,
    /// Whether catalogues are served.
    pub catalogue: bool,
}

impl Settings {
    /// Merges flags and variables (already combined by `clap`) with the file.
    pub fn resolve(flags: Flags) -> anyhow::Result<Settings> {
        let file = match &flags.config {
            Some(path) => read_file(path)?,
            None => Given::default(),
        };
        Settings::merge(flags.given, file)
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

    fn merge(first: Given, then: Given) -> anyhow::Result<Settings> {
        let data = data(&first, &then)?;
        let memory = first.memory.or(then.memory).unwrap_or(MEMORY);
        if memory < MEMORY_MIN {
            bail!("--memory {memory} is too little: give at least {MEMORY_MIN}");
        }
        let seconds =
            |time: Option<Time>, default| time.map_or(Duration::from_secs(default), |time| time.0);
        Ok(Settings {
            data,
            names: NameSettings::merge(&first, &then),
            metastore: MetastoreSettings::merge(&first, &then),
            listen: first.listen.or(then.listen).unwrap_or_else(|| "127.0.0.1".into()),
            grpc_port: first.grpc_port.or(then.grpc_port).unwrap_or(Port::Number(8086)),
            http_port: first.http_port.or(then.http_port).unwrap_or(Port::Number(8080)),
            metastore_port: first
                .metastore_port
                .or(then.metastore_port)
                .unwrap_or(Port::Number(2379)),
            memory,
            request_memory: first.request_memory.or(then.request_memory),
            request_wait: seconds(first.request_wait.or(then.request_wait), 30),
            tls: tls(
                first.tls_cert.or(then.tls_cert),
                first.tls_key.or(then.tls_key),
                first.tls_client_ca.or(then.tls_client_ca),
            )?,
            allowed_hosts: first.allowed_host.or(then.allowed_host).unwrap_or_default(),
            cors_origins: first.cors_origin.or(then.cors_origin).unwrap_or_default(),
            inject: first
                .inject
                .or(then.inject)
                .map(|rules| (rules, first.inject_seed.or(then.inject_seed).unwrap_or(0))),
            log: first.log.or(then.log),
            log_format: first.log_format.or(then.log_format).unwrap_or_default(),
            shutdown_grace: seconds(first.shutdown_grace.or(then.shutdown_grace), 5),
            catalogue: then.catalogue.enabled.unwrap_or(true),
        })
    }
}

fn read_file(path: &Path) -> anyhow::Result<Given> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the settings in {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("the settings in {}", path.display()))
}

/// Chooses where the data is stored. `--ephemeral=false` cancels `ephemeral = true` of a
/// later source and does not affect the directory.
fn data(first: &Given, then: &Given) -> anyhow::Result<Data> {
    for (given, ephemeral) in [(first, first.ephemeral), (then, first.ephemeral.or(then.ephemeral))]
    {
        match (&given.data, ephemeral == Some(true)) {
            (Some(dir), true) => bail!(
                "ephemeral data is not kept in {}: give either --data or --ephemeral",
                dir.display()
            ),
            (Some(dir), false) => return Ok(Data::Dir(dir.clone())),
            (None, true) => return Ok(Data::Ephemeral),
            (None, false) => {}
        }
    }
    Ok(Data::Dir(DATA_DIR.into()))
}

fn tls(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> anyhow::Result<Option<Tls>> {
    match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => Ok(Some(Tls { cert, key, client_ca })),
        (None, None, None) => Ok(None),
        (None, None, Some(_)) => bail!("--tls-client-ca needs --tls-cert and --tls-key too"),
        (Some(_), None, _) => bail!("--tls-cert needs --tls-key too"),
        (None, Some(_), _) => bail!("--tls-key needs --tls-cert too"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::shares::Shares;

    fn file(text: &str) -> Given {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_comes_first_wins_and_the_rest_is_default() {
        let first = Given { grpc_port: Some(Port::Off), ..Given::default() };
        let then =
            file("grpc-port = 1\nhttp-port = \"off\"\nmemory = \"64MiB\"\nshutdown-grace = \"1s\"");
        let settings = Settings::merge(first, then).unwrap();
        assert_eq!((settings.grpc_port, settings.http_port), (Port::Off, Port::Off));
        assert_eq!((settings.memory, settings.request_memory), (Size(64 << 20), None));
        let shares = Shares::of(&settings);
        assert_eq!((shares.cells, shares.requests), (16 << 20, 12 << 20));
        assert_eq!((shares.metastore_cells, shares.metastore_cache), (4 << 20, 4 << 20));
        assert_eq!(settings.shutdown_grace, Duration::from_secs(1));
        assert_eq!(settings.listen, "127.0.0.1");
        assert_eq!(settings.data, Data::Dir("stele-data".into()));
    }

    #[test]
    fn an_earlier_place_decides_where_data_lives() {
        let flags = Given { ephemeral: Some(true), ..Given::default() };
        let merged = Settings::merge(flags.clone(), file("data = 'x'")).unwrap();
        assert_eq!(merged.data, Data::Ephemeral);
        let flags = Given { data: Some("y".into()), ..flags };
        let both = Settings::merge(flags.clone(), Given::default()).unwrap_err();
        assert!(both.to_string().contains("either --data or --ephemeral"), "{both}");
        let flags = Given { ephemeral: None, ..flags };
        let merged = Settings::merge(flags, file("ephemeral = true")).unwrap();
        assert_eq!(merged.data, Data::Dir("y".into()));
    }

    #[test]
    fn ephemeral_false_leaves_the_directory_to_the_file() {
        let flags = Given { ephemeral: Some(false), ..Given::default() };
        let merged = |text| Settings::merge(flags.clone(), file(text)).unwrap().data;
        assert_eq!(merged("data = 'x'"), Data::Dir("x".into()));
        assert_eq!(merged("data = 'x'\nephemeral = true"), Data::Dir("x".into()));
        assert_eq!(merged("ephemeral = true"), Data::Dir("stele-data".into()));
        assert_eq!(merged(""), Data::Dir("stele-data".into()));
    }

    #[test]
    fn catalogues_are_served_unless_the_file_says_otherwise() {
        let served = |text| Settings::merge(Given::default(), file(text)).unwrap().catalogue;
        assert!(served("") && served("[catalogue]\nenabled = true"));
        assert!(!served("[catalogue]\nenabled = false"));
        assert!(toml::from_str::<Given>("[catalogue]\nenable = false").is_err());
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line() {
        let error = toml::from_str::<Given>("data = 'x'\ngrpc_port = 1\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("grpc_port"), "{error}");
        let error = toml::from_str::<Given>("memory = '5 loaves'").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("512MiB"), "{error}");
    }

    #[test]
    fn half_a_tls_setting_is_refused() {
        for text in ["tls-cert = 'c'", "tls-key = 'k'", "tls-client-ca = 'a'"] {
            assert!(Settings::merge(file(text), Given::default()).is_err(), "{text}");
        }
        let tls = Settings::merge(file("tls-cert='c'\ntls-key='k'"), Given::default()).unwrap().tls;
        assert_eq!(tls, Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None }));
    }
}
