//! The sources of settings: flags and variables, which `clap` combines, and the file. One
//! struct is the flags, the variables and the keys of the file at once.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, builder::BoolishValueParser};
use serde::Deserialize;

use super::super::auth::AuthMode;
use super::values::{ClusterId, Port, Size, TimeSpan};

#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Read settings from a TOML file, named like the flags
    #[arg(long, value_name = "FILE", env = "STELE_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: PartialSettings,
}

/// Settings from one source; a setting that it does not mention is `None`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PartialSettings {
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
    /// Keep the files of tables in an object store: s3://, gs:// or az://bucket/prefix, or
    /// file:///dir; the log stays in the data directory
    #[arg(long, value_name = "URL", env = "STELE_STORE")]
    pub store: Option<String>,
    /// Serve as one of several servers of a cluster of this name; see docs/cluster.md
    #[arg(long, value_name = "NAME", env = "STELE_CLUSTER")]
    pub cluster: Option<String>,
    /// Coordinator of the cluster: etcd://host:port,.../prefix, or `embedded` for this
    /// server's own metastore
    #[arg(long, value_name = "URL", env = "STELE_COORDINATOR")]
    pub coordinator: Option<String>,
    /// Address at which the other servers of the cluster reach this one [default: where the
    /// Bigtable API listens]
    #[arg(long, value_name = "HOST:PORT", env = "STELE_ADVERTISE")]
    pub advertise: Option<String>,
    /// File with the secret of the cluster [default: the one that the coordinator keeps]
    #[arg(long, value_name = "FILE", env = "STELE_CLUSTER_SECRET")]
    pub cluster_secret: Option<PathBuf>,
    /// How long after its last sign of life a server of the cluster counts as dead
    /// [default: 10s]
    #[arg(long, value_name = "TIME", env = "STELE_CLUSTER_LEASE")]
    pub cluster_lease: Option<TimeSpan>,
    /// Directory of the cache for the object store [default: cache in the data directory]
    #[arg(long, value_name = "DIR", env = "STELE_CACHE")]
    pub cache: Option<PathBuf>,
    /// Maximum size of the cache [default: 4GiB]
    #[arg(long, value_name = "SIZE", env = "STELE_CACHE_SIZE")]
    pub cache_size: Option<Size>,
    /// Memory for bytes that scans and compactions fetch from the object store before they
    /// read them; 0 for no read-ahead [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "STELE_READ_AHEAD")]
    pub read_ahead: Option<Size>,
    /// How often to delete unused files from the object store; 0s for never [default: 1h]
    #[arg(long, value_name = "TIME", env = "STELE_STORE_GC")]
    pub store_gc: Option<TimeSpan>,
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
    pub names_grace: Option<TimeSpan>,
    /// How often to sweep all names for garbage that no operation visits; 0s for never
    /// [default: 60m]
    #[arg(long, value_name = "TIME", env = "STELE_NAMES_SWEEP")]
    pub names_sweep: Option<TimeSpan>,
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
    pub metastore_retention: Option<TimeSpan>,
    /// Maximum size of the metastore's history; the oldest is dropped first [default:
    /// 4GiB]
    #[arg(long, value_name = "SIZE", env = "STELE_METASTORE_HISTORY")]
    pub metastore_history: Option<Size>,
    /// Directory or URL (file://, s3://, az://, gs://) for backups of the metastore
    #[arg(long, value_name = "DIR", env = "STELE_METASTORE_BACKUP")]
    pub metastore_backup: Option<String>,
    /// How often to back up the metastore; 0s for only on request [default: 60m]
    #[arg(long, value_name = "TIME", env = "STELE_METASTORE_BACKUP_EVERY")]
    pub metastore_backup_every: Option<TimeSpan>,
    /// Number of full backups of the metastore to keep, with the deltas that follow them
    /// [default: 7]
    #[arg(long, value_name = "N", env = "STELE_METASTORE_BACKUP_KEEP")]
    pub metastore_backup_keep: Option<usize>,
    /// Log writes to the metastore that take longer [default: 100ms]
    #[arg(long, value_name = "TIME", env = "STELE_METASTORE_SLOW_REQUEST")]
    pub metastore_slow_request: Option<TimeSpan>,
    /// How often idle watchers of the metastore that requested it are notified of progress
    /// [default: 10m]
    #[arg(long, value_name = "TIME", env = "STELE_METASTORE_PROGRESS")]
    pub metastore_progress: Option<TimeSpan>,
    /// Maximum size of a request of etcd's API [default: 1536KiB]
    #[arg(long, value_name = "SIZE", env = "STELE_METASTORE_MAX_REQUEST")]
    pub metastore_max_request: Option<Size>,
    /// Maximum number of operations in a transaction of etcd's API [default: 128]
    #[arg(long, value_name = "N", env = "STELE_METASTORE_MAX_TXN_OPS")]
    pub metastore_max_txn_ops: Option<u32>,
    /// Another port for the metastore's /metrics and /health, in plain text [default: off]
    #[arg(long, value_name = "PORT", env = "STELE_METASTORE_METRICS_PORT")]
    pub metastore_metrics_port: Option<Port>,
    /// Also accept plain text on the metastore's port when it uses TLS
    #[arg(
        long,
        env = "STELE_METASTORE_PLAIN_TEXT",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    pub metastore_plain_text: Option<bool>,
    /// Tokens of the metastore's users: `simple`, or
    /// `jwt,sign-method=METHOD,pub-key=FILE,priv-key=FILE,ttl=TIME` [default: simple]
    #[arg(long, value_name = "KIND", env = "STELE_AUTH_TOKEN")]
    pub auth_token: Option<String>,
    /// Name of this member of a metastore of several members [etcd: --name]
    #[arg(long, value_name = "NAME", env = "STELE_METASTORE_NAME", alias = "name")]
    pub metastore_name: Option<String>,
    /// All members of the metastore, as in a=https://host:2380,b=... [etcd:
    /// --initial-cluster]
    #[arg(long, value_name = "MEMBERS", env = "STELE_METASTORE_PEERS", alias = "initial-cluster")]
    pub metastore_peers: Option<String>,
    /// Whether --metastore-peers creates a cluster or this member joins one [default: new]
    /// [etcd: --initial-cluster-state]
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        env = "STELE_METASTORE_CLUSTER_STATE",
        alias = "initial-cluster-state"
    )]
    pub metastore_cluster_state: Option<ClusterState>,
    /// Address to listen on for other members [default: this member's in
    /// --metastore-peers]
    #[arg(
        long,
        value_name = "URL",
        env = "STELE_METASTORE_LISTEN_PEER",
        alias = "listen-peer-urls"
    )]
    pub metastore_listen_peer: Option<String>,
    /// URL of the metastore for clients, as members report it [default: where it listens]
    #[arg(long, value_name = "URL", env = "STELE_METASTORE_URL", alias = "advertise-client-urls")]
    pub metastore_url: Option<String>,
    /// Certificate chain (PEM) that this member shows to the others
    #[arg(long, value_name = "FILE", env = "STELE_METASTORE_PEER_CERT", alias = "peer-cert-file")]
    pub metastore_peer_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "STELE_METASTORE_PEER_KEY", alias = "peer-key-file")]
    pub metastore_peer_key: Option<PathBuf>,
    /// Authorities (PEM) that sign the members' certificates
    #[arg(
        long,
        value_name = "FILE",
        env = "STELE_METASTORE_PEER_CA",
        alias = "peer-trusted-ca-file"
    )]
    pub metastore_peer_ca: Option<PathBuf>,
    /// Take the common name in a client's certificate for its user; needs --tls-client-ca
    #[arg(
        long,
        env = "STELE_METASTORE_CERT_USERS",
        value_name = "BOOL",
        alias = "client-cert-auth",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    pub metastore_cert_users: Option<bool>,
    /// Memory for data, requests and responses, including the metastore [default: 512MiB]
    #[arg(long, value_name = "SIZE", env = "STELE_MEMORY")]
    pub memory: Option<Size>,
    /// Memory for requests in progress [default: 3/16 of --memory]
    #[arg(long, value_name = "SIZE", env = "STELE_REQUEST_MEMORY")]
    pub request_memory: Option<Size>,
    /// How long a large request waits for memory before it is refused [default: 30s]
    #[arg(long, value_name = "TIME", env = "STELE_REQUEST_WAIT")]
    pub request_wait: Option<TimeSpan>,
    /// Certificate chain (PEM) for every port; without it, ports use plain text
    #[arg(long, value_name = "FILE", env = "STELE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", env = "STELE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities (PEM)
    #[arg(long, value_name = "FILE", env = "STELE_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
    /// Whether callers are checked [default: auto]
    #[arg(long, value_enum, value_name = "MODE", env = "STELE_AUTH")]
    pub auth: Option<AuthMode>,
    /// Directory of tokens, keys and bindings that `stele auth` has created [default: auth
    /// in the data directory]
    #[arg(long, value_name = "DIR", env = "STELE_AUTH_DIR")]
    pub auth_dir: Option<PathBuf>,
    /// TOML file with bindings, groups and issuers [default: policy.toml in --auth-dir]
    #[arg(long, value_name = "FILE", env = "STELE_AUTH_POLICY")]
    pub auth_policy: Option<PathBuf>,
    /// File for a record of every change and refusal, `stderr` or `off` [default: off]
    #[arg(long, value_name = "FILE", env = "STELE_AUDIT_LOG")]
    pub audit_log: Option<String>,
    /// More host names to accept in HTTP requests, separated by commas
    #[arg(long, value_name = "HOSTS", env = "STELE_ALLOWED_HOST", value_delimiter = ',')]
    pub allowed_host: Option<Vec<String>>,
    /// Web origins whose pages may use the HTTP ports, such as https://host, separated by
    /// commas
    #[arg(long, value_name = "ORIGINS", env = "STELE_CORS_ORIGIN", value_delimiter = ',')]
    pub cors_origin: Option<Vec<String>>,
    /// What the console at / may do: write, read or off [default: write on loopback
    /// addresses, read on others]
    #[arg(long, value_name = "MODE", env = "STELE_CONSOLE")]
    pub console: Option<ConsoleMode>,
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
    pub shutdown_grace: Option<TimeSpan>,
    /// How long deleted tables can be undeleted; 0s to remove them at once [default: 168h]
    #[arg(long, value_name = "TIME", env = "STELE_KEEP_DELETED")]
    pub keep_deleted: Option<TimeSpan>,
    /// Require instances, clusters and app profiles to be created before they are used
    #[arg(
        long,
        env = "STELE_STRICT",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    pub strict: Option<bool>,
    /// Catalogues; can be set only in the file.
    #[arg(skip)]
    pub catalogue: Section,
}

