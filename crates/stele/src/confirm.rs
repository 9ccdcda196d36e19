//! Confirmation of irreversible commands.

/// Returns an error unless an irreversible operation was confirmed. `operation` is what
/// it would do, as in "drop table users".
pub fn confirm(yes: bool, operation: &str) -> anyhow::Result<()> {
    anyhow::ensure!(yes, "refusing to {operation}: this cannot be undone; pass --yes to confirm");
    Ok(())
}
