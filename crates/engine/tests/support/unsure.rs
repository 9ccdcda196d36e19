//! Stores whose changes of tablets get lost on the way, arrive late or twice, or remain
//! without an answer.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use stele_engine::config::{RowFaults, SimRows, TabletRows};
use stele_engine::world::World;
use stele_engine::{Options, Resources, Result, Store};

/// Rates at which almost every publication is affected.
pub const UNSURE: RowFaults = RowFaults { unknown: 40, late: 25, reads: 25 };

/// Opens a store. Returns also the rows that it changes.
pub fn open_unsure(
    dir: &Path,
    options: Options,
    world: World,
    seed: u64,
    rates: RowFaults,
) -> Result<(Store, Arc<SimRows>)> {
    let slot = RefCell::new(None);
    let wrap = |rows: Arc<dyn TabletRows>| -> Arc<dyn TabletRows> {
        let rows = Arc::new(SimRows::new(rows, seed, rates));
        *slot.borrow_mut() = Some(rows.clone());
        rows
    };
    let resources = Resources::new(&options);
    let store = Store::open_with_rows(dir, options, world, resources, &wrap)?;
    Ok((store, slot.into_inner().expect("the rows are wrapped when the store is opened")))
}
