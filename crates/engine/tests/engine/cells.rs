//! The semantics of cells in a table, as hand-written examples.

use std::sync::Arc;

use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::world::{Disk, ManualClock, SeededRandom, World};
use stele_engine::*;

/// A store without threads in a real directory, with a stopped clock.
struct Fixture {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    world: World,
    store: Option<Store>,
    table: TableId,
}

const NOW: i64 = 1_000_000_000;

impl Fixture {
    fn new(schema: Schema) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let world = World {
            clock: Arc::new(ManualClock::at(NOW)),
            files: Arc::new(Disk),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let path = dir.path().to_path_buf();
        let store = Store::open(&path, Options::default(), world.clone()).unwrap();
        let table = store.create_table("t", schema).unwrap();
        Fixture { _dir: dir, path, world, store: Some(store), table }
    }

    fn plain() -> Fixture {
        Fixture::new(Schema::with_families([Family::new("f"), Family::new("g")]).unwrap())
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.store.take().unwrap().close().unwrap();
        let opened = Store::open(&self.path, Options::default(), self.world.clone());
        self.store = Some(opened.unwrap());
    }

    fn commit(
        &self,
        build: impl for<'c> FnOnce(&'c mut CommitBuilder) -> &'c mut CommitBuilder,
    ) -> Txn {
        let mut builder = CommitBuilder::new();
        builder.table(self.table);
        build(&mut builder);
        self.store().apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap()
    }

    fn cells(&self, spec: ScanSpec) -> Vec<String> {
        let mut found = Vec::new();
        self.store()
            .read(self.table, spec, |cell| {
                found.push(format!(
                    "{}/{}:{}@{}={}{}",
                    cell.row.escape_ascii(),
                    cell.family.escape_ascii(),
                    cell.qualifier.escape_ascii(),
                    cell.timestamp,
                    if cell.marker { "!" } else { "" },
                    cell.value.escape_ascii(),
                ));
            })
            .unwrap();
        found
    }

    fn all(&self) -> Vec<String> {
        self.cells(ScanSpec::default())
    }

    /// Asserts the same cells in memory, on disk, compacted, and after reopening.
    fn everywhere(&mut self, expected: &[&str]) {
        assert_eq!(self.all(), expected, "in memory");
        self.store().flush(self.table).unwrap();
        assert_eq!(self.all(), expected, "on disk");
        self.reopen();
        assert_eq!(self.all(), expected, "reopened");
        self.store().compact(self.table).unwrap();
        assert_eq!(self.all(), expected, "compacted");
        self.reopen();
        assert_eq!(self.all(), expected, "reopened after compaction");
    }
}

#[test]
fn cells_come_back_in_order_and_newest_version_first() {
    let mut t = Fixture::plain();
    t.commit(|c| {
        c.row(b"").set(b"f", b"", 0, b"empty");
        c.row(b"a").set(b"g", b"q", 5, b"1").set(b"f", b"q", 5, b"old").set(b"f", b"q", 7, b"new");
        c.row(b"a\0b").set(b"f", b"\0", -3, b"")
    });
    t.everywhere(&[
        "/f:@0=empty",
        "a/f:q@7=new",
        "a/f:q@5=old",
        "a/g:q@5=1",
        "a\\x00b/f:\\x00@-3=",
    ]);
}

#[test]
fn a_delete_acts_on_what_was_committed_before_it_whatever_the_timestamps() {
    let mut t = Fixture::plain();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1_000, b"before").set(b"g", b"q", 1, b"other"));
    t.commit(|c| c.row(b"r").delete_column(b"f", b"q"));
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"after"));
    t.everywhere(&["r/f:q@1=after", "r/g:q@1=other"]);
    t.commit(|c| c.row(b"r").delete_family(b"f"));
    t.commit(|c| c.row(b"s").set(b"f", b"q", 1, b"s"));
    t.everywhere(&["r/g:q@1=other", "s/f:q@1=s"]);
    t.commit(|c| c.row(b"r").delete_row());
    t.everywhere(&["s/f:q@1=s"]);
    t.commit(|c| c.delete_range(&RowRange::all()));
    t.everywhere(&[]);
}

