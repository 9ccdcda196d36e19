//! `stele metastore serve`: a server with the metastore alone, with etcd's flags.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::BoolishValueParser;
use stele_metastore::peer::PeerUrl;

use super::auth::AuthMode;
use super::settings::{ClusterState, Flags, PartialSettings, Port, Section};
use crate::Outcome;

/// Serve the metastore alone, as a member of one or several; flags are named as etcd's.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct MetastoreFlags {
    /// Name of this member
    #[arg(long, value_name = "NAME", env = "ETCD_NAME", default_value = "default")]
    name: String,
    /// Data directory [default: NAME.stele]
    #[arg(long, value_name = "DIR", env = "ETCD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// All members, as in a=https://host:2380,b=...; without it, there is one
    #[arg(long, value_name = "MEMBERS", env = "ETCD_INITIAL_CLUSTER")]
    initial_cluster: Option<String>,
    /// Whether --initial-cluster creates a cluster or this member joins one
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        env = "ETCD_INITIAL_CLUSTER_STATE",
        default_value = "new"
    )]
    initial_cluster_state: ClusterState,
    /// Address to listen on for other members
    #[arg(long, value_name = "URL", env = "ETCD_LISTEN_PEER_URLS")]
    listen_peer_urls: Option<String>,
    /// URL at which the others reach this member; must be the one in --initial-cluster
    #[arg(long, value_name = "URL", env = "ETCD_INITIAL_ADVERTISE_PEER_URLS")]
    initial_advertise_peer_urls: Option<String>,
    /// Address to listen on for clients
    #[arg(
        long,
        value_name = "URL",
        env = "ETCD_LISTEN_CLIENT_URLS",
        default_value = "http://localhost:2379"
    )]
    listen_client_urls: String,
    /// URL for clients, as members report it
    #[arg(long, value_name = "URL", env = "ETCD_ADVERTISE_CLIENT_URLS")]
    advertise_client_urls: Option<String>,
    /// Certificate chain (PEM) for clients
    #[arg(long, value_name = "FILE", env = "ETCD_CERT_FILE")]
    cert_file: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "ETCD_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Require client certificates signed by these authorities (PEM)
    #[arg(long, value_name = "FILE", env = "ETCD_TRUSTED_CA_FILE")]
    trusted_ca_file: Option<PathBuf>,
    /// Take the common name in a client's certificate for its user; needs
    /// --trusted-ca-file
    #[arg(
        long,
        env = "ETCD_CLIENT_CERT_AUTH",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
    )]
    client_cert_auth: Option<bool>,
    /// Certificate chain (PEM) that this member shows to the others
    #[arg(long, value_name = "FILE", env = "ETCD_PEER_CERT_FILE")]
    peer_cert_file: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "ETCD_PEER_KEY_FILE")]
    peer_key_file: Option<PathBuf>,
    /// Authorities (PEM) that sign the members' certificates
    #[arg(long, value_name = "FILE", env = "ETCD_PEER_TRUSTED_CA_FILE")]
    peer_trusted_ca_file: Option<PathBuf>,
    /// Log level (error, warn, info, debug, trace) or filter
    #[arg(long, value_name = "LEVEL", env = "ETCD_LOG_LEVEL")]
    log_level: Option<String>,
}

pub fn run(flags: MetastoreFlags) -> anyhow::Result<Outcome> {
    super::process::run(Flags { config: None, settings: flags.settings()? })
}

impl MetastoreFlags {
    fn settings(self) -> anyhow::Result<PartialSettings> {
        let clients = PeerUrl::parse(&self.listen_client_urls)?;
        if clients.tls != self.cert_file.is_some() {
            bail!(
                "--listen-client-urls {clients}: https needs --cert-file and --key-file, and http \
                 neither"
            );
        }
        if self.client_cert_auth == Some(true) && self.trusted_ca_file.is_none() {
            bail!(
                "--client-cert-auth needs --trusted-ca-file: only verified certificates name users"
            );
        }
        if let (Some(advertised), Some(members)) =
            (&self.initial_advertise_peer_urls, &self.initial_cluster)
            && !members.split(',').any(|member| member == format!("{}={advertised}", self.name))
        {
            bail!(
                "--initial-advertise-peer-urls {advertised} is not the address of {:?} in \
                 --initial-cluster",
                self.name
            );
        }
        Ok(PartialSettings {
            data: Some(self.data_dir.unwrap_or_else(|| format!("{}.stele", self.name).into())),
            listen: Some(clients.host),
            grpc_port: Some(Port::Off),
            http_port: Some(Port::Off),
            dns_port: Some(Port::Off),
            metastore_port: Some(Port::Number(clients.port)),
            metastore_name: self.initial_cluster.is_some().then_some(self.name),
            metastore_peers: self.initial_cluster,
            metastore_cluster_state: Some(self.initial_cluster_state),
            metastore_listen_peer: self.listen_peer_urls,
            metastore_url: self.advertise_client_urls,
            metastore_peer_cert: self.peer_cert_file,
            metastore_peer_key: self.peer_key_file,
            metastore_peer_ca: self.peer_trusted_ca_file,
            metastore_cert_users: self.client_cert_auth,
            tls_cert: self.cert_file,
            tls_key: self.key_file,
            tls_client_ca: self.trusted_ca_file,
            // As in etcd, its own users decide who may do what.
            auth: Some(AuthMode::None),
            log: self.log_level,
            catalogue: Section { enabled: Some(false) },
            ..PartialSettings::default()
        })
    }
}
