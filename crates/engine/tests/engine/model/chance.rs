//! Everything random in a run: rows, mutations, schemas, scans and limits, all from one
//! seed, drawn from small pools so that they often coincide.

use std::cell::Cell;

use stele_engine::fragment::Compression;
use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::world::{Random, SeededRandom};
use stele_engine::*;

use super::history::{APPEND, Changes, Column, Op, is_hidden};

pub struct Chance {
    random: SeededRandom,
    /// For family names that are never reused.
    families: Cell<u32>,
}

/// Timestamps are multiples of this, so that they coincide.
const TIME_STEP: i64 = 10;

const ROWS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"a",
    b"a\0",
    b"a\0\0b",
    b"a\0\xFF",
    b"ab",
    b"m",
    b"m1",
    b"m\xFF",
    b"\xFF",
    b"\xFF\xFF\xFF",
];
const QUALIFIERS: [&[u8]; 5] = [b"", b"q", b"q\0", b"q\0\0", b"\xFF\xFF"];

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance { random: SeededRandom::new(seed), families: Cell::new(0) }
    }

    pub fn below(&self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    pub fn percent(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Clone>(&self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// Returns a row; half of them come from a small set, so that cells have long
    /// histories.
    /// Returns up to `count` rows in ascending order.
    pub fn split_rows(&self, count: usize) -> Vec<Vec<u8>> {
        let mut rows: Vec<Vec<u8>> = (0..count).map(|_| self.row()).collect();
        rows.retain(|row| !row.is_empty());
        rows.sort();
        rows.dedup();
        rows
    }

    pub fn row(&self) -> Vec<u8> {
        let hot = if self.percent(50) { &ROWS[3..6] } else { &ROWS[..] };
        self.pick(hot).to_vec()
    }

    fn qualifier(&self) -> Vec<u8> {
        let hot = if self.percent(50) { &QUALIFIERS[2..3] } else { &QUALIFIERS[..] };
        self.pick(hot).to_vec()
    }

    /// Returns a timestamp, mostly around now, sometimes an extreme value.
    fn timestamp(&self, now: i64) -> i64 {
        match self.below(60) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => -1,
            3..30 => (now / TIME_STEP - self.below(3) as i64) * TIME_STEP,
            _ => (now / TIME_STEP + self.below(9) as i64 - 7) * TIME_STEP,
        }
    }

    pub fn times(&self, now: i64) -> TimeRange {
        match self.below(8) {
            0 => TimeRange { min: self.timestamp(now), max: i64::MAX },
            1 => TimeRange { min: i64::MIN, max: self.timestamp(now) },
            2 => TimeRange { min: self.timestamp(now), max: self.timestamp(now) },
            _ => {
                let at = self.timestamp(now);
                TimeRange { min: at, max: at.saturating_add(self.below(3) as i64 * TIME_STEP) }
            }
        }
    }

    pub fn range(&self) -> RowRange {
        match self.below(8) {
            0 => RowRange::all(),
            1 => RowRange::from(self.row()),
            2 => RowRange::prefix(&self.row()),
            3 | 4 => RowRange::row(&self.row()),
            _ => RowRange::new(self.row(), self.row()),
        }
    }

    fn value(&self) -> Vec<u8> {
        match self.below(10) {
            0 => Vec::new(),
            1..4 => (self.below(100) as i64).to_be_bytes().to_vec(),
            4 => vec![b'L'; 200 + self.below(400)],
            _ => format!("v{}", self.below(10_000)).into_bytes(),
        }
    }

    pub fn family(&self, schema: &Schema) -> Vec<u8> {
        let named = schema.groups().iter().flat_map(|group| &group.families);
        let mut names: Vec<Vec<u8>> = named.map(|family| family.name.clone()).collect();
        if schema.groups().iter().any(|group| group.wildcard) {
            names.extend([b"w1".to_vec(), b"w2".to_vec()]);
        }
        self.pick(&names)
    }

    /// Returns a mutation. `fold` is fixed per commit: two folds on one cell are
    /// refused.
    fn op(&self, schema: &Schema, fold: FoldId, now: i64) -> Op {
        let column: Column = (self.family(schema), self.qualifier());
        let at = self.timestamp(now);
        match self.below(24) {
            0..7 => Op::Set(column, at, self.value()),
            7..14 => {
                Op::Merge(column, at, fold, (self.below(50) as i64 - 10).to_be_bytes().to_vec())
            }
            14..17 => Op::Mark(column, at, self.value()),
            17..21 => Op::DeleteCells(column, self.times(now)),
            21 => Op::DeleteCells(column, TimeRange::ALL),
            22 => Op::DeleteFamily(column.0),
            _ => Op::DeleteRow,
        }
    }

    pub fn changes(&self, schema: &Schema, now: i64) -> Changes {
        // Mostly the same one, so that there are operands to fold together.
        let usual = self.percent(60);
        let fold = if usual { APPEND } else { self.pick(&[FoldId::SUM, FoldId::MIN, FoldId::MAX]) };
        let mut changes = Changes::default();
        if self.percent(4) {
            changes.ranges = (0..1 + self.below(2)).map(|_| self.range()).collect();
        }
        for _ in 0..self.below(4) {
            let ops = (0..self.below(6)).map(|_| self.op(schema, fold, now)).collect();
            changes.rows.insert(self.row(), ops);
        }
        changes
    }

    /// Returns merges into a few cells of one row.
    pub fn merges(&self, schema: &Schema, now: i64) -> Changes {
        let merge = |_| {
            let column = (self.family(schema), self.qualifier());
            let operand = (self.below(50) as i64).to_be_bytes().to_vec();
            Op::Merge(column, self.timestamp(now), APPEND, operand)
        };
        let ops = (0..1 + self.below(3)).map(merge).collect();
        Changes { ranges: Vec::new(), rows: [(self.row(), ops)].into() }
    }

    /// Returns a delete of a row, at any level, followed by writes to the same few
    /// cells.
    pub fn overwrite(&self, schema: &Schema, row: &[u8], now: i64) -> Changes {
        let mut changes = Changes::default();
        let family = self.family(schema);
        let column = (family.clone(), b"q".to_vec());
        let delete = match self.below(8) {
            0 => Some(Op::DeleteRow),
            1 => Some(Op::DeleteFamily(family)),
            2..4 => Some(Op::DeleteCells(column.clone(), TimeRange::ALL)),
            4..7 => Some(Op::DeleteCells(column.clone(), self.times(now))),
            _ => {
                changes.ranges.push(self.range());
                None
            }
        };
        let set = self.percent(70).then(|| Op::Set(column, self.timestamp(now), self.value()));
        changes.rows.insert(row.to_vec(), delete.into_iter().chain(set).collect());
        changes
    }

    fn purge(&self, now: i64, depth: usize) -> Purge {
        match self.below(if depth == 0 { 10 } else { 6 }) {
            0..2 => Purge::MaxVersions(1 + self.below(3) as u32),
            2..4 => Purge::MaxAge(self.below(80) as i64),
            4 | 5 => Purge::Waterline(self.timestamp(now)),
            6 => Purge::Never,
            kind => {
                let mut terms: Vec<Purge> =
                    (0..self.below(4)).map(|_| self.purge(now, depth + 1)).collect();
                let mut lines = 0;
                terms.retain(|term| {
                    lines += usize::from(matches!(term, Purge::Waterline(_)));
                    !matches!(term, Purge::Waterline(_)) || lines == 1
                });
                if kind == 7 { Purge::All(terms) } else { Purge::Any(terms) }
            }
        }
    }

    fn new_family(&self, now: i64, hidden: bool) -> Family {
        let number = self.families.get();
        self.families.set(number + 1);
        let first = self.pick(&["a", "f", "x"]);
        let name = format!("{}{number}", if hidden { "h" } else { first });
        let purge = self.percent(50).then(|| self.purge(now, 0));
        Family { purge, hidden, ..Family::new(name.into_bytes()) }
    }

    fn new_group(&self, name: &str, now: i64) -> Group {
        let families = (0..1 + self.below(2)).map(|_| self.new_family(now, false));
        let mut group = Group::new(name, families.collect::<Vec<_>>());
        group.purge = if self.percent(60) { Purge::Never } else { self.purge(now, 0) };
        group.compression =
            self.pick(&[Compression::None, Compression::Lz4, Compression::Lz4, Compression::Zstd]);
        group.block_bytes = Some(256);
        group
    }

    pub fn schema(&self, groups: usize, now: i64) -> Schema {
        let mut list: Vec<Group> =
            (0..groups).map(|number| self.new_group(&format!("g{number}"), now)).collect();
        if self.percent(30) {
            list.last_mut().expect("a table has groups").wildcard = true;
        }
        Schema::new(list).expect("what is made up here is valid")
    }

    /// Returns a changed schema: other policies, a new family, one family fewer, or a
    /// new group of a hidden family.
    pub fn altered(&self, schema: &Schema, now: i64) -> Schema {
        let mut groups = schema.groups().to_vec();
        let wildcard = groups.iter().position(|group| group.wildcard);
        let at = self.below(groups.len());
        match self.below(6) {
            // If the wildcard group may already contain the name, the family must stay
            // in that group.
            0 => {
                let group = &mut groups[wildcard.unwrap_or(at)];
                group.families.push(self.new_family(now, group.is_hidden()));
            }
            1 if wildcard.is_none_or(|wildcard| wildcard == at)
                && groups[at].families.len() > 1 =>
            {
                let gone = self.below(groups[at].families.len());
                groups[at].families.remove(gone);
            }
            2 => groups[at].purge = self.purge(now, 0),
            3 if groups[at].purge == Purge::Never
                && wildcard.is_none()
                && groups.len() < schema.visible_groups() + 2 =>
            {
                let name = format!("hidden{}", groups.len());
                let mut group = Group::new(name, [self.new_family(now, true)]);
                group.block_bytes = Some(256);
                groups.push(group);
            }
            3 => groups[at].purge = Purge::Never,
            _ => {
                let purge = self.percent(80).then(|| self.purge(now, 0));
                let family = self.below(groups[at].families.len());
                groups[at].families[family].purge = purge;
            }
        }
        Schema::new(groups).expect("what is made up here is valid")
    }

    /// Returns a schema whose families are in other groups: one moves, two groups become
    /// one, one becomes two, the wildcard group is another one, or a family that only the
    /// wildcard group holds is named. Every group keeps a family.
    pub fn regrouped(&self, schema: &Schema) -> Schema {
        const GROUPS_MAX: usize = 4;
        let mut groups = schema.groups().to_vec();
        let visible = schema.visible_groups();
        let (from, to) = (self.below(visible), self.below(visible));
        match self.below(6) {
            0 | 1 if from != to && groups[from].families.len() > 1 => {
                let at = self.below(groups[from].families.len());
                let family = groups[from].families.remove(at);
                groups[to].families.push(family);
            }
            2 if from != to => {
                let gone = groups[from].clone();
                groups[to].families.extend(gone.families);
                if gone.wildcard {
                    (groups[to].wildcard, groups[to].since) = (true, gone.since);
                }
                groups.remove(from);
            }
            3 if visible < GROUPS_MAX && groups[from].families.len() > 1 => {
                let moved = groups[from].families.pop().expect("it has several");
                let name = format!("g{}", self.families.replace(self.families.get() + 1));
                let mut group = Group { wildcard: false, ..groups[from].clone() };
                (group.name, group.families) = (name, vec![moved]);
                group.in_memory = self.percent(30);
                groups.insert(visible, group);
            }
            4 => {
                let name = self.pick(&[b"w1".to_vec(), b"w2".to_vec()]);
                let is_open = groups.iter().any(|group| group.wildcard);
                let listed = schema.find(&name).is_some_and(|at| at.family.is_some());
                let groups_of_name = groups[..visible].iter_mut();
                let with_name = |group: &&mut Group| group.families.iter().any(|f| f.name == name);
                let named = groups_of_name.into_iter().find(with_name);
                match named {
                    Some(group) if is_open && group.families.len() > 1 => {
                        group.families.retain(|family| family.name != name);
                    }
                    None if is_open && !listed => groups[to].families.push(Family::new(name)),
                    _ => {}
                }
            }
            5 if groups[from].wildcard && from != to => {
                groups[to].wildcard = true;
                groups[from].wildcard = false;
            }
            _ => groups.swap(from, to),
        }
        Schema::new(groups).expect("what is made up here is valid")
    }

    fn columns(&self, schema: &Schema) -> Columns {
        if self.percent(60) {
            return Columns::All;
        }
        let families = (0..1 + self.below(2)).map(|_| FamilyColumns {
            family: self.family(schema),
            qualifiers: self.percent(50).then(|| {
                let range = |_| match self.below(3) {
                    0 => RowRange::row(&self.qualifier()),
                    1 => RowRange::from(self.qualifier()),
                    _ => RowRange::new(self.qualifier(), self.qualifier()),
                };
                (0..self.below(3)).map(range).collect()
            }),
        });
        let mut families: Vec<FamilyColumns> = families.collect();
        // Hidden families are read separately.
        let hidden = is_hidden(&families[0].family);
        families.retain(|wanted| is_hidden(&wanted.family) == hidden);
        Columns::Families(families)
    }

    pub fn scan(&self, schema: &Schema, now: i64) -> ScanSpec {
        let rows = match self.below(4) {
            0 => vec![RowRange::row(&self.row())],
            1 => (0..1 + self.below(4)).map(|_| self.range()).collect(),
            _ => Vec::new(),
        };
        ScanSpec {
            rows,
            columns: self.columns(schema),
            times: self.percent(25).then(|| self.times(now)),
            versions: self.percent(30).then(|| self.below(4) as u32),
            markers: self.percent(50),
            reverse: self.percent(40),
            rows_max: self.percent(15).then(|| self.below(5)),
            cells_max: self.percent(15).then(|| self.below(12)),
            view: View::Durable,
            row_mode: if self.percent(20) { RowMode::Unchanged } else { RowMode::Isolated },
        }
    }

    pub fn limits(&self) -> BatchLimits {
        let or_all = |limit: usize| if self.percent(50) { limit } else { usize::MAX };
        BatchLimits {
            cells: or_all(self.below(6)),
            bytes: or_all(self.below(120)),
            work: or_all(self.below(20)),
            ..BatchLimits::default()
        }
    }
}
