//! Schemas that are changed without a call to this server: valid ones are taken over, invalid
//! ones are ignored.

use std::sync::Arc;

use stele_bigtable::table::{Definition, Tables};
use stele_engine::Options;
use stele_engine::world::World;

const NAME: &str = "projects/p/instances/i/tables/t";

#[test]
fn tablets_1_9_3_an_invalid_schema_is_ignored_by_the_periodic_check_and_refused_by_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let served = stele_tables::Tables::open(dir.path(), Options::default(), World::real()).unwrap();
    let tables = Tables::open(served.clone()).unwrap();
    let valid = tables.create(NAME, Definition::default()).unwrap();
    assert!(tables.check_definitions().is_empty());

    // Somebody else writes a schema whose definition cannot be read.
    let schema = (*valid.schema).clone().annotated(b"not a definition");
    served.alter(valid.id, schema, &[]).unwrap();
    for _ in 0..2 {
        let invalid = tables.check_definitions();
        assert_eq!(invalid.len(), 1);
        assert_eq!(invalid[0].0, NAME);
        assert!(Arc::ptr_eq(&tables.get(NAME).unwrap(), &valid), "the last valid one stays");
    }
    assert!(tables.reload(NAME).is_err());
    assert!(Arc::ptr_eq(&tables.get(NAME).unwrap(), &valid));

    // A valid one is taken over.
    let next = Definition { deletion_protection: true, ..valid.definition.clone() };
    served.alter(valid.id, next.schema().unwrap(), &[]).unwrap();
    assert!(tables.check_definitions().is_empty());
    assert!(tables.get(NAME).unwrap().definition.deletion_protection);
}
