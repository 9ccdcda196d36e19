//! The other members of the metastore: their addresses and certificates.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use stele_metastore::consensus::PeerSettings;
use stele_metastore::node::{ClusterSettings, NodeSettings};
use stele_metastore::peer::{PeerTls, PeerTransport, PeerUrl, Roster};
use tokio::net::TcpListener;

use super::settings::PartialSettings;
use super::tls;

/// The members of a metastore, and how this one connects to the others.
#[derive(Clone, Debug)]
pub struct Peers {
    roster: Roster,
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
        let roster = Roster::parse(name, members).context("--metastore-peers")?;
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
        Ok(Some(Peers { roster, listen, tls }))
    }

    pub fn name(&self) -> &str {
        self.roster.name()
    }

    /// Returns the address of this member for the others.
    pub fn url(&self) -> String {
        self.roster.url().to_string()
    }

    /// Returns the other members: id, name and address.
    pub fn others(&self) -> Vec<(u64, String, String)> {
        let others = self.roster.members().filter(|(_, name, _)| *name != self.roster.name());
        others.map(|(id, name, url)| (id, name.to_string(), url.to_string())).collect()
    }

    /// Makes a node a member: listens for the others and sets its ids.
    pub async fn join(&self, node: &mut NodeSettings) -> anyhow::Result<()> {
        let roster = &self.roster;
        if let Some(cluster) = node.cluster_id.filter(|id| *id != roster.cluster_id()) {
            bail!(
                "--metastore-cluster {cluster:x} is not the id of --metastore-peers, which is {:x}",
                roster.cluster_id()
            );
        }
        let tls = match &self.tls {
            None => None,
            Some((cert, key, ca)) => {
                let (connector, acceptor) = tls::mutual(cert, key, ca)?;
                Some(PeerTls { connector, acceptor })
            }
        };
        let listen = (self.listen.host.as_str(), self.listen.port);
        let listener = TcpListener::bind(listen).await;
        let listener =
            listener.with_context(|| format!("listening for members on {}", self.listen))?;
        let transport = Arc::new(PeerTransport::new(roster, listener, tls));
        let members = roster.members().map(|(id, _, url)| (id, url.to_string())).collect();
        let peers = PeerSettings::new(members, transport);
        (node.cluster_id, node.member_id) = (Some(roster.cluster_id()), Some(roster.member_id()));
        node.cluster = Some(ClusterSettings::new(peers));
        Ok(())
    }
}
