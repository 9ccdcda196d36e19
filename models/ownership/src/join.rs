//! R10.5: a join of two rows of one dead owner, racing with the recovery of either row and the writes of a later owner.
//! The dead owner ("old") goes on sending its mutations for as long as they are applied: a mutation that is delayed
//! is one that it sends late. Its log is sealed and holds one acked write for each half.
//!
//! Mutations: 0 lower row `joining` = the upper row's load; 1 upper row covers both, `join`; 2 lower row `gone`;
//! 3 upper row without `join`. Every mutation is conditional on owner and load, so the old owner's ends with a claim.

use stateright::{Model, Property};

use crate::properties::{RECOVERABLE, TILED};
use crate::scenarios::{Expect, Kind, Scenario};

/// A set of writes: those of the old owner and of the new one, to each half.
type Writes = u8;
const LOWER: Writes = 1;
const UPPER: Writes = 2;
const NEW_LOWER: Writes = 4;
const NEW_UPPER: Writes = 8;

#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// R10.5: the join begins with a mutation of the lower row, and whoever claims that row looks at the upper first.
    pub mutation_0: bool,
    /// Mutation 1 expects the load that mutation 0 noted.
    pub expects_noted_load: bool,
    /// Finding neither `join` nor another load, a recoverer claims the upper row before it withdraws the join.
    pub fence_upper: bool,
    /// Between mutations 0 and 1 the old owner changes nothing else in the lower row.
    pub lower_frozen: bool,
    /// The lower row is `gone` before `join` is cleared.
    pub gone_before_clear: bool,
    /// Claims over all recoverers.
    pub claims: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Nobody,
    Old,
    Recoverer(u8),
    New,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Row {
    owner: Owner,
    load: u8,
    /// The row depends on the old owner's log.
    log: bool,
    files: Writes,
}

