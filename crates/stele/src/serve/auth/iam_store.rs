//! The policies of Bigtable resources, kept in a table of the server's own project. Each
//! server reads them again every second, so that a change by another one is seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stele_auth::iam::IamPolicy;
use stele_auth::sha256;
use stele_bigtable::reserved;
use stele_bigtable::table::Tables;
use stele_bigtable_client::{
    Client, Error, Filter, GcRule, Mutation, NewTable, Options, Query, Table,
};
use stele_grpc::Services;
use tonic::{Code, Status};

use super::super::shutdown::Phases;
use super::gate::Gate;

const INSTANCE: &str = "auth";
const TABLE: &str = "policies";
const FAMILY: &str = "policy";
const COLUMN: &[u8] = b"json";
/// The SHA-256 of the other column, which is short enough for a filter.
const HASH: &[u8] = b"sha256";
const INTERVAL: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(30);

pub struct IamStore {
    client: Client,
    tables: Arc<Tables>,
}

impl IamStore {
    /// `bigtable` are the services that answer calls within the process.
    pub fn new(bigtable: Services, tables: Arc<Tables>) -> IamStore {
        let mut options = Options::new("in process", reserved::PROJECT, INSTANCE);
        options.deadline = Some(DEADLINE);
        IamStore { client: Client::in_process(bigtable, options), tables }
    }

    fn table(&self) -> Result<Table, Status> {
        self.client.table(TABLE).map_err(status)
    }

    /// Returns all policies, without those of tables that no longer exist.
    pub async fn all(&self) -> Result<BTreeMap<String, IamPolicy>, Status> {
        let rows = match self.table()?.read_rows(query()).collect().await {
            Ok(rows) => rows,
            // Nobody has set a policy yet.
            Err(error) if error.is_not_found() => return Ok(BTreeMap::new()),
            Err(error) => return Err(status(error)),
        };
        let mut policies = BTreeMap::new();
        for row in rows {
            let Ok(resource) = std::str::from_utf8(&row.key) else { continue };
            let Some(policy) = row.value(FAMILY, COLUMN).and_then(|json| decode(resource, json))
            else {
                continue;
            };
            if self.is_current(resource, &policy) {
                policies.insert(resource.to_owned(), policy);
            }
        }
        Ok(policies)
    }

    /// Returns the policy of a resource; an empty one if none was set.
    pub async fn get(&self, resource: &str) -> Result<IamPolicy, Status> {
        self.check_exists(resource)?;
        let stored = self.stored(resource).await?;
        let policy = stored.as_deref().and_then(|json| decode(resource, json));
        let policy = policy.filter(|policy| self.is_current(resource, policy));
        Ok(policy.unwrap_or_default())
    }

    /// Sets the policy of a resource. ABORTED if it is no longer the one with this etag.
    pub async fn set(
        &self,
        resource: &str,
        mut policy: IamPolicy,
        etag: &[u8],
    ) -> Result<IamPolicy, Status> {
        self.check_exists(resource)?;
        policy.table_id = self.table_id(resource);
        let stored = match self.stored(resource).await {
            Ok(stored) => stored,
            Err(missing) if missing.code() == Code::NotFound => None,
            Err(error) => return Err(error),
        };
        let current = stored.as_deref().and_then(|json| decode(resource, json));
        let current = current.filter(|policy| self.is_current(resource, policy));
        if !etag.is_empty() && etag != current.unwrap_or_default().etag() {
            return Err(changed());
        }
        self.create_table().await?;
        // Atomic: only if nobody has set another policy since it was read.
        let latest = Filter::chain([Filter::column(FAMILY, HASH), Filter::latest()]);
        let (predicate, on_match) = match &stored {
            Some(json) => (Filter::chain([latest, Filter::value(&sha256(json))]), true),
            None => (latest, false),
        };
        let json = policy.encode();
        let write = [
            Mutation::set(FAMILY, HASH, sha256(&json).to_vec()),
            Mutation::set(FAMILY, COLUMN, json),
        ];
        let (then, otherwise) = match on_match {
            true => (Vec::from(write), Vec::new()),
            false => (Vec::new(), Vec::from(write)),
        };
        let key = resource.to_owned();
        let checked = self.table()?.check_and_mutate(key, Some(predicate), then, otherwise).await;
        match checked.map_err(status)? == on_match {
            true => Ok(policy),
            false => Err(changed()),
        }
    }

    async fn stored(&self, resource: &str) -> Result<Option<Vec<u8>>, Status> {
        let read = self.table()?.read_row(resource.to_owned(), Some(Filter::latest())).await;
        match read {
            Ok(row) => Ok(row.and_then(|row| row.value(FAMILY, COLUMN).map(|json| json.to_vec()))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(status(error)),
        }
    }

    async fn create_table(&self) -> Result<(), Status> {
        let new = NewTable::new(TABLE).family(FAMILY, GcRule::MaxVersions(1));
        match self.client.create_table(new).await {
            Err(error) if error.code() != Code::AlreadyExists => Err(status(error)),
            _ => Ok(()),
        }
    }

    /// Returns the id of a table or of the table that a view belongs to; `None` for other
    /// resources.
    fn table_id(&self, resource: &str) -> Option<u32> {
        let name = table_name(resource)?;
        self.tables.get(name).ok().map(|table| table.id.0)
    }

    fn check_exists(&self, resource: &str) -> Result<(), Status> {
        match table_name(resource) {
            Some(name) => self.tables.get(name).map(drop).map_err(Status::from),
            None => Ok(()),
        }
    }

    fn is_current(&self, resource: &str, policy: &IamPolicy) -> bool {
        table_name(resource).is_none() || policy.table_id == self.table_id(resource)
    }
}

/// Puts changes of policies into force until the server drains.
pub async fn follow(gate: Arc<Gate>, store: Arc<IamStore>, phases: &'static Phases) {
    let mut ticks = tokio::time::interval(INTERVAL);
    while phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
        match store.all().await {
            Ok(policies) => gate.replace_iam(policies),
            Err(error) => tracing::warn!(%error, "cannot read the IAM policies"),
        }
    }
}

/// Returns the table within the name of a resource.
fn table_name(resource: &str) -> Option<&str> {
    let (_, rest) = resource.split_once("/tables/")?;
    let id = rest.split('/').next().unwrap_or(rest);
    let end = resource.len() - rest.len() + id.len();
    Some(&resource[..end])
}

fn query() -> Query {
    Query::all().filter(Filter::latest())
}

fn decode(resource: &str, json: &[u8]) -> Option<IamPolicy> {
    match IamPolicy::decode(json) {
        Ok(policy) => Some(policy),
        Err(why) => {
            tracing::error!(resource, why, "ignoring an unreadable IAM policy");
            None
        }
    }
}

fn changed() -> Status {
    Status::aborted("the policy has changed since it was read: read it again and repeat the change")
}

fn status(error: Error) -> Status {
    Status::new(error.code(), error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_view_is_found() {
        let table = "projects/p/instances/i/tables/t";
        assert_eq!(table_name(table), Some(table));
        assert_eq!(table_name(&format!("{table}/authorizedViews/v")), Some(table));
        assert_eq!(table_name("projects/p/instances/i"), None);
    }
}
