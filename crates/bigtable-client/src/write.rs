//! Writes: one row, many rows with an outcome for each, conditional writes, and
//! read-modify-write.

use bytes::Bytes;
use prost::Message;
use stele_grpc::Pending;
use tonic::Code;

use crate::Table;
use crate::call::{Call, Repeat};
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::mutation::{Mutation, RowMutations, Rule};
use crate::row::Row;
use crate::row_entry::{EncodedRequest, RowEntry};
use stele_bigtable_proto::v2;

/// The maximum number of mutations in one request, as defined by the API.
const MUTATIONS_MAX: usize = 100_000;
/// The maximum size of a bulk request, unless a single row is larger. Larger
/// requests are no faster, and more has to be retried when one fails.
const BULK_BYTES_MAX: usize = 4 << 20;

impl Table {
    /// Applies mutations to one row atomically.
    pub fn mutate_row(
        &self,
        key: impl Into<Bytes>,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> Pending<'_, Result<()>> {
        self.send_row(key.into(), mutations.into_iter().collect())
    }

    fn send_row(&self, key: Bytes, mutations: Vec<Mutation>) -> Pending<'_, Result<()>> {
        let repeat = repeat(&mutations);
        let message = v2::MutateRowRequest {
            table_name: self.name().into(),
            app_profile_id: self.app_profile().into(),
            row_key: key,
            mutations: messages(mutations),
            ..Default::default()
        };
        let send = move |request| {
            let mut data = self.client.data();
            async move { data.mutate_row(request).await }
        };
        Box::pin(async move {
            let call = Call::new(&self.client, &self.target, "MutateRow");
            call.run(message, repeat, send).await.map(|_: v2::MutateRowResponse| ())
        })
    }

    /// Applies mutations to many rows independently. The outcomes are in the
    /// order of the rows. Rows with transient failures are retried if that is
    /// safe.
    pub async fn mutate_rows(
        &self,
        rows: impl IntoIterator<Item = RowMutations>,
    ) -> Vec<Result<()>> {
        self.write_rows(rows.into_iter().map(RowEntry::from)).await
    }

    /// Like [`Table::mutate_rows`], for rows that are already encoded.
    pub async fn write_rows(&self, rows: impl IntoIterator<Item = RowEntry>) -> Vec<Result<()>> {
        let mut outcomes = Vec::new();
        let mut request = BulkRequest::default();
        for row in rows {
            if !request.fits(&row) {
                outcomes.extend(self.send_rows(std::mem::take(&mut request)).await);
            }
            request.push(row);
        }
        if !request.rows.is_empty() {
            outcomes.extend(self.send_rows(request).await);
        }
        outcomes
    }

    fn send_rows(&self, request: BulkRequest) -> Pending<'_, Vec<Result<()>>> {
        Box::pin(self.send_until_done(request))
    }

    /// Writes the rows of one request, with as many attempts as needed.
    async fn send_until_done(&self, request: BulkRequest) -> Vec<Result<()>> {
        let mut call = Call::new(&self.client, &self.target, "MutateRows");
        let rows = request.rows;
        let mut outcomes: Vec<Option<Result<()>>> = vec![None; rows.len()];
        // The rows that still have to be sent, as indexes into `rows`.
        let mut open: Vec<usize> = (0..rows.len()).collect();
        while !open.is_empty() {
            let entries = open.iter().map(|at| rows[*at].0.clone()).collect();
            let sent = self.send_once(&mut call, &open, entries, &mut outcomes).await;
            let unreported = sent.err().unwrap_or_else(|| {
                call.protocol_error("the stream ended before every row was reported")
            });
            let mut again = None;
            open.retain(|at| match outcomes[*at].get_or_insert(Err(unreported.clone())) {
                Err(error) if error.is_retryable() && rows[*at].1 == Repeat::Allowed => {
                    again = Some(error.clone());
                    true
                }
                _ => false,
            });
            let Some(error) = again else { break };
            if let Err(error) = call.pause(error).await {
                // Rows keep their own error, unless the deadline passed.
                if matches!(error, Error::Deadline { .. }) {
                    open.iter().for_each(|at| outcomes[*at] = Some(Err(error.clone())));
                }
                break;
            }
            open.iter().for_each(|at| outcomes[*at] = None);
        }
        let sent = "every row was sent at least once and got an outcome";
        outcomes.into_iter().map(|outcome| outcome.expect(sent)).collect()
    }

    /// Performs one attempt and records the outcome of every row that the server
    /// reports.
    async fn send_once(
        &self,
        call: &mut Call,
        open: &[usize],
        entries: Vec<Bytes>,
        outcomes: &mut [Option<Result<()>>],
    ) -> Result<()> {
        let message = EncodedRequest {
            table_name: self.name().into(),
            app_profile_id: self.app_profile().into(),
            entries,
        };
        let request = call.request(message).await?;
        let mut stream = call.attempt(self.client.send_encoded(request)).await?.into_inner();
        while let Some(message) = call.attempt(stream.message()).await? {
            for entry in message.entries {
                let at = usize::try_from(entry.index).ok().and_then(|index| open.get(index));
                let at = *at
                    .ok_or_else(|| call.protocol_error("an outcome of a row that was not sent"))?;
                let outcome = outcome(call, entry.status.unwrap_or_default());
                if outcome.is_ok() {
                    call.progress();
                }
                outcomes[at] = Some(outcome);
            }
        }
        Ok(())
    }

    /// Tests and changes one row atomically: applies `then` if `predicate` passes
    /// any cell (or, without a predicate, if the row has any), `otherwise` if
    /// not. Returns whether the predicate matched. Never retried: if the outcome
    /// of a call is ambiguous, read the row.
    pub fn check_and_mutate(
        &self,
        key: impl Into<Bytes>,
        predicate: Option<Filter>,
        then: impl IntoIterator<Item = Mutation>,
        otherwise: impl IntoIterator<Item = Mutation>,
    ) -> Pending<'_, Result<bool>> {
        let message = v2::CheckAndMutateRowRequest {
            table_name: self.name().into(),
            app_profile_id: self.app_profile().into(),
            row_key: key.into(),
            predicate_filter: predicate.map(Filter::into_message),
            true_mutations: messages(then),
            false_mutations: messages(otherwise),
            ..Default::default()
        };
        self.send_check(message)
    }

    fn send_check(&self, message: v2::CheckAndMutateRowRequest) -> Pending<'_, Result<bool>> {
        let send = move |request| {
            let mut data = self.client.data();
            async move { data.check_and_mutate_row(request).await }
        };
        Box::pin(async move {
            let call = Call::new(&self.client, &self.target, "CheckAndMutateRow");
            let response: v2::CheckAndMutateRowResponse =
                call.run(message, Repeat::Never, send).await?;
            Ok(response.predicate_matched)
        })
    }

    /// Adds to numbers and appends to values of one row, and returns the new
    /// cells. Never retried.
    pub fn read_modify_write(
        &self,
        key: impl Into<Bytes>,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Pending<'_, Result<Row>> {
        let message = v2::ReadModifyWriteRowRequest {
            table_name: self.name().into(),
            app_profile_id: self.app_profile().into(),
            row_key: key.into(),
            rules: rules.into_iter().map(Rule::into_message).collect(),
            ..Default::default()
        };
        self.send_rules(message)
    }

    fn send_rules(&self, message: v2::ReadModifyWriteRowRequest) -> Pending<'_, Result<Row>> {
        let empty = v2::Row { key: message.row_key.clone(), families: Vec::new() };
        let send = move |request| {
            let mut data = self.client.data();
            async move { data.read_modify_write_row(request).await }
        };
        Box::pin(async move {
            let call = Call::new(&self.client, &self.target, "ReadModifyWriteRow");
            let response: v2::ReadModifyWriteRowResponse =
                call.run(message, Repeat::Never, send).await?;
            Ok(Row::from_message(response.row.unwrap_or(empty)))
        })
    }
}