/// What a recoverer saw in the upper row of the join it found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Verdict {
    Finish,
    Withdraw,
    Fence { load: u8 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Idle,
    Claimed { upper: bool, load: u8 },
    Judged { load: u8, verdict: Verdict },
    Built { upper: bool, load: u8, writes: Writes },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JoinState {
    lower: Row,
    upper: Row,
    gone: bool,
    joining: Option<u8>,
    /// The upper row covers both halves.
    wide: bool,
    join: bool,
    /// What the old owner's log still holds.
    log: Writes,
    /// Mutations of the join that the old owner has seen applied; 9 after a refusal.
    old_done: u8,
    /// Loads of its rows, as the old owner knows them, and the load that it noted.
    old_lower: u8,
    old_upper: u8,
    noted: u8,
    /// The lower row's files when the old owner made mutation 1.
    made: Option<Writes>,
    recoverers: [Step; 2],
    claims: u8,
    told: Writes,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum JoinAct {
    OldNotesJoining,
    OldMakesWide,
    OldCommitsWide,
    OldMarksGone,
    OldClearsJoin,
    // The old owner flushes the lower half and drops it from its log.
    OldFlushesLower,
    // Anything else that raises the upper row's load, such as a split elsewhere.
    OldRaisesUpper,
    Claim { recoverer: u8, upper: bool },
    LookAtUpper(u8),
    Obey(u8),
    FinishLower(u8),
    ClearJoin(u8),
    Build(u8),
    Commit(u8),
    DeleteLog,
    Load { upper: bool },
    Write { upper: bool, lower_half: bool },
}

impl Model for Join {
    type State = JoinState;
    type Action = JoinAct;

    fn init_states(&self) -> Vec<JoinState> {
        let row = Row { owner: Owner::Old, load: 1, log: true, files: 0 };
        vec![JoinState {
            lower: row,
            upper: row,
            gone: false,
            joining: None,
            wide: false,
            join: false,
            log: LOWER | UPPER,
            old_done: if self.mutation_0 { 0 } else { 1 },
            old_lower: 1,
            old_upper: 1,
            noted: 1,
            made: None,
            recoverers: [Step::Idle; 2],
            claims: self.claims,
            told: LOWER | UPPER,
        }]
    }

    fn actions(&self, s: &JoinState, acts: &mut Vec<JoinAct>) {
        self.old_actions(s, acts);
        for r in 0..2 {
            self.recoverer_actions(s, r, acts);
        }
        let lower_log = s.lower.log && !s.gone;
        if s.log != 0 && !lower_log && !s.upper.log {
            acts.push(JoinAct::DeleteLog);
        }
        let free = |row: &Row| row.owner == Owner::Nobody && !row.log;
        if free(&s.lower) && !s.gone && s.joining.is_none() {
            acts.push(JoinAct::Load { upper: false });
        }
        if free(&s.upper) && !s.join {
            acts.push(JoinAct::Load { upper: true });
        }
        if s.lower.owner == Owner::New && s.told & NEW_LOWER == 0 {
            acts.push(JoinAct::Write { upper: false, lower_half: true });
        }
        if s.upper.owner == Owner::New {
            if s.told & NEW_UPPER == 0 {
                acts.push(JoinAct::Write { upper: true, lower_half: false });
            }
            if s.wide && s.told & NEW_LOWER == 0 {
                acts.push(JoinAct::Write { upper: true, lower_half: true });
            }
        }
    }

    fn next_state(&self, last: &JoinState, act: JoinAct) -> Option<JoinState> {
        let mut s = last.clone();
        let old_has_lower = s.lower.owner == Owner::Old && s.lower.load == s.old_lower && !s.gone;
        let old_has_upper = s.upper.owner == Owner::Old && s.upper.load == s.old_upper;
        match act {
            JoinAct::OldNotesJoining => {
                s.old_done = 9;
                if old_has_lower {
                    s.joining = Some(s.old_upper);
                    s.noted = s.old_upper;
                    s.lower.load += 1;
                    s.old_lower += 1;
                    s.old_done = 1;
                }
            }
            JoinAct::OldMakesWide => s.made = Some(s.lower.files & LOWER),
            JoinAct::OldCommitsWide => {
                let files = s.made.take()?;
                let expected = if self.expects_noted_load { s.noted } else { s.old_upper };
                s.old_done = 9;
                if old_has_upper && s.upper.load == expected {
                    s.wide = true;
                    s.join = true;
                    s.upper.files |= files;
                    s.upper.load += 1;
                    s.old_upper += 1;
                    s.old_done = 2;
                }
            }
            JoinAct::OldMarksGone => {
                s.old_done = 9;
                if old_has_lower {
                    s.mark_gone();
                    s.old_done = 3;
                }
            }
            JoinAct::OldClearsJoin => {
                s.old_done = 9;
                s.join &= !old_has_upper;
            }
            JoinAct::OldFlushesLower => {
                let row = if s.wide { &mut s.upper } else { &mut s.lower };
                let (owned, load) = (row.owner == Owner::Old, if s.wide { s.old_upper } else { s.old_lower });
                if !owned || row.load != load || (!s.wide && s.gone) {
                    return None;
                }
                row.files |= LOWER;
                s.log &= !LOWER;
            }
            JoinAct::OldRaisesUpper => {
                if !old_has_upper {
                    return None;
                }
                s.upper.load += 1;
                s.old_upper += 1;
            }
            JoinAct::Claim { recoverer, upper } => {
                s.claims -= 1;
                let row = if upper { &mut s.upper } else { &mut s.lower };
                row.owner = Owner::Recoverer(recoverer);
                row.load += 1;
                s.recoverers[recoverer as usize] = Step::Claimed { upper, load: row.load };
            }
            JoinAct::LookAtUpper(r) => {
                let Step::Claimed { load, .. } = s.recoverers[r as usize] else { return None };
                let verdict = match (s.join, s.joining == Some(s.upper.load)) {
                    (true, _) => Verdict::Finish,
                    (false, true) if self.fence_upper => Verdict::Fence { load: s.upper.load },
                    (false, _) => Verdict::Withdraw,
                };
                s.recoverers[r as usize] = Step::Judged { load, verdict };
            }
            JoinAct::Obey(r) => {
                let Step::Judged { load, verdict } = s.recoverers[r as usize] else { return None };
                let mine = s.holds(r, false, load);
                s.recoverers[r as usize] = if mine { Step::Claimed { upper: false, load } } else { Step::Idle };
                match verdict {
                    Verdict::Finish if mine => {
                        s.mark_gone();
                        s.recoverers[r as usize] = Step::Idle;
                    }
                    Verdict::Withdraw if mine => s.joining = None,
                    // A claim of the upper row as it was seen; refused if that has changed.
                    Verdict::Fence { load } if s.upper.load == load => {
                        s.upper.owner = Owner::Recoverer(r);
                        s.upper.load += 1;
                    }
                    _ => {}
                }
            }
            JoinAct::FinishLower(_) => s.mark_gone(),
            JoinAct::ClearJoin(r) => {
                let Step::Claimed { load, .. } = s.recoverers[r as usize] else { return None };
                s.join &= !s.holds(r, true, load);
                if !s.holds(r, true, load) {
                    s.recoverers[r as usize] = Step::Idle;
                }
            }
            JoinAct::Build(r) => {
                let Step::Claimed { upper, load } = s.recoverers[r as usize] else { return None };
                let range = match (upper, s.wide) {
                    (true, true) => LOWER | UPPER,
                    (true, false) => UPPER,
                    (false, _) => LOWER,
                };
                s.recoverers[r as usize] = Step::Built { upper, load, writes: s.log & range };
            }
            JoinAct::Commit(r) => {
                let Step::Built { upper, load, writes } = s.recoverers[r as usize] else { return None };
                s.recoverers[r as usize] = Step::Idle;
                if s.holds(r, upper, load) {
                    let row = if upper { &mut s.upper } else { &mut s.lower };
                    row.files |= writes;
                    row.owner = Owner::Nobody;
                    row.log = false;
                }
            }
            JoinAct::DeleteLog => s.log = 0,
            JoinAct::Load { upper } => {
                let row = if upper { &mut s.upper } else { &mut s.lower };
                row.owner = Owner::New;
                row.load += 1;
            }
            // The new owner's log never dies here, so its writes are as safe as files that its row names.
            JoinAct::Write { upper, lower_half } => {
                let write = if lower_half { NEW_LOWER } else { NEW_UPPER };
                let row = if upper { &mut s.upper } else { &mut s.lower };
                row.files |= write;
                s.told |= write;
            }
        }
        (s != *last).then_some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(RECOVERABLE, |_, s: &JoinState| {
                let found = |row: &Row| row.files | if row.log { s.log } else { 0 };
                let lower = if s.wide { found(&s.upper) } else { found(&s.lower) };
                let lost_lower = s.told & (LOWER | NEW_LOWER) & !lower;
                lost_lower == 0 && s.told & (UPPER | NEW_UPPER) & !found(&s.upper) == 0
            }),
            Property::always(TILED, |m: &Join, s: &JoinState| {
                let ending = s.join && s.lower.owner != Owner::New && (s.joining.is_some() || !m.mutation_0);
                if s.wide { s.gone || ending } else { !s.gone }
            }),
            Property::sometimes("recovery finishes the join", |_, s: &JoinState| {
                s.gone && !s.join && s.old_done != 3 && s.told & NEW_LOWER != 0
            }),
            Property::sometimes("recovery withdraws the join", |m: &Join, s: &JoinState| {
                !m.mutation_0 || s.lower.load > 2 && s.joining.is_none() && s.told & NEW_LOWER != 0 && !s.wide
            }),
        ]
    }
}

impl Join {
    fn old_actions(&self, s: &JoinState, acts: &mut Vec<JoinAct>) {
        match s.old_done {
            0 => acts.push(JoinAct::OldNotesJoining),
            1 if s.made.is_none() => acts.push(JoinAct::OldMakesWide),
            1 => acts.push(JoinAct::OldCommitsWide),
            2 if self.gone_before_clear => acts.push(JoinAct::OldMarksGone),
            // The broken order clears first, and may never come to the rest.
            2 | 3 => acts.push(JoinAct::OldClearsJoin),
            _ => {}
        }
        let between = s.old_done == 1 && (self.mutation_0 || s.made.is_some());
        if s.old_done != 9 && s.log & LOWER != 0 && !(self.lower_frozen && between) {
            acts.push(JoinAct::OldFlushesLower);
        }
        if s.old_done <= 1 && s.old_upper == 1 {
            acts.push(JoinAct::OldRaisesUpper);
        }
    }

    fn recoverer_actions(&self, s: &JoinState, r: u8, acts: &mut Vec<JoinAct>) {
        match s.recoverers[r as usize] {
            Step::Idle => {
                let open = |row: &Row| row.log && row.owner != Owner::New && s.claims > 0;
                if open(&s.lower) && !s.gone {
                    acts.push(JoinAct::Claim { recoverer: r, upper: false });
                }
                if open(&s.upper) {
                    acts.push(JoinAct::Claim { recoverer: r, upper: true });
                }
            }
            Step::Claimed { upper: false, .. } if s.joining.is_some() && !s.gone => acts.push(JoinAct::LookAtUpper(r)),
            Step::Claimed { upper: true, load } if s.join && s.holds(r, true, load) => {
                if !s.gone {
                    acts.push(JoinAct::FinishLower(r));
                }
                if s.gone || !self.gone_before_clear {
                    acts.push(JoinAct::ClearJoin(r));
                }
            }
            Step::Claimed { .. } => acts.push(JoinAct::Build(r)),
            Step::Judged { .. } => acts.push(JoinAct::Obey(r)),
            Step::Built { .. } => acts.push(JoinAct::Commit(r)),
        }
    }
}

impl JoinState {
    fn holds(&self, r: u8, upper: bool, load: u8) -> bool {
        let row = if upper { &self.upper } else { &self.lower };
        row.owner == Owner::Recoverer(r) && row.load == load && (upper || !self.gone)
    }

    /// Mutation 2, by whoever finishes the join; it ends a claim of the lower row.
    fn mark_gone(&mut self) {
        self.gone = true;
        self.joining = None;
        self.lower.owner = Owner::Nobody;
        self.lower.log = false;
        self.lower.load += 1;
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let rules = Join {
        mutation_0: true,
        expects_noted_load: true,
        fence_upper: true,
        lower_frozen: true,
        gone_before_clear: true,
        claims: 5,
    };
    let on = |name, expect, model| Scenario { name, expect, kind: Kind::Join(model) };
    vec![
        on("ok: join", Expect::Holds, rules),
        on("ok: join, eight claims", Expect::Holds, Join { claims: 8, ..rules }),
        on("written: join without mutation 0", Expect::Breaks(TILED), Join { mutation_0: false, ..rules }),
        on(
            "written: join without mutation 0, lost ack",
            Expect::Breaks(RECOVERABLE),
            Join { mutation_0: false, ..rules },
        ),
        on("broken: join withdrawn, upper not claimed", Expect::Breaks(TILED), Join { fence_upper: false, ..rules }),
        on(
            "broken: join at another load than noted",
            Expect::Breaks(TILED),
            Join { expects_noted_load: false, ..rules },
        ),
        on(
            "broken: lower row flushed while joining",
            Expect::Breaks(RECOVERABLE),
            Join { lower_frozen: false, ..rules },
        ),
        on("broken: join cleared before gone", Expect::Breaks(TILED), Join { gone_before_clear: false, ..rules }),
    ]
}
