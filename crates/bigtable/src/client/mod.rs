//! A client of the Bigtable API, for both Stele and Google's service.
//!
//! A [`Client`] accesses one instance, over the network or within the process
//! ([`Client::in_process`]); its clones share connections and tokens.
//! [`Client::table`] returns a [`Table`] for reading and writing rows. Reads
//! return [`Rows`], which resume where a broken stream ended (`read`,
//! `assembler`, `query`). Writes are retried only if they are idempotent
//! (`write`, `mutation`). Every call has a deadline and a bounded number of
//! attempts (`call`, `retry`); errors name the operation and its target
//! (`error`).

mod admin;
mod assembler;
mod call;
mod credentials;
mod error;
mod filter;
mod gc_rule;
mod mutation;
mod options;
mod query;
mod read;
mod retry;
mod row;
mod row_entry;
mod row_range;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use admin::{FamilyChange, FamilyInfo, NewTable, TableInfo};
pub use credentials::Credentials;
pub use error::{Action, Error, Result};
pub use filter::Filter;
pub use gc_rule::{GcRule, parse_age};
pub use mutation::{Mutation, RowMutations, Rule};
pub use options::Options;
pub use query::Query;
pub use read::{Rows, Sample};
pub use retry::Retry;
pub use row::{Cell, Row};
pub use row_entry::RowEntry;
pub use row_range::RowRange;
pub use stele_grpc::Tls;
use stele_grpc::{Services, Transport, chain, endpoint, keeps_secrets};
use tonic::metadata::{Ascii, MetadataValue};

use crate::api::MESSAGE_BYTES_MAX;
use crate::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::proto::v2::bigtable_client::BigtableClient;
use call::Target;
use credentials::Tokens;

/// A client of one Bigtable instance. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    data: Vec<Transport>,
    admin: Transport,
    /// The round-robin counter of the data transports.
    turn: AtomicUsize,
    tokens: Option<Tokens>,
    features: MetadataValue<Ascii>,
}

impl Client {
    /// Connects, and fails immediately if no server listens. Connections that
    /// break later are re-established when calls need them.
    pub async fn connect(options: Options) -> Result<Client> {
        check_secrecy(&options)?;
        let data_endpoint = endpoint(&options.endpoint, &options.tls).map_err(Error::Options)?;
        let first = data_endpoint.connect().await.map_err(|error| Error::Unreachable {
            endpoint: options.endpoint.clone(),
            why: chain(&error),
        })?;
        let mut data = vec![Transport::Channel(first.clone())];
        let more = options.channels.max(1) - 1;
        data.extend((0..more).map(|_| Transport::Channel(data_endpoint.connect_lazy())));
        let admin = match &options.admin_endpoint {
            Some(admin) => endpoint(admin, &options.tls).map_err(Error::Options)?.connect_lazy(),
            None => first,
        };
        let tokens = Tokens::new(&options.credentials).await?;
        Ok(Client::with(options, data, Transport::Channel(admin), tokens))
    }

    /// Creates a client of a server in the same process: the same calls without a
    /// network.
    pub fn in_process(services: impl Into<Services>, options: Options) -> Client {
        let transport = Transport::InProcess(services.into());
        Client::with(options, vec![transport.clone()], transport, None)
    }

    fn with(
        options: Options,
        data: Vec<Transport>,
        admin: Transport,
        tokens: Option<Tokens>,
    ) -> Client {
        let (turn, features) = (AtomicUsize::new(0), call::features());
        Client { shared: Arc::new(Shared { options, data, admin, turn, tokens, features }) }
    }

    /// Returns the table with this id, which need not exist yet.
    pub fn table(&self, id: &str) -> Result<Table> {
        let name = self.table_name(id);
        let app_profile = &self.shared.options.app_profile;
        let target = Target::new("table_name", &name, Some(app_profile))?;
        Ok(Table { client: self.clone(), target })
    }

    /// Returns the options that the client was created with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    fn table_name(&self, id: &str) -> String {
        format!("{}/tables/{id}", self.shared.options.instance_name())
    }

    /// Returns the next transport in round-robin order.
    fn data_transport(&self) -> Transport {
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
        self.shared.data[turn % self.shared.data.len()].clone()
    }

    fn data(&self) -> BigtableClient<Transport> {
        BigtableClient::new(self.data_transport())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn admin(&self) -> BigtableTableAdminClient<Transport> {
        BigtableTableAdminClient::new(self.shared.admin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn deadline(&self) -> Option<Duration> {
        self.shared.options.deadline
    }

    fn retry(&self) -> Retry {
        self.shared.options.retry
    }

    fn features(&self) -> MetadataValue<Ascii> {
        self.shared.features.clone()
    }

    async fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>> {
        match &self.shared.tokens {
            Some(tokens) => tokens.authorization().await.map(Some),
            None => Ok(None),
        }
    }
}

/// Rejects options under which tokens would cross a network in plaintext.
fn check_secrecy(options: &Options) -> Result<()> {
    if options.insecure_token || options.credentials == Credentials::None {
        return Ok(());
    }
    let mut endpoints = [Some(&options.endpoint), options.admin_endpoint.as_ref()].into_iter();
    match endpoints.find_map(|endpoint| endpoint.filter(|at| !keeps_secrets(at))) {
        Some(endpoint) => Err(Error::Options(format!(
            "credentials would be sent to {endpoint} in plain text: use https:// or a loopback \
             address, or allow it with --insecure-token"
        ))),
        None => Ok(()),
    }
}

/// A table for reading and writing rows. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    client: Client,
    target: Target,
}

impl Table {
    /// `projects/P/instances/I/tables/T`.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    fn app_profile(&self) -> &str {
        &self.client.shared.options.app_profile
    }
}
