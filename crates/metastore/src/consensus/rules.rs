//! Deliberate violations of the protocol, each of which the simulator must
//! detect. `docs/metastore-cluster.md` lists them.

/// The rules that a group breaks; none outside the simulator's own tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Reports entries to the leader, or commits its own, before they are synced.
    pub acknowledge_before_sync: bool,
    /// Applies committed entries before they are synced locally.
    pub apply_before_sync: bool,
    /// Counts a member that did not answer as having the entries sent to it.
    pub commit_without_quorum: bool,
    /// Serves linearizable reads without confirming leadership.
    pub read_without_confirmation: bool,
    /// Answers questions about leases without confirming leadership.
    pub renew_without_confirmation: bool,
    /// Queues the leader's own commands like those of clients, so that one of an
    /// earlier term of leadership gets through.
    pub propose_without_fence: bool,
    /// Applies the last Cut of a log again at open, to the entries that were
    /// written after it.
    pub replay_old_cut: bool,
}
