//! The compact worker: merges consecutive fragments of a chain, so that reads
//! have few places to look in and dead cells go away.

use std::ops::Range;
use std::sync::Arc;

use super::output::{Rewritten, Runs, write_fragment};
use super::serialize::give_up;
use crate::cell::span::Spans;
use crate::config::{ConfigEdit, FileConfig, Splice};
use crate::error::{Error, Result};
use crate::fragment::CursorOptions;
use crate::merge::{Merge, RewriteRules};
use crate::options::CompactOptions;
use crate::table::Table;
use crate::tables::Tables;
use crate::tablet::{Link, timestamp_max};
use crate::txn::Txn;

/// Consecutive fragments of one chain, to be merged into one.
pub struct Run {
    pub table: Arc<Table>,
    pub tablet: usize,
    pub group: usize,
    pub links: Vec<Arc<Link>>,
    /// The fragments of the chain that are older than the run.
    pub older: Vec<Arc<Link>>,
}

/// A fragment joins those newer than it unless it is this many times larger
/// than all of them together.
const TIER_RATIO: u64 = 2;

/// The run most in need of merging, over all tables: that of the longest chain.
pub fn due(tables: &Tables) -> Option<Run> {
    let mut best: Option<(usize, Run)> = None;
    for table in tables.all().values() {
        let version = table.version();
        for (tablet, chains) in version.tablets.iter().map(|tablet| &tablet.chains).enumerate() {
            for (group, chain) in chains.iter().enumerate() {
                let length = chain.links.len();
                if best.as_ref().is_some_and(|(longest, _)| *longest >= length) {
                    continue;
                }
                if let Some(range) = choose_readable(&chain.links, &tables.options.compact) {
                    let run = Run::new(table, tablet, group, &chain.links, range);
                    best = Some((length, run));
                }
            }
        }
    }
    best.map(|(_, run)| run)
}

/// All readable fragments of a chain, from the oldest on.
pub fn whole_chain(table: &Arc<Table>, tablet: usize, group: usize) -> Option<Run> {
    let version = table.version();
    let links = &version.tablets.get(tablet)?.chains.get(group)?.links;
    let readable = links.iter().take_while(|link| link.is_readable()).count();
    (readable > 0).then(|| Run::new(table, tablet, group, links, 0..readable))
}

impl Run {
    fn new(
        table: &Arc<Table>,
        tablet: usize,
        group: usize,
        links: &[Arc<Link>],
        range: Range<usize>,
    ) -> Run {
        let older = links[..range.start].to_vec();
        Run { table: table.clone(), tablet, group, links: links[range].to_vec(), older }
    }
}

/// Chooses among the longest stretch of fragments that can be read at all.
fn choose_readable(links: &[Arc<Link>], options: &CompactOptions) -> Option<Range<usize>> {
    let mut start = 0;
    let mut chosen = None;
    for stretch in links.split(|link| !link.is_readable()) {
        let sizes: Vec<u64> = stretch.iter().map(|link| link.file.bytes).collect();
        if let Some(range) = choose(&sizes, options) {
            chosen = Some(start + range.start..start + range.end);
        }
        start += stretch.len() + 1;
    }
    chosen
}

/// Size-tiered choice over a chain, oldest first: the newest fragments, taken
/// together as long as each older one is not much larger than the sum so far.
pub fn choose(sizes: &[u64], options: &CompactOptions) -> Option<Range<usize>> {
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
        return Some(start..sizes.len());
    }
    // No tier is full, but a chain must not grow without end: merge the
    // cheapest neighbours.
    if sizes.len() <= options.chain_max {
        return None;
    }
    let width = options.chain_min.clamp(2, sizes.len());
    let cost = |start: &usize| sizes[*start..*start + width].iter().sum::<u64>();
    let start = (0..=sizes.len() - width).min_by_key(cost)?;
    Some(start..start + width)
}

