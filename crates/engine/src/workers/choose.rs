//! Chooses what to compact: consecutive runs of one chain and the rows of them
//! worth rewriting, or runs that can be joined without a rewrite.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::cell::rows::RowRange;
use crate::options::CompactOptions;
use crate::schema::Schema;
use crate::tablet::{ChainSummary, Link, Run, Table, TableVersion, Tablet, TabletKey};

/// Runs to merge into one. Valid as long as the chain is claimed: meanwhile
/// others only append runs.
pub struct Choice {
    pub tablet: TabletKey,
    pub group: usize,
    pub runs: Range<usize>,
    /// Row range to merge. No link of the runs is partly inside.
    pub rows: RowRange,
    /// The runs are disjoint and have little to drop: a config edit alone joins
    /// them.
    pub joins: bool,
}

/// A chain that is due for compaction.
pub struct Due {
    /// Number of runs in the chain.
    pub length: usize,
    /// Approximate number of bytes to read.
    pub bytes: u64,
    pub choice: Choice,
}

/// A run is merged with newer ones unless it is more than this many times
/// larger than all of them together.
const TIER_RATIO: u64 = 2;
/// Runs are joined only if less than this percentage of their bytes is dead.
const DEAD_PERCENT_MAX: u64 = 20;
/// Runs are joined only if their average file size is at least this fraction of
/// an output's, so that small files are merged into larger ones.
const JOINED_FILE_SHARE: u64 = 64;

/// Returns the chains of a table that are due for compaction, with the runs to
/// merge.
pub fn all_due(table: &Table, options: &CompactOptions) -> Vec<Due> {
    all_due_of(&table.version(), options)
}

/// Like `all_due`, of one version of the table.
pub fn all_due_of(version: &TableVersion, options: &CompactOptions) -> Vec<Due> {
    #[cfg(test)]
    CHOICES.set(CHOICES.get() + 1);
    // Most chains are short.
    let may_be_due =
        |of: ChainSummary| of.unfinished || of.longest >= options.chain_min.min(options.chain_max);
    let tablets = version.tablets.iter_chunks(may_be_due);
    tablets.flat_map(|tablet| due_of(tablet, &version.schema, options)).collect()
}

/// Returns the chains of a tablet that are due; none if it is not loaded.
pub fn due_of(tablet: &Tablet, schema: &Schema, options: &CompactOptions) -> Vec<Due> {
    let mut all = Vec::new();
    if !tablet.state.can_read() {
        return all;
    }
    for (group, chain) in tablet.chains.iter().enumerate() {
        if let Some(due) = due_runs(&chain.runs, 0, options) {
            let length = chain.runs.len();
            let bytes = due.bytes(&chain.runs);
            let joins = !schema.ages_in(group) && can_join(&chain.runs[due.runs.clone()], options);
            let DueRuns { runs, rows } = due;
            let choice = Choice { tablet: tablet.key(), group, runs, rows, joins };
            all.push(Due { length, bytes, choice });
        }
    }
    all
}

/// Returns what is now due of the chain of an earlier choice.
pub fn due_again(table: &Table, earlier: &Choice, options: &CompactOptions) -> Option<Due> {
    let version = table.version();
    let tablet = earlier.tablet.find(&version.tablets)?;
    let due = due_of(tablet, &version.schema, options);
    due.into_iter().find(|due| due.choice.group == earlier.group)
}

