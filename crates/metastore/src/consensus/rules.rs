//! Deliberate violations of the protocol, each of which the simulator must
//! detect. `docs/metastore-cluster.md` lists them.

/// The rules that a group breaks; none outside the simulator's own tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Reports entries to the leader, or commits its own, before they are synced.
    pub acknowledge_before_sync: bool,
    /// Applies committed entries before they are synced locally.
    pub apply_before_sync: bool,
    /// Counts members as having an entry that it was never sent to.
    pub commit_without_quorum: bool,
    /// Serves linearizable reads without confirming leadership.
    pub read_without_confirmation: bool,
    /// Lets a command of an earlier term of leadership through.
    pub propose_without_fence: bool,
}