/// Merges a run and puts the result in its place. `proceed` is asked every so
/// often whether to go on. Tells whether the chain was changed.
pub fn compact(
    tables: &Tables,
    run: &Run,
    durable: &dyn Fn() -> Txn,
    proceed: &dyn Fn() -> bool,
) -> Result<bool> {
    let Some(_only_one) = run.table.compacting.try_lock() else { return Ok(false) };
    let rewritten = match rewrite(tables, run, durable, proceed) {
        Err(error @ Error::DataLoss { .. }) => {
            run.links.iter().for_each(|link| link.note_loss(&error));
            return Err(error);
        }
        other => other?,
    };
    let added = match rewritten {
        Rewritten::File(file) => Some(file),
        Rewritten::Nothing => None,
        Rewritten::Cancelled => return Ok(false),
    };
    let edit = ConfigEdit::Splice(Splice {
        table: run.table.id,
        tablet: run.tablet,
        group: run.group,
        remove: run.links.iter().map(|link| link.file.name).collect(),
        add: added.iter().cloned().collect(),
        flushed_through: None,
    });
    let prepared = tables.sync_names().and_then(|()| open_added(tables, added.as_ref()));
    match prepared.and_then(|link| tables.edit(&[edit]).map(|_| link)) {
        Ok(link) => swap(run, link),
        Err(error) => {
            give_up(tables, &run.table, added.iter(), error)?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn open_added(tables: &Tables, file: Option<&FileConfig>) -> Result<Option<Arc<Link>>> {
    let Some(file) = file else { return Ok(None) };
    let link = tables.open_link(file)?;
    link.fragment()?;
    Ok(Some(Arc::new(link)))
}

fn rewrite(
    tables: &Tables,
    run: &Run,
    durable: &dyn Fn() -> Txn,
    proceed: &dyn Fn() -> bool,
) -> Result<Rewritten> {
    let version = run.table.pinned_version();
    let snapshots = tables.snapshots.live(durable);
    let options = CursorOptions { fill_cache: false, ..CursorOptions::default() };
    let mut spans = Spans::default();
    let mut cursors = Vec::with_capacity(run.links.len());
    let (mut txn_min, mut txn_max) = (Txn::MAX, Txn::ZERO);
    for link in run.links.iter().rev() {
        let fragment = link.fragment()?;
        spans.merge(fragment.spans());
        txn_min = txn_min.min(link.file.txn_min);
        txn_max = txn_max.max(link.file.txn_max);
        cursors.push(fragment.cursor(&options));
    }
    let rules = RewriteRules {
        snapshots: &snapshots,
        rooted: run.older.is_empty(),
        older_timestamp_max: timestamp_max(&run.older),
        now_micros: tables.world.clock.now_micros(),
        schema: &version.schema,
        group: run.group,
        folds: &tables.folds,
        rows: &version.tablets[run.tablet].rows,
    };
    let mut runs = Runs { merge: Merge::new(cursors), spans, txns: (txn_min, txn_max) };
    write_fragment(tables, &mut runs, &rules, proceed)
}

/// Readers that hold the old version go on with the old files, which are
/// removed when the last of them lets go.
fn swap(run: &Run, link: Option<Arc<Link>>) {
    run.table.change(|version| {
        let links = &mut version.tablets[run.tablet].chains[run.group].links;
        let at = links
            .iter()
            .position(|link| Arc::ptr_eq(link, &run.links[0]))
            .expect("only one compaction at a time changes a chain");
        links.splice(at..at + run.links.len(), link);
    });
    run.links.iter().for_each(|link| link.doom());
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: CompactOptions =
        CompactOptions { chain_min: 4, chain_max: 8, chain_slow: 24, chain_stop: 36 };

    #[test]
    fn fragments_of_like_size_are_merged_once_there_are_enough() {
        assert_eq!(choose(&[10, 10, 10], &OPTIONS), None);
        assert_eq!(choose(&[10, 10, 10, 10], &OPTIONS), Some(0..4));
        assert_eq!(choose(&[1000, 10, 10, 10, 10], &OPTIONS), Some(1..5));
        assert_eq!(choose(&[70, 10, 10, 10, 10], &OPTIONS), Some(0..5));
    }

    #[test]
    fn a_chain_never_stays_longer_than_the_limit() {
        let growing: Vec<u64> = (0..9).rev().map(|power| 10u64.pow(power)).collect();
        assert_eq!(choose(&growing[..8], &OPTIONS), None);
        assert_eq!(choose(&growing, &OPTIONS), Some(5..9));
        let falling: Vec<u64> = growing.iter().rev().copied().collect();
        assert_eq!(choose(&falling, &OPTIONS), Some(0..9));
    }

    #[test]
    fn a_chosen_run_is_always_inside_the_chain_and_shortens_it() {
        let mut state = 7u64;
        for length in 0..40 {
            let sizes: Vec<u64> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    state >> 44
                })
                .collect();
            match choose(&sizes, &OPTIONS) {
                Some(range) => assert!(range.end <= length && range.len() >= 2),
                None => assert!(length <= OPTIONS.chain_max),
            }
        }
    }
}
