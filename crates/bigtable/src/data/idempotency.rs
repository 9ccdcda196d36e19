//! Idempotency tokens: a mutation that is sent several times with the same token
//! is applied once. The token is stored by the commit that applies the mutation,
//! and kept for as long as a client may retry.

use std::sync::Arc;

use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::{Columns, Commit, CommitBuilder, ScanSpec, TableId, Txn, View};

use crate::error::{Error, Result};
use crate::proto::v2::Idempotency;
use crate::table::Tables;

const TABLE: &str = "bigtable.tokens";
const FAMILY: &[u8] = b"t";
/// The column of tokens that are scoped to one row. Earlier versions scoped
/// tokens to a whole table, under an empty qualifier; those are ignored and
/// expire.
const QUALIFIER: &[u8] = b"row";
const TOKEN_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MAX: usize = 1 << 10;
/// The time during which a client may retry a mutation.
const WINDOW_MICROS: i64 = 15 * 60 * 1_000_000;

/// Where tokens are stored. Nothing else reads or writes them.
pub struct IdempotencyTokens {
    tables: Arc<Tables>,
    table: TableId,
}

/// The token of a request that writes one row.
pub struct IdempotencyToken<'r> {
    table: TableId,
    row: &'r [u8],
    /// The token's row in the table of tokens.
    key: Vec<u8>,
    now_micros: i64,
}

impl<'r> IdempotencyToken<'r> {
    /// Validates the token of a request that writes `row` of `table`. A token has
    /// no meaning for other rows.
    pub fn new(
        table: TableId,
        row: &'r [u8],
        idempotency: &Idempotency,
        now_micros: i64,
    ) -> Result<IdempotencyToken<'r>> {
        check(idempotency, now_micros)?;
        let row_bytes = u16::try_from(row.len())
            .map_err(|_| Error::invalid("Idempotency: the row key is too long"))?;
        let mut key = Vec::with_capacity(4 + 2 + row.len() + idempotency.token.len());
        key.extend_from_slice(&table.0.to_be_bytes());
        // The length prefix keeps the row from being mistaken for a part of the
        // token.
        key.extend_from_slice(&row_bytes.to_be_bytes());
        key.extend_from_slice(row);
        key.extend_from_slice(&idempotency.token);
        Ok(IdempotencyToken { table, row, key, now_micros })
    }
}

impl IdempotencyTokens {
    pub fn open(tables: Arc<Tables>) -> Result<IdempotencyTokens> {
        let family = Family::with_purge(FAMILY, Purge::MaxAge(2 * WINDOW_MICROS));
        let table = tables.unlisted(TABLE, Schema::with_families([family])?)?;
        Ok(IdempotencyTokens { tables, table })
    }

    /// Returns whether a mutation was applied under the token, and the txn of
    /// that observation.
    pub fn find(&self, token: &IdempotencyToken<'_>) -> Result<(bool, Txn)> {
        let spec = ScanSpec { columns: Columns::All, view: View::Latest, ..Default::default() };
        let mut found = false;
        let local = self.tables.local(self.table, &token.key);
        let read = local.read_row(&token.key, &spec, |cell| found |= cell.qualifier == QUALIFIER);
        let read_at = self.tables.tenure().open(read)?;
        Ok((found, read_at))
    }

    /// Returns a commit that stores the token and what `mutate` adds to its row.
    pub fn commit(
        &self,
        token: &IdempotencyToken<'_>,
        mutate: impl FnOnce(&mut CommitBuilder),
    ) -> Commit {
        let mut commit = CommitBuilder::new();
        // The tables of a commit must be in ascending order.
        if self.table < token.table {
            self.add(&mut commit, token);
        }
        mutate(commit.table(token.table).row(token.row));
        if self.table > token.table {
            self.add(&mut commit, token);
        }
        commit.finish()
    }

    fn add(&self, commit: &mut CommitBuilder, token: &IdempotencyToken<'_>) {
        commit.table(self.table).row(&token.key).set(FAMILY, QUALIFIER, token.now_micros, b"");
    }
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
    if start < now_micros - WINDOW_MICROS {
        return Err(Error::invalid("Idempotency: start_time is more than 15 minutes ago"));
    }
    Ok(())
}
