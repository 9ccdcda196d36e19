//! R8.5: what replay does to chains whose files have lost their transaction numbers. Columns 0 and 1 hold a value each,
//! in one tablet or two. A rooted compaction keeps values only (txn 0); a reader applies commits in the order of
//! their txns and drops a txn that it meets twice, which is the best that it can do without `flushed`.
//! Commits are durable at once and mutations atomic: fencing is checked in `model.rs`, races of a join in `join.rs`.

use stateright::{Model, Property};

use crate::properties::VALUES;
use crate::scenarios::{Expect, Kind, Scenario};

const SERVERS: usize = 2;
/// Txns per generation.
const SPAN: u8 = 8;

/// What a commit does to its column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum What {
    Set,
    Delete,
    Add,
}

/// R10.6: the joined row's `flushed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// The higher one, once neither tablet has unflushed commits at or below it.
    FlushedFirst,
    Highest,
    Lowest,
}

/// R3.2: what a load raises the server's next txn to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// A generation taken after the row was read in the state in which it is assigned.
    Fresh,
    /// The last generation that anybody took before, as by a master that does not expect the `rev` it read.
    Early,
    /// The server's epoch.
    Epoch,
}

#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// Replay skips txns at or below the row's `flushed`.
    pub skip_flushed: bool,
    /// Flushes of one table are applied in the order of their txns.
    pub flushes_in_order: bool,
    pub base: Base,
    pub joined: Joined,
    pub kinds: &'static [What],
    pub tablets: u8,
    pub commits: u8,
    pub seals: u8,
    pub compactions: u8,
    pub moves: u8,
    pub deaths: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Commit {
    column: u8,
    what: What,
    txn: u8,
    server: u8,
    slot: u8,
}

/// One entry of a file: a commit, or the value (txn 0) that a rooted compaction made of all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Cell {
    Value { column: u8, value: u16 },
    Commit { txn: u8, column: u8, what: What },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Row {
    /// A set of columns.
    columns: u8,
    owner: Option<u8>,
    log: Option<(u8, u8)>,
    chain: Vec<Vec<Cell>>,
    flushed: u8,
}

