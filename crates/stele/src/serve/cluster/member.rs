//! A server of a cluster with its lease, its store and its services.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use stele_bigtable::{Api, reserved};
use stele_cluster::{
    ClusterSecret, Directory, Front, FrontParts, Member as DirectoryMember, Peers, Relay, Router,
    Routes,
};
use stele_engine::world::{BootClock, World};
use stele_engine::{Resources, Rules, TableId};
use stele_grpc::{Services, Tls, Transport};
use stele_tables::{ClusterWorld, TabletServer, TabletServerParts};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::super::data_dir::DataDir;
use super::super::disk::ServerDisk;
use super::super::metastore::Metastore;
use super::super::object_store::ObjectStore;
use super::super::settings::EffectiveSettings;
use super::super::shutdown::Phases;
use super::operator::Operator;
use super::shared::{Shared, Sink};
use super::{Access, ClusterSettings, identity, placement};

/// The directory within the data directory that the store of a server locks.
const DIR: &str = "cluster";
/// The exit code after the lease has ended: start the server again.
const HALTED: i32 = 75;

pub struct Member {
    access: Access,
    secret: ClusterSecret,
    server: TabletServer,
    directory: Arc<Directory>,
    sink: Arc<Sink>,
    /// The id of the cluster.
    id: String,
}

/// The services of a member: the API, as it answers calls for the rows here, and as it
/// answers those of clients.
pub struct MemberServices {
    pub api: Api,
    pub data: Services,
    pub relay: Relay,
}

impl Member {
    /// Joins the cluster. Waits for the coordinator, and for the lapse of the lease of the
    /// last run of this server. Returns the store of the files, too.
    pub async fn begin(
        settings: &EffectiveSettings,
        cluster: &ClusterSettings,
        data_dir: &DataDir,
        metastore: Option<&Metastore>,
        grpc: Option<SocketAddr>,
    ) -> anyhow::Result<(Arc<Member>, Arc<ObjectStore>)> {
        let address = address(settings, cluster, grpc)?;
        let embedded = match metastore {
            Some(metastore) => Some(Transport::InProcess(metastore.services().await.0)),
            None => None,
        };
        let is_embedded = cluster.coordinator == stele_cluster::CoordinatorAddress::Embedded;
        let access = Access::open(&cluster.name, &cluster.coordinator, embedded).await?;
        let store = settings.store.as_ref().context("--cluster requires --store")?;
        let record = match access.record().await? {
            Some(record) => record,
            // Nobody else can reach a coordinator that starts with its first server.
            None if is_embedded => access.create(&store.url).await?.0,
            None => bail!(
                "there is no cluster {} in {}: create it with `stele cluster init`",
                cluster.name,
                access.address
            ),
        };
        let secret = access.secret(cluster.secret.as_deref()).await?;
        let id = identity::of(&data_dir.path)?;
        let objects = ObjectStore::open_shared(store, data_dir, &record.id)?;
        let mut options = data_dir.engine_options(settings);
        options.objects.store = Some(objects.fragments());
        let engine = World { files: Arc::new(ServerDisk), ..World::real() };
        let absent_for =
            if access.keeps_leases { std::time::Duration::ZERO } else { cluster.lease };
        let world = ClusterWorld {
            clock: Arc::new(BootClock),
            sleep: Arc::new(|time| Box::pin(tokio::time::sleep(time))),
            coordinator: access.coordinator.clone(),
            absent_for,
            keys: access.keys.clone(),
            rules: Rules::CORRECTED,
        };
        tracing::info!(server = id, address, cluster = cluster.name, "joining the cluster");
        let resources = Resources::new(&options);
        let server = TabletServer::begin(TabletServerParts {
            world,
            engine,
            dir: data_dir.path.join(DIR),
            id: id.clone(),
            address,
            times: cluster.times(),
            options,
            resources,
            logs: objects.logs(),
            log: Default::default(),
        });
        let server = server.await.context("joining the cluster")?;
        let sink = Arc::new(Sink::new(server.clone()));
        let has_lease = server.incarnation().has_lease();
        let member = DirectoryMember { id, has_lease, sink: sink.clone() };
        let (coordinator, keys) = (access.coordinator.clone(), access.keys.clone());
        let directory = Arc::new(Directory::of_member(coordinator, keys, member));
        let id = record.id;
        Ok((Arc::new(Member { access, secret, server, directory, sink, id }), objects))
    }

