//! Writes one cell into a store and reads it back.
//!
//!     cargo run -p stele-engine --example users -- data

use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Durability, Options, Result, ScanSpec, Store, Txn};

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "data".to_string());
    let store = Store::open(dir.as_ref(), Options::default(), World::real())?;
    let table = match store.table("users") {
        Some(table) => table,
        None => store.create_table("users", Schema::with_families([Family::new("profile")])?)?,
    };

    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"ada").set(b"profile", b"city", 1, b"London");
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable)?;

    store.read(table, ScanSpec::row(b"ada"), |cell| {
        println!("{} = {}", cell.qualifier.escape_ascii(), cell.value.escape_ascii());
    })?;
    store.close()
}
