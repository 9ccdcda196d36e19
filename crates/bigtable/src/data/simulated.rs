//! A data service over a simulated disk, for the tests of this folder.

use std::path::Path;
use std::sync::Arc;

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{Clock, ManualClock, SeededRandom, World};
use stele_engine::{Options, ScanSpec, TableId};

use super::Data;
use crate::proto::v2;
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

/// A machine that can be restarted.
pub struct Machine {
    pub files: SimFiles,
    pub clock: Arc<ManualClock>,
}

impl Machine {
    pub fn new() -> Machine {
        Machine { files: SimFiles::new(1), clock: Arc::new(ManualClock::at(1_000_000_000)) }
    }

    pub fn store(&self) -> stele_tables::Tables {
        let world = World {
            clock: self.clock.clone(),
            files: Arc::new(self.files.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        stele_tables::Tables::open(Path::new("/store"), Options::default(), world).unwrap()
    }

    /// Creates the table `TABLE` with the family `f`.
    pub fn create_table(&self) -> TableId {
        let families = [("f".to_string(), Family::default())].into();
        let definition = Definition { families, ..Definition::default() };
        Tables::open(self.store()).unwrap().create(TABLE, definition).unwrap().id
    }

    pub fn data(&self) -> Data {
        let tables = Arc::new(Tables::open(self.store()).unwrap());
        Data::new(tables, self.clock.clone(), Arc::new(SeededRandom::new(1))).unwrap()
    }

    /// Sets a cell with the timestamp of now, in a request with a token. Returns the
    /// number of cells of the row afterwards.
    pub async fn mutate(&self, data: &Data, row: &'static str, token: &'static str) -> usize {
        let seconds = self.clock.now_micros() / 1_000_000;
        let set = v2::mutation::SetCell {
            family_name: "f".into(),
            timestamp_micros: seconds * 1_000_000,
            ..Default::default()
        };
        let mutation = Some(v2::mutation::Mutation::SetCell(set));
        let start_time = Some(prost_types::Timestamp { seconds, nanos: 0 });
        let request = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.into(),
            mutations: vec![v2::Mutation { mutation, timestamp_origin: 0 }],
            idempotency: Some(v2::Idempotency { token: token.into(), start_time }),
            ..Default::default()
        };
        data.mutate(request).await.unwrap();
        let mut cells = 0;
        let local = data.tables.local(data.tables.get(TABLE).unwrap().id, row.as_bytes());
        let read = local.read_row(row.as_bytes(), &ScanSpec::default(), |_| cells += 1);
        data.tables.tenure().open(read).unwrap();
        cells
    }
}
