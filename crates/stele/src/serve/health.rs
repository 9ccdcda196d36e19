//! The health of a server's components: its tables, with everything stored in them, and
//! its metastore. `/health`, gRPC health on both ports and a metric report the same
//! state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::{Store, Work, WorkFailure};
use stele_metastore::Node;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::object_store::ObjectStore;
use super::shutdown::Phases;
use crate::output::things;

/// How often gRPC health is updated from the components.
const INTERVAL: Duration = Duration::from_millis(200);

/// The components whose health is reported.
#[derive(Clone)]
pub struct Components {
    pub store: Arc<Store>,
    pub metastore: Option<Arc<Node>>,
    pub objects: Option<Arc<ObjectStore>>,
    pub phases: &'static Phases,
}

/// A component that does not serve, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub component: &'static str,
    pub reason: String,
}

/// Background work of the store that fails repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingWork {
    /// `flush` or `compaction`.
    pub work: &'static str,
    /// `None` means all tables.
    pub table: Option<String>,
    pub failures: u32,
    /// What fails, why, and what happens next.
    pub reason: String,
}

impl Components {
    /// Returns every component, with the reason if it does not serve.
    pub fn all(&self) -> Vec<(&'static str, Option<String>)> {
        let failed = self.store.failure().map(|failure| store_reason(&failure));
        let stalled = || stalled_reason(&self.store.stalled_tables());
        let tables = failed.or_else(stalled);
        let mut all = vec![("tables", tables)];
        if let Some(node) = &self.metastore {
            let failure = node.group().failure();
            all.push(("metastore", failure.map(|failure| metastore_reason(&failure))));
        }
        all
    }

    /// Returns the reasons why the server is unhealthy; empty if it is healthy.
    pub fn failures(&self) -> Vec<Failure> {
        let all = self.all().into_iter();
        all.filter_map(|(component, reason)| Some(Failure { component, reason: reason? })).collect()
    }

    /// Returns failing flushes and compactions. A single failing compaction, for example
    /// on a damaged file, does not affect the rest of the store.
    pub fn failing_work(&self) -> Vec<FailingWork> {
        let failures = self.store.work_failures();
        if failures.is_empty() {
            return Vec::new();
        }
        let tables: BTreeMap<_, _> = self.store.tables().into_iter().collect();
        let named = |table| Some(tables.get(table).cloned().unwrap_or_default());
        let failing = failures.iter().map(|failure| match &failure.work {
            Work::Compact { table, .. } => FailingWork::new("compaction", named(table), failure),
            Work::Split { table, .. } => FailingWork::new("split", named(table), failure),
            Work::Join { table, .. } => FailingWork::new("join", named(table), failure),
            Work::Flush { table, .. } => FailingWork::new("flush", named(table), failure),
            Work::FlushAll => FailingWork::new("flush", None, failure),
        });
        failing.collect()
    }

    /// Returns problems that do not stop the server from serving.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> =
            self.failing_work().into_iter().map(|failing| failing.reason).collect();
        let damaged = self.store.stats().fragments_damaged;
        if damaged > 0 {
            warnings.push(format!(
                "{damaged} data files cannot be read: reads of their rows fail; run `stele engine \
                 verify` on a copy, and restore from a backup"
            ));
        }
        warnings.extend(self.objects.as_ref().and_then(|objects| objects.warning()));
        warnings
    }
}

impl FailingWork {
    fn new(work: &'static str, table: Option<String>, failure: &WorkFailure) -> FailingWork {
        let WorkFailure { error, age, failures, .. } = failure;
        let of = table.as_ref().map_or("all tables".into(), |table| format!("table {table:?}"));
        let attempts = things(u64::from(*failures), "attempt");
        let reason = format!(
            "the {work} of {of} fails ({attempts} in {} s): {error}; retrying",
            age.as_secs()
        );
        FailingWork { work, table, failures: *failures, reason }
    }
}

/// Explains why the store rejects writes and what to do.
fn store_reason(failure: &stele_engine::Error) -> String {
    match failure {
        stele_engine::Error::Stopped(cause) => format!(
            "writes have stopped, reads continue: {cause}; remove the cause and restart the server"
        ),
        other => format!(
            "memory cannot be written to disk, and writes fail once it is full: {other}; the \
             server retries every second"
        ),
    }
}

/// Explains why the writes of some tables are rejected; `None` if there are none.
fn stalled_reason(tables: &[(String, stele_engine::Error)]) -> Option<String> {
    let (table, error) = tables.first()?;
    let others = match tables.len() - 1 {
        0 => String::new(),
        others => format!(" and {}", things(others as u64, "other table")),
    };
    Some(format!(
        "writes to table {table:?}{others} are rejected until its files are compacted, which fails: \
         {error}; reads continue, and the server retries"
    ))
}

/// Explains why the metastore does not serve and what to do.
fn metastore_reason(failure: &stele_metastore::Error) -> String {
    match failure {
        stele_metastore::Error::Stopped => {
            "the metastore has no leader: it is starting, or it has stopped; see the log for the reason"
                .into()
        }
        stele_metastore::Error::Engine(cause) => store_reason(cause),
        // These say what to do, or that there is nothing to do here.
        removed @ stele_metastore::Error::Removed { .. } => removed.to_string(),
        other => format!("{other}; remove the cause and restart the server"),
    }
}

