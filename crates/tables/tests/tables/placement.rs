//! S1.5: one process serves every row.

use stele_engine::{Options, ScanSpec};
use stele_tables::Placement;

use crate::fixture::{Fixture, write};

#[test]
fn scale_1_5_in_one_process_every_row_is_here() {
    let fixture = Fixture::new(Options::default());
    let other = fixture.tables.table("other").unwrap();
    for table in [fixture.table, other] {
        for row in [&b""[..], b"a", b"\xff\xff"] {
            let Placement::Here(local) = fixture.tables.place(table, row);
            let mut cells = 0;
            let read = local.read_row(row, &ScanSpec::default(), |_| cells += 1);
            fixture.tables.tenure().open(read).unwrap();
            assert_eq!(cells, 0);
        }
    }
    write(&fixture.tables, other, "b");
    assert!(fixture.rows().is_empty(), "the other table was written");
}
