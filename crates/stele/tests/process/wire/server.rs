//! The servers of these tests, and the table that they use.

use std::path::Path;
use std::time::Instant;

use stele_bigtable::proto::admin;
use stele_bigtable::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;

use crate::support::{INSTANCE, Server, TIMEOUT};

/// Starts a server with temporary data.
pub fn ephemeral() -> Server {
    Server::start(&["--ephemeral", "--log", "warn"])
}

/// Starts a server on the data in `dir`, with little memory, so that much of it is being
/// flushed when the server is killed.
pub fn with_data(dir: &Path) -> Server {
    Server::with_data(dir, &["--memory", "32MiB", "--log", "warn"])
}

/// Creates the table with the family `f`.
pub async fn make_table(server: &Server) {
    let column_families = [("f".to_string(), admin::ColumnFamily::default())].into();
    let table = admin::Table { column_families, ..Default::default() };
    let request = admin::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: "t".into(),
        table: Some(table),
        ..Default::default()
    };
    let mut tables = BigtableTableAdminClient::new(server.channel().await);
    tables.create_table(request).await.unwrap();
}

/// Waits until no call is in progress.
pub async fn until_no_calls(server: &Server) {
    let begun = Instant::now();
    while server.metric("stele_grpc_requests_in_flight") != Some(0.0) {
        assert!(begun.elapsed() < TIMEOUT, "a call is never ended");
        tokio::task::yield_now().await;
    }
}
