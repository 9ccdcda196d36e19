//! Names within `stele serve`: their rows are in this server's own tables, in a separate
//! instance, and their DNS has its own port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stele_bigtable::reserved;
use stele_bigtable_client::{Client, Options as BigtableOptions};
use stele_grpc::Services;
use stele_mounttable::access::AccessList;
use stele_mounttable::dns::{Sockets, Zone};
use stele_mounttable::rows::Limits;
use stele_mounttable::{Mounttable, Options, Server};
use tokio_util::task::TaskTracker;

use super::auth::NAMES_ADMIN;
use super::settings::{PartialSettings, Port};
use super::shutdown::Phases;
use crate::name::{first_nodes, tokens};

/// The instance that holds the rows of names, in the project that only this server can
/// access.
const INSTANCE: &str = "names";

const DNS_PORT: u16 = 8053;
const DNS_ZONE: &str = "stele";
/// The default limit of nodes, and of mounted servers, per user.
const PER_USER_MAX: i64 = 10_000;
const GRACE: Duration = Duration::from_secs(60);
const SWEEP: Duration = Duration::from_secs(3600);
/// The deadline of a call that reads or writes a row.
const ROW_DEADLINE: Duration = Duration::from_secs(60);

/// The settings of names.
#[derive(Clone, Debug)]
pub struct NameSettings {
    /// `None` means the default port, or no DNS if that port is taken.
    dns_port: Option<Port>,
    dns_zone: String,
    dns_host: Option<String>,
    permissions: Option<PathBuf>,
    tokens: Option<PathBuf>,
    admin: Vec<String>,
    limits: Limits,
    grace: Duration,
    sweep: Duration,
}

impl NameSettings {
    pub fn new(given: &PartialSettings) -> NameSettings {
        let admin = given.names_admin.as_deref().unwrap_or_default();
        NameSettings {
            dns_port: given.dns_port,
            dns_zone: given.dns_zone.clone().unwrap_or_else(|| DNS_ZONE.into()),
            dns_host: given.dns_host.clone(),
            permissions: given.names_permissions.clone(),
            tokens: given.names_tokens.clone(),
            admin: admin.split(',').filter(|one| !one.is_empty()).map(Into::into).collect(),
            limits: Limits {
                nodes_per_user: given.names_max_nodes.unwrap_or(PER_USER_MAX),
                servers_per_user: given.names_max_servers.unwrap_or(PER_USER_MAX),
            },
            grace: given.names_grace.map_or(GRACE, |time| time.0),
            sweep: given.names_sweep.map_or(SWEEP, |time| time.0),
        }
    }
}

/// The bound DNS port, before the service behind it exists.
pub struct DnsPort {
    sockets: Option<Sockets>,
    zone: Zone,
}

impl DnsPort {
    pub async fn bind(settings: &NameSettings, listen: &str) -> anyhow::Result<DnsPort> {
        let zone =
            Zone::new(&settings.dns_zone).map_err(|error| anyhow::anyhow!("--dns-zone {error}"))?;
        let zone = match &settings.dns_host {
            Some(host) => {
                zone.served_at(host).map_err(|error| anyhow::anyhow!("--dns-host {error}"))?
            }
            None => zone,
        };
        let port = match settings.dns_port {
            Some(Port::Off) => return Ok(DnsPort { sockets: None, zone }),
            Some(Port::Number(port)) => port,
            None => DNS_PORT,
        };
        let bare = listen.trim_start_matches('[').trim_end_matches(']');
        let address = tokio::net::lookup_host((bare, port)).await?.next();
        let address = address.with_context(|| format!("--listen {listen} has no address"))?;
        let sockets = match Sockets::take(address).await {
            Ok(sockets) => Some(sockets),
            // The default port was not requested explicitly, so startup continues without
            // it.
            Err(error) if settings.dns_port.is_none() => {
                tracing::warn!(%error, "DNS is off: cannot bind port {port}; choose another with --dns-port");
                None
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot bind DNS port {port} of {listen}; choose another with --dns-port \
                         PORT (0 for any free port), or disable it with --dns-port off"
                    )
                });
            }
        };
        Ok(DnsPort { sockets, zone })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.sockets.as_ref()?.address().ok()
    }
}

/// Starts the names of this server and their background tasks.
pub async fn start(
    settings: &NameSettings,
    bigtable: Services,
    dns: DnsPort,
    phases: &'static Phases,
    tasks: &TaskTracker,
    callers_are_checked: bool,
) -> anyhow::Result<Server> {
    let mut client = BigtableOptions::new("in process", reserved::PROJECT, INSTANCE);
    client.deadline = Some(ROW_DEADLINE);
    let client = Client::in_process(bigtable, client);
    // Callers cannot choose their blessings if they are checked.
    let by_role = callers_are_checked.then(|| NAMES_ADMIN.to_owned());
    let options = Options {
        first_nodes: first_nodes(settings.permissions.as_deref())?,
        superusers: AccessList::of(settings.admin.iter().cloned().chain(by_role)),
        limits: settings.limits,
        grace: settings.grace,
        ..Options::default()
    };
    let tokens = tokens(settings.tokens.as_deref())?;
    let table: Arc<Mounttable> = Mounttable::new(&client, options)?;
    // Servers that never use names get no tables for them.
    if settings.permissions.is_some() || table.has_tables().await? {
        table.ready().await.context("setting up the tables of names")?;
    }
    if let Some(sockets) = dns.sockets {
        tasks.spawn(sockets.serve(table.clone(), dns.zone, phases.draining.cancelled()));
    }
    if !settings.sweep.is_zero() {
        let sweeping = table.clone().sweep_forever(settings.sweep);
        tasks.spawn(phases.draining.run_until_cancelled(sweeping));
    }
    Ok(Server::new(table, tokens))
}
