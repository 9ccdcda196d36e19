//! Copies a table of traces to another table or server, including timestamps. Ids
//! belong to the table, so they are copied unchanged.

use stele_bigtable_client::{Client, Mutation, Query, RowMutations};
use stele_grpc::Pending;

use super::Store;
use super::put::written;
use super::settings::create_table;
use crate::error::{Error, Result};

/// The maximum number of cells in one row mutation, and in one bulk write.
const CELLS_MAX: usize = 50_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Copied {
    pub rows: u64,
    pub cells: u64,
}

/// Copies all rows. The copy is idempotent and can be repeated after a failure. Results
/// that are ingested during a copy may be copied partially, so copy again after the
/// ingestion.
pub fn copy<'a>(
    from: &'a Store,
    to: &'a Client,
    to_table: &'a str,
    progress: &'a mut (dyn FnMut(Copied) + Send),
) -> Pending<'a, Result<Copied>> {
    Box::pin(copy_rows(from, to, to_table, progress))
}

async fn copy_rows(
    from: &Store,
    to: &Client,
    to_table: &str,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<Copied> {
    match Store::open(to, to_table).await {
        Ok(there) if there.settings() != from.settings() => {
            return Err(Error::Conflict(format!(
                "the settings of table {to_table} differ from those of {}",
                from.id()
            )));
        }
        Ok(_) | Err(Error::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    create_table(to, to_table, from.shards()).await?;
    let target = to.table(to_table)?;
    let mut rows = from.table().read_rows(Query::all());
    let mut copied = Copied::default();
    let (mut batch, mut cells) = (Vec::new(), 0);
    loop {
        let row = rows.next().await?;
        if cells >= CELLS_MAX || (row.is_none() && !batch.is_empty()) {
            let full: Vec<RowMutations> = std::mem::take(&mut batch);
            let keys: Vec<_> = full.iter().map(|row| row.key.clone()).collect();
            written(&keys, target.mutate_rows(full).await)?;
            copied.cells += cells as u64;
            cells = 0;
            progress(copied);
        }
        let Some(row) = row else { return Ok(copied) };
        copied.rows += 1;
        for part in row.cells.chunks(CELLS_MAX) {
            let set = part.iter().map(|cell| {
                let (qualifier, value) = (cell.qualifier.clone(), cell.value.clone());
                Mutation::set_at(&cell.family, qualifier, cell.timestamp_micros, value)
            });
            batch.push(RowMutations::new(row.key.clone(), set));
            cells += part.len();
        }
    }
}
