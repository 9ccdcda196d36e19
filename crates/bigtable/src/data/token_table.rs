//! The table in which earlier versions kept the idempotency tokens of all tables. It is
//! read until the last of these tokens has expired, and then dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_engine::schema::Schema;
use stele_engine::{Columns, ScanSpec, TableId, View};
use stele_grpc::offload::in_place;

use super::idempotency::IdempotencyToken;
use crate::error::Result;
use crate::table::{RETENTION_MICROS, Tables};

const TABLE: &str = "bigtable.tokens";
/// The column of tokens that are scoped to one row. Still earlier versions scoped
/// tokens to a whole table, under an empty qualifier; those are ignored.
const QUALIFIER: &[u8] = b"row";

/// The table of tokens of earlier versions.
pub struct TokenTable {
    tables: Arc<Tables>,
    table: TableId,
    /// When the last token expires.
    until_micros: i64,
    in_use: AtomicBool,
}

impl TokenTable {
    /// Opens the table if the store has one whose tokens have not expired.
    pub fn open(tables: &Arc<Tables>, now_micros: i64) -> Result<Option<TokenTable>> {
        let Some((table, schema)) = tables.unlisted(TABLE)? else { return Ok(None) };
        // Nothing has been written since this version opened the store for the first
        // time, which is recorded in the table's schema.
        let since = match <[u8; 8]>::try_from(schema.annotation()) {
            Ok(bytes) => i64::from_be_bytes(bytes),
            Err(_) => {
                let schema = Schema::clone(&schema).annotated(now_micros.to_be_bytes());
                tables.alter_unlisted(table, schema)?;
                now_micros
            }
        };
        let until_micros = since.min(now_micros).saturating_add(RETENTION_MICROS);
        let opened = TokenTable {
            tables: tables.clone(),
            table,
            until_micros,
            in_use: AtomicBool::new(true),
        };
        Ok(opened.is_in_use(now_micros).then_some(opened))
    }

    /// Returns whether the table has a token.
    pub fn contains(&self, token: &IdempotencyToken<'_>) -> Result<bool> {
        if !self.is_in_use(token.now_micros) {
            return Ok(false);
        }
        let key = token_row(token);
        let spec = ScanSpec { columns: Columns::All, view: View::Latest, ..Default::default() };
        let mut found = false;
        let local = self.tables.local(self.table, &key);
        let read = local.read_row(&key, &spec, |cell| found |= cell.qualifier == QUALIFIER);
        match self.tables.tenure().open(read) {
            // It was dropped meanwhile.
            Err(stele_engine::Error::UnknownTable(_)) => Ok(false),
            read => Ok(read.map(|_| found)?),
        }
    }

    /// Returns whether a token may still be valid. Drops the table if not.
    fn is_in_use(&self, now_micros: i64) -> bool {
        if now_micros < self.until_micros {
            return self.in_use.load(Ordering::Relaxed);
        }
        if self.in_use.swap(false, Ordering::Relaxed)
            && in_place(|| self.tables.drop_unlisted(self.table)).is_err()
        {
            // The next token, or the next start, tries again.
            self.in_use.store(true, Ordering::Relaxed);
        }
        false
    }
}

/// Returns the row of a token: table, length of the row, row and token.
fn token_row(token: &IdempotencyToken<'_>) -> Vec<u8> {
    let IdempotencyToken { table, row, token, .. } = token;
    let row_bytes = u16::try_from(row.len()).expect("row keys have been checked");
    [&table.0.to_be_bytes()[..], &row_bytes.to_be_bytes(), row, token].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stele_engine::CommitBuilder;
    use stele_engine::schema::{Family, Purge};
    use stele_engine::world::Clock;
    use stele_tables::Placement;

    use super::super::Data;
    use super::super::simulated::Machine;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns a machine whose store an earlier version has written: with a table and
    /// a token of its row `r`.
    fn upgraded(token: &[u8]) -> Machine {
        let machine = Machine::new();
        let table = machine.create_table();
        let store = machine.store();
        let family = Family::with_purge("t", Purge::MaxAge(RETENTION_MICROS));
        let tokens = store.create(TABLE, Schema::with_families([family]).unwrap()).unwrap();
        let now_micros = machine.clock.now_micros();
        let token = IdempotencyToken { table, row: b"r", token, now_micros };
        let mut commit = CommitBuilder::new();
        commit.table(tokens).row(&token_row(&token)).set(b"t", QUALIFIER, now_micros, b"");
        let Placement::Here(local) = store.place(tokens, b"");
        store.tenure().open(local.apply_blocking(&commit.finish())).unwrap();
        machine
    }

    fn has_table(data: &Data) -> bool {
        data.tables.unlisted(TABLE).unwrap().is_some()
    }

    #[tokio::test]
    async fn scale_6_10_tokens_of_earlier_versions_count_for_thirty_minutes_and_then_go() {
        let machine = upgraded(b"token-one");
        let mut data = machine.data();
        assert_eq!(machine.mutate(&data, "r", "token-one").await, 0, "it was applied before");
        assert_eq!(machine.mutate(&data, "s", "token-one").await, 1, "another row");
        assert_eq!(machine.mutate(&data, "s", "token-one").await, 1);
        assert_eq!(machine.mutate(&data, "r", "token-two").await, 1);
        for _ in 0..2 {
            // Restarts do not prolong the time.
            machine.clock.advance(14 * MINUTE);
            drop(data);
            data = machine.data();
            assert!(has_table(&data));
            assert_eq!(machine.mutate(&data, "r", "token-one").await, 1);
        }
        machine.clock.advance(3 * MINUTE);
        assert!(has_table(&data));
        assert_eq!(machine.mutate(&data, "r", "token-new").await, 2);
        assert!(!has_table(&data), "dropped by the first token after the time");
        drop(data);
        let data = machine.data();
        assert!(!has_table(&data));
        assert_eq!(machine.mutate(&data, "r", "token-new").await, 2);
    }

    #[tokio::test]
    async fn scale_6_10_the_table_of_tokens_is_dropped_at_a_start_after_the_time() {
        let machine = upgraded(b"token-one");
        assert!(has_table(&machine.data()));
        machine.clock.advance(31 * MINUTE);
        assert!(!has_table(&machine.data()));
    }
}