/// The rows of one bulk request, encoded, and whether each may be sent again.
#[derive(Default)]
struct BulkRequest {
    rows: Vec<(Bytes, Repeat)>,
    mutations: usize,
    bytes: usize,
}

impl BulkRequest {
    /// Returns whether the row can be added within the limits of a request.
    fn fits(&self, row: &RowEntry) -> bool {
        self.rows.is_empty()
            || self.mutations + row.mutations() <= MUTATIONS_MAX
                && self.bytes + row.len() <= BULK_BYTES_MAX
    }

    fn push(&mut self, row: RowEntry) {
        self.mutations += row.mutations();
        self.bytes += row.len();
        self.rows.push(row.into_encoded());
    }
}

/// Returns whether a request with these mutations may be repeated.
pub fn repeat(mutations: &[Mutation]) -> Repeat {
    if mutations.iter().all(Mutation::is_idempotent) { Repeat::Allowed } else { Repeat::Never }
}

pub fn messages(mutations: impl IntoIterator<Item = Mutation>) -> Vec<v2::Mutation> {
    mutations.into_iter().map(Mutation::into_message).collect()
}

fn outcome(call: &Call, status: tonic_types::Status) -> Result<()> {
    if status.code == Code::Ok as i32 {
        return Ok(());
    }
    let code = Code::from_i32(status.code);
    let details = Bytes::from(status.encode_to_vec());
    let status = tonic::Status::with_details(code, status.message, details);
    Err(Error::from_status(&call.action, &status))
}
