//! A store on a simulated disk without workers: the test does their work.

use std::path::Path;
use std::sync::Arc;

use stele_engine::world::sim::SimFiles;
use stele_engine::world::{ManualClock, SeededRandom, World};
use stele_engine::{Options, Store};

pub fn world(sim: &SimFiles) -> World {
    World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    }
}

pub fn open(sim: &SimFiles, options: Options) -> Store {
    Store::open(Path::new("/store"), options, world(sim)).unwrap()
}
