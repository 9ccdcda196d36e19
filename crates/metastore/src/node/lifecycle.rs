//! Opens and closes a member.

use std::convert::Infallible;
use std::sync::Arc;

use stele_engine::world::Clock;
use stele_grpc::Pending;
use tokio::sync::{Notify, mpsc};

use super::admission::Admission;
use super::clocks::Clocks;
use super::cluster::{ActingTerm, ClusterSettings};
use super::duties::{self, Duties};
use super::settings::NodeSettings;
use super::slow::SlowLog;
use super::status::BackupCounts;
use super::verify::Verifier;
use crate::consensus::{GroupSettings, RaftGroup};
use crate::error::{Error, Result};
use crate::lease::Leases;
use crate::machine::{self, Applier, MachineParts};
use crate::state::{Identity, MemberState};
use crate::watch::Hub;

/// An open member. [`Node::close`] returns when nothing uses its directory any
/// more. Dropping the node does not wait: a running duty or purge keeps the
/// directory in use until it ends, and the next start replays the log.
pub struct Node {
    pub(super) shared: Arc<Shared>,
    duties: Option<Duties>,
    verifier: Option<Verifier>,
    /// Ends when all work on other threads has ended.
    work_ended: mpsc::Receiver<Infallible>,
}

/// The state that requests and duties share.
pub(crate) struct Shared {
    pub(super) group: RaftGroup<Applier>,
    pub(super) applier: Arc<Applier>,
    pub(super) state: Arc<MemberState>,
    pub(super) hub: Arc<Hub>,
    pub(super) leases: Arc<Leases>,
    pub(super) admission: Admission,
    pub(super) last: duties::LastRound,
    pub(super) slow: SlowLog,
    pub(super) backups: BackupCounts,
    pub(super) acting: ActingTerm,
    pub(super) settings: NodeSettings,
    pub(super) clocks: Clocks,
    /// Wakes the duties when one may be due.
    pub(super) wake: Arc<Notify>,
    /// Held while a hash is computed.
    pub(super) hashing: Arc<tokio::sync::Mutex<()>>,
    /// Held by work on other threads, which may outlive its caller.
    pub(super) work: mpsc::Sender<Infallible>,
}

impl Node {
    /// Opens the member in a directory, which is created if it does not exist.
    pub fn open(settings: NodeSettings) -> Pending<'static, Result<Node>> {
        Box::pin(async move {
            let world = settings.world.clone();
            let new = || Identity {
                cluster_id: settings.cluster_id.unwrap_or_else(|| random_id(&settings)),
                member_id: settings.member_id.unwrap_or_else(|| random_id(&settings)),
            };
            let dir = settings.dir.join("state");
            let opened = machine::open(&dir, settings.machine.clone(), world.clone(), new)?;
            let MachineParts { state, hub, leases, applier } = opened;
            settings.check_identity(state.identity)?;
            let mut group_settings =
                GroupSettings::new(settings.dir.join("log"), world, state.identity.member_id);
            group_settings.log.sync = settings.sync;
            if let Some(cluster) = settings.cluster.clone() {
                let ClusterSettings { peers, threads, log_io, rules } = cluster;
                group_settings.peers = Some(peers);
                (group_settings.threads, group_settings.log_io) = (threads, log_io);
                group_settings.rules = rules;
                leases.set_has_peers();
            }
            let group = RaftGroup::open(group_settings, applier.clone()).await?;
            // Replaying the log took time that must not count against the leases.
            leases.refresh();
            let clocks =
                Clocks::start(settings.world.clock.clone(), applier.history().0.clock_micros);
            let admission = Admission::new(settings.world.clock.clone());
            let wake = leases.earlier();
            let (work, work_ended) = mpsc::channel(1);
            let shared = Arc::new(Shared {
                group,
                applier,
                state,
                hub,
                leases,
                admission,
                last: duties::LastRound::default(),
                slow: SlowLog::default(),
                backups: BackupCounts::default(),
                acting: ActingTerm::default(),
                clocks,
                settings,
                wake,
                hashing: Arc::default(),
                work,
            });
            shared.raise_level_of_new().await?;
            let background = shared.settings.duties;
            let duties = background.then(|| Duties::start(&shared));
            let verifier = background.then(|| Verifier::start(&shared));
            Ok(Node { shared, duties, verifier, work_ended })
        })
    }

    /// Runs the duties now. For tests that control the clock.
    pub async fn run_duties(&self) -> Result<()> {
        duties::run(&self.shared).await
    }

    /// Flushes the applied state to disk.
    pub fn flush(&self) -> Result<()> {
        let state = &self.shared.state;
        Ok(state.store.flush(state.tables.user)?)
    }

    /// Returns the checksum of all keys, computed on this thread.
    pub fn hash_now(&self) -> Result<crate::state::Hash> {
        self.shared.state.hash(0)
    }

    /// Stops the duties and the group, and flushes everything to disk. When it
    /// returns, the directory can be opened again, unless a cursor or an open
    /// range still exists.
    pub fn close(self) -> Pending<'static, Result<()>> {
        Box::pin(async move {
            let Node { shared, duties, verifier, mut work_ended } = self;
            if let Some(duties) = duties {
                duties.stop().await;
            }
            if let Some(verifier) = verifier {
                verifier.stop().await;
            }
            // The duties have ended, and calls only borrow the node.
            let Some(shared) = Arc::into_inner(shared) else {
                return Err(Error::Internal(
                    "the metastore is still in use: it was not closed".into(),
                ));
            };
            let Shared { group, state, work, .. } = shared;
            let closed = match group.close().await {
                // Flush, so that the next start has no log to replay.
                Ok(()) => state.store.flush(state.tables.user).map_err(Error::from),
                Err(error) => Err(error),
            };
            drop(work);
            while work_ended.recv().await.is_some() {}
            closed
        })
    }

    /// Returns the Raft group, for statistics about its log and queue.
    pub fn group(&self) -> &RaftGroup<Applier> {
        &self.shared.group
    }

    pub fn settings(&self) -> &NodeSettings {
        &self.shared.settings
    }

    pub fn watch(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// Returns the users, roles and tokens.
    pub fn auth(&self) -> &crate::auth::SharedAuth {
        &self.shared.state.auth
    }

    pub fn leases(&self) -> &Leases {
        &self.shared.leases
    }
}

impl Shared {
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.settings.world.clock
    }
}

fn random_id(settings: &NodeSettings) -> u64 {
    settings.world.random.next_u64().max(1)
}
