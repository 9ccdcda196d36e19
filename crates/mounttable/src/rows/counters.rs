//! The numbers of nodes and servers of each user. Each number is one row, changed only
//! by increments.

use std::collections::BTreeMap;

use stele_bigtable_client::{Filter, Mutation, Query, RowMutations, Rule, Table};

use crate::error::{Error, Result};
use crate::node::METADATA;

const COUNT: &[u8] = b"c";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Nodes,
    Servers,
}

/// The maximum numbers per user; zero and less mean no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub nodes_per_user: i64,
    pub servers_per_user: i64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { nodes_per_user: 10_000, servers_per_user: 10_000 }
    }
}

impl Limits {
    /// No limits, for nodes that the server itself creates.
    pub const NONE: Limits = Limits { nodes_per_user: 0, servers_per_user: 0 };
}

pub struct Counters {
    table: Table,
}

impl Counters {
    pub fn new(table: Table) -> Counters {
        Counters { table }
    }

    pub fn key(kind: Kind, user: &str) -> String {
        match kind {
            Kind::Nodes => format!("num-nodes-per-user:{user}"),
            Kind::Servers => format!("num-servers-per-user:{user}"),
        }
    }

    /// Adds to a number. If it would exceed the limit, the addition is reverted and
    /// rejected.
    pub async fn add(&self, kind: Kind, user: &str, delta: i64, limits: Limits) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let limit = match kind {
            Kind::Nodes => limits.nodes_per_user,
            Kind::Servers => limits.servers_per_user,
        };
        let now = self.increment(kind, user, delta).await?;
        if delta < 0 || limit <= 0 || now <= limit {
            return Ok(());
        }
        self.increment(kind, user, -delta).await?;
        let user = user.to_string();
        Err(match kind {
            Kind::Nodes => Error::NodeLimit { user, limit },
            Kind::Servers => Error::ServerLimit { user, limit },
        })
    }

    /// Subtracts from a number after a deletion or a failed operation. fsck corrects a
    /// number that stays too high.
    pub async fn give_back(&self, kind: Kind, user: &str, delta: i64) {
        if let Err(error) = self.add(kind, user, -delta, Limits::NONE).await {
            tracing::warn!(%error, user, delta, "cannot update a counter: fsck will correct it");
        }
    }

    async fn increment(&self, kind: Kind, user: &str, delta: i64) -> Result<i64> {
        let key = Counters::key(kind, user);
        let rule = Rule::increment(METADATA, COUNT, delta);
        let row = self.table.read_modify_write(key.clone(), [rule]).await?;
        let number = row.latest(METADATA, COUNT).and_then(|cell| cell.number());
        number.ok_or_else(|| Error::Damaged { row: key, what: "not a number".into() })
    }

    pub async fn get(&self, kind: Kind, user: &str) -> Result<i64> {
        let row = self.table.read_row(Counters::key(kind, user), Some(Filter::latest())).await?;
        let cell = row.as_ref().and_then(|row| row.latest(METADATA, COUNT));
        Ok(cell.and_then(|cell| cell.number()).unwrap_or(0))
    }

    /// Returns all numbers by row key.
    pub async fn all(&self) -> Result<BTreeMap<String, i64>> {
        let mut rows = self.table.read_rows(Query::all().filter(Filter::latest()));
        let mut all = BTreeMap::new();
        while let Some(row) = rows.next().await? {
            let number = row.latest(METADATA, COUNT).and_then(|cell| cell.number());
            all.insert(String::from_utf8_lossy(&row.key).into_owned(), number.unwrap_or(0));
        }
        Ok(all)
    }

    /// Sets numbers by row key; zero deletes the row.
    pub async fn set(&self, numbers: impl IntoIterator<Item = (String, i64)>) -> Result<()> {
        let rows = numbers.into_iter().map(|(key, number)| {
            let mut mutations = vec![Mutation::delete_row()];
            if number != 0 {
                let value = number.to_be_bytes().to_vec();
                mutations.push(Mutation::set(METADATA, COUNT, value));
            }
            RowMutations::new(key, mutations)
        });
        let rows: Vec<_> = rows.collect();
        for outcome in self.table.mutate_rows(rows).await {
            outcome?;
        }
        Ok(())
    }
}
