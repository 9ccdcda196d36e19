//! Idempotency tokens: a mutation that is sent several times with the same token
//! is applied once. The token is stored in a hidden family of the mutated row, by the
//! commit that applies the mutation, and kept for as long as a client may retry.

use std::sync::Arc;

use stele_engine::{
    Columns, Commit, CommitBuilder, FamilyColumns, RowRange, ScanSpec, TableId, Txn, View,
};
use stele_tables::Local;

use super::token_table::TokenTable;
use crate::error::{Error, Result};
use crate::proto::v2::Idempotency;
use crate::table::{RETRY_MICROS_MAX, TOKEN_FAMILY, Tables};

const TOKEN_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MAX: usize = 1 << 10;

/// Finds and stores tokens. Nothing else reads or writes them.
pub struct IdempotencyTokens {
    tables: Arc<Tables>,
    /// The tokens of an earlier version, until they expire.
    earlier: Option<TokenTable>,
}

/// The token of a request that writes one row. It has no meaning for other rows.
pub struct IdempotencyToken<'r> {
    pub table: TableId,
    pub row: &'r [u8],
    pub token: &'r [u8],
    pub now_micros: i64,
}

impl<'r> IdempotencyToken<'r> {
    /// Validates the token of a request that writes `row` of `table`.
    pub fn new(
        table: TableId,
        row: &'r [u8],
        idempotency: &'r Idempotency,
        now_micros: i64,
    ) -> Result<IdempotencyToken<'r>> {
        check(idempotency, now_micros)?;
        Ok(IdempotencyToken { table, row, token: &idempotency.token, now_micros })
    }
}

impl IdempotencyTokens {
    pub fn open(tables: Arc<Tables>, now_micros: i64) -> Result<IdempotencyTokens> {
        let earlier = TokenTable::open(&tables, now_micros)?;
        Ok(IdempotencyTokens { tables, earlier })
    }

    /// Returns whether a mutation was applied under the token, and the txn of
    /// that observation. The table must have the family of tokens.
    pub fn find(&self, local: Local<'_>, token: &IdempotencyToken<'_>) -> Result<(bool, Txn)> {
        let column = FamilyColumns {
            family: TOKEN_FAMILY.into(),
            qualifiers: Some(vec![RowRange::row(token.token)]),
        };
        let columns = Columns::Families(vec![column]);
        let spec = ScanSpec { columns, view: View::Latest, ..Default::default() };
        let mut found = false;
        let read = local.read_row(token.row, &spec, |_| found = true);
        let read_at = self.tables.tenure().open(read)?;
        if let Some(earlier) = self.earlier.as_ref().filter(|_| !found) {
            found = earlier.contains(token)?;
        }
        Ok((found, read_at))
    }
}

/// Returns a commit that stores the token together with what `mutate` adds to its row.
pub fn commit(token: &IdempotencyToken<'_>, mutate: impl FnOnce(&mut CommitBuilder)) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(token.table).row(token.row);
    mutate(&mut commit);
    commit.set(TOKEN_FAMILY.as_bytes(), token.token, token.now_micros, b"");
    commit.finish()
}

fn check(idempotency: &Idempotency, now_micros: i64) -> Result<()> {
    let size = idempotency.token.len();
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&size) {
        return Err(Error::Invalid(format!(
            "Invalid idempotency token of {size} bytes: use {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes"
        )));
    }
    let Some(start) = &idempotency.start_time else {
        return Err(Error::invalid("Idempotency: start_time must be set"));
    };
    let start = start.seconds.saturating_mul(1_000_000).saturating_add(start.nanos as i64 / 1000);
    if start < now_micros - RETRY_MICROS_MAX {
        return Err(Error::invalid("Idempotency: start_time is more than 15 minutes ago"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::simulated::{Machine, TABLE};

    #[tokio::test]
    async fn scale_6_10_a_retry_after_a_power_failure_is_not_applied_again() {
        let mut machine = Machine::new();
        machine.create_table();
        for round in 1..=3 {
            let data = machine.data();
            let tokens = ["token-one", "token-two", "token-three"];
            let token = tokens[round - 1];
            assert_eq!(machine.mutate(&data, "r", token).await, round);
            machine.files = machine.files.crash();
            drop(data);
            // Applied again, it would add a cell with a later timestamp.
            machine.clock.advance(Duration::from_secs(60));
            let data = machine.data();
            assert!(data.tables.get(TABLE).unwrap().definition.keeps_tokens);
            for known in &tokens[..round] {
                assert_eq!(machine.mutate(&data, "r", known).await, round);
            }
        }
    }

    #[tokio::test]
    async fn scale_6_10_a_token_counts_for_thirty_minutes() {
        let machine = Machine::new();
        machine.create_table();
        let data = machine.data();
        assert_eq!(machine.mutate(&data, "r", "token-one").await, 1);
        machine.clock.advance(Duration::from_secs(29 * 60));
        assert_eq!(machine.mutate(&data, "r", "token-one").await, 1);
        machine.clock.advance(Duration::from_secs(2 * 60));
        assert_eq!(machine.mutate(&data, "r", "token-one").await, 2);
    }
}