#[cfg(test)]
thread_local! {
    static CHOICES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of calls of `all_due_of` on this thread.
#[cfg(test)]
pub fn choices_made() -> usize {
    CHOICES.get()
}

/// Returns what is due among the runs newer than those of `choice`.
pub fn behind(table: &Table, choice: &Choice, options: &CompactOptions) -> Option<Choice> {
    let Choice { tablet, group, .. } = choice;
    let version = table.version();
    let chain = &tablet.find(&version.tablets)?.chains[*group];
    let DueRuns { runs, rows } = due_runs(&chain.runs, choice.runs.end, options)?;
    Some(Choice { tablet: tablet.clone(), group: *group, runs, rows, joins: false })
}

/// Whether runs can be joined without a rewrite.
fn can_join(runs: &[Run], options: &CompactOptions) -> bool {
    let mut links: Vec<&Arc<Link>> = runs.iter().flat_map(Run::links).collect();
    links.sort_by(|a, b| a.rows.start.cmp(&b.rows.start));
    let disjoint = |pair: &[&Arc<Link>]| {
        pair[0].rows.end.as_ref().is_some_and(|end| *end <= pair[1].rows.start)
    };
    let (mut file_bytes, mut dead_bytes, mut bytes) = (0, 0, 0);
    for link in &links {
        let Some(facts) = link.facts() else { return false };
        file_bytes += link.file.bytes;
        dead_bytes += facts.dead_bytes;
        bytes += link.share();
    }
    runs.len() > 1
        && links.windows(2).all(disjoint)
        && dead_bytes * 100 < file_bytes.max(1) * DEAD_PERCENT_MAX
        && bytes / links.len() as u64 >= options.output_bytes / JOINED_FILE_SHARE
}

/// Chooses all runs of a chain, from the oldest up to the first unreadable one.
pub fn whole_chain(tablet: &Tablet, group: usize) -> Option<Choice> {
    let chain = tablet.chains.get(group)?;
    let units = units(&chain.runs);
    let readable = units.iter().take_while(|unit| unit.readable).last()?;
    let runs = 0..readable.runs.end;
    let rows = tablet.rows.clone();
    Some(Choice { tablet: tablet.key(), group, runs, rows, joins: false })
}

/// Runs that are merged together: a single run, or what an interrupted compaction
/// left. Its outputs are in the oldest of its runs but are as new as the newest
/// one.
struct Unit {
    runs: Range<usize>,
    bytes: u64,
    readable: bool,
}

fn units(runs: &[Run]) -> Vec<Unit> {
    let units_of = |run: &Run| run.links().iter().map(|link| link.file.unit).collect::<Vec<_>>();
    // The last run of each unit.
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        last.extend(units_of(run).into_iter().filter(|&unit| unit != 0).map(|unit| (unit, at)));
    }
    let mut units: Vec<Unit> = Vec::with_capacity(runs.len());
    let mut end = 0;
    for (at, run) in runs.iter().enumerate() {
        let readable = run.links().iter().all(|link| link.is_readable());
        match units.last_mut().filter(|_| at < end) {
            Some(unit) => {
                unit.runs.end = at + 1;
                unit.bytes += run.bytes();
                unit.readable &= readable;
            }
            None => units.push(Unit { runs: at..at + 1, bytes: run.bytes(), readable }),
        }
        if !last.is_empty() {
            let ends = units_of(run).into_iter().filter_map(|unit| last.get(&unit));
            end = ends.map(|last| last + 1).max().unwrap_or(0).max(end);
        }
    }
    units
}

struct DueRuns {
    runs: Range<usize>,
    rows: RowRange,
}

impl DueRuns {
    fn bytes(&self, chain: &[Run]) -> u64 {
        let links = chain[self.runs.clone()].iter().flat_map(|run| run.links_of(&self.rows));
        links.map(|link| link.share()).sum()
    }
}

/// Chooses which runs to merge, starting at `oldest`, and which of their rows.
fn due_runs(runs: &[Run], oldest: usize, options: &CompactOptions) -> Option<DueRuns> {
    let due = due_units(&units(&runs[oldest..]), options)?;
    let due = oldest + due.start..oldest + due.end;
    let rows = rows_to_merge(&runs[due.clone()], options);
    Some(DueRuns { runs: due, rows })
}

/// Interrupted compactions are finished first, the newest before the others,
/// unless newer runs have become due. Otherwise chooses the last tier among the
/// readable stretches of the chain.
fn due_units(units: &[Unit], options: &CompactOptions) -> Option<Range<usize>> {
    let is_interrupted = |unit: &Unit| unit.readable && unit.runs.len() > 1;
    if let Some(at) = units.iter().rposition(is_interrupted) {
        let newer = last_tier(&units[at + 1..], options);
        return newer.or_else(|| Some(units[at].runs.clone()));
    }
    last_tier(units, options)
}

fn last_tier(units: &[Unit], options: &CompactOptions) -> Option<Range<usize>> {
    let mut chosen = None;
    for stretch in units.split(|unit| !unit.readable) {
        let sizes: Vec<u64> = stretch.iter().map(|unit| unit.bytes).collect();
        if let Some(tier) = tier(&sizes, options) {
            chosen = Some(stretch[tier.start].runs.start..stretch[tier.end - 1].runs.end);
        }
    }
    chosen
}

