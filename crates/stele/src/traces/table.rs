//! The table that a command reads or writes.

use clap::Args;
use stele_traces::Store;
use stele_traces::http::INSTANCE;

use super::user_error;
use crate::connect::BigtableServer;

/// The table of traces and the output format.
#[derive(Args, Clone)]
pub struct TableArgs {
    /// Table of traces.
    #[arg(value_name = "TABLE")]
    pub(super) table_id: String,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) connection: BigtableServer,
    #[command(flatten)]
    _own: Own,
}

/// Ends the help section of the server options; the command's own options follow.
#[derive(Args, Clone)]
#[command(next_help_heading = None::<&str>)]
struct Own {}

impl TableArgs {
    /// Opens the table and runs `work` with it.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(Store) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.connection.clone().within(INSTANCE).run(async |client| {
            let store = Store::open(&client, &self.table_id).await.map_err(user_error)?;
            work(store).await
        })
    }
}