/// Memory on its way into files: the commits of these slots, for the columns whose rows have no reference yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Sealed {
    from: u8,
    to: u8,
    txn: u8,
    columns: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplayState {
    commits: Vec<Commit>,
    rows: Vec<Row>,
    alive: [bool; SERVERS],
    next_txn: [u8; SERVERS],
    floor: [u8; SERVERS],
    sealed_to: [u8; SERVERS],
    sealed: [Vec<Sealed>; SERVERS],
    generation: u8,
    seals: u8,
    compactions: u8,
    moves: u8,
    deaths: u8,
    recovered: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReplayAct {
    Commit { server: u8, column: u8, what: What },
    Seal(u8),
    // The row mutation of one tablet of a flush.
    ApplyFlush { server: u8, flush: u8, row: u8 },
    RaiseFloor(u8),
    CompactRooted(u8),
    Unload(u8),
    Load { server: u8, row: u8 },
    Die(u8),
    Recover(u8),
    Join,
}

impl Model for Replay {
    type State = ReplayState;
    type Action = ReplayAct;

    fn init_states(&self) -> Vec<ReplayState> {
        let row = |columns| Row { columns, owner: Some(0), log: Some((0, 0)), chain: vec![], flushed: 0 };
        vec![ReplayState {
            commits: vec![],
            rows: if self.tablets == 1 { vec![row(1)] } else { vec![row(1), row(2)] },
            alive: [true; SERVERS],
            next_txn: [1, SPAN + 1],
            floor: [0; SERVERS],
            sealed_to: [0; SERVERS],
            sealed: [vec![], vec![]],
            generation: if self.base == Base::Early { 2 } else { 1 },
            seals: self.seals,
            compactions: self.compactions,
            moves: self.moves,
            deaths: self.deaths,
            recovered: false,
        }]
    }

    fn actions(&self, s: &ReplayState, acts: &mut Vec<ReplayAct>) {
        for server in 0..SERVERS as u8 {
            let e = server as usize;
            if !s.alive[e] {
                continue;
            }
            if s.deaths > 0 {
                acts.push(ReplayAct::Die(server));
            }
            if s.seals > 0 && s.sealed_to[e] < s.slots(server) && (s.sealed[e].is_empty() || !self.flushes_in_order) {
                acts.push(ReplayAct::Seal(server));
            }
            let ready = if self.flushes_in_order { s.sealed[e].len().min(1) } else { s.sealed[e].len() };
            for flush in 0..ready {
                for row in 0..s.rows.len() {
                    if s.sealed[e][flush].columns & s.rows[row].columns != 0 {
                        acts.push(ReplayAct::ApplyFlush { server, flush: flush as u8, row: row as u8 });
                    }
                }
            }
            if s.safe_floor(server) > s.floor[e] {
                acts.push(ReplayAct::RaiseFloor(server));
            }
        }
        for (i, row) in s.rows.iter().enumerate() {
            let r = i as u8;
            match row.owner {
                Some(server) if s.alive[server as usize] => {
                    if s.commits.len() < self.commits as usize {
                        for column in (0..2).filter(|c| row.columns & (1 << c) != 0) {
                            let all = self.kinds.iter();
                            acts.extend(all.map(|&what| ReplayAct::Commit { server, column, what }));
                        }
                    }
                    if s.compactions > 0 && !row.chain.is_empty() {
                        acts.push(ReplayAct::CompactRooted(r));
                    }
                    if s.moves > 0 && s.unflushed(server, row.columns).next().is_none() {
                        acts.push(ReplayAct::Unload(r));
                    }
                }
                Some(_) => acts.push(ReplayAct::Recover(r)),
                None => {
                    let able = (0..SERVERS as u8).filter(|&server| s.alive[server as usize]);
                    acts.extend(able.map(|server| ReplayAct::Load { server, row: r }));
                }
            }
        }
        if let [a, b] = &s.rows[..]
            && let (Some(e), Some(f)) = (a.owner, b.owner)
            && e == f
            && s.alive[e as usize]
        {
            let highest = a.flushed.max(b.flushed);
            if self.joined != Joined::FlushedFirst || s.unflushed(e, 3).all(|c| c.txn > highest) {
                acts.push(ReplayAct::Join);
            }
        }
    }

    fn next_state(&self, last: &ReplayState, act: ReplayAct) -> Option<ReplayState> {
        let mut s = last.clone();
        match act {
            ReplayAct::Commit { server, column, what } => {
                let (slot, txn) = (s.slots(server), s.next_txn[server as usize]);
                s.commits.push(Commit { column, what, txn, server, slot });
                s.next_txn[server as usize] += 1;
            }
            ReplayAct::Seal(server) => {
                let e = server as usize;
                s.seals -= 1;
                let (from, to) = (s.sealed_to[e], s.slots(server));
                let held = s.commits.iter().filter(|c| c.server == server && c.slot >= from);
                let columns = held.fold(0, |set, c| set | 1 << c.column);
                s.sealed[e].push(Sealed { from, to, txn: s.next_txn[e] - 1, columns });
                s.sealed_to[e] = to;
            }
            ReplayAct::ApplyFlush { server, flush, row } => {
                let e = server as usize;
                let sealed = s.sealed[e][flush as usize].clone();
                let columns = sealed.columns & s.rows[row as usize].columns;
                let held = |c: &&Commit| {
                    let inside = c.slot >= sealed.from && c.slot < sealed.to;
                    c.server == server && inside && columns & (1 << c.column) != 0
                };
                let file = s.commits.iter().filter(held).map(Commit::cell).collect();
                let row = &mut s.rows[row as usize];
                row.chain.push(file);
                row.flushed = row.flushed.max(sealed.txn);
                s.sealed[e][flush as usize].columns &= !columns;
                s.sealed[e].retain(|sealed| sealed.columns != 0);
            }
            ReplayAct::RaiseFloor(server) => s.floor[server as usize] = s.safe_floor(server),
            ReplayAct::CompactRooted(row) => {
                s.compactions -= 1;
                let row = &mut s.rows[row as usize];
                let kept = |column| Some(Cell::Value { column, value: resolve(row.chain.iter().flatten(), column)? });
                row.chain = vec![(0..2).filter_map(kept).collect()];
            }
            ReplayAct::Unload(row) => {
                s.moves -= 1;
                let row = &mut s.rows[row as usize];
                row.owner = None;
                row.log = None;
            }
            ReplayAct::Load { server, row } => {
                let e = server as usize;
                s.generation += (self.base != Base::Early) as u8;
                let generation = if self.base == Base::Epoch { 0 } else { s.generation };
                s.next_txn[e] = s.next_txn[e].max(generation * SPAN + 1);
                s.rows[row as usize].log = Some((server, s.slots(server)));
                s.rows[row as usize].owner = Some(server);
            }
            ReplayAct::Die(server) => {
                s.deaths -= 1;
                s.alive[server as usize] = false;
            }
            ReplayAct::Recover(row) => {
                let replayed = self.replayed(&s, &s.rows[row as usize]);
                let row = &mut s.rows[row as usize];
                if !replayed.is_empty() {
                    row.chain.push(replayed.iter().map(Commit::cell).collect());
                }
                row.flushed = replayed.iter().map(|c| c.txn).fold(row.flushed, u8::max);
                row.owner = None;
                row.log = None;
                s.recovered = true;
            }
            ReplayAct::Join => {
                let upper = s.rows.pop()?;
                let row = s.rows.first_mut()?;
                row.columns |= upper.columns;
                row.chain.extend(upper.chain);
                let ((server, a), (_, b)) = (row.log?, upper.log?);
                row.log = Some((server, a.min(b)));
                row.flushed = match self.joined {
                    Joined::Lowest => row.flushed.min(upper.flushed),
                    _ => row.flushed.max(upper.flushed),
                };
            }
        }
        (s != *last).then_some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(VALUES, |m: &Replay, s: &ReplayState| {
                let written: Vec<Cell> = s.commits.iter().map(Commit::cell).collect();
                s.rows.iter().all(|row| {
                    let mut cells: Vec<Cell> = row.chain.concat();
                    cells.extend(m.replayed(s, row).iter().map(Commit::cell));
                    let mut columns = (0..2).filter(|c| row.columns & (1 << c) != 0);
                    columns.all(|c| resolve(cells.iter(), c) == value(&written, c))
                })
            }),
            Property::sometimes("a tablet is recovered and loaded again", |_, s: &ReplayState| {
                s.recovered && s.rows.iter().all(|row| row.owner == Some(1))
            }),
        ]
    }
}