/// Reports the health of one port's gRPC services.
#[derive(Clone)]
pub struct Reporter {
    reporter: HealthReporter,
    services: Arc<[&'static str]>,
}

impl Reporter {
    /// Creates a reporter of services that serve, and of the whole port (`""`).
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

/// The reporters of all ports.
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

    /// Reports changes of the components' health until the server drains.
    pub async fn follow(self, components: Components) {
        // Reporters start with every component serving.
        let mut known: Vec<_> =
            components.all().into_iter().map(|(component, _)| (component, None)).collect();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while components.phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
            let found = components.all();
            if found != known {
                self.report(&found).await;
                known = found;
            }
        }
        self.set(ServingStatus::NotServing).await;
    }

    async fn report(&self, components: &[(&'static str, Option<String>)]) {
        let reporters = [Some(&self.tables), self.metastore.as_ref()];
        for ((component, reason), reporter) in components.iter().zip(reporters) {
            let Some(reporter) = reporter else { continue };
            match reason {
                None => reporter.set(ServingStatus::Serving).await,
                Some(reason) => {
                    tracing::error!(component, reason, "component failed");
                    reporter.set(ServingStatus::NotServing).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stele_bigtable::Api;
    use stele_bigtable_client::{Client, GcRule, Mutation, NewTable, Options, Retry};
    use stele_engine::world::World;
    use stele_engine::world::sim::{Operation, SimFiles, disk_error};
    use stele_grpc::{Services, Transport};
    use stele_tables::Tables;
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
        let components =
            Components { store: store.clone(), metastore: None, objects: None, phases };
        let (reporter, service) = tonic_health::server::health_reporter();
        let tables = Reporter::new(reporter, ["service"]).await;
        let reporters = Reporters { tables, metastore: None };
        let following = tokio::spawn(reporters.follow(components.clone()));
        let transport = Transport::InProcess(Services::default().with(service));
        let request = HealthCheckRequest { service: "service".into() };
        let mut watched = HealthClient::new(transport).watch(request).await.unwrap().into_inner();
        let mut next = async || {
            let message = tokio::time::timeout(WAIT, watched.message()).await;
            message.expect("health is reported").unwrap().unwrap().status
        };
        assert_eq!(next().await, ServingStatus::Serving as i32);
        assert_eq!(components.failures(), []);

        let mut options = Options::new("in process", "p", "i");
        options.retry = Retry { attempts_max: 1, ..options.retry };
        let client = Client::in_process(Api::new(Tables::new(store)).unwrap().services(), options);
        client.create_table(NewTable::new("t").family("f", GcRule::Never)).await.unwrap();
        files.fail_next(Operation::Sync, "/log/", disk_error());
        let table = client.table("t").unwrap();
        table.mutate_row("r", [Mutation::set_at("f", "q", 1000, "v")]).await.unwrap_err();
        assert_eq!(next().await, ServingStatus::NotServing as i32);
        let failures = components.failures();
        assert_eq!(failures[0].component, "tables");
        let reason = &failures[0].reason;
        assert!(reason.starts_with("writes have stopped, reads continue: "), "{reason}");
        assert!(reason.contains("/log/") && reason.ends_with("restart the server"), "{reason}");
        phases.draining.cancel();
        following.await.unwrap();
    }

    #[test]
    fn every_failure_has_a_reason_that_says_what_to_do() {
        use stele_engine::Error;

        let error = Error::io("writing fragment", "/d/1.frag".as_ref(), disk_error());
        let flush = store_reason(&error);
        assert!(flush.starts_with("memory cannot be written to disk"), "{flush}");
        assert!(flush.contains("/d/1.frag") && flush.contains("retries"), "{flush}");
        let stopped = store_reason(&Error::Stopped(Arc::new(error.clone())));
        assert!(stopped.contains("/d/1.frag") && stopped.contains("restart"), "{stopped}");
        assert_eq!(stalled_reason(&[]), None);
        let tables = ["t", "u"].map(|table| (table.to_string(), error.clone()));
        let stalled = stalled_reason(&tables).unwrap();
        let starts = "writes to table \"t\" and 1 other table are rejected";
        assert!(stalled.starts_with(starts) && stalled.contains("/d/1.frag"), "{stalled}");
        let metastore = metastore_reason(&stele_metastore::Error::Stopped);
        assert!(!metastore.contains("etcdserver"), "{metastore}");
        let failure =
            WorkFailure { work: Work::FlushAll, error, age: Duration::from_secs(9), failures: 3 };
        let compaction = FailingWork::new("compaction", Some("t".into()), &failure).reason;
        let begins = "the compaction of table \"t\" fails (3 attempts in 9 s): writing fragment";
        assert!(compaction.starts_with(begins), "{compaction}");
        let all = FailingWork::new("flush", None, &failure).reason;
        assert!(all.starts_with("the flush of all tables fails"), "{all}");
    }
}
