//! The other members of the metastore: their addresses and certificates.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use stele_metastore::consensus::{PeerSettings, Published};
use stele_metastore::node::{ClusterSettings, NodeSettings, stored_identity};
use stele_metastore::peer::{PeerTls, PeerTransport, PeerUrl, Roster, discover};
use tokio::net::TcpListener;

use super::settings::{ClusterState, PartialSettings};
use super::tls;

/// The members of a metastore, and how this one connects to the others.
#[derive(Clone, Debug)]
pub struct Peers {
    roster: Roster,
    /// Whether this member joins a cluster that runs.
    joins: bool,
    /// Where this member listens for the others.
    listen: PeerUrl,
    /// Certificate, key and authorities.
    tls: Option<(PathBuf, PathBuf, PathBuf)>,
}

impl Peers {
    /// Returns `None` for a metastore of one member.
    pub fn new(given: &PartialSettings) -> anyhow::Result<Option<Peers>> {
        let Some(members) = &given.metastore_peers else {
            if given.metastore_name.is_some() {
                bail!("--metastore-name needs --metastore-peers with all members");
            }
            return Ok(None);
        };
        let Some(name) = &given.metastore_name else {
            bail!("--metastore-peers needs --metastore-name with the name of this member");
        };
        let joins = given.metastore_cluster_state == Some(ClusterState::Existing);
        let parse = if joins { Roster::parse_existing } else { Roster::parse };
        let roster = parse(name, members).context("--metastore-peers")?;
        let listen = match &given.metastore_listen_peer {
            Some(url) => PeerUrl::parse(url).context("--metastore-listen-peer")?,
            None => roster.url().clone(),
        };
        let tls =
            match (&given.metastore_peer_cert, &given.metastore_peer_key, &given.metastore_peer_ca)
            {
                (Some(cert), Some(key), Some(ca)) => Some((cert.clone(), key.clone(), ca.clone())),
                (None, None, None) => None,
                _ => bail!(
                    "--metastore-peer-cert, --metastore-peer-key and --metastore-peer-ca belong \
                 together: pass all three"
                ),
            };
        if roster.url().tls != tls.is_some() {
            bail!(
                "https addresses in --metastore-peers need --metastore-peer-cert, \
                 --metastore-peer-key and --metastore-peer-ca, and http addresses none of them"
            );
        }
        if tls.is_none() && !listen.is_loopback() {
            bail!("--metastore-listen-peer {listen}: without TLS, use an address of this machine");
        }
        Ok(Some(Peers { roster, joins, listen, tls }))
    }

    pub fn name(&self) -> &str {
        self.roster.name()
    }

    /// Returns the address of this member for the others.
    pub fn url(&self) -> String {
        self.roster.url().to_string()
    }

    /// Makes a node a member: finds out its ids, listens for the others, and has it
    /// publish its addresses for clients.
    pub async fn join(
        &self,
        node: &mut NodeSettings,
        client_urls: Vec<String>,
    ) -> anyhow::Result<()> {
        let peer_tls = match &self.tls {
            None => None,
            Some((cert, key, ca)) => {
                let (connector, acceptor) = tls::mutual(cert, key, ca)?;
                Some(PeerTls { connector, acceptor })
            }
        };
        let Ids { cluster, member, addresses } = self.ids(node, peer_tls.as_ref()).await?;
        if let Some(given) = node.cluster_id.filter(|id| *id != cluster) {
            bail!(
                "--metastore-cluster {given:x} is not the id of --metastore-peers, which is \
                 {cluster:x}"
            );
        }
        let listen = (self.listen.host.as_str(), self.listen.port);
        let listener = TcpListener::bind(listen).await;
        let listener =
            listener.with_context(|| format!("listening for members on {}", self.listen))?;
        let transport = Arc::new(PeerTransport::new(cluster, member, listener, peer_tls));
        let mut peers = PeerSettings::new(addresses, transport);
        peers.joining = self.joins;
        peers.published = Some(Published { name: self.roster.name().to_string(), client_urls });
        (node.cluster_id, node.member_id) = (Some(cluster), Some(member));
        node.cluster = Some(ClusterSettings::new(peers));
        Ok(())
    }

    /// Returns the ids of the cluster and of this member: those of its directory, those
    /// under which it was added, or those of a new cluster.
    async fn ids(&self, node: &NodeSettings, peer_tls: Option<&PeerTls>) -> anyhow::Result<Ids> {
        let roster = &self.roster;
        let stored = stored_identity(&node.dir, node.world.clone())?;
        // Later, the member may have moved to another address.
        if stored.is_none()
            && let Some((cert, ..)) = &self.tls
        {
            tls::check_peer_certificate(cert, &roster.url().host)?;
        }
        let addresses = || roster.members().map(|(id, _, url)| (id, url.to_string())).collect();
        if self.joins {
            let found = discover(roster, peer_tls).await;
            return match (stored, found) {
                (Some(stored), found) => Ok(Ids {
                    cluster: stored.cluster_id,
                    member: stored.member_id,
                    addresses: found.map(|found| found.addresses()).unwrap_or_default(),
                }),
                (None, found) => {
                    let found = found?;
                    let member = found.id_of_new(roster)?;
                    let (cluster, addresses) = (found.cluster_id, found.addresses());
                    Ok(Ids { cluster, member, addresses })
                }
            };
        }
        if stored.is_none()
            && let Ok(found) = discover(roster, peer_tls).await
        {
            found.check_new(roster)?;
        }
        let (cluster, member) = (roster.cluster_id(), roster.member_id());
        Ok(Ids { cluster, member, addresses: addresses() })
    }
}

/// The ids of a cluster and a member, and the addresses of the members by id.
struct Ids {
    cluster: u64,
    member: u64,
    addresses: BTreeMap<u64, String>,
}
