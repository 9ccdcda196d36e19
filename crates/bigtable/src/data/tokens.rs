//! Mutations that are applied once however often they are sent: their tokens
//! are kept, in the same commit as the mutation, for as long as a client may
//! try again.

use std::sync::Arc;

use stele_engine::schema::{Family, Purge, Schema};
use stele_engine::{Columns, CommitBuilder, ScanSpec, Store, TableId, Txn, View, Wait};

use crate::error::{Error, Result};
use crate::proto::v2::Idempotency;

const TABLE: &str = "bigtable.tokens";
const FAMILY: &[u8] = b"t";
const TOKEN_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MAX: usize = 1 << 10;
/// For how long a client may send the same mutation again.
const WINDOW_MICROS: i64 = 15 * 60 * 1_000_000;

/// The tokens of a store.
pub struct Tokens {
    store: Arc<Store>,
    table: TableId,
}

impl Tokens {
    pub fn open(store: Arc<Store>) -> Result<Tokens> {
        let table = match store.table(TABLE) {
            Some(table) => table,
            None => {
                let family = Family::with_purge(FAMILY, Purge::MaxAge(2 * WINDOW_MICROS));
                store.create_table(TABLE, Schema::with_families([family])?)?
            }
        };
        Ok(Tokens { store, table })
    }

    /// Applies what `mutate` adds to the commit of `table`, unless it was
    /// applied under the same token before. Returns the txn to wait for.
    pub fn once(
        &self,
        table: TableId,
        idempotency: &Idempotency,
        now_micros: i64,
        mutate: impl Fn(&mut CommitBuilder),
    ) -> Result<Txn> {
        check(idempotency, now_micros)?;
        let mut row = table.0.to_be_bytes().to_vec();
        row.extend_from_slice(&idempotency.token);
        loop {
            let spec = ScanSpec { columns: Columns::All, view: View::Latest, ..Default::default() };
            let mut known = false;
            let txn = self.store.read_row(self.table, &row, &spec, |_| known = true)?;
            if known {
                return Ok(txn);
            }
            let mut commit = CommitBuilder::new();
            if self.table < table {
                self.note(&mut commit, &row, now_micros);
            }
            mutate(commit.table(table));
            if self.table > table {
                self.note(&mut commit, &row, now_micros);
            }
            match self.store.apply(&commit.finish(), txn, Wait::Accepted) {
                // Somebody wrote the row, or the token, since it was read.
                Err(stele_engine::Error::MutationConflict { .. }) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    fn note(&self, commit: &mut CommitBuilder, row: &[u8], now_micros: i64) {
        commit.table(self.table).row(row).set(FAMILY, b"", now_micros, b"");
    }
}

fn check(idempotency: &Idempotency, now_micros: i64) -> Result<()> {
    let size = idempotency.token.len();
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&size) {
        return Err(Error::Invalid(format!(
            "Idempotency token of {size} bytes: it must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}"
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
