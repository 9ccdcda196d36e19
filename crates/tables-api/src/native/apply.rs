//! The commit path: a commit is checked, admitted, which may wait, applied under the
//! schema it was checked against, and acknowledged as its caller asked.

use stele_engine::{Commit, Txn};
use stele_grpc::offload::in_place_if_large;
use stele_tables::{Local, Permit, Placement};
use tonic::Status;

use super::packed;
use super::rules::ServedTable;
use super::schema_version::schema_version;
use super::service::Native;
use crate::error::{Error, Result};
use crate::proto::{ApplyReply, ApplyRequest, SyncReply, SyncRequest, Wait};

/// Applying a commit takes about as long as copying this many bytes per byte of it: its
/// mutations may be small.
const COST_FACTOR: usize = 64;
/// From this size on, the log's own thread writes and syncs a commit.
const LARGE_BYTES: usize = 1 << 20;
/// How often a commit is checked again because its table was altered meanwhile.
const SCHEMA_CHANGES_MAX: usize = 16;

impl Native {
    pub(super) async fn apply_commit(
        &self,
        mut table: ServedTable,
        request: ApplyRequest,
    ) -> Result<ApplyReply, Status> {
        let commit_max_txn = match request.commit_max_txn {
            None => Txn::MAX,
            Some(raw) => Txn::from_raw(raw).ok_or(Error::InvalidTxn(raw))?,
        };
        let wait = Wait::try_from(request.wait)
            .map_err(|_| Error::InvalidCommit(format!("unknown wait {}", request.wait)))?;
        let commit = Commit::from_bytes(request.commit);
        let mut changes = 0;
        let (local, txn) = loop {
            if request.schema_version != 0
                && request.schema_version != schema_version(&table.schema)
            {
                return Err(Error::OtherSchema(request.table).into());
            }
            let cost = commit.bytes().len().saturating_mul(COST_FACTOR);
            let row = in_place_if_large(cost, || {
                packed::check(&commit, &self.tables, &request.table, &table)
            })?;
            let Placement::Here(local) = self.tables.place(table.id, &row);
            match self.enter(local, &table, &commit, commit_max_txn, cost).await {
                Err(stele_engine::Error::SchemaChanged { .. }) if changes < SCHEMA_CHANGES_MAX => {
                    changes += 1;
                    table = self.reload_table(&request.table).await?;
                }
                applied => break (local, applied.map_err(Error::from)?),
            }
        };
        match wait {
            Wait::Applied => local.request_sync(txn),
            Wait::Durable | Wait::Unspecified => {
                self.durable(local, txn, commit.bytes().len()).await?;
            }
        }
        Ok(ApplyReply { txn: txn.raw() })
    }

    /// Admits and applies a commit.
    async fn enter(
        &self,
        local: Local<'_>,
        table: &ServedTable,
        commit: &Commit,
        commit_max_txn: Txn,
        cost: usize,
    ) -> stele_engine::Result<Txn> {
        let apply = |permit: Permit<'_>| {
            let applied = local.apply_under_schema(permit, commit_max_txn, &table.schema);
            self.tables.tenure().open(applied)
        };
        // Most commits are admitted on the first attempt.
        let attempt = || local.try_admit(commit)?.map(apply).transpose();
        if let Some(txn) = in_place_if_large(cost, attempt)? {
            return Ok(txn);
        }
        let permit = local.admit(commit).await?;
        in_place_if_large(cost, || apply(permit))
    }

    async fn durable(&self, local: Local<'_>, txn: Txn, bytes: usize) -> Result<()> {
        let durable = match bytes < LARGE_BYTES {
            true => local.durable(txn, tokio::task::yield_now).await,
            false => local.durable_by_log(txn).await,
        };
        Ok(self.tables.tenure().open(durable)?)
    }

    pub(super) async fn sync_to(
        &self,
        table: ServedTable,
        request: SyncRequest,
    ) -> Result<SyncReply, Status> {
        let Placement::Here(local) = self.tables.place(table.id, b"");
        let (durable, newest) = self.progress(local)?;
        let wanted = match request.txn {
            None => newest,
            Some(raw) => Txn::from_raw(raw).ok_or(Error::InvalidTxn(raw))?.min(newest),
        };
        // What an earlier run has acknowledged is durable; but it may have applied more.
        if wanted < self.opened_at {
            return Err(Error::ForgottenTxn(wanted).into());
        }
        if durable < wanted {
            self.durable(local, wanted, LARGE_BYTES).await?;
        }
        let (durable, _) = self.progress(local)?;
        Ok(SyncReply { durable_txn: durable.raw() })
    }

    /// Returns the newest durable and the newest accepted txn.
    pub(super) fn progress(&self, local: Local<'_>) -> Result<(Txn, Txn)> {
        Ok(self.tables.tenure().open(local.progress())?)
    }
}
