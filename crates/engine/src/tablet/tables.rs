//! All tables of a store: everything but its log. The store applies commits to
//! it, recovery replays commits into it, and the workers flush and compact it.

use std::path::Path;
use std::sync::Arc;

use super::chain::{Chain, Tablet};
use super::fragment_dir::FragmentDir;
use super::run::Run;
use super::table::{GroupMemory, Table, TableVersion};
use super::table_map::TableMap;
use crate::cell::fold::Folds;
use crate::config::{ConfigEdit, ConfigEditor, ConfigStore, TableConfig};
use crate::error::Result;
use crate::options::Options;
use crate::read::Snapshots;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::world::World;

pub struct Tables {
    pub world: World,
    pub options: Options,
    pub resources: Resources,
    pub folds: Arc<Folds>,
    pub snapshots: Arc<Snapshots>,
    pub config: ConfigEditor,
    pub fragments: FragmentDir,
    pub map: TableMap,
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
    ) -> Result<Tables> {
        let configs = config.read()?;
        let fragments = FragmentDir::open(dir, world.files.clone(), &resources, &configs)?;
        let load = |config| load_table(config, &fragments, &resources);
        let tables: Vec<Table> = configs.tables.values().map(load).collect();
        Ok(Tables {
            folds: Arc::new(options.folds.clone()),
            snapshots: Snapshots::new(world.clock.clone(), options.snapshot_age_max.0),
            config: ConfigEditor::new(config),
            map: TableMap::new(tables),
            world,
            options,
            resources,
            fragments,
        })
    }

    /// Creates a table, durably.
    pub fn create(&self, name: &str, schema: Arc<Schema>) -> Result<Arc<Table>> {
        let edit = ConfigEdit::CreateTable { name: name.to_string(), schema };
        let configs = self.config.edit(&[edit])?;
        let config = configs.table_named(name).expect("the table was just created");
        let table = Arc::new(load_table(config, &self.fragments, &self.resources));
        self.map.insert(&table);
        Ok(table)
    }

    /// Drops a table, durably; its files are removed after their last readers.
    pub fn remove(&self, table: &Table) -> Result<()> {
        self.config.edit(&[ConfigEdit::DropTable { table: table.id }])?;
        self.map.remove(table.id);
        table.mark_dropped();
        Ok(())
    }
}

fn load_table(config: &TableConfig, fragments: &FragmentDir, resources: &Resources) -> Table {
    let mut tablets = Vec::with_capacity(config.tablets.len());
    for tablet in &config.tablets {
        let mut chains = Vec::with_capacity(tablet.chains.len());
        for chain in &tablet.chains {
            let mut runs = Vec::new();
            for files in chain.runs() {
                runs.extend(Run::new(files.iter().map(|file| fragments.link(file)).collect()));
            }
            chains.push(Chain { flushed_through: chain.flushed_through, runs });
        }
        tablets.push(Tablet { rows: tablet.rows.clone(), chains });
    }
    let memory = config.schema.groups().iter().map(|_| GroupMemory::new(&resources.budget));
    let version = TableVersion {
        number: 0,
        schema: config.schema.clone(),
        memory: memory.collect(),
        tablets,
    };
    Table::new(config.id, config.name.clone(), version)
}