#[test]
fn sums_need_no_read_before_the_write() {
    let mut t = Fixture::plain();
    for add in [5i64, 30, 7] {
        t.commit(|c| c.row(b"r").merge(FoldId::SUM, b"f", b"n", 0, &add.to_be_bytes()));
        t.store().flush(t.table).unwrap();
    }
    t.everywhere(&["r/f:n@0=\\x00\\x00\\x00\\x00\\x00\\x00\\x00*"]);
}

#[test]
fn locality_groups_keep_families_apart_and_read_as_one_row() {
    let schema = Schema::new(vec![
        Group::new("hot", [Family::new("f")]),
        Group::new("cold", [Family::new("g")]),
    ]);
    let mut t = Fixture::new(schema.unwrap());
    t.commit(|c| c.row(b"a").set(b"g", b"q", 1, b"g").set(b"f", b"q", 1, b"f"));
    t.commit(|c| c.row(b"b").set(b"g", b"q", 1, b"gone"));
    t.commit(|c| c.row(b"b").delete_row());
    t.everywhere(&["a/f:q@1=f", "a/g:q@1=g"]);
    let only_g = ScanSpec {
        columns: Columns::Families(vec![FamilyColumns::all("g")]),
        ..ScanSpec::default()
    };
    assert_eq!(t.cells(only_g), ["a/g:q@1=g"]);
}

#[test]
fn a_wildcard_group_takes_any_family_that_could_have_been_named() {
    let rest = Group { wildcard: true, ..Group::new("rest", []) };
    let mut t = Fixture::new(Schema::new(vec![rest]).unwrap());
    t.commit(|c| c.row(b"r").set(b"any", b"q", 1, b"v"));
    for family in [&b""[..], b"a\0b", &[b'x'; 256]] {
        let mut set = CommitBuilder::new();
        set.table(t.table).row(b"r").set(family, b"q", 1, b"v");
        let mut delete = CommitBuilder::new();
        delete.table(t.table).row(b"r").delete_family(family);
        for commit in [set, delete] {
            let refused = t.store().apply(&commit.finish(), Txn::MAX, Durability::Durable);
            assert!(matches!(refused, Err(Error::InvalidMutation(_))), "{refused:?}");
        }
    }
    t.everywhere(&["r/any:q@1=v"]);
}

#[test]
fn markers_are_history_that_hides_what_lies_below() {
    let schema = Schema::with_families([Family::with_purge("f", Purge::Waterline(3))]);
    let mut t = Fixture::new(schema.unwrap());
    t.commit(|c| {
        c.row(b"a").set(b"f", b"", 1, b"v1").set(b"f", b"", 2, b"v2").mark(b"f", b"", 4, b"")
    });
    t.commit(|c| c.row(b"b").set(b"f", b"", 1, b"v").mark(b"f", b"", 2, b""));
    let history = ScanSpec { markers: true, ..ScanSpec::default() };
    assert_eq!(t.cells(history.clone()), ["a/f:@4=!", "a/f:@2=v2"]);
    t.everywhere(&["a/f:@2=v2"]);
    assert_eq!(t.cells(history), ["a/f:@4=!", "a/f:@2=v2"]);
    let newest = ScanSpec { versions: Some(1), ..ScanSpec::default() };
    assert_eq!(t.cells(newest), [""; 0], "the newest version of a is an erasure");
}

#[test]
fn rows_can_be_read_backwards_in_ranges_and_with_limits() {
    let mut t = Fixture::plain();
    for row in [&b"a"[..], b"b", b"c", b"d", &[0xFF, 0xFF, 0xFF, 0xFF]] {
        t.commit(|c| c.row(row).set(b"f", b"1", 1, b"").set(b"f", b"2", 1, b""));
        t.store().flush(t.table).unwrap();
    }
    let rows = |spec: ScanSpec| -> Vec<String> {
        let mut rows: Vec<String> =
            t.cells(spec).iter().map(|c| c.split('/').next().unwrap().to_string()).collect();
        rows.dedup();
        rows
    };
    let reverse = ScanSpec { reverse: true, ..ScanSpec::default() };
    assert_eq!(rows(reverse.clone()), ["\\xff\\xff\\xff\\xff", "d", "c", "b", "a"]);
    let middle = ScanSpec { rows: vec![RowRange::new("b", "d"), RowRange::row(b"a")], ..reverse };
    assert_eq!(rows(middle.clone()), ["c", "b", "a"]);
    assert_eq!(rows(ScanSpec { rows_max: Some(2), ..middle.clone() }), ["c", "b"]);
    assert_eq!(t.cells(ScanSpec { cells_max: Some(3), ..middle.clone() }).len(), 3);
    assert_eq!(rows(ScanSpec { reverse: false, rows_max: Some(1), ..middle }), ["a"]);
    t.reopen();
}

