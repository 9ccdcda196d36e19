//! Where rows are served: which server owns the tablet of a row, as it was read last from
//! the coordinator. A route may be outdated; the server that it leads to then says so, and
//! the routes of the table are read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stele_engine::{RowRange, TableId};
use stele_tables::ServerInfo;
use stele_tables::coordinate::{Coordinator, Keys, Op, Transaction, Unreachable};
use stele_tables::rows::{Holder, OwnedRow, Owner};
use tokio::time::Instant;

/// The routes of one table are read at most this often.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// The way to the rows of a range.
#[derive(Clone, Debug)]
pub struct Route {
    /// The rows of one tablet, or of several neighbours.
    pub rows: RowRange,
    /// The server that owns them; `None` while nobody serves them.
    pub owner: Option<Arc<Serving>>,
    /// The reading that it is from.
    pub version: u64,
}

/// A live server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    pub holder: Holder,
    pub address: String,
}

/// A tablet and its owner.
#[derive(Clone, Debug)]
pub struct RoutedTablet {
    pub rows: RowRange,
    pub owner: Option<Arc<Serving>>,
    /// The bytes of its files.
    pub bytes: u64,
}

/// The routes of one table.
#[derive(Debug)]
pub struct TableRoutes {
    version: u64,
    read_at: Option<Instant>,
    tablets: Vec<RoutedTablet>,
    /// Neighbours with the same owner, as one range.
    stretches: Vec<(RowRange, Option<Arc<Serving>>)>,
}

impl TableRoutes {
    fn new(version: u64, tablets: Vec<RoutedTablet>) -> TableRoutes {
        let mut stretches: Vec<(RowRange, Option<Arc<Serving>>)> = Vec::new();
        for tablet in &tablets {
            match stretches.last_mut() {
                Some((rows, owner))
                    if *owner == tablet.owner && rows.end.as_ref() == Some(&tablet.rows.start) =>
                {
                    rows.end = tablet.rows.end.clone();
                }
                _ => stretches.push((tablet.rows.clone(), tablet.owner.clone())),
            }
        }
        TableRoutes { version, read_at: Some(Instant::now()), tablets, stretches }
    }

    /// Returns the tablets, in row order.
    pub fn tablets(&self) -> &[RoutedTablet] {
        &self.tablets
    }

    /// Returns the reading that they are from.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the owner of a row; `None` while nobody serves it.
    pub fn owner(&self, row: &[u8]) -> Option<&Arc<Serving>> {
        let at = self.stretches.partition_point(|(rows, _)| ends_by(rows, row));
        self.stretches.get(at)?.1.as_ref()
    }

    /// Returns the route of a row, for all rows around it that go the same way.
    pub fn route(&self, row: &[u8]) -> Route {
        self.nth(self.stretches.partition_point(|(rows, _)| ends_by(rows, row)), row)
    }

    /// Returns the route of the rows just before `end`; of the last ones if `None`.
    pub fn route_before(&self, end: Option<&[u8]>) -> Route {
        let at = match end {
            None => self.stretches.len().saturating_sub(1),
            Some(end) => {
                let behind = self.stretches.partition_point(|(rows, _)| &rows.start[..] < end);
                behind.saturating_sub(1)
            }
        };
        self.nth(at, end.unwrap_or_default())
    }

    fn nth(&self, at: usize, row: &[u8]) -> Route {
        let version = self.version;
        match self.stretches.get(at) {
            Some((rows, owner)) => Route { rows: rows.clone(), owner: owner.clone(), version },
            // No tablet has the row.
            None => Route { rows: RowRange::row(row), owner: None, version },
        }
    }
}

/// Whether a range ends at or before a row.
fn ends_by(rows: &RowRange, row: &[u8]) -> bool {
    rows.end.as_deref().is_some_and(|end| end <= row)
}

/// The routes of all tables that were asked for.
pub struct Routes {
    coordinator: Arc<dyn Coordinator>,
    keys: Keys,
    tables: Mutex<HashMap<TableId, Arc<Cached>>>,
}

struct Cached {
    routes: Mutex<Arc<TableRoutes>>,
    /// Held while they are read.
    reading: tokio::sync::Mutex<()>,
}

impl Routes {
    pub fn new(coordinator: Arc<dyn Coordinator>, keys: Keys) -> Routes {
        Routes { coordinator, keys, tables: Mutex::default() }
    }

