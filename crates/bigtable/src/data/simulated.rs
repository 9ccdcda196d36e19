//! A data service over a simulated disk, for the tests of this folder.

use std::path::Path;
use std::sync::Arc;

use stele_engine::Options;
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, SeededRandom, World};

use super::Data;
use crate::table::{Definition, Family, Table, Tables};

pub const TABLE: &str = "projects/p/instances/i/tables/t";

/// Returns the service and its only table, which has the family `f`.
pub fn data() -> (Data, Arc<Table>) {
    let (clock, random) = (Arc::new(ManualClock::at(1)), Arc::new(SeededRandom::new(1)));
    let world = World {
        clock: clock.clone(),
        files: Arc::new(SimFiles::new(1)),
        random: random.clone(),
        spawner: None,
    };
    let tables = stele_tables::Tables::open(Path::new("/store"), Options::default(), world);
    let tables = Arc::new(Tables::open(tables.unwrap()).unwrap());
    let families = [("f".to_string(), Family::default())].into();
    let table = tables.create(TABLE, Definition { families, ..Default::default() }).unwrap();
    (Data::new(tables, clock, random).unwrap(), table)
}
