//! R6.2a: when readers of a server go over from memory to the files of a flush. Two tablets share the server's
//! memory; a flush is one file and one row mutation per tablet, whose outcome is learned some time after it happened.
//! Only increments are written, so a value is the number of commits that a reader meets; each counts once.
//! Deaths are left to `model.rs` and `replay.rs`; the other server's log and flushes are taken as one with its row.

use stateright::{Model, Property};

use crate::properties::COUNTED;
use crate::scenarios::{Expect, Kind, Scenario};

const TABLETS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// Memory out and files in, for all tablets at once, when all mutations are known to be applied.
    Together,
    /// Each tablet's file in as soon as its own mutation is applied; memory out after the last.
    FilesEach,
    /// Memory out after the first applied mutation; each tablet's file in after its own.
    MemoryFirst,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    /// R6.2a: a tablet is not loaded again while memory from before its unload lives.
    Waits,
    /// It is loaded, and its readers skip memory of an earlier load.
    SkipsOlderMemory,
    /// It is loaded beside that memory.
    Beside,
}

#[derive(Clone, Copy, Debug)]
pub struct Visible {
    pub switch: Switch,
    pub reload: Reload,
    /// Compactions leave out files of a flush that is not complete.
    pub compact_complete_only: bool,
    pub commits: u8,
    pub flushes: u8,
    pub compactions: u8,
    pub moves: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    /// Nothing of this tablet in the flush.
    None,
    Sent,
    /// Applied; the server does not know yet.
    Applied,
    Known,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Nobody,
    Server,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Tablet {
    owner: Owner,
    /// Commits in the files that the row names.
    row: u8,
    /// Commits in the files that the server's readers use.
    chain: u8,
    /// Commits in the server's open memory, and in the memory that is being flushed.
    open: u8,
    sealed: u8,
    part: Part,
    /// All commits so far.
    written: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VisibleState {
    tablets: [Tablet; TABLETS],
    flushing: bool,
    /// Readers see the memory that is being flushed.
    sealed_visible: bool,
    commits: u8,
    flushes: u8,
    compactions: u8,
    moves: u8,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum VisibleAct {
    Commit(u8),
    Flush,
    Apply(u8),
    Learn(u8),
    Complete,
    Compact(u8),
    Unload(u8),
    Load { tablet: u8, here: bool },
}

impl Model for Visible {
    type State = VisibleState;
    type Action = VisibleAct;

    fn init_states(&self) -> Vec<VisibleState> {
        let owner = Owner::Server;
        let tablet = Tablet { owner, row: 0, chain: 0, open: 0, sealed: 0, part: Part::None, written: 0 };
        vec![VisibleState {
            tablets: [tablet; TABLETS],
            flushing: false,
            sealed_visible: false,
            commits: self.commits,
            flushes: self.flushes,
            compactions: self.compactions,
            moves: self.moves,
        }]
    }

    fn actions(&self, s: &VisibleState, acts: &mut Vec<VisibleAct>) {
        for (i, tablet) in s.tablets.iter().enumerate() {
            let t = i as u8;
            if s.commits > 0 && tablet.owner != Owner::Nobody {
                acts.push(VisibleAct::Commit(t));
            }
            match tablet.part {
                Part::Sent => acts.push(VisibleAct::Apply(t)),
                Part::Applied => acts.push(VisibleAct::Learn(t)),
                Part::None | Part::Known => {}
            }
            if s.compactions > 0 && tablet.owner == Owner::Server {
                acts.push(VisibleAct::Compact(t));
            }
            let settled = matches!(tablet.part, Part::None | Part::Known);
            if tablet.owner != Owner::Nobody && tablet.open == 0 && settled && s.moves > 0 {
                acts.push(VisibleAct::Unload(t));
            }
            if tablet.owner == Owner::Nobody {
                acts.push(VisibleAct::Load { tablet: t, here: false });
                if self.reload != Reload::Waits || tablet.sealed == 0 {
                    acts.push(VisibleAct::Load { tablet: t, here: true });
                }
            }
        }
        if s.flushing && s.tablets.iter().all(|t| matches!(t.part, Part::None | Part::Known)) {
            acts.push(VisibleAct::Complete);
        }
        if !s.flushing && s.flushes > 0 && s.tablets.iter().any(|t| t.open > 0) {
            acts.push(VisibleAct::Flush);
        }
    }

    fn next_state(&self, last: &VisibleState, act: VisibleAct) -> Option<VisibleState> {
        let mut s = last.clone();
        match act {
            VisibleAct::Commit(t) => {
                s.commits -= 1;
                let tablet = &mut s.tablets[t as usize];
                tablet.written += 1;
                if tablet.owner == Owner::Server { tablet.open += 1 } else { tablet.row += 1 }
            }
            VisibleAct::Flush => {
                s.flushes -= 1;
                s.flushing = true;
                s.sealed_visible = true;
                for tablet in s.tablets.iter_mut().filter(|t| t.open > 0) {
                    tablet.sealed = tablet.open;
                    tablet.open = 0;
                    tablet.part = Part::Sent;
                }
            }
            VisibleAct::Apply(t) => {
                let tablet = &mut s.tablets[t as usize];
                tablet.row += tablet.sealed;
                tablet.part = Part::Applied;
            }
            VisibleAct::Learn(t) => {
                let tablet = &mut s.tablets[t as usize];
                tablet.part = Part::Known;
                if self.switch != Switch::Together {
                    tablet.chain += tablet.sealed;
                }
                s.sealed_visible &= self.switch != Switch::MemoryFirst;
            }
            VisibleAct::Complete => {
                s.flushing = false;
                s.sealed_visible = false;
                for tablet in &mut s.tablets {
                    if self.switch == Switch::Together && tablet.owner == Owner::Server {
                        tablet.chain += tablet.sealed;
                    }
                    tablet.sealed = 0;
                    tablet.part = Part::None;
                }
            }
            VisibleAct::Compact(t) => {
                s.compactions -= 1;
                let tablet = &mut s.tablets[t as usize];
                // The output stands for the files it was made of.
                if !self.compact_complete_only && tablet.part == Part::Known {
                    tablet.chain = tablet.row;
                }
            }
            VisibleAct::Unload(t) => {
                s.moves -= 1;
                let tablet = &mut s.tablets[t as usize];
                tablet.owner = Owner::Nobody;
                tablet.chain = 0;
                if self.reload == Reload::SkipsOlderMemory {
                    tablet.sealed = 0;
                }
            }
            VisibleAct::Load { tablet, here } => {
                let tablet = &mut s.tablets[tablet as usize];
                tablet.owner = if here { Owner::Server } else { Owner::Other };
                tablet.chain = if here { tablet.row } else { 0 };
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(COUNTED, |_, s: &VisibleState| {
                s.tablets.iter().all(|t| match t.owner {
                    Owner::Nobody => true,
                    Owner::Other => t.row == t.written,
                    Owner::Server => t.chain + t.open + if s.sealed_visible { t.sealed } else { 0 } == t.written,
                })
            }),
            Property::sometimes("a tablet comes back with more", |m: &Visible, s: &VisibleState| {
                m.moves < 2
                    || s.moves + 2 <= m.moves && s.tablets.iter().any(|t| t.owner == Owner::Server && t.chain > 1)
            }),
        ]
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let rules = Visible {
        switch: Switch::Together,
        reload: Reload::Waits,
        compact_complete_only: true,
        commits: 4,
        flushes: 2,
        compactions: 1,
        moves: 3,
    };
    let on = |name, expect, model| Scenario { name, expect, kind: Kind::Visible(model) };
    let breaks = |name, model| on(name, Expect::Breaks(COUNTED), model);
    vec![
        on("ok: readers switch together", Expect::Holds, rules),
        on("ok: readers switch, longer", Expect::Holds, Visible { commits: 6, flushes: 3, moves: 4, ..rules }),
        on("ok: reload skips older memory", Expect::Holds, Visible { reload: Reload::SkipsOlderMemory, ..rules }),
        breaks("broken: files shown tablet by tablet", Visible { switch: Switch::FilesEach, ..rules }),
        breaks("broken: memory dropped after the first", Visible { switch: Switch::MemoryFirst, ..rules }),
        breaks("broken: incomplete flush compacted", Visible { compact_complete_only: false, ..rules }),
        breaks("broken: loaded beside old memory", Visible { reload: Reload::Beside, ..rules }),
    ]
}
