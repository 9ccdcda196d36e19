//! The API of one store as gRPC services.

use std::sync::Arc;

use stele_engine::Store;
use tonic::service::Routes;

use crate::admin;
use crate::data::Data;
use crate::error::Result;
use crate::proto::v2::bigtable_server::BigtableServer;
use crate::table::Tables;

/// The largest message a client may send: two cells of 100 MiB fit.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// The Bigtable API over one store.
#[derive(Clone)]
pub struct Api {
    tables: Arc<Tables>,
}

impl Api {
    pub fn new(store: Arc<Store>) -> Result<Api> {
        Ok(Api { tables: Arc::new(Tables::open(store)?) })
    }

    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// All services, for a gRPC server or for calls within the process.
    pub fn routes(&self) -> Routes {
        let data = BigtableServer::new(Data::new(self.tables.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        admin::add_services(Routes::new(data), &self.tables)
    }
}
