//! Administrative records: instances, clusters, app profiles, authorized views, and the
//! operations of earlier requests. They are the rows of one table of the store, which no
//! client can name; a copy of all is kept in memory, because there are few.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use stele_engine::schema::{Family, Schema};
use stele_engine::{BatchLimits, CommitBuilder, ScanSpec, TableId};
use stele_tables::Placement;

use crate::error::{Error, Result};

/// The name of the table. It is created with the first record.
const TABLE: &str = "bigtable.records";
const FAMILY: &[u8] = b"record";
const QUALIFIER: &[u8] = b"";
/// A record has one version.
const TIMESTAMP: i64 = 0;

/// The records of a store, by name.
pub struct Records {
    tables: stele_tables::Tables,
    /// Whether changes are refused, because other servers would not see them.
    read_only: bool,
    known: RwLock<BTreeMap<String, Bytes>>,
    /// Held while records change. The table, once it exists.
    table: Mutex<Option<TableId>>,
}

/// One change of a record; those of one call are atomic.
pub struct Change {
    name: String,
    /// `None` removes the record.
    value: Option<Bytes>,
}

impl Change {
    /// Creates or replaces a record.
    pub fn put(name: impl Into<String>, message: &impl Message) -> Change {
        Change { name: name.into(), value: Some(message.encode_to_vec().into()) }
    }

    /// Removes a record, if it exists.
    pub fn delete(name: impl Into<String>) -> Change {
        Change { name: name.into(), value: None }
    }
}

impl Records {
    /// Opens the records of a store, blocking this thread.
    pub fn open(tables: stele_tables::Tables) -> Result<Records> {
        let table = tables.table(TABLE);
        let known = match table {
            Some(table) => read(&tables, table)?,
            None => BTreeMap::new(),
        };
        let (known, table) = (RwLock::new(known), Mutex::new(table));
        Ok(Records { tables, read_only: false, known, table })
    }

    /// Returns records that are empty and cannot change: those of servers that share their
    /// tables.
    pub fn unsupported(tables: stele_tables::Tables) -> Records {
        Records { tables, read_only: true, known: RwLock::default(), table: Mutex::default() }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.known.read().contains_key(name)
    }

    /// Returns the record of this name.
    pub fn get<M: Message + Default>(&self, name: &str) -> Result<Option<M>> {
        let found = self.known.read().get(name).cloned();
        found.map(|value| decode(name, value)).transpose()
    }

    /// Returns the names of all records that begin with `prefix`, ascending.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let known = self.known.read();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = known.range::<str, _>(from).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Returns all records whose names begin with `prefix` and are accepted, by name.
    pub fn list<M: Message + Default>(
        &self,
        prefix: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, M)>> {
        let known = self.known.read();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let found = known.range::<str, _>(from).take_while(|(name, _)| name.starts_with(prefix));
        let found = found.filter(|(name, _)| accepts(name));
        found.map(|(name, value)| Ok((name.clone(), decode(name, value.clone())?))).collect()
    }

    /// Makes the changes that `decide` returns, atomically, while no other records change.
    /// Durable on return; blocks this thread.
    pub fn change<T>(&self, decide: impl FnOnce() -> Result<(Vec<Change>, T)>) -> Result<T> {
        if self.read_only {
            let what = "This administrative call is not supported in a cluster yet";
            return Err(Error::Unimplemented(what.into()));
        }
        let mut table = self.table.lock();
        let (changes, outcome) = decide()?;
        if changes.is_empty() {
            return Ok(outcome);
        }
        let id = match *table {
            Some(id) => id,
            None => *table.insert(self.create()?),
        };
        // The rows of a commit ascend; of several changes of a record the last one counts.
        let changes: BTreeMap<String, Option<Bytes>> =
            changes.into_iter().map(|change| (change.name, change.value)).collect();
        let mut commit = CommitBuilder::new();
        commit.table(id);
        for (name, value) in &changes {
            let row = commit.row(name.as_bytes());
            match value {
                Some(value) => row.set(FAMILY, QUALIFIER, TIMESTAMP, value),
                None => row.delete_row(),
            };
        }
        let Placement::Here(local) = self.tables.place(id, b"");
        self.tables.tenure().open(local.apply_blocking(&commit.finish()))?;
        let mut known = self.known.write();
        for (name, value) in changes {
            match value {
                Some(value) => drop(known.insert(name, value)),
                None => drop(known.remove(&name)),
            }
        }
        Ok(outcome)
    }

    fn create(&self) -> Result<TableId> {
        Ok(self.tables.create(TABLE, Schema::with_families([Family::new(FAMILY)])?)?)
    }
}

fn read(tables: &stele_tables::Tables, table: TableId) -> Result<BTreeMap<String, Bytes>> {
    let Placement::Here(local) = tables.place(table, b"");
    let mut scan = tables.tenure().open(local.scan(ScanSpec::default()))?;
    let mut known = BTreeMap::new();
    let mut keep = |cell: &stele_engine::CellView<'_>| {
        let name = String::from_utf8_lossy(cell.row).into_owned();
        known.insert(name, Bytes::copy_from_slice(cell.value));
    };
    loop {
        let batch = scan.next_batch(BatchLimits::default(), &mut keep);
        let end = tables.tenure().open(batch)?;
        if end.done {
            return Ok(known);
        }
        if end.missed {
            scan.wait_fetched()?;
        }
    }
}

fn decode<M: Message + Default>(name: &str, value: Bytes) -> Result<M> {
    M::decode(value).map_err(|error| {
        let what = format!("record {name} cannot be read: {error}");
        Error::Engine(stele_engine::Error::InvalidSchema(what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::simulated::Machine;

    fn value(text: &str) -> String {
        text.to_string()
    }

    #[test]
    fn records_survive_a_crash_and_change_together() {
        let machine = Machine::new();
        let records = Records::open(machine.store()).unwrap();
        assert!(records.names("").is_empty());
        assert_eq!(records.tables.table(TABLE), None, "a store without records has no table");
        let put = |name: &str, text: &str| Change::put(name, &value(text));
        records.change(|| Ok((vec![put("a/1", "x"), put("a/2", "y"), put("b", "z")], ()))).unwrap();
        let refused: Result<()> = records.change(|| Err(Error::invalid("refused")));
        assert!(refused.is_err());
        let changes = vec![put("a/2", "old"), put("a/2", "new"), Change::delete("a/1")];
        records.change(|| Ok((changes, ()))).unwrap();
        drop(records);
        let machine = Machine { files: machine.files.crash(), clock: machine.clock.clone() };
        let records = Records::open(machine.store()).unwrap();
        assert_eq!(records.names("a/"), ["a/2"]);
        assert_eq!(records.get::<String>("a/2").unwrap().as_deref(), Some("new"));
        assert_eq!(records.list::<String>("", |name| name != "a/2").unwrap().len(), 1);
        assert!(records.contains("b") && !records.contains("a/1"));
    }
}