/// Size-tiered choice over a chain, oldest run first: takes the newest runs as
/// long as each older one is not much larger than the sum so far. If there are
/// very many, takes the cheapest consecutive ones: a chain shrinks only when a
/// compaction completes, and writers may be waiting for that.
fn tier(sizes: &[u64], options: &CompactOptions) -> Option<Range<usize>> {
    if sizes.len() < options.chain_min.max(2) {
        return None;
    }
    let mut start = sizes.len() - 1;
    let mut sum = sizes[start];
    while start > 0 && sizes[start - 1] <= sum.saturating_mul(TIER_RATIO) {
        start -= 1;
        sum += sizes[start];
    }
    if sizes.len() - start >= options.chain_min.max(2) {
        let width = options.chain_max.max(options.chain_min).max(2);
        return Some(cheapest(sizes, start, width));
    }
    // No tier is full, but the length of a chain must be bounded.
    let too_long = sizes.len() > options.chain_max;
    too_long.then(|| cheapest(sizes, 0, options.chain_min.max(2)))
}

/// Returns the `width` consecutive runs, or all if there are fewer, that are
/// cheapest to merge, at or after `start`.
fn cheapest(sizes: &[u64], start: usize, width: usize) -> Range<usize> {
    let width = width.min(sizes.len() - start);
    let cost = |start: &usize| sizes[*start..*start + width].iter().sum::<u64>();
    let start =
        (start..=sizes.len() - width).min_by_key(cost).expect("there is at least one window");
    start..start + width
}

/// Returns the row range to merge: that of the newer runs, extended to whole
/// links of the oldest run. Links of the oldest run outside it are kept, except
/// for small neighbours, which are included so that they do not accumulate.
fn rows_to_merge(runs: &[Run], options: &CompactOptions) -> RowRange {
    let rows_of = |link: &Arc<Link>| Some(link.rows.clone());
    let (oldest, newer) = runs.split_first().expect("a choice has runs");
    let newer = newer.iter().flat_map(Run::links).map(rows_of);
    let Some(mut rows) = newer.reduce(RowRange::hull).flatten() else { return RowRange::all() };
    let links = oldest.links();
    let mut positions = oldest.positions_of(&rows);
    let small = |link: &Arc<Link>| link.share() < options.output_bytes / 2;
    while positions.start > 0 && small(&links[positions.start - 1]) {
        positions.start -= 1;
    }
    while positions.end < links.len() && small(&links[positions.end]) {
        positions.end += 1;
    }
    for link in &links[positions] {
        rows = RowRange::hull(Some(rows), rows_of(link)).expect("it has rows already");
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: CompactOptions = CompactOptions {
        chain_min: 4,
        chain_max: 8,
        chain_slow: 24,
        chain_stop: 36,
        output_bytes: 100,
    };

    #[test]
    fn runs_of_like_size_are_merged_once_there_are_enough() {
        assert_eq!(tier(&[10, 10, 10], &OPTIONS), None);
        assert_eq!(tier(&[10, 10, 10, 10], &OPTIONS), Some(0..4));
        assert_eq!(tier(&[1000, 10, 10, 10, 10], &OPTIONS), Some(1..5));
        assert_eq!(tier(&[70, 10, 10, 10, 10], &OPTIONS), Some(0..5));
    }

    #[test]
    fn a_chain_never_stays_longer_than_the_limit() {
        let growing: Vec<u64> = (0..9).rev().map(|power| 10u64.pow(power)).collect();
        assert_eq!(tier(&growing[..8], &OPTIONS), None);
        assert_eq!(tier(&growing, &OPTIONS), Some(5..9));
        let falling: Vec<u64> = growing.iter().rev().copied().collect();
        assert_eq!(tier(&falling, &OPTIONS), Some(0..8));
    }

    #[test]
    fn of_very_many_runs_the_cheapest_are_merged_first() {
        let mut sizes = [10; 30];
        assert_eq!(tier(&sizes, &OPTIONS), Some(0..8));
        sizes[..9].fill(11);
        assert_eq!(tier(&sizes, &OPTIONS), Some(9..17));
    }

    #[test]
    fn of_two_interrupted_merges_the_newer_is_finished_first() {
        let unit = |runs, bytes| Unit { runs, bytes, readable: true };
        let units = [unit(0..9, 1000), unit(9..12, 50), unit(12..13, 10)];
        assert_eq!(due_units(&units, &OPTIONS), Some(9..12));
    }

    #[test]
    fn a_chosen_tier_is_always_inside_the_chain_and_shortens_it() {
        let mut state = 7u64;
        for length in 0..40 {
            let sizes: Vec<u64> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    state >> 44
                })
                .collect();
            match tier(&sizes, &OPTIONS) {
                Some(range) => {
                    assert!(range.end <= length);
                    assert!((2..=OPTIONS.chain_max).contains(&range.len()));
                }
                None => assert!(length <= OPTIONS.chain_max),
            }
        }
    }
}