#[test]
fn a_family_that_is_dropped_and_added_again_starts_empty() {
    let mut t = Fixture::plain();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"old").set(b"g", b"q", 1, b"kept"));
    t.store().alter_table(t.table, Schema::with_families([Family::new("g")]).unwrap()).unwrap();
    t.everywhere(&["r/g:q@1=kept"]);
    let mut t = Fixture::plain();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"old").set(b"g", b"q", 1, b"kept"));
    let without = Schema::with_families([Family::new("g")]).unwrap();
    let with = t.store().schema(t.table).unwrap();
    t.store().alter_table(t.table, without).unwrap();
    t.store().alter_table(t.table, Schema::clone(&with)).unwrap();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 2, b"new"));
    t.everywhere(&["r/f:q@2=new", "r/g:q@1=kept"]);
}

#[test]
fn a_family_that_is_emptied_in_one_step_starts_empty() {
    let mut t = Fixture::plain();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"old").set(b"g", b"q", 1, b"kept"));
    t.store().flush(t.table).unwrap();
    t.commit(|c| c.row(b"s").set(b"f", b"q", 1, b"old"));
    let schema = Schema::clone(&t.store().schema(t.table).unwrap());
    t.store().alter_table_emptying(t.table, schema, &[b"f"]).unwrap();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 2, b"new"));
    t.everywhere(&["r/f:q@2=new", "r/g:q@1=kept"]);
}

#[test]
fn a_row_counts_towards_the_limit_also_when_a_batch_ends_with_it() {
    let t = Fixture::plain();
    for row in [b"a", b"b", b"c", b"d"] {
        t.commit(|c| c.row(row).set(b"f", b"1", 1, b"").set(b"f", b"2", 1, b""));
    }
    for reverse in [false, true] {
        for cells in 1..6 {
            let spec = ScanSpec { rows_max: Some(3), reverse, ..ScanSpec::default() };
            let mut scan = t.store().scan(t.table, spec).unwrap();
            let limits = BatchLimits { cells, ..BatchLimits::default() };
            let mut found = 0;
            while !scan.next_batch(limits, &mut |_| found += 1).unwrap().done {}
            assert_eq!(found, 6, "{cells} cells a batch, reverse: {reverse}");
        }
    }
}

#[test]
fn a_merged_cell_adds_up_when_its_operands_are_folded_between_two_batches() {
    let t = Fixture::plain();
    for add in [1i64, 20, 300] {
        t.commit(|c| c.row(b"r").merge(FoldId::SUM, b"f", b"n", 0, &add.to_be_bytes()));
    }
    let mut scan = t.store().scan(t.table, ScanSpec::default()).unwrap();
    let limits = BatchLimits { work: 1, ..BatchLimits::default() };
    let mut found = Vec::new();
    while !scan.next_batch(limits, &mut |cell| found.push(cell.value.to_vec())).unwrap().done {
        t.store().flush(t.table).unwrap();
    }
    assert_eq!(found, [321i64.to_be_bytes()]);
}

#[test]
fn an_overwritten_value_never_comes_back_when_newer_versions_go() {
    let schema = Schema::with_families([Family::with_purge("f", Purge::MaxVersions(1))]);
    let t = Fixture::new(schema.unwrap());
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"overwritten"));
    t.store().flush(t.table).unwrap();
    t.commit(|c| c.row(b"r").set(b"f", b"q", 1, b"second").set(b"f", b"q", 2, b"newest"));
    t.store().flush(t.table).unwrap();
    assert_eq!(t.all(), ["r/f:q@2=newest"]);
    t.commit(|c| c.row(b"r").delete_cells(b"f", b"q", TimeRange { min: 2, max: 2 }));
    let uncovered = t.all();
    assert!(uncovered.is_empty() || uncovered == ["r/f:q@1=second"], "{uncovered:?}");
}
