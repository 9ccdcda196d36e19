//! All tables of a store: everything but its log. The store applies commits to
//! it, recovery replays commits into it, and the workers flush and compact it.

use std::path::Path;
use std::sync::Arc;

use super::chain::{Tablet, TabletMap};
use super::fragment_dir::FragmentDir;
use super::table::{GroupMemory, Table, TableVersion};
use super::table_map::TableMap;
use crate::cell::fold::Folds;
use crate::cell::rows::RowRange;
use crate::config::{
    ConfigEdit, ConfigEditor, ConfigStore, Configs, ManifestRows, Reference, Settler, TableConfig,
    TabletRows,
};
use crate::error::Result;
use crate::options::Options;
use crate::read::Snapshots;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::sync::Mutex;
use crate::txn::Txn;
use crate::world::World;

/// Returns the rows that a store uses, given those in its manifest.
pub type WrapRows<'w> = dyn Fn(Arc<dyn TabletRows>) -> Arc<dyn TabletRows> + 'w;

pub struct Tables {
    pub world: World,
    pub options: Options,
    pub resources: Resources,
    pub folds: Arc<Folds>,
    pub snapshots: Arc<Snapshots>,
    pub config: Arc<ConfigEditor>,
    /// Changes the rows of tablets.
    pub settler: Settler,
    pub fragments: Arc<FragmentDir>,
    /// Whether names of new files stay pending when the config names them, because it is
    /// not the one that counts.
    keeps_pending: bool,
    pub map: TableMap,
    /// Held while backups, deleted tables and checkpoints are read or removed.
    pub keeping: Mutex<()>,
}

impl Tables {
    /// Loads the tables in the config without opening their files. Files found
    /// to be lost are reported and reads of their rows fail; everything else is
    /// served.
    pub fn load(
        dir: &Path,
        world: World,
        options: Options,
        resources: Resources,
        config: Box<dyn ConfigStore>,
        wrap: &WrapRows<'_>,
    ) -> Result<Tables> {
        let configs = config.read()?;
        let config = Arc::new(ConfigEditor::new(config));
        let rows = wrap(Arc::new(ManifestRows::new(config.clone())));
        let fragments = FragmentDir::open(
            dir,
            world.files.clone(),
            options.objects.store.clone(),
            &resources,
            &configs,
        )?;
        Tables::assemble(world, options, resources, config, rows, Arc::new(fragments), &configs)
    }

    /// Loads tables into which a log is replayed. Their files get names of this store, which
    /// stay pending.
    pub fn beside(&self, resources: Resources, config: Box<dyn ConfigStore>) -> Result<Tables> {
        let configs = config.read()?;
        let config = Arc::new(ConfigEditor::new(config));
        let rows = Arc::new(ManifestRows::new(config.clone()));
        let (world, options) = (self.world.clone(), self.options.clone());
        let fragments = self.fragments.clone();
        let tables =
            Tables::assemble(world, options, resources, config, rows, fragments, &configs)?;
        Ok(Tables { keeps_pending: true, ..tables })
    }

    fn assemble(
        world: World,
        options: Options,
        resources: Resources,
        config: Arc<ConfigEditor>,
        rows: Arc<dyn TabletRows>,
        fragments: Arc<FragmentDir>,
        configs: &Configs,
    ) -> Result<Tables> {
        // Whatever was read before this opening may have changed since.
        let loaded_at = Txn::base(configs.generation);
        let active = configs.tables.values().filter(|table| table.is_active());
        let load = |config: &Arc<TableConfig>| {
            load_table(config, loaded_at, &world, &fragments, &resources)
        };
        let tables: Vec<Table> = active.map(load).collect::<Result<_>>()?;
        Ok(Tables {
            folds: Arc::new(options.folds.clone()),
            snapshots: Snapshots::new(world.clock.clone(), options.snapshot_age_max.0),
            settler: Settler::new(rows, config.clone(), configs.incarnation),
            config,
            map: TableMap::new(tables),
            world,
            options,
            resources,
            fragments,
            keeps_pending: false,
            keeping: Mutex::new(()),
        })
    }

    /// Records that the config names new files.
    pub fn outcome_known<'f>(&self, files: impl Iterator<Item = &'f Reference>) {
        if !self.keeps_pending {
            self.fragments.outcome_known(files);
        }
    }

    /// Shows a table of which no tablet is served yet.
    pub fn adopt(&self, config: &TableConfig) -> Result<()> {
        let table = load_table(config, Txn::ZERO, &self.world, &self.fragments, &self.resources)?;
        self.map.insert(&Arc::new(table));
        Ok(())
    }

    /// Creates a table whose tablets meet at `splits`, durably.
    pub fn create(
        &self,
        name: &str,
        schema: Arc<Schema>,
        splits: Vec<Vec<u8>>,
    ) -> Result<Arc<Table>> {
        let edit = ConfigEdit::CreateTable { name: name.to_string(), schema, splits };
        let configs = self.config.edit(&[edit])?;
        let config = configs.table_named(name).expect("the table was just created");
        let table = load_table(config, Txn::ZERO, &self.world, &self.fragments, &self.resources)?;
        let table = Arc::new(table);
        self.map.insert(&table);
        Ok(table)
    }

    /// Drops a table, durably; its files are removed after their last readers. The
    /// caller has a turn for the whole table.
    pub fn remove(&self, table: &Table) -> Result<()> {
        self.config.edit(&[ConfigEdit::DropTable { table: table.id }])?;
        self.close_table(table);
        Ok(())
    }

    /// Forgets a table that the config no longer has in use. The caller has a turn for
    /// the whole table.
    pub fn close_table(&self, table: &Table) {
        self.settler.forget(table.id);
        self.map.remove(table.id);
        table.mark_dropped();
    }
}

pub(super) fn load_table(
    config: &TableConfig,
    loaded_at: Txn,
    world: &World,
    fragments: &FragmentDir,
    resources: &Resources,
) -> Result<Table> {
    let mut link = |file: &Reference, rows: RowRange| Ok(fragments.link(file, rows));
    let since = world.clock.elapsed();
    let mut tablets = Vec::with_capacity(config.tablets.len());
    for tablet in config.tablets.iter() {
        tablets.push(Arc::new(Tablet::new(tablet, loaded_at, since, &mut link)?));
    }
    let memory = config.flushed.iter().map(|&txn| GroupMemory::new(&resources.budget, txn));
    let tablets = TabletMap::new(tablets);
    let version = TableVersion {
        number: 0,
        schema: config.schema.clone(),
        memory: memory.collect(),
        all_active: tablets.summary().active,
        tablets: Arc::new(tablets),
    };
    Ok(Table::new(config.id, config.name.clone(), version))
}
