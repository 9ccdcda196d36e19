//! Reads: a stream of rows with retries, a single row, and keys that divide a
//! table.

use std::collections::VecDeque;

use bytes::Bytes;
use stele_grpc::Pending;
use tonic::Streaming;

use crate::assembler::{Assembler, Violation};
use crate::call::Call;
use crate::error::Result;
use crate::filter::Filter;
use crate::query::Query;
use crate::row::Row;
use crate::{Client, Table};
use stele_bigtable_proto::v2;

/// The rows of a read, in order, each once. A broken stream is resumed after the
/// last complete row.
pub struct Rows {
    client: Client,
    call: Call,
    query: Query,
    table_name: String,
    assembler: Assembler,
    ready: VecDeque<Row>,
    stream: Option<Streaming<v2::ReadRowsResponse>>,
    ended: bool,
}

/// A key that divides a table, and the approximate number of bytes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub key: Bytes,
    pub offset_bytes: i64,
}

impl Table {
    /// Reads the rows that `query` selects.
    pub fn read_rows(&self, query: Query) -> Rows {
        let call = Call::new(&self.client, &self.target, "ReadRows").streamed(query.deadline);
        Rows {
            client: self.client.clone(),
            call,
            assembler: Assembler::new(query.is_reversed()),
            query,
            table_name: self.name().into(),
            ready: VecDeque::new(),
            stream: None,
            ended: false,
        }
    }

    /// Reads one row; `None` if no cell of it passes the filter.
    pub fn read_row(
        &self,
        key: impl Into<Bytes>,
        filter: Option<Filter>,
    ) -> Pending<'_, Result<Option<Row>>> {
        self.read_key(key.into(), filter)
    }

    fn read_key(&self, key: Bytes, filter: Option<Filter>) -> Pending<'_, Result<Option<Row>>> {
        let mut query = Query::keys([key]).limit(1);
        if let Some(filter) = filter {
            query = query.filter(filter);
        }
        Box::pin(async move {
            let mut rows = self.read_rows(query);
            let row = rows.receive().await?;
            // Read to the end of the stream: dropping it earlier resets it, and many
            // resets can terminate the connection for all its calls.
            while rows.receive().await?.is_some() {}
            Ok(row)
        })
    }

    /// Returns keys that divide the table into parts of similar size; the last
    /// key is empty and denotes the end.
    pub fn sample_row_keys(&self) -> Pending<'_, Result<Vec<Sample>>> {
        Box::pin(async move {
            let mut call = Call::new(&self.client, &self.target, "SampleRowKeys");
            loop {
                let error = match self.sample_once(&mut call).await {
                    Ok(samples) => return Ok(samples),
                    Err(error) => error,
                };
                call.pause(error).await?;
            }
        })
    }

    async fn sample_once(&self, call: &mut Call) -> Result<Vec<Sample>> {
        let message = v2::SampleRowKeysRequest {
            table_name: self.name().into(),
            app_profile_id: self.app_profile().into(),
            ..Default::default()
        };
        let request = call.request(message).await?;
        let mut stream =
            call.attempt(self.client.data().sample_row_keys(request)).await?.into_inner();
        let mut samples = Vec::new();
        while let Some(sample) = call.attempt(stream.message()).await? {
            samples.push(Sample { key: sample.row_key, offset_bytes: sample.offset_bytes });
        }
        Ok(samples)
    }
}

impl Rows {
    /// Returns the next row; `None` after the last. After an error no more rows
    /// follow.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        match self.ready.pop_front() {
            Some(row) => Ok(Some(row)),
            None => self.pending().await,
        }
    }

    fn pending(&mut self) -> Pending<'_, Result<Option<Row>>> {
        Box::pin(self.receive())
    }

    /// Returns the next row, and receives messages until there is one.
    async fn receive(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            if self.ended {
                return Ok(None);
            }
            if let Err(error) = self.advance().await {
                self.stream = None;
                if let Err(error) = self.call.pause(error).await {
                    self.ended = true;
                    self.ready.clear();
                    return Err(error);
                }
                self.assembler.restart();
            }
        }
    }

    /// Collects the remaining rows. Intended for results that are known to be
    /// small.
    pub async fn collect(mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// Processes one message of the stream, starting the stream if necessary.
    async fn advance(&mut self) -> Result<()> {
        let Some(stream) = &mut self.stream else { return self.start().await };
        match self.call.attempt(stream.message()).await? {
            Some(message) => {
                let processed = self.process(message);
                processed.map_err(|what| self.call.protocol_error(what))
            }
            None => {
                self.assembler.end().map_err(|what| self.call.protocol_error(what))?;
                self.ended = true;
                Ok(())
            }
        }
    }

    /// Requests the rows that are still missing.
    async fn start(&mut self) -> Result<()> {
        if let Some(key) = self.assembler.last_key() {
            self.query.resume_after(key);
        }
        if self.query.is_done() {
            self.ended = true;
            return Ok(());
        }
        let message = self.query.message(&self.table_name, &self.client.options().app_profile);
        let request = self.call.request(message).await?;
        let response = self.call.attempt(self.client.data().read_rows(request)).await?;
        self.stream = Some(response.into_inner());
        Ok(())
    }

    fn process(&mut self, message: v2::ReadRowsResponse) -> Result<(), Violation> {
        for chunk in message.chunks {
            if let Some(row) = self.assembler.chunk(chunk)? {
                self.query.count_row();
                self.call.progress();
                self.ready.push_back(row);
            }
        }
        if !message.last_scanned_row_key.is_empty() {
            self.assembler.scanned(message.last_scanned_row_key)?;
            self.call.progress();
        }
        Ok(())
    }
}