    pub fn server(&self) -> &TabletServer {
        &self.server
    }

    /// Whether this server knows a table, so that it can load its tablets.
    pub fn knows(&self, table: TableId) -> bool {
        self.directory.table(table).is_some()
    }

    /// Keeps the lease; the process ends with it. To be started first: it ends soon.
    pub fn keep_lease(self: &Arc<Self>, phases: &'static Phases) {
        let member = self.clone();
        tokio::spawn(async move {
            let why = member.server.keep().await;
            if !phases.draining.is_cancelled() {
                tracing::error!(%why, "this server has lost its place in the cluster: start it again");
                std::process::exit(HALTED);
            }
        });
    }

    /// Creates the services, and starts what keeps the tables and the tablets up to date.
    pub async fn start(
        self: &Arc<Self>,
        phases: &'static Phases,
        tasks: &TaskTracker,
    ) -> anyhow::Result<MemberServices> {
        let shared = Shared {
            server: self.server.clone(),
            directory: self.directory.clone(),
            runtime: Handle::current(),
            store_id: xxhash_rust::xxh3::xxh3_64(self.id.as_bytes()),
        };
        let api = Api::shared(self.server.tables().clone(), Arc::new(shared))?;
        self.sink.publish_to(api.tables().clone());
        self.access.retry(|| self.directory.refresh()).await?;
        let (coordinator, keys) = (self.access.coordinator.clone(), self.access.keys.clone());
        let front = Arc::new(Front::new(FrontParts {
            local: api.services(),
            me: self.server.holder(),
            directory: self.directory.clone(),
            routes: Routes::new(coordinator, keys),
            peers: Peers::new(Tls::default()),
            secret: self.secret.clone(),
            access: reserved::check,
        }));
        let directory = self.directory.clone();
        tasks.spawn(async move { phases.draining.run_until_cancelled(directory.follow()).await });
        tasks.spawn(placement::run(self.clone(), phases));
        let operator = Arc::new(Operator(self.server.clone()));
        let relay = Relay::new(api.services(), self.secret.clone(), operator);
        let data = api.services().replacing_handler(Router::new(front));
        Ok(MemberServices { api, data, relay })
    }

    /// Returns the tablets that are being moved, and where to.
    pub async fn moving(&self) -> anyhow::Result<HashMap<(TableId, Option<Vec<u8>>), String>> {
        let prefix = self.access.keys.key("moving/");
        let found = self.access.coordinator.get_all(prefix.clone()).await?;
        let moving = found.into_iter().filter_map(|found| {
            let tablet = found.key.strip_prefix(&prefix[..])?;
            let row = [&self.access.keys.all_tablets()[..], tablet].concat();
            let target = String::from_utf8_lossy(&found.value).into_owned();
            Some((self.access.keys.parse_tablet(&row)?, target))
        });
        Ok(moving.collect())
    }

    /// Unloads all tablets and gives the lease up.
    pub async fn end(&self) {
        if let Err(error) = self.server.end().await {
            tracing::warn!(%error, "tablets were not unloaded: others will recover them");
        }
    }
}

/// Returns the address at which other servers reach this one.
fn address(
    settings: &EffectiveSettings,
    cluster: &ClusterSettings,
    grpc: Option<SocketAddr>,
) -> anyhow::Result<String> {
    let Some(grpc) = grpc else { bail!("--cluster needs the gRPC port: --grpc-port is off") };
    if let Some(address) = &cluster.advertise {
        stele_grpc::endpoint(address, &Tls::default())
            .map_err(|why| anyhow::anyhow!("--advertise: {why}"))?;
        return Ok(address.clone());
    }
    if grpc.ip().is_unspecified() {
        bail!(
            "--listen {} is no address for other servers: pass --advertise HOST:PORT",
            settings.listen
        );
    }
    if settings.tls.is_some() {
        bail!("--tls-cert needs --advertise https://HOST:PORT, with a name in the certificate");
    }
    Ok(grpc.to_string())
}
