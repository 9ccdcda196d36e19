//! R10.4: references that move from row to row (backup, restore) while a collector reads the rows one after another.
//! Three rows at places 0, 1, 2 in the order of the scan; one exists at first and names file 0.
//! Flushes and pending names are checked in `model.rs`; here a new file appears together with its reference.

use stateright::{Model, Property};

use crate::properties::FILES_EXIST;
use crate::scenarios::{Expect, Kind, Scenario};

const ROWS: usize = 3;
/// A set of files, one bit each.
type Files = u8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// R10.4: after a collection round that began after the insert has ended.
    AfterRound,
    /// R10.4, simpler form (with `only_later`): as soon as the new row is there.
    AtOnce,
}

#[derive(Clone, Copy, Debug)]
pub struct Adopt {
    /// When the source row's `copy` cell may go.
    pub clear: Clear,
    /// R10.4: rows are copied only to places that the scan reaches later: ids rise, and it goes from low to high.
    pub only_later: bool,
    /// R9.6: a round counts, and may delete, only if at the end of its scan no later round has begun.
    pub rounds_fenced: bool,
    /// The scan counts what `copy` cells name.
    pub scan_reads_copy: bool,
    /// A row with a `copy` cell is not dropped.
    pub drop_waits: bool,
    /// A file is deleted only if the round before found it unnamed as well.
    pub mark_first: bool,
    pub collectors: u8,
    pub moves: u8,
    pub rounds: u8,
    pub compactions: u8,
    pub drops: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Copied {
    to: u8,
    files: Files,
    /// The newest round begun when the new row was known to be there.
    inserted: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Row {
    files: Files,
    /// The cell that names what is copied from here.
    copy: Files,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Collector {
    Idle,
    Scanning { round: u8, listed: Files, named: Files, place: u8 },
    Deleting { garbage: Files },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AdoptState {
    rows: [Option<Row>; ROWS],
    /// Copies under way, by source. Whoever makes one needs the source row no more once it is noted there.
    copies: [Option<Copied>; ROWS],
    /// Places that ever had a row; ids are not used again.
    used: u8,
    minted: u8,
    deleted: Files,
    /// In the metastore: rounds begun, and the newest that ended.
    begun: u8,
    ended: u8,
    /// Files the last ended round found unnamed.
    marked: Files,
    collectors: [Collector; 2],
    moves: u8,
    compactions: u8,
    drops: u8,
    cleared: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AdoptAct {
    // Mutation 1: the source row notes what is copied.
    NoteCopy { from: u8, to: u8 },
    // Mutation 2: the new row is inserted.
    InsertCopy { from: u8 },
    // Mutation 3: the note is cleared.
    ClearCopy { from: u8 },
    // The row's owner replaces all its files by a new one.
    Compact(u8),
    DropRow(u8),
    BeginRound(u8),
    ScanRow(u8),
    EndRound(u8),
    Delete { collector: u8, file: u8 },
}

impl Model for Adopt {
    type State = AdoptState;
    type Action = AdoptAct;

    fn init_states(&self) -> Vec<AdoptState> {
        let mut rows = [None; ROWS];
        let first = if self.only_later { 0 } else { ROWS - 1 };
        rows[first] = Some(Row { files: 1, copy: 0 });
        vec![AdoptState {
            rows,
            copies: [None; ROWS],
            used: 1 << first,
            minted: 1,
            deleted: 0,
            begun: 0,
            ended: 0,
            marked: 0,
            collectors: [Collector::Idle; 2],
            moves: self.moves,
            compactions: self.compactions,
            drops: self.drops,
            cleared: false,
        }]
    }

    fn actions(&self, s: &AdoptState, acts: &mut Vec<AdoptAct>) {
        for from in 0..ROWS as u8 {
            match s.copies[from as usize] {
                Some(Copied { inserted: None, .. }) => acts.push(AdoptAct::InsertCopy { from }),
                Some(Copied { inserted: Some(round), .. }) if self.clear == Clear::AtOnce || s.ended > round => {
                    acts.push(AdoptAct::ClearCopy { from })
                }
                _ => {}
            }
            let Some(row) = s.rows[from as usize] else { continue };
            if s.moves > 0 && s.copies[from as usize].is_none() {
                let start = if self.only_later { from + 1 } else { 0 };
                let free = (start..ROWS as u8).filter(|to| s.used & (1 << to) == 0);
                acts.extend(free.map(|to| AdoptAct::NoteCopy { from, to }));
            }
            if s.compactions > 0 {
                acts.push(AdoptAct::Compact(from));
            }
            if s.drops > 0 && (row.copy == 0 || !self.drop_waits) {
                acts.push(AdoptAct::DropRow(from));
            }
        }
        for c in 0..self.collectors {
            match s.collectors[c as usize] {
                Collector::Idle if s.begun < self.rounds => acts.push(AdoptAct::BeginRound(c)),
                Collector::Idle => {}
                Collector::Scanning { place, .. } if (place as usize) < ROWS => acts.push(AdoptAct::ScanRow(c)),
                Collector::Scanning { .. } => acts.push(AdoptAct::EndRound(c)),
                Collector::Deleting { garbage } => {
                    let files = (0..s.minted).filter(|f| garbage & (1 << f) != 0);
                    acts.extend(files.map(|file| AdoptAct::Delete { collector: c, file }));
                }
            }
        }
    }

    fn next_state(&self, last: &AdoptState, act: AdoptAct) -> Option<AdoptState> {
        let mut s = last.clone();
        match act {
            AdoptAct::NoteCopy { from, to } => {
                s.moves -= 1;
                s.used |= 1 << to;
                let row = s.rows[from as usize].as_mut()?;
                row.copy = row.files;
                s.copies[from as usize] = Some(Copied { to, files: row.files, inserted: None });
            }
            AdoptAct::InsertCopy { from } => {
                let Copied { to, files, inserted } = s.copies[from as usize].as_mut()?;
                *inserted = Some(s.begun);
                s.rows[*to as usize] = Some(Row { files: *files, copy: 0 });
            }
            AdoptAct::ClearCopy { from } => {
                s.copies[from as usize] = None;
                s.cleared = true;
                if let Some(row) = &mut s.rows[from as usize] {
                    row.copy = 0;
                }
            }
            AdoptAct::Compact(row) => {
                s.compactions -= 1;
                s.rows[row as usize].as_mut()?.files = 1 << s.minted;
                s.minted += 1;
            }
            AdoptAct::DropRow(row) => {
                s.drops -= 1;
                s.rows[row as usize] = None;
            }
            AdoptAct::BeginRound(c) => {
                s.begun += 1;
                let listed = ((1 << s.minted) - 1) & !s.deleted;
                s.collectors[c as usize] = Collector::Scanning { round: s.begun, listed, named: 0, place: 0 };
            }
            AdoptAct::ScanRow(c) => {
                let Collector::Scanning { named, place, .. } = &mut s.collectors[c as usize] else { return None };
                if let Some(row) = s.rows[*place as usize] {
                    *named |= row.files | if self.scan_reads_copy { row.copy } else { 0 };
                }
                *place += 1;
            }
            AdoptAct::EndRound(c) => {
                let Collector::Scanning { round, listed, named, .. } = s.collectors[c as usize] else { return None };
                s.collectors[c as usize] = Collector::Idle;
                if !self.rounds_fenced || s.begun == round {
                    s.ended = s.ended.max(round);
                    let unnamed = listed & !named;
                    let garbage = if self.mark_first { unnamed & s.marked } else { unnamed };
                    s.marked = unnamed;
                    if garbage != 0 {
                        s.collectors[c as usize] = Collector::Deleting { garbage };
                    }
                }
            }
            AdoptAct::Delete { collector, file } => {
                s.deleted |= 1 << file;
                let Collector::Deleting { garbage } = &mut s.collectors[collector as usize] else { return None };
                *garbage &= !(1 << file);
                if *garbage == 0 {
                    s.collectors[collector as usize] = Collector::Idle;
                }
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FILES_EXIST, |_, s: &AdoptState| {
                s.rows.iter().flatten().all(|row| (row.files | row.copy) & s.deleted == 0)
            }),
            Property::sometimes("a copy is cleared, then a file collected", |_, s: &AdoptState| {
                s.cleared && s.deleted != 0
            }),
        ]
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let rules = Adopt {
        clear: Clear::AfterRound,
        only_later: false,
        rounds_fenced: true,
        scan_reads_copy: true,
        drop_waits: true,
        mark_first: false,
        collectors: 1,
        moves: 2,
        rounds: 4,
        compactions: 2,
        drops: 2,
    };
    let two = Adopt { collectors: 2, rounds: 3, compactions: 1, ..rules };
    let later = Adopt { clear: Clear::AtOnce, only_later: true, rounds_fenced: false, ..two };
    let on = |name, expect, model| Scenario { name, expect, kind: Kind::Adopt(model) };
    let breaks = |name, model| on(name, Expect::Breaks(FILES_EXIST), model);
    vec![
        on("ok: copies and collection", Expect::Holds, rules),
        on("ok: copies and two collectors", Expect::Holds, two),
        on("ok: copies, files marked first", Expect::Holds, Adopt { mark_first: true, ..two }),
        on("ok: copies only to later rows", Expect::Holds, later),
        breaks("written: copy cleared at once", Adopt { clear: Clear::AtOnce, ..rules }),
        breaks(
            "written: copy cleared at once, marked first",
            Adopt { clear: Clear::AtOnce, mark_first: true, ..rules },
        ),
        breaks("written: copies, rounds not fenced", Adopt { rounds_fenced: false, ..two }),
        breaks("broken: later rows, no copy cell", Adopt { scan_reads_copy: false, ..later }),
        breaks("broken: later rows, drop while copied", Adopt { drop_waits: false, ..later }),
        breaks("broken: scan ignores copy cells", Adopt { scan_reads_copy: false, ..rules }),
        breaks("broken: drop of a row being copied", Adopt { drop_waits: false, ..rules }),
    ]
}
