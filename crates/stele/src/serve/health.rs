//! The health of a server's parts: its tables, with all that is kept in them, and its
//! metastore. `/health`, gRPC health on both ports and a metric report the same.

use std::sync::Arc;
use std::time::Duration;

use stele_engine::Store;
use stele_metastore::Node;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::shutdown::Phases;

/// How often gRPC health catches up with the parts.
const INTERVAL: Duration = Duration::from_millis(200);

/// The parts whose health is reported.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<Store>,
    pub metastore: Option<Arc<Node>>,
    pub phases: &'static Phases,
}

/// A part that does not serve, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub part: &'static str,
    pub reason: String,
}

impl Parts {
    /// Every part with the reason why it does not serve, if it does not.
    pub fn all(&self) -> Vec<(&'static str, Option<String>)> {
        let tables = self.store.failure().map(|failure| failure.to_string());
        let mut all = vec![("tables", tables)];
        if let Some(node) = &self.metastore {
            let failure = node.group().failure();
            all.push(("metastore", failure.map(|failure| failure.to_string())));
        }
        all
    }

    /// Why the server is not healthy, if it is not.
    pub fn failures(&self) -> Vec<Failure> {
        let all = self.all().into_iter();
        all.filter_map(|(part, reason)| Some(Failure { part, reason: reason? })).collect()
    }
}

/// Reports the health of the gRPC services of one port.
#[derive(Clone)]
pub struct Reporter {
    reporter: HealthReporter,
    services: Arc<[&'static str]>,
}

impl Reporter {
    /// A reporter of services that serve, and of the whole port (`""`).
    pub async fn new(
        reporter: HealthReporter,
        services: impl IntoIterator<Item = &'static str>,
    ) -> Reporter {
        let services = std::iter::once("").chain(services).collect();
        let reporter = Reporter { reporter, services };
        reporter.set(ServingStatus::Serving).await;
        reporter
    }

    pub async fn set(&self, status: ServingStatus) {
        for service in &*self.services {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// The reporters of the ports.
#[derive(Clone)]
pub struct Reporters {
    pub tables: Reporter,
    pub metastore: Option<Reporter>,
}

impl Reporters {
    pub async fn set(&self, status: ServingStatus) {
        self.tables.set(status).await;
        if let Some(metastore) = &self.metastore {
            metastore.set(status).await;
        }
    }

    /// Reports what becomes of the parts until the server drains.
    pub async fn follow(self, parts: Parts) {
        // Reporters begin with all parts serving.
        let mut known: Vec<_> = parts.all().into_iter().map(|(part, _)| (part, None)).collect();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while parts.phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
            let found = parts.all();
            if found != known {
                self.report(&found).await;
                known = found;
            }
        }
        self.set(ServingStatus::NotServing).await;
    }

    async fn report(&self, parts: &[(&'static str, Option<String>)]) {
        let reporters = [Some(&self.tables), self.metastore.as_ref()];
        for ((part, reason), reporter) in parts.iter().zip(reporters) {
            let Some(reporter) = reporter else { continue };
            match reason {
                None => reporter.set(ServingStatus::Serving).await,
                Some(reason) => {
                    tracing::error!(part, reason, "does not serve");
                    reporter.set(ServingStatus::NotServing).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stele_bigtable::Api;
    use stele_bigtable::client::{Client, GcRule, Mutation, NewTable, Options, Retry};
    use stele_engine::world::World;
    use stele_engine::world::sim::{Operation, SimFiles, disk_error};
    use stele_grpc::{Services, Transport};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn grpc_health_follows_the_store() {
        let files = Arc::new(SimFiles::new(1));
        let world = World { files: files.clone(), ..World::real() };
        let options = stele_engine::Options::default();
        let store = Arc::new(Store::open("/store".as_ref(), options, world).unwrap());
        let phases: &'static Phases = Box::leak(Box::default());
        let parts = Parts { store: store.clone(), metastore: None, phases };
        let (reporter, service) = tonic_health::server::health_reporter();
        let tables = Reporter::new(reporter, ["service"]).await;
        let reporters = Reporters { tables, metastore: None };
        let following = tokio::spawn(reporters.follow(parts.clone()));
        let transport = Transport::InProcess(Services::default().with(service));
        let asked = HealthCheckRequest { service: "service".into() };
        let mut watched = HealthClient::new(transport).watch(asked).await.unwrap().into_inner();
        let mut next = async || {
            let message = tokio::time::timeout(WAIT, watched.message()).await;
            message.expect("health is told").unwrap().unwrap().status
        };
        assert_eq!(next().await, ServingStatus::Serving as i32);
        assert_eq!(parts.failures(), []);

        let mut options = Options::new("in process", "p", "i");
        options.retry = Retry { attempts_max: 1, ..options.retry };
        let client = Client::in_process(Api::new(store).unwrap().services(), options);
        client.create_table(NewTable::new("t").family("f", GcRule::Never)).await.unwrap();
        files.fail_next(Operation::Sync, "/log/", disk_error());
        let table = client.table("t").unwrap();
        table.mutate_row("r", [Mutation::set_at("f", "q", 1000, "v")]).await.unwrap_err();
        assert_eq!(next().await, ServingStatus::NotServing as i32);
        let failures = parts.failures();
        assert_eq!(failures[0].part, "tables");
        assert!(!failures[0].reason.is_empty());
        phases.draining.cancel();
        following.await.unwrap();
    }
}