    /// Returns the routes of a table, newer than a version that was found to be outdated.
    pub async fn table(
        &self,
        table: TableId,
        outdated: Option<u64>,
    ) -> Result<Arc<TableRoutes>, Unreachable> {
        let cached = self.cached(table);
        let is_good = |routes: &TableRoutes| {
            routes.version > 0 && outdated.is_none_or(|outdated| routes.version > outdated)
        };
        let known = cached.routes.lock().clone();
        if is_good(&known) {
            return Ok(known);
        }
        let _reading = cached.reading.lock().await;
        // Somebody else may have read them meanwhile.
        let known = cached.routes.lock().clone();
        if is_good(&known) {
            return Ok(known);
        }
        if let Some(read_at) = known.read_at {
            tokio::time::sleep_until(read_at + READ_PAUSE).await;
        }
        let tablets = self.read(table).await?;
        let routes = Arc::new(TableRoutes::new(known.version + 1, tablets));
        *cached.routes.lock() = routes.clone();
        Ok(routes)
    }

    /// Forgets the routes of tables that do not exist.
    pub fn keep(&self, exists: impl Fn(TableId) -> bool) {
        self.tables.lock().retain(|table, _| exists(*table));
    }

    fn cached(&self, table: TableId) -> Arc<Cached> {
        let none = || {
            let (tablets, stretches) = (Vec::new(), Vec::new());
            let none = TableRoutes { version: 0, read_at: None, tablets, stretches };
            let (routes, reading) = (Mutex::new(Arc::new(none)), tokio::sync::Mutex::default());
            Arc::new(Cached { routes, reading })
        };
        self.tables.lock().entry(table).or_insert_with(none).clone()
    }

    /// Reads the tablets of a table and the live servers at one moment.
    async fn read(&self, table: TableId) -> Result<Vec<RoutedTablet>, Unreachable> {
        let (servers, tablets) = (self.keys.servers(), self.keys.tablets(table));
        let then = vec![Op::GetAll(servers.clone()), Op::GetAll(tablets.clone())];
        let read = self.coordinator.run(Transaction { then, ..Transaction::default() }).await?;
        let mut live: HashMap<String, Arc<Serving>> = HashMap::new();
        let mut routed = Vec::new();
        for found in read.found {
            if let Some(id) = found.key.strip_prefix(&servers[..]) {
                let Some(info) = ServerInfo::decode(&found.value) else { continue };
                let id = String::from_utf8_lossy(id).into_owned();
                let holder = Holder { id: id.clone(), epoch: info.epoch };
                live.insert(id, Arc::new(Serving { holder, address: info.address }));
            } else if found.key.starts_with(&tablets) {
                match OwnedRow::decode(&found.value) {
                    Ok(row) => routed.push(routed_tablet(&row, &live)),
                    Err(error) => {
                        tracing::error!(%error, table = table.0, "a row of a tablet is damaged");
                    }
                }
            }
        }
        routed.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
        Ok(routed)
    }
}

fn routed_tablet(row: &OwnedRow, live: &HashMap<String, Arc<Serving>>) -> RoutedTablet {
    let owner = match &row.owner {
        Owner::Server(holder) => {
            live.get(&holder.id).filter(|serving| serving.holder == *holder).cloned()
        }
        Owner::Nobody | Owner::Recoverer(_) => None,
    };
    let bytes = row.config.files().map(|file| file.share).sum();
    RoutedTablet { rows: row.config.rows.clone(), owner, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str) -> Option<Arc<Serving>> {
        let holder = Holder { id: id.into(), epoch: 1 };
        Some(Arc::new(Serving { holder, address: id.into() }))
    }

    fn routes() -> TableRoutes {
        let tablet = |rows, owner| RoutedTablet { rows, owner, bytes: 1 };
        TableRoutes::new(
            1,
            vec![
                tablet(RowRange::new("", "d"), server("a")),
                tablet(RowRange::new("d", "h"), server("a")),
                tablet(RowRange::new("h", "p"), None),
                tablet(RowRange::from("p"), server("b")),
            ],
        )
    }

    #[test]
    fn neighbours_with_one_owner_are_one_route() {
        let routes = routes();
        for row in ["", "c", "d", "gz"] {
            assert_eq!(routes.route(row.as_bytes()).rows, RowRange::new("", "h"), "{row}");
        }
        assert!(routes.route(b"h").owner.is_none());
        assert_eq!(routes.route(b"p").owner, server("b"));
        assert_eq!(routes.route(b"zz").rows, RowRange::from("p"));
    }

    #[test]
    fn a_reversed_read_begins_with_the_rows_before_its_end() {
        let routes = routes();
        assert_eq!(routes.route_before(None).owner, server("b"));
        assert_eq!(routes.route_before(Some(b"p")).rows, RowRange::new("h", "p"));
        assert_eq!(routes.route_before(Some(b"p\0")).owner, server("b"));
        assert_eq!(routes.route_before(Some(b"a")).owner, server("a"));
    }

    #[test]
    fn a_row_without_a_tablet_has_a_route_without_an_owner() {
        let none = TableRoutes::new(1, Vec::new());
        assert!(none.route(b"r").owner.is_none() && none.route_before(None).owner.is_none());
    }
}
