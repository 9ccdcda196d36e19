//! A store in a temporary directory, served without a network.

use std::sync::Arc;

use stele_bigtable::Api;
use stele_bigtable::proto::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use stele_bigtable::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use stele_bigtable::proto::longrunning::operations_client::OperationsClient;
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use stele_engine::world::World;
use stele_engine::{Options, Store};
use stele_tables::Tables;
use tonic::service::Routes;

use crate::data_calls::{Client, TABLE, definition};

pub struct Server {
    dir: tempfile::TempDir,
    opened: Option<(Api, Arc<Store>)>,
}

impl Server {
    pub fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let opened = Some(open(&dir));
        Server { dir, opened }
    }

    /// Starts a server with the table `TABLE`, which has the families `f` and `g`,
    /// and the aggregates `sum`, `min` and `max`.
    pub fn with_table() -> Server {
        let server = Server::start();
        server.api().tables().create(TABLE, definition()).unwrap();
        server
    }

    /// Closes the store and reopens it. No client may be left.
    pub fn restart(&mut self) {
        self.opened = None;
        self.opened = Some(open(&self.dir));
    }

    pub fn api(&self) -> &Api {
        &self.opened.as_ref().unwrap().0
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.opened.as_ref().unwrap().1
    }

    /// Returns a client of the data service.
    pub fn client(&self) -> Client {
        BigtableClient::new(self.api().routes()).max_decoding_message_size(512 << 20)
    }

    /// Returns a client of the table admin service.
    pub fn tables(&self) -> BigtableTableAdminClient<Routes> {
        BigtableTableAdminClient::new(self.api().routes())
    }

    /// Returns a client of the instance admin service.
    pub fn instances(&self) -> BigtableInstanceAdminClient<Routes> {
        BigtableInstanceAdminClient::new(self.api().routes())
    }

    pub fn operations(&self) -> OperationsClient<Routes> {
        OperationsClient::new(self.api().routes())
    }
}

fn open(dir: &tempfile::TempDir) -> (Api, Arc<Store>) {
    let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
    let store = Arc::new(store);
    (Api::new(Tables::new(store.clone())).unwrap(), store)
}
