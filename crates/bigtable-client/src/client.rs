//! The client of one instance, and the tables that it accesses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stele_bigtable_proto::MESSAGE_BYTES_MAX;
use stele_bigtable_proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use stele_bigtable_proto::v2::bigtable_client::BigtableClient;
use stele_grpc::{Pending, Services, Transport, chain, endpoint, keeps_secrets};
use tonic::metadata::{Ascii, MetadataValue};

use crate::call::{self, Target};
use crate::credentials::{Credentials, Tokens};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::retry::Retry;

/// A client of one Bigtable instance. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

/// What the clones of a client share.
pub(crate) struct Shared {
    options: Options,
    data: Vec<Transport>,
    pub(crate) admin: Transport,
    /// The round-robin counter of the data transports.
    turn: AtomicUsize,
    tokens: Option<Tokens>,
    features: MetadataValue<Ascii>,
}

impl Client {
    /// Connects, and fails immediately if no server listens. Connections that
    /// break later are re-established when calls need them.
    pub fn connect(options: Options) -> Pending<'static, Result<Client>> {
        Box::pin(Client::open(options))
    }

    async fn open(options: Options) -> Result<Client> {
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

    pub(crate) fn with(
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

    pub(crate) fn table_name(&self, id: &str) -> String {
        format!("{}/tables/{id}", self.shared.options.instance_name())
    }

    /// Returns the next transport in round-robin order.
    pub(crate) fn data_transport(&self) -> Transport {
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
        self.shared.data[turn % self.shared.data.len()].clone()
    }

    pub(crate) fn data(&self) -> BigtableClient<Transport> {
        BigtableClient::new(self.data_transport())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn admin(&self) -> BigtableTableAdminClient<Transport> {
        BigtableTableAdminClient::new(self.shared.admin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.shared.options.deadline
    }

    pub(crate) fn retry(&self) -> Retry {
        self.shared.options.retry
    }

    pub(crate) fn features(&self) -> MetadataValue<Ascii> {
        self.shared.features.clone()
    }

    /// Returns the value of the header `authorization`, if the client has credentials.
    pub(crate) async fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>> {
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
    pub(crate) client: Client,
    pub(crate) target: Target,
}

impl Table {
    /// Returns the full name: `projects/P/instances/I/tables/T`.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    pub(crate) fn app_profile(&self) -> &str {
        &self.client.shared.options.app_profile
    }
}
