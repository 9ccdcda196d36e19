//! Runs each generated filter in every way and compares the cells that it passes.

use std::cell::Cell as Counter;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use stele_bigtable::filter::Filter;
use stele_bigtable::proto::v2;

use super::cells::{self, in_order};
use super::generate::{self, Case, Draw};
use super::naive;
use super::ways::{self, Ways};

const CASES: u32 = 500;
const CASES_LONG_FACTOR: u32 = 20;

#[test]
fn filters_let_through_what_the_rules_say() {
    let factor = if std::env::var_os("STELE_LONG").is_some() { CASES_LONG_FACTOR } else { 1 };
    let config = Config {
        cases: CASES * factor,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let tally = Tally::default();
    let outcome = TestRunner::new(config).run(&generate::case(), |case| check(&case, &tally));
    if let Err(TestError::Fail(reason, case)) = outcome {
        panic!("{reason}\n{case:?}");
    }
    println!("{tally:?}");
    tally.check();
}

fn check(case: &Case, tally: &Tally) -> Result<(), TestCaseError> {
    let ways = Ways::new(case);
    for filter in &case.filters {
        check_filter(case, &ways, filter, tally)?;
    }
    Ok(())
}

fn check_filter(
    case: &Case,
    ways: &Ways<'_>,
    filter: &v2::RowFilter,
    tally: &Tally,
) -> Result<(), TestCaseError> {
    let compiled = Filter::compile(Some(filter)).expect("only valid filters are generated");
    let decoded = Filter::decode(&prost::Message::encode_to_vec(filter)).expect("the same filter");
    let expected = naive::read(&case.table, filter, case.draw);
    let same = |way: &str, found: Vec<cells::Seen>, expected: &[cells::Seen]| {
        prop_assert_eq!(in_order(found), expected, "{}: {:?}", way, filter);
        Ok(())
    };
    same("cell by cell", ways.plain(&compiled), &expected)?;
    same("from its bytes", ways.plain(&decoded), &expected)?;
    same("skipping what is known to be dropped", ways.skipping(&compiled), &expected)?;

    let selected: Vec<_> =
        expected.iter().filter(|seen| case.selects(&seen.row)).cloned().collect();
    let scan = ways.scan(&compiled, false);
    tally.narrowed(&scan, !expected.is_empty());
    same("by a narrowed scan", scan.seen, &selected)?;
    let backwards: Vec<_> =
        selected.chunk_by(|a, b| a.row == b.row).rev().flat_map(<[cells::Seen]>::to_vec).collect();
    same("by a narrowed scan backwards", ways.scan(&compiled, true).seen, &backwards)?;
    same("row by row", ways.row_by_row(&compiled), &expected)
}

/// Coverage counters, so that the test cannot pass for lack of cases.
#[derive(Debug, Default)]
struct Tally {
    filters: Counter<u32>,
    with_output: Counter<u32>,
    done_by_scan: Counter<u32>,
    not_scanned: Counter<u32>,
    rows: Counter<u32>,
    columns: Counter<u32>,
    times: Counter<u32>,
    versions: Counter<u32>,
}

impl Tally {
    fn narrowed(&self, scan: &ways::Scanned, output: bool) {
        let count = |counter: &Counter<u32>, counts: bool| {
            counter.set(counter.get() + u32::from(counts));
        };
        count(&self.filters, true);
        count(&self.with_output, output);
        count(&self.done_by_scan, scan.passes_all && scan.narrowed);
        count(&self.not_scanned, scan.blocks_all);
        count(&self.rows, scan.rows);
        count(&self.columns, scan.columns);
        count(&self.times, scan.times);
        count(&self.versions, scan.versions);
    }

    fn check(&self) {
        let share = self.filters.get() / 50;
        for (name, counter) in [
            ("output", &self.with_output),
            ("all done by the scan", &self.done_by_scan),
            ("no scan", &self.not_scanned),
            ("narrowed rows", &self.rows),
            ("narrowed columns", &self.columns),
            ("narrowed times", &self.times),
            ("narrowed versions", &self.versions),
        ] {
            assert!(counter.get() > share, "too few filters with {name}: {self:?}");
        }
    }
}

/// The fixed draw of a case as the engine's source of random numbers.
pub struct Fixed(pub Draw);

impl stele_engine::world::Random for Fixed {
    fn next_u64(&self) -> u64 {
        self.0.percent * (u64::MAX / 100)
    }
}
