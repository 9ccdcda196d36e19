//! Writes: each is checked, proposed to the group, and answered once it is
//! applied.

use super::admission::Attempt;
use super::lifecycle::{Node, Shared};
use super::purge;
use crate::auth::{Access, permit};
use crate::command::{Answer, Caller, Command, Execute, pack_as};
use crate::error::{Error, Result};
use crate::key::KeyRange;
use crate::lease::TTL_SECONDS_MAX;
use crate::machine::{self, EXPIRED_BYTES_MAX, EXPIRED_KEYS_MAX};

/// A member as one caller sees it. Without a caller, everything that needs a
/// user is refused while callers are checked.
#[derive(Clone, Copy)]
pub struct NodeAs<'n> {
    node: &'n Node,
    caller: Option<&'n Caller>,
}

impl Node {
    /// Returns the node as a caller sees it.
    pub fn by<'n>(&'n self, caller: Option<&'n Caller>) -> NodeAs<'n> {
        NodeAs { node: self, caller }
    }

    /// Proposes a command. Returns once it is applied.
    pub async fn propose(&self, command: Command) -> Result<Answer> {
        self.by(None).propose(command).await
    }

    pub async fn compact(&self, revision: i64, physical: bool) -> Result<Answer> {
        self.by(None).compact(revision, physical).await
    }

    pub async fn execute(&self, execute: Execute, attempt: Attempt) -> Result<Answer> {
        self.by(None).execute(execute, attempt).await
    }

    pub async fn lease_grant(&self, id: i64, ttl_seconds: i64) -> Result<Answer> {
        self.by(None).lease_grant(id, ttl_seconds).await
    }
}

impl NodeAs<'_> {
    /// Refuses what the caller may not do.
    pub fn permit(&self, access: Access<'_>) -> Result<()> {
        let shared = &self.node.shared;
        if !shared.state.auth.is_enabled() {
            return Ok(());
        }
        permit(&shared.state.auth.get(), self.caller, access, &|id| shared.leases.keys(id))
    }

    /// Proposes a command. Returns once it is applied. The caller is checked
    /// here, to refuse early, and again when the command is applied.
    pub async fn propose(&self, command: Command) -> Result<Answer> {
        self.permit(Access::Command(&command))?;
        let shared = &self.node.shared;
        shared.check_alarm(&command)?;
        shared.check_compares(&command)?;
        shared.check_quota(&command).await?;
        let answer = shared.propose_as(self.caller, &command).await;
        shared.wake_duties_if_due();
        answer
    }

    /// Makes history below a revision unreadable for etcd's clients. `physical`
    /// also drops it for all clients, and returns once its space has been
    /// reclaimed.
    pub async fn compact(&self, revision: i64, physical: bool) -> Result<Answer> {
        let answer = self.propose(Command::Compact { revision }).await?;
        if physical {
            purge::purge(&self.node.shared, revision).await?;
        }
        Ok(answer)
    }

    /// Runs a serializable transaction. If it fails with a conflict, its retry
    /// has priority over transactions that began later.
    pub async fn execute(&self, execute: Execute, attempt: Attempt) -> Result<Answer> {
        let shared = &self.node.shared;
        shared.settings.execute.check(&execute, attempt)?;
        let ranges = execute.writes.iter().map(|write| KeyRange::single(write.key.clone()));
        let ranges = ranges.chain(execute.reads.iter().cloned()).collect();
        let admitted = shared.admission.admit(attempt, ranges).await;
        let answer = self.propose(Command::Execute(execute)).await;
        admitted.finish(matches!(answer, Err(Error::Conflict { .. })));
        answer
    }

    /// Grants a lease and returns its id and TTL. Chooses an id if `id` is 0,
    /// and raises a TTL that is below the minimum.
    pub async fn lease_grant(&self, id: i64, ttl_seconds: i64) -> Result<Answer> {
        if ttl_seconds > TTL_SECONDS_MAX {
            return Err(Error::LeaseTtlTooLarge);
        }
        let shared = &self.node.shared;
        let settings = &shared.settings;
        let ttl_seconds = ttl_seconds.max(settings.lease_ttl_seconds_min);
        let random = || settings.world.random.next_u64();
        let id = if id == 0 { shared.leases.choose_id(random) } else { id };
        self.propose(Command::LeaseGrant { id, ttl_seconds }).await
    }

    /// Revokes a lease. If it has many keys, entries before the final one
    /// delete most of them.
    pub async fn lease_revoke(&self, id: i64) -> Result<Answer> {
        self.permit(Access::Lease(id))?;
        let shared = &self.node.shared;
        let state = &shared.state;
        loop {
            let (table, bytes_max) = (state.tables.lease_keys, EXPIRED_BYTES_MAX + 1);
            let keys = state.owned_rows_some(table, id, EXPIRED_KEYS_MAX + 1, bytes_max)?;
            let bytes = keys.iter().map(Vec::len).sum::<usize>();
            if keys.len() <= EXPIRED_KEYS_MAX && bytes <= EXPIRED_BYTES_MAX {
                return self.propose(Command::LeaseRevoke { id }).await;
            }
            let answer = self.propose(Command::Expire { ids: vec![id] }).await?;
            if !shared.leases.exists(id) {
                return Ok(answer);
            }
        }
    }
}

impl Shared {
    /// Proposes a command without the checks of [`Node::propose`].
    pub(super) async fn propose(&self, command: &Command) -> Result<Answer> {
        self.propose_as(None, command).await
    }

    async fn propose_as(&self, caller: Option<&Caller>, command: &Command) -> Result<Answer> {
        if let Some(error) = self.applier.stalled_by() {
            return Err(error);
        }
        let (needed, level) = (command.level(), self.state.level());
        if needed > level {
            return Err(Error::LevelTooLow { needed, level });
        }
        let time_micros = self.clocks.proposal_micros(|| self.state.sampled_time());
        let proposal = pack_as(caller, command, time_micros)?;
        let queued = self.clock().elapsed();
        let answer = self.group.propose(proposal).await;
        let answered = self.clock().elapsed();
        let breakdown = self.group.phases().record(queued, answered);
        let took = answered.saturating_sub(queued);
        if took >= self.settings.slow_request {
            self.slow.log(answered, took, breakdown, command);
        }
        answer?
    }

    /// Refuses a transaction whose compares would block all others while they
    /// read a large range. Not evaluated if the store is too small for that.
    fn check_compares(&self, command: &Command) -> Result<()> {
        let Command::Txn(txn) = command else { return Ok(()) };
        if !txn.compares_ranges()
            || self.state.counts.read().total() <= machine::COMPARED_KEYS_MAX as i64
        {
            return Ok(());
        }
        stele_grpc::offload::in_place(|| machine::check_compares(&self.state, &self.leases, txn))
    }

    /// Wakes the duties if a write made one due.
    fn wake_duties_if_due(&self) {
        if self.can_clear_alarm() || self.sample_due_by_bytes() {
            self.wake.notify_one();
        }
    }

    /// Returns whether a sample is due because of the bytes written since the
    /// last.
    pub(super) fn sample_due_by_bytes(&self) -> bool {
        let step = self.settings.retention.sample_bytes();
        self.state.written_bytes() - self.state.sampled_bytes() >= step
    }
}
