//! Tablets of a store in a cluster: tables become known, tablets are loaded from their
//! rows as they are stored, and rows that other servers may serve are gaps here: tablets
//! without an id, which are not loaded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::handle::Store;
use super::loads::Chosen;
use super::log_mode::{LogMode, ServerLog};
use super::open::prepare_dir;
use super::waiters::Stage;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{
    Configs, Manifest, TableConfig, TableState, TabletConfig, TabletConfigs, TabletId, TabletRows,
    TakeGeneration, VolatileConfig, filled,
};
use crate::error::{Error, Result};
use crate::log::objects::ObjectLog;
use crate::options::Options;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::tablet::{Chain, FRAGMENTS_DIR, Publishing, Table, Tables, Tablet, TabletState};
use crate::txn::Txn;
use crate::world::World;

/// The most log that another server has to replay.
const REPLAY_BYTES_MAX: u64 = 256 << 20;

/// What a store needs of the server that it belongs to.
pub struct ServerParts {
    /// The epoch: part of the names of files, and the first generation of txns.
    pub epoch: u64,
    /// The log of the epoch, which begins after the base of that generation.
    pub log: Arc<ObjectLog>,
    pub rows: Arc<dyn TabletRows>,
    /// Takes a generation of txns from the cluster. May block.
    pub take_generation: TakeGeneration,
    /// Called with the lowest slot that recovery needs, whenever it rises. Must not block.
    pub on_floor: Box<dyn Fn(u64) + Send + Sync>,
    /// Called when the store has stopped, because its log or a row of its tablets belongs to
    /// somebody else. Must not block or call the store.
    pub on_failure: Arc<dyn Fn(String) + Send + Sync>,
}

impl Store {
    /// Opens the store of a server in a cluster: its log is of objects, its files are outside
    /// the directory, and the rows of its tablets are stored elsewhere. It begins without
    /// tables; nothing in the directory outlives it.
    pub fn open_in_cluster(
        dir: &Path,
        options: Options,
        world: World,
        resources: Resources,
        parts: ServerParts,
    ) -> Result<Store> {
        let mut options = options;
        // Another server reads the log before it serves the tablets.
        options.flush.replay_bytes_max = options.flush.replay_bytes_max.min(REPLAY_BYTES_MAX);
        let lock = prepare_dir(&*world.files, dir, &[FRAGMENTS_DIR])?;
        if Manifest::load(&*world.files, dir)?.is_some() {
            return Err(Error::DirectoryInUse { path: dir.to_path_buf() });
        }
        if options.objects.store.is_none() {
            return Err(Error::NoObjectStore);
        }
        let ServerParts { epoch, log, rows, take_generation, on_floor, on_failure } = parts;
        let configs = Configs {
            store_id: world.random.next_u64(),
            incarnation: epoch,
            generation: epoch,
            ..Configs::default()
        };
        let config = Arc::new(VolatileConfig::new(configs.clone(), Some(take_generation)));
        let wrap = |_| rows.clone();
        let tables = Tables::load(dir, world, options, resources, Box::new(config.clone()), &wrap)?;
        let failed = on_failure.clone();
        tables.config.set_on_failure(move |error| failed(error.to_string()));
        let log = LogMode::Objects(ServerLog { log, on_floor, on_failure, config });
        Store::start(dir, lock, tables, &configs, log)
    }

    /// Makes a table known, or its schema as it is now. Which of its tablets are served does
    /// not change.
    pub fn adopt_table(&self, id: TableId, name: &str, schema: Arc<Schema>) -> Result<()> {
        self.check_open()?;
        let config = self.engine.volatile_config()?;
        if let Ok(known) = self.engine.tables.map.get(id) {
            return self.adopt_schema(&known, schema);
        }
        let groups = schema.groups().len();
        let table = TableConfig {
            id,
            name: name.to_string(),
            schema,
            state: TableState::Active,
            flushed: vec![Txn::ZERO; groups],
            tablets: TabletConfigs::new(filled(&[], groups, Txn::ZERO)),
        };
        config.put_table(table.clone());
        self.engine.tables.adopt(&table)
    }

    /// Shows another schema to readers and writers.
    fn adopt_schema(&self, table: &Arc<Table>, schema: Arc<Schema>) -> Result<()> {
        let turn = table.publish();
        turn.check_exists()?;
        let before = table.version().schema.clone();
        if *before == *schema {
            return Ok(());
        }
        before.check_successor(&schema)?;
        if before.groups().len() > schema.groups().len() || !before.keeps_groups(&schema) {
            return Err(Error::InCluster("move families between groups"));
        }
        let _no_writers = self.engine.sequencer.lock();
        turn.set_schema(&schema, &self.engine.tables.resources.budget);
        Ok(())
    }

