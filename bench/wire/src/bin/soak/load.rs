//! The ordinary load: bulk writes, point reads and short scans at a modest rate that
//! keeps the machine busy without saturating it.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use stele_bench_wire::Rng;
use tokio::task::JoinSet;

use crate::{Client, FAMILY, INSTANCE, ROWS, TABLE, client, connect, key, rows_of, set_cell};

const BATCH: u64 = 100;
const VALUE_BYTES: usize = 1024;
/// Key of a row with one large cell, which stalled readers read.
pub const LARGE_ROW: &str = "zlarge";
const LARGE_BYTES: usize = 32 << 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Creates the table and fills it.
pub async fn prepare(target: &str) -> Result<()> {
    type Admin =
        admin::bigtable_table_admin_client::BigtableTableAdminClient<tonic::transport::Channel>;
    let mut tables = Admin::new(connect(target).await?);
    let _ = tables.delete_table(admin::DeleteTableRequest { name: TABLE.into() }).await;
    let gc_rule = admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(1)) };
    let family = admin::ColumnFamily { gc_rule: Some(gc_rule), ..Default::default() };
    let table = admin::Table {
        column_families: [(FAMILY.to_string(), family)].into(),
        ..Default::default()
    };
    let request = admin::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: TABLE.rsplit('/').next().unwrap_or_default().into(),
        table: Some(table),
        ..Default::default()
    };
    tables.create_table(request).await?;
    let mut client = client(target).await?;
    let mut rng = Rng::new(1);
    for first in (0..ROWS).step_by(BATCH as usize) {
        write_batch(&mut client, first, &mut rng).await?;
    }
    let large = bt::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: LARGE_ROW.into(),
        mutations: vec![set_cell("q", rng.value(LARGE_BYTES).into())],
        ..Default::default()
    };
    client.mutate_row(large).await?;
    Ok(())
}

/// Starts the clients of the ordinary load. Rejected calls are expected; they are
/// retried after a pause.
pub async fn spawn(tasks: &mut JoinSet<()>, target: &str, seed: u64, until: Instant) -> Result<()> {
    for worker in 0..4 {
        let mut client = client(target).await?;
        let mut rng = Rng::new(seed + worker);
        tasks.spawn(async move {
            while Instant::now() < until {
                let _ = match rng.below(3) {
                    0 => write_batch(&mut client, rng.below(ROWS - BATCH), &mut rng).await,
                    1 => read(&mut client, key(rng.below(ROWS))).await,
                    _ => scan(&mut client, rng.below(ROWS - BATCH)).await,
                };
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    Ok(())
}

async fn write_batch(client: &mut Client, first: u64, rng: &mut Rng) -> Result<()> {
    let entry = |number| bt::mutate_rows_request::Entry {
        row_key: key(number),
        mutations: vec![set_cell("q", Bytes::from(rng.value(VALUE_BYTES)))],
        ..Default::default()
    };
    let entries = (first..first + BATCH).map(entry).collect();
    let request = bt::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() };
    let mut answers = client.mutate_rows(request).await?.into_inner();
    while answers.message().await?.is_some() {}
    Ok(())
}

pub async fn read(client: &mut Client, row: Bytes) -> Result<()> {
    let rows = rows_of(vec![row]);
    let request = bt::ReadRowsRequest { table_name: TABLE.into(), rows, ..Default::default() };
    drain(client, request).await
}

async fn scan(client: &mut Client, first: u64) -> Result<()> {
    let range = bt::RowRange {
        start_key: Some(bt::row_range::StartKey::StartKeyClosed(key(first))),
        end_key: Some(bt::row_range::EndKey::EndKeyOpen(key(first + BATCH))),
    };
    let rows = Some(bt::RowSet { row_keys: vec![], row_ranges: vec![range] });
    let request = bt::ReadRowsRequest { table_name: TABLE.into(), rows, ..Default::default() };
    drain(client, request).await
}

async fn drain(client: &mut Client, request: bt::ReadRowsRequest) -> Result<()> {
    let mut rows = client.read_rows(request).await?.into_inner();
    while rows.message().await?.is_some() {}
    Ok(())
}
