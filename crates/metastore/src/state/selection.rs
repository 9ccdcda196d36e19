//! The rules of a range query: which of the keys found in a range are returned,
//! in which order, and what the summary reports. The stored state (`range`) and
//! a log entry that is being applied (`machine/overlay`) find the keys.

use super::RangeSummary;
use crate::command::{Order, RangeQuery, Target, within};
use crate::error::Result;
use crate::key::{KeyView, Kv, Tail};

/// The minimum number of keys to sort before the end.
const SORTED_KEYS_MIN: usize = 512;

/// Selects the keys that a query returns. A source passes the keys of the range
/// to [`offer`](Selection::offer) in key order (reversed, if it
/// [`is_reversed`](Selection::is_reversed)) and then calls
/// [`finish`](Selection::finish).
pub struct Selection {
    query: RangeQuery,
    /// The number of keys to fetch; `None` is all.
    rows_max: Option<usize>,
    /// The number of keys found, and of those that the filters let through.
    found: i64,
    matching: i64,
    /// Keys that are collected to be sorted, and their bytes.
    kept: Vec<Kv>,
    kept_bytes: usize,
    kept_bytes_max: usize,
}

impl Selection {
    /// Limits the bytes that a query keeps to sort them; see
    /// [`end_batch`](Selection::end_batch).
    pub fn new(query: &RangeQuery, kept_bytes_max: usize) -> Selection {
        Selection {
            query: query.clone(),
            rows_max: rows_max(query),
            found: 0,
            matching: 0,
            kept: Vec::new(),
            kept_bytes: 0,
            kept_bytes_max,
        }
    }

    pub fn query(&self) -> &RangeQuery {
        &self.query
    }

    /// Returns the number of keys found so far.
    pub fn found(&self) -> i64 {
        self.found
    }

    /// Returns whether keys are passed on as they are found, rather than
    /// collected to be sorted.
    pub fn streams(&self) -> bool {
        self.query.target == Target::Key
    }

    /// Returns whether the source must pass the keys in descending order.
    pub fn is_reversed(&self) -> bool {
        self.streams() && self.query.order == Order::Descend
    }

    /// Returns the number of keys to fetch; `None` is all. Further keys are
    /// ignored.
    pub fn rows_max(&self) -> Option<usize> {
        self.rows_max
    }

    /// Returns whether further keys would change nothing.
    pub fn is_complete(&self) -> bool {
        let fetched = self.rows_max.is_some_and(|rows| self.found as usize >= rows);
        fetched || self.streams() && self.has_more()
    }

    /// Takes the next key of the range.
    pub fn offer(&mut self, view: KeyView<'_>, sink: &mut dyn FnMut(KeyView<'_>)) {
        if self.is_complete() {
            return;
        }
        self.found += 1;
        if self.query.filters() && !passes_filters(&self.query, view) {
            return;
        }
        self.matching += 1;
        if !self.streams() {
            self.kept_bytes += view.key.len() + view.tail.len();
            self.kept.push(view.to_kv());
        } else if !self.has_more() {
            pass_on(view, self.query.keys_only, sink);
        }
    }

    /// Returns whether the limit has left out keys.
    pub fn has_more(&self) -> bool {
        self.query.limit > 0 && self.matching > self.query.limit
    }

    /// Drops keys that the limit will leave out, if there are many. Fails if the
    /// others need too much memory.
    pub fn end_batch(&mut self) -> Result<()> {
        let limit = self.limit();
        let many = self.kept.len() > 2 * limit.max(SORTED_KEYS_MIN)
            || self.kept_bytes > self.kept_bytes_max / 2;
        if limit > 0 && self.kept.len() > limit && many {
            self.sort();
            self.kept_bytes = self.kept.iter().map(Kv::bytes).sum();
        }
        within("bytes of a sorted range", self.kept_bytes, self.kept_bytes_max)
    }

    /// Returns the number of keys in the range; `None` if not all of them have
    /// been found, so that the source must count them.
    pub fn count(&self) -> Option<i64> {
        let all_found = if self.streams() {
            !self.has_more()
        } else {
            self.rows_max.is_none() || self.found <= self.query.limit
        };
        all_found.then_some(self.found)
    }

    /// Passes the collected keys on in the requested order.
    pub fn finish(&mut self, sink: &mut dyn FnMut(KeyView<'_>)) {
        self.sort();
        for kv in std::mem::take(&mut self.kept) {
            pass_on(kv.view(), self.query.keys_only, sink);
        }
    }

    /// Returns the summary, given the number of keys in the range and the newest
    /// revision.
    pub fn summary(&self, count: i64, revision: i64) -> RangeSummary {
        RangeSummary { more: self.has_more(), count, revision }
    }

    fn limit(&self) -> usize {
        usize::try_from(self.query.limit).unwrap_or(0)
    }

    /// Sorts the collected keys and truncates them to the limit.
    fn sort(&mut self) {
        let ascending = |a: &Kv, b: &Kv| match self.query.target {
            Target::Key => a.key.cmp(&b.key),
            Target::Version => a.view().version().cmp(&b.view().version()),
            Target::Create => a.view().create_revision().cmp(&b.view().create_revision()),
            Target::Mod => a.view().mod_revision().cmp(&b.view().mod_revision()),
            Target::Value => a.view().value().cmp(b.view().value()),
        };
        match self.query.order {
            Order::None | Order::Ascend => self.kept.sort_by(ascending),
            Order::Descend => self.kept.sort_by(|a, b| ascending(b, a)),
        }
        let limit = self.limit();
        if limit > 0 {
            self.kept.truncate(limit);
        }
    }
}