    /// Forgets a table that was dropped, with its memory and its tablets here.
    pub fn forget_table(&self, id: TableId) -> Result<()> {
        self.check_open()?;
        let config = self.engine.volatile_config()?;
        let Ok(table) = self.engine.tables.map.get(id) else { return Ok(()) };
        let _loads = table.lock_loads();
        let _turn = table.publish();
        self.set_dropping(&table, true);
        config.remove_table(id);
        self.engine.tables.close_table(&table);
        self.forget_work(&table);
        Ok(())
    }

    /// Loads tablets of a table: `rows` are their rows, which nobody owns. Requests wait from
    /// now on. `claim` makes this server their owner, in a generation of txns that nobody
    /// has used, and returns the rows as they are then; what is missing belongs to others.
    /// Txns go on with that generation. Returns how many tablets were loaded.
    ///
    /// Tablets that are loaded here are left alone.
    pub fn load_rows(
        &self,
        table: TableId,
        rows: &[Arc<TabletConfig>],
        generation: u64,
        claim: impl FnOnce(&[TabletId]) -> Result<Vec<Arc<TabletConfig>>>,
    ) -> Result<usize> {
        self.check_open()?;
        self.engine.volatile_config()?;
        let table = self.engine.tables.map.get(table)?;
        self.engine.load_rows(&table, rows, Txn::base(generation), claim)
    }

    /// Returns the number from which on names of new files may not be in a row yet.
    pub fn oldest_pending(&self) -> u64 {
        self.engine.tables.fragments.oldest_pending().number
    }

    /// Ends all work of a server that is not the owner of its tablets any more: nothing
    /// becomes durable, no row is changed, no file is named, and whoever waits is told.
    pub fn halt(&self, what: &str) {
        let engine = &self.engine;
        let cause = Error::Fenced { epoch: engine.epoch(), what: what.to_string() };
        engine.log.halt(cause.clone());
        engine.tables.config.fail(cause);
        engine.waiters.wake_all();
        engine.claims.raise();
    }
}

impl Engine {
    pub(super) fn volatile_config(&self) -> Result<&Arc<VolatileConfig>> {
        match &self.log {
            LogMode::Objects(server) => Ok(&server.config),
            LogMode::Own(_) | LogMode::External(_) => Err(Error::NotInCluster),
        }
    }

    fn epoch(&self) -> u64 {
        self.tables.fragments.oldest_pending().incarnation
    }

    fn load_rows(
        &self,
        table: &Arc<Table>,
        rows: &[Arc<TabletConfig>],
        base: Txn,
        claim: impl FnOnce(&[TabletId]) -> Result<Vec<Arc<TabletConfig>>>,
    ) -> Result<usize> {
        let _turn = table.lock_loads();
        let publishing = table.publish();
        publishing.check_exists()?;
        let chosen = self.place(&publishing, rows)?;
        drop(publishing);
        if chosen.tablets.is_empty() {
            return Ok(0);
        }
        self.loading.fetch_add(chosen.tablets.len(), Ordering::AcqRel);
        // Memory from before an unload would count twice beside the files of the tablet.
        let flushed = self.flush_up_to(table, chosen.loaded_at);
        let claimed = flushed.and_then(|()| {
            self.raise(base);
            let ids: Vec<TabletId> = chosen.tablets.iter().map(|(id, _)| *id).collect();
            claim(&ids)
        });
        let served = claimed.and_then(|rows| self.serve(table, &chosen, rows, base));
        if served.is_err() {
            chosen.show(&table.publish(), |tablet| tablet.state = TabletState::Unloaded);
        }
        self.loading.fetch_sub(chosen.tablets.len(), Ordering::AcqRel);
        self.waiters.wake(Stage::Load);
        self.claims.raise();
        served
    }

    /// Continues with txns of a generation, if they are not above it already.
    fn raise(&self, base: Txn) {
        let mut sequencer = self.sequencer.lock();
        if sequencer.raise(base.generation()) {
            self.log.raise(base.raw());
            self.latest.fetch_max(base.raw(), Ordering::AcqRel);
        }
    }

