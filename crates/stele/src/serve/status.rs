//! How this server was started, as its banner, its ports and its console tell.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::data_dir::DataDir;
use super::listen::{ListeningPort, Ports};

/// The addresses and the data directory of a server.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub dns: Option<SocketAddr>,
    pub metastore: Option<SocketAddr>,
    pub data: PathBuf,
    /// The address of the object store with the files of tables, if there is one.
    pub store: Option<String>,
    pub ephemeral: bool,
    pub tls: bool,
    /// Whether clients must present a certificate.
    pub client_certificates: bool,
    /// Whether callers need a credential and a permission.
    pub callers_are_checked: bool,
    /// The number of fault injection rules; `None` if injection is disabled.
    pub fault_rules: Option<usize>,
}

impl ServerInfo {
    pub fn new(ports: &Ports, data_dir: &DataDir) -> anyhow::Result<ServerInfo> {
        let address =
            |port: &Option<ListeningPort>| port.as_ref().map(ListeningPort::address).transpose();
        Ok(ServerInfo {
            grpc: address(&ports.grpc)?,
            http: address(&ports.http)?,
            dns: None,
            metastore: address(&ports.metastore)?,
            data: data_dir.path.clone(),
            store: None,
            ephemeral: data_dir.is_temporary(),
            tls: ports.tls,
            client_certificates: false,
            callers_are_checked: false,
            fault_rules: None,
        })
    }
}