/// An optional part of the server: `enabled = false` turns it off.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    pub enabled: Option<bool>,
}

/// How a member starts with an empty directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
    /// It creates the cluster together with the others.
    #[default]
    New,
    /// It has been added to a cluster that runs.
    Existing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsoleMode {
    Write,
    Read,
    Off,
}

impl PartialSettings {
    /// Reads the settings of a file.
    pub fn read(path: &Path) -> anyhow::Result<PartialSettings> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the settings in {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("the settings in {}", path.display()))
    }

    /// Fills in the settings that this source does not mention.
    pub fn or(self, then: PartialSettings) -> PartialSettings {
        macro_rules! or {
            ($($field:ident),* $(,)?) => {
                // Complete by construction: a field that is not listed does not compile.
                PartialSettings {
                    $($field: self.$field.or(then.$field),)*
                    catalogue: Section { enabled: self.catalogue.enabled.or(then.catalogue.enabled) },
                }
            };
        }
        or!(
            data,
            ephemeral,
            store,
            cluster,
            coordinator,
            advertise,
            cluster_secret,
            cluster_lease,
            cache,
            cache_size,
            read_ahead,
            store_gc,
            listen,
            grpc_port,
            http_port,
            dns_port,
            dns_zone,
            dns_host,
            names_permissions,
            names_tokens,
            names_admin,
            names_max_nodes,
            names_max_servers,
            names_grace,
            names_sweep,
            metastore_port,
            metastore_cluster,
            metastore_quota,
            metastore_retention,
            metastore_history,
            metastore_progress,
            metastore_max_request,
            metastore_max_txn_ops,
            metastore_metrics_port,
            metastore_plain_text,
            auth_token,
            metastore_backup,
            metastore_backup_every,
            metastore_backup_keep,
            metastore_slow_request,
            metastore_name,
            metastore_peers,
            metastore_cluster_state,
            metastore_listen_peer,
            metastore_url,
            metastore_peer_cert,
            metastore_peer_key,
            metastore_peer_ca,
            metastore_cert_users,
            memory,
            request_memory,
            request_wait,
            tls_cert,
            tls_key,
            tls_client_ca,
            auth,
            auth_dir,
            auth_policy,
            audit_log,
            allowed_host,
            cors_origin,
            console,
            inject,
            inject_seed,
            log,
            log_format,
            shutdown_grace,
            keep_deleted,
            strict
        )
    }
}
