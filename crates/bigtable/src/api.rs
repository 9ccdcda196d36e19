//! The API of one server's tables as gRPC services.

use std::sync::Arc;

use stele_engine::world::{Clock, SystemClock, SystemRandom};
use stele_grpc::Services;
use tonic::service::Routes;

use crate::admin;
use crate::data::{Data, DataServer};
use crate::error::Result;
use crate::table::Tables;

pub use stele_bigtable_proto::MESSAGE_BYTES_MAX;

/// The Bigtable API over the tables of a server.
#[derive(Clone)]
pub struct Api {
    tables: Arc<Tables>,
    data: Arc<Data>,
    clock: Arc<dyn Clock>,
}

impl Api {
    /// Creates the API over tables.
    pub fn new(tables: stele_tables::Tables) -> Result<Api> {
        Api::with_clock(tables, Arc::new(SystemClock::new()))
    }

    /// Creates the API with a clock that assigns timestamps to cells.
    pub fn with_clock(tables: stele_tables::Tables, clock: Arc<dyn Clock>) -> Result<Api> {
        let tables = Arc::new(Tables::open(tables)?);
        let random = Arc::new(SystemRandom::new());
        let data = Arc::new(Data::new(tables.clone(), clock.clone(), random)?);
        Ok(Api { tables, data, clock })
    }

    /// Returns the registry of tables.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Returns all services, for a port or for calls within the process.
    pub fn services(&self) -> Services {
        let data = DataServer::new(self.data.clone());
        admin::add_services(Services::default().with_handler(data), &self.tables, &self.clock)
    }

    /// Returns all services as tonic's own router.
    pub fn routes(&self) -> Routes {
        self.services().into_routes()
    }
}