impl Replay {
    /// R8.5: what recovery of this row takes from its log.
    fn replayed(&self, s: &ReplayState, row: &Row) -> Vec<Commit> {
        let Some((server, from)) = row.log else { return vec![] };
        let start = from.max(s.floor[server as usize]);
        let wanted = |c: &&Commit| {
            let fresh = !self.skip_flushed || c.txn > row.flushed;
            c.server == server && c.slot >= start && row.columns & (1 << c.column) != 0 && fresh
        };
        s.commits.iter().filter(wanted).copied().collect()
    }
}

impl ReplayState {
    fn slots(&self, server: u8) -> u8 {
        self.commits.iter().filter(|c| c.server == server).count() as u8
    }

    /// Commits to these columns that live only in the server's memory and log.
    fn unflushed(&self, server: u8, columns: u8) -> impl Iterator<Item = &Commit> {
        self.commits.iter().filter(move |c| {
            let e = server as usize;
            let under_way = |f: &Sealed| c.slot >= f.from && c.slot < f.to && f.columns & (1 << c.column) != 0;
            let in_memory = c.slot >= self.sealed_to[e] || self.sealed[e].iter().any(under_way);
            c.server == server && columns & (1 << c.column) != 0 && in_memory
        })
    }

    fn safe_floor(&self, server: u8) -> u8 {
        let loaded = self.rows.iter().filter(|row| row.owner == Some(server));
        let columns = loaded.fold(0, |set, row| set | row.columns);
        self.unflushed(server, columns).map(|c| c.slot).min().unwrap_or(self.slots(server))
    }
}

impl Commit {
    fn cell(&self) -> Cell {
        Cell::Commit { txn: self.txn, column: self.column, what: self.what }
    }
}

/// What a reader makes of these cells: in the order of their txns, values of compactions first, a txn once.
fn resolve<'a>(cells: impl Iterator<Item = &'a Cell>, column: u8) -> Option<u16> {
    let mut sorted: Vec<Cell> = cells.copied().collect();
    sorted.sort();
    sorted.dedup_by(|a, b| a == b && matches!(a, Cell::Commit { .. }));
    value(&sorted, column)
}

/// The column's value after all these cells, in this order.
fn value(cells: &[Cell], column: u8) -> Option<u16> {
    cells.iter().filter(|cell| cell.column() == column).fold(None, |value, cell| match *cell {
        Cell::Value { value, .. } => Some(value),
        Cell::Commit { txn, what: What::Set, .. } => Some(16 * txn as u16),
        Cell::Commit { what: What::Delete, .. } => None,
        Cell::Commit { what: What::Add, .. } => Some(value.unwrap_or(0) + 1),
    })
}

impl Cell {
    fn column(&self) -> u8 {
        match *self {
            Cell::Value { column, .. } | Cell::Commit { column, .. } => column,
        }
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let rules = Replay {
        skip_flushed: true,
        flushes_in_order: true,
        base: Base::Fresh,
        joined: Joined::FlushedFirst,
        kinds: &[What::Set, What::Delete, What::Add],
        tablets: 1,
        commits: 3,
        seals: 2,
        compactions: 2,
        moves: 2,
        deaths: 1,
    };
    let pair = Replay { tablets: 2, compactions: 1, moves: 1, ..rules };
    let moved = Replay { kinds: &[What::Set], compactions: 0, ..rules };
    let plain = &[What::Set, What::Delete];
    let on = |name, expect, model| Scenario { name, expect, kind: Kind::Replay(model) };
    let breaks = |name, model| on(name, Expect::Breaks(VALUES), model);
    vec![
        on("ok: replay skips flushed", Expect::Holds, rules),
        on("ok: replay skips flushed, two tablets joined", Expect::Holds, pair),
        on(
            "ok: replay of sets and deletes, no flushed",
            Expect::Holds,
            Replay { skip_flushed: false, kinds: plain, ..rules },
        ),
        breaks("written: replay without flushed", Replay { skip_flushed: false, ..rules }),
        breaks("written: joined, deletes, no flushed", Replay { skip_flushed: false, kinds: plain, ..pair }),
        breaks("broken: flushes out of order", Replay { flushes_in_order: false, ..rules }),
        breaks("broken: flushed, base is the epoch", Replay { base: Base::Epoch, ..moved }),
        breaks("broken: flushed, generation taken early", Replay { base: Base::Early, ..moved }),
        breaks("broken: joined with the higher flushed", Replay { joined: Joined::Highest, ..pair }),
        breaks("broken: joined with the lower flushed", Replay { joined: Joined::Lowest, ..pair }),
    ]
}