    /// Shows tablets as they are stored, in state `Reading`, in place of gaps. Those that
    /// meet a tablet which is loaded here, or is about to be, are left out.
    fn place(&self, publishing: &Publishing<'_>, rows: &[Arc<TabletConfig>]) -> Result<Chosen> {
        let mut chosen = Chosen { tablets: Vec::new(), loaded_at: Txn::ZERO };
        for row in rows {
            let tablets = publishing.tablets();
            let overlapped: Vec<&Arc<Tablet>> = tablets.overlapping(&row.rows).collect();
            let is_free = |tablet: &&Arc<Tablet>| tablet.state == TabletState::Unloaded;
            let (Some(first), Some(last)) = (overlapped.first(), overlapped.last()) else {
                continue;
            };
            if !overlapped.iter().all(is_free) || row.chains.len() != first.chains.len() {
                continue;
            }
            let loaded_at = overlapped.iter().map(|tablet| tablet.loaded_at).max();
            let loaded_at = loaded_at.unwrap_or(Txn::ZERO);
            let mut placed = Vec::new();
            if first.rows.start < row.rows.start {
                let end = Some(row.rows.start.clone());
                placed.push(gap(first, RowRange { start: first.rows.start.clone(), end }));
            }
            placed.push(self.tablet_of(row, loaded_at, TabletState::Reading)?);
            if let Some(end) = row.rows.end.clone().filter(|_| last.rows.end != row.rows.end) {
                placed.push(gap(last, RowRange { start: end, end: last.rows.end.clone() }));
            }
            let whole = RowRange { start: first.rows.start.clone(), end: last.rows.end.clone() };
            publishing.splice(&whole, placed);
            chosen.loaded_at = chosen.loaded_at.max(loaded_at);
            chosen.tablets.push((row.id, row.rows.start.clone()));
        }
        chosen.tablets.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(chosen)
    }

    fn tablet_of(
        &self,
        row: &TabletConfig,
        loaded_at: Txn,
        state: TabletState,
    ) -> Result<Arc<Tablet>> {
        let since = self.tables.world.clock.elapsed();
        let link = |file: &_, rows| Ok(self.tables.fragments.link(file, rows));
        let tablet = Tablet::new(row, loaded_at, since, link)?;
        Ok(Arc::new(Tablet { state, ..tablet }))
    }

    /// Serves the tablets whose rows name this server. The others become gaps again.
    fn serve(
        &self,
        table: &Table,
        chosen: &Chosen,
        rows: Vec<Arc<TabletConfig>>,
        base: Txn,
    ) -> Result<usize> {
        let rows: BTreeMap<TabletId, Arc<TabletConfig>> =
            rows.into_iter().map(|row| (row.id, row)).collect();
        let publishing = table.publish();
        publishing.check_exists()?;
        let is_ours = |(id, _): &&(TabletId, Vec<u8>)| rows.contains_key(id);
        let (ours, others) = chosen.tablets.iter().partition::<Vec<_>, _>(is_ours);
        let part = |tablets: Vec<&(TabletId, Vec<u8>)>| Chosen {
            tablets: tablets.into_iter().cloned().collect(),
            loaded_at: chosen.loaded_at,
        };
        let (ours, others) = (part(ours), part(others));
        others.show(&publishing, |tablet| tablet.state = TabletState::Unloaded);
        let mut loaded_at = base;
        {
            let _no_writers = self.sequencer.lock();
            loaded_at = loaded_at.max(self.latest());
            ours.show(&publishing, |tablet| {
                tablet.state = TabletState::Writable;
                tablet.load = rows[&tablet.id].load;
                (tablet.loaded_at, tablet.readable_from) = (loaded_at, loaded_at);
            });
            table.loaded(loaded_at);
            table.raise_fence();
        }
        // Their files have txns up to the new generation, so reads see no older state of this
        // server, and no newer one than is durable.
        self.log.wait_durable(loaded_at.raw())?;
        ours.show(&publishing, |tablet| tablet.state = TabletState::Active);
        Ok(ours.tablets.len())
    }
}

/// Returns rows of which this server knows nothing, in place of a tablet that it does not
/// serve.
fn gap(tablet: &Tablet, rows: RowRange) -> Arc<Tablet> {
    Arc::new(Tablet {
        id: TabletId::default(),
        load: 0,
        rows,
        state: TabletState::Unloaded,
        since: tablet.since,
        loaded_at: tablet.loaded_at,
        readable_from: Txn::ZERO,
        chains: vec![Chain::default(); tablet.chains.len()],
    })
}