/// Returns the number of keys that a query needs; `None` is all. A filter, or an
/// explicit order by another field than the key, needs all keys; an implied order
/// is applied after the limit.
fn rows_max(query: &RangeQuery) -> Option<usize> {
    let limited = query.limit > 0
        && !query.filters()
        && (query.order == Order::None || query.target == Target::Key);
    let one_more = query.limit.saturating_add(1);
    limited.then(|| usize::try_from(one_more).unwrap_or(usize::MAX))
}

/// Passes a key to `sink`, without its value if the query asks for keys only.
pub fn pass_on(view: KeyView<'_>, keys_only: bool, sink: &mut dyn FnMut(KeyView<'_>)) {
    if !keys_only {
        return sink(view);
    }
    let bare = Tail { value: &[], ..view.fields() }.encode();
    sink(KeyView { key: view.key, tail: &bare });
}

/// Returns whether a key passes the filters of a query.
fn passes_filters(query: &RangeQuery, view: KeyView<'_>) -> bool {
    let fields = view.fields();
    is_between(fields.mod_revision, query.mod_min, query.mod_max)
        && is_between(fields.create_revision, query.create_min, query.create_max)
}

/// Returns whether a value is within bounds, of which 0 is none.
fn is_between(value: i64, min: i64, max: i64) -> bool {
    (min == 0 || value >= min) && (max == 0 || value <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRange;

    /// Returns the selected keys, whether there are more, and the count, if all
    /// keys were found. The keys a, b, c, d have mod revisions 5, 4, 3, 2.
    fn selected(query: &RangeQuery) -> (String, bool, Option<i64>) {
        let mut selection = Selection::new(query, usize::MAX);
        let mut keys: Vec<(&str, i64)> = vec![("a", 5), ("b", 4), ("c", 3), ("d", 2)];
        if selection.is_reversed() {
            keys.reverse();
        }
        keys.truncate(selection.rows_max().unwrap_or(usize::MAX));
        let mut out = String::new();
        let mut sink = |view: KeyView<'_>| out.push_str(std::str::from_utf8(view.key).unwrap());
        for (key, mod_revision) in keys {
            let tail = Tail { mod_revision, ..Tail::default() }.encode();
            selection.offer(KeyView { key: key.as_bytes(), tail: &tail }, &mut sink);
        }
        selection.finish(&mut sink);
        (out, selection.has_more(), selection.count())
    }

    #[test]
    fn limit_order_and_filters_select_as_in_etcd() {
        let all = || RangeQuery::new(KeyRange::all());
        assert_eq!(selected(&all()), ("abcd".into(), false, Some(4)));
        assert_eq!(selected(&RangeQuery { limit: 4, ..all() }), ("abcd".into(), false, Some(4)));
        assert_eq!(selected(&RangeQuery { limit: 2, ..all() }), ("ab".into(), true, None));
        let descending = RangeQuery { order: Order::Descend, limit: 3, ..all() };
        assert_eq!(selected(&descending), ("dcb".into(), true, None));
        let by_mod = RangeQuery { target: Target::Mod, order: Order::Ascend, limit: 3, ..all() };
        assert_eq!(selected(&by_mod), ("dcb".into(), true, Some(4)));
        // An implied order is applied after the limit: d is not even read.
        let implied = RangeQuery { target: Target::Mod, limit: 2, ..all() };
        assert_eq!(selected(&implied), ("cb".into(), true, None));
        let filtered = RangeQuery { mod_min: 3, limit: 2, ..all() };
        assert_eq!(selected(&filtered), ("ab".into(), true, None));
    }

    #[test]
    fn keys_that_the_limit_leaves_out_are_dropped_between_batches() {
        let query = RangeQuery {
            target: Target::Mod,
            order: Order::Ascend,
            limit: 1,
            ..RangeQuery::new(KeyRange::all())
        };
        let mut selection = Selection::new(&query, 100);
        for mod_revision in [7, 3, 9] {
            let tail = Tail { mod_revision, ..Tail::default() }.encode();
            let key = [mod_revision as u8; 40];
            selection.offer(KeyView { key: &key, tail: &tail }, &mut |_| {});
            selection.end_batch().unwrap();
        }
        let mut found = Vec::new();
        selection.finish(&mut |view| found.push(view.mod_revision()));
        assert_eq!(found, [3]);
        let all = RangeQuery { limit: 0, ..query };
        let mut selection = Selection::new(&all, 100);
        for _ in 0..3 {
            selection.offer(KeyView { key: &[1; 40], tail: &[] }, &mut |_| {});
        }
        assert!(selection.end_batch().is_err(), "without a limit, all keys are needed");
    }
}
