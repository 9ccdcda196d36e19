//! Reads that follow the rules of proposals, on the newest state instead of a log
//! entry: read-only transactions, and checks before a command is proposed.

use stele_engine::Commit;

use super::COMPARED_KEYS_MAX;
use super::overlay::Overlay;
use super::run::EntryRun;
use crate::command::{Answer, Command, Reply, Txn, VERSION};
use crate::error::Result;
use crate::lease::Leases;
use crate::state::{Floor, Growth, MemberState, ReadOutcome, Watermarks};

/// Runs a read-only transaction on the current state.
pub fn read_txn(state: &MemberState, leases: &Leases, txn: &Txn) -> Result<Answer> {
    assert!(txn.is_read_only(), "a transaction that writes is proposed");
    on_newest(state, leases, |run| {
        run.check_alarms(false)?;
        let reply = Reply::Txn(run.txn(txn)?);
        Ok(Answer { revision: run.overlay.revision(), reply })
    })
}

/// Refuses a transaction whose compares would read too many keys of the current
/// state.
pub fn check_compares(state: &MemberState, leases: &Leases, txn: &Txn) -> Result<()> {
    on_newest(state, leases, |run| run.path(txn).map(drop))
}

/// Returns an upper bound on the bytes that a command would return if it were
/// applied now.
pub fn measure(state: &MemberState, leases: &Leases, command: &Command) -> Result<usize> {
    on_newest(state, leases, |run| run.measure_results(command))
}

/// Runs a read-only operation on the current state.
pub(super) fn on_newest<T>(
    state: &MemberState,
    leases: &Leases,
    mut read: impl FnMut(&mut EntryRun<'_>) -> Result<T>,
) -> Result<T> {
    state.read_retained(0, Floor::Retained, |revision, _| {
        let watermarks = Watermarks {
            revision,
            compacted: state.compacted(),
            waterline: state.waterline(),
            ..Watermarks::default()
        };
        let nothing = |_: &Commit| Ok(());
        let mut run = EntryRun {
            overlay: Overlay::new(state, watermarks, false, &nothing),
            leases,
            deleted_keys_max: 0,
            newest_sample: None,
            version: VERSION,
            awaited: true,
            result_bytes: 0,
            compared_left: COMPARED_KEYS_MAX + 1,
            quota_growth: Growth::new(),
        };
        read(&mut run).map(ReadOutcome::Tentative)
    })
}
