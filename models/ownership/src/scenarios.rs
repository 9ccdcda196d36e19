//! The runs: the corrected protocol within several bounds, the protocol as first written, and variants with one rule
//! taken away, each with the property it must break.

use crate::adopt::{self, Adopt};
use crate::join::{self, Join};
use crate::meta::{self, Meta};
use crate::model::Ownership;
use crate::properties::*;
use crate::replay::{self, Replay};
use crate::rules::{Bounds, OnDoubt, OnExists, Rules, WalkFrom};
use crate::split::{Fence, Split};
use crate::visible::{self, Visible};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Holds,
    Breaks(&'static str),
}

#[derive(Clone, Copy)]
pub enum Kind {
    Ownership(Ownership),
    Split(Split),
    Adopt(Adopt),
    Join(Join),
    Replay(Replay),
    Visible(Visible),
    Meta(Meta),
}

pub struct Scenario {
    pub name: &'static str,
    pub expect: Expect,
    pub kind: Kind,
}

/// The corrected protocol, but acks do not look at the lease at all: the sealed log alone must keep them safe.
const SEAL_ONLY: Rules = Rules { lease_gates_acks: false, ..Rules::CORRECTED };

pub fn all() -> Vec<Scenario> {
    let mut list = corrected();
    list.extend(as_written());
    list.extend(broken());
    list.extend(splits());
    list.extend(replay::scenarios());
    list.extend(adopt::scenarios());
    list.extend(join::scenarios());
    list.extend(visible::scenarios());
    list.extend(meta::scenarios());
    list
}

/// Larger bounds; minutes and gigabytes each.
pub fn deep() -> Vec<Scenario> {
    let holds = |name, bounds| on(name, Expect::Holds, SEAL_ONLY, bounds);
    vec![
        holds("deep: two recoverers", Bounds { recoverers: 2, recoverer_expiries: 1, steals: 1, ..BASE }),
        holds("deep: three incarnations", Bounds { epochs: 3, expiries: 2, slots: 2, writes: 4, ..BASE }),
        holds("deep: two collection rounds", Bounds { file_gc_rounds: 2, ..FILES }),
        holds("deep: separate writes to two tablets", Bounds { batches: false, ..PAIR }),
    ]
}

const BASE: Bounds = Bounds::BASE;
const RIVALS: Bounds =
    Bounds { slots: 2, writes: 2, recoverers: 2, recoverer_expiries: 1, steals: 1, timeouts: 0, ..BASE };
const FILES: Bounds = Bounds { writes: 2, slots: 2, timeouts: 0, compactions: 1, file_gc_rounds: 1, ..BASE };
const RIVAL_FILES: Bounds = Bounds { file_gc_rounds: 1, ..RIVALS };
const PAIR: Bounds = Bounds { tablets: 2, batches: true, ..BASE };
const MOVES: Bounds = Bounds { live_at_start: 2, unloads: 2, flushes: 2, timeouts: 0, ..BASE };
const READS: Bounds = Bounds { reads: true, ..BASE };
const LATE: Bounds = Bounds { late_floors: 1, flushes: 2, timeouts: 0, ..BASE };
/// A tablet is unloaded and assigned again, and its load mutation takes long.
const LATE_LOADS: Bounds =
    Bounds { tablets: 2, unloads: 1, late_loads: 1, slots: 2, writes: 2, timeouts: 0, flushes: 0, ..BASE };
/// The bucket fails and recovers while leases live (R4.2).
const OUTAGE: Bounds = Bounds { errors: 2, steady: true, ..BASE };
/// Fencing a server that still has its lease is allowed to make its reads stale.
const FORCED: Bounds = Bounds { fresh_reads: false, ..BASE };

fn on(name: &'static str, expect: Expect, rules: Rules, bounds: Bounds) -> Scenario {
    Scenario { name, expect, kind: Kind::Ownership(Ownership { rules, bounds }) }
}

fn corrected() -> Vec<Scenario> {
    let holds = |name, rules, bounds| on(name, Expect::Holds, rules, bounds);
    let wide = Bounds { slots: 4, writes: 4, window: 3, timeouts: 2, flushes: 2, ..BASE };
    let chain = Bounds { epochs: 3, expiries: 2, slots: 2, writes: 3, timeouts: 0, ..BASE };
    vec![
        holds("ok: base", SEAL_ONLY, BASE),
        holds("ok: window 3, two timeouts", SEAL_ONLY, wide),
        holds("ok: two recoverers", SEAL_ONLY, RIVALS),
        holds("ok: two recoverers, file collection", SEAL_ONLY, RIVAL_FILES),
        holds("ok: compaction, file collection", SEAL_ONLY, FILES),
        holds("ok: stale master", SEAL_ONLY, Bounds { stale_assignments: 1, ..FILES }),
        holds("ok: three incarnations", SEAL_ONLY, chain),
        holds("ok: batches over two tablets", SEAL_ONLY, PAIR),
        holds("ok: planned moves", SEAL_ONLY, MOVES),
        holds("ok: late floor", SEAL_ONLY, LATE),
        holds("ok: late loads", SEAL_ONLY, LATE_LOADS),
        holds("ok: reads", Rules::CORRECTED, READS),
        holds("ok: seal deleted, lease checked", Rules { delete_seal: true, ..Rules::CORRECTED }, BASE),
        holds("ok: fenced while the lease lives", Rules { wait_for_lease: false, ..SEAL_ONLY }, FORCED),
        holds("ok: failed puts are sent again", SEAL_ONLY, OUTAGE),
        holds("ok: failed puts are sent again, reads", Rules::CORRECTED, Bounds { reads: true, errors: 1, ..OUTAGE }),
        holds("ok: failed puts, seal deleted, lease checked", Rules { delete_seal: true, ..Rules::CORRECTED }, OUTAGE),
        holds("ok: exists taken as fenced", Rules { on_exists: OnExists::Fenced, ..SEAL_ONLY }, BASE),
        holds("ok: no dead marker, lease frozen floor", Rules { dead_marker: false, ..SEAL_ONLY }, BASE),
        holds("ok: dead marker, no lease condition", Rules { floor_needs_lease: false, ..SEAL_ONLY }, BASE),
    ]
}

fn as_written() -> Vec<Scenario> {
    let breaks = |name, property, rules, bounds| on(name, Expect::Breaks(property), rules, bounds);
    let unclaimed = Rules { claim_row: false, ..SEAL_ONLY };
    let derived = Rules { unique_names: false, publish_end: false, ..unclaimed };
    let eager = Rules { flush_durable_only: false, ..SEAL_ONLY };
    vec![
        breaks("written: end not published", SAME_END, Rules { publish_end: false, ..SEAL_ONLY }, RIVALS),
        breaks("written: derived names overwritten", RECOVERABLE, derived, RIVALS),
        breaks(
            "written: derived names collected",
            FILES_EXIST,
            Rules { unique_names: false, ..SEAL_ONLY },
            RIVAL_FILES,
        ),
        breaks("written: row not claimed", FILES_EXIST, unclaimed, RIVAL_FILES),
        breaks("written: no log start in the row", ORDERED, Rules { log_start_in_row: false, ..SEAL_ONLY }, MOVES),
        breaks("written: base is the epoch", TXNS, Rules { base_per_load: false, ..SEAL_ONLY }, MOVES),
        breaks("written: flush ahead of the log", ORDERED, eager, BASE),
        breaks("written: flush ahead, batches", WHOLE, eager, PAIR),
        breaks("written: ack when stable", RECOVERABLE, Rules { ack_when_stable: true, ..eager }, BASE),
        breaks("written: latest reads", RECOVERABLE, Rules { durable_reads: false, ..Rules::CORRECTED }, READS),
        breaks("written: halt on a put in doubt", STEADY, Rules { on_doubt: OnDoubt::Halt, ..SEAL_ONLY }, OUTAGE),
        breaks(
            "written: late load, collected log",
            REPLAYABLE,
            Rules { late_load_cleared: false, ..SEAL_ONLY },
            LATE_LOADS,
        ),
        breaks("limit: late ack of a recovered write", PROMPT, Rules::CORRECTED, Bounds { prompt_acks: true, ..BASE }),
        breaks("written: late floor lowers it", RECOVERABLE, Rules { floor_only_rises: false, ..SEAL_ONLY }, LATE),
    ]
}

fn broken() -> Vec<Scenario> {
    let breaks = |name, property, rules, bounds| on(name, Expect::Breaks(property), rules, bounds);
    let thawed = Rules { dead_marker: false, floor_needs_lease: false, ..SEAL_ONLY };
    let unmarked = Rules { dead_marker: false, wait_for_lease: false, ..SEAL_ONLY };
    let forced = Rules { wait_for_lease: false, ..SEAL_ONLY };
    let blind = Rules { on_exists: OnExists::Success, ..SEAL_ONLY };
    let listing = Rules { walk_from: WalkFrom::Listing, ..SEAL_ONLY };
    let no_seal = Rules { seal: false, ..SEAL_ONLY };
    vec![
        breaks("broken: exists taken as success", SEALED, blind, BASE),
        breaks("broken: exists taken as success, overlap", ONE_OWNER, blind, BASE),
        breaks("broken: failed slot skipped", RECOVERABLE, Rules { on_doubt: OnDoubt::Skip, ..SEAL_ONLY }, OUTAGE),
        breaks(
            "broken: failed put told, then sent again",
            REFUSED,
            Rules { on_doubt: OnDoubt::Refuse, ..SEAL_ONLY },
            OUTAGE,
        ),
        breaks(
            "broken: exists taken as fenced, own put",
            STEADY,
            Rules { on_exists: OnExists::Fenced, ..SEAL_ONLY },
            OUTAGE,
        ),
        breaks("broken: acks out of order", RECOVERABLE, Rules { acks_in_order: false, ..SEAL_ONLY }, BASE),
        breaks("broken: walk from slot zero", NOT_PASSED, Rules { walk_from: WalkFrom::Zero, ..SEAL_ONLY }, BASE),
        breaks("broken: fence by listing", NOT_PASSED, listing, BASE),
        breaks("broken: fence by listing, lost ack", RECOVERABLE, listing, BASE),
        breaks("broken: no seal", RECOVERABLE, no_seal, BASE),
        breaks("broken: no seal, overlap", ONE_OWNER, no_seal, BASE),
        breaks("broken: nothing freezes the floor", NOT_PASSED, thawed, BASE),
        breaks("broken: nothing freezes the floor, lost ack", RECOVERABLE, thawed, BASE),
        breaks("broken: no dead marker, lease alive", NOT_PASSED, unmarked, FORCED),
        breaks("broken: delete before floor", NOT_PASSED, Rules { floor_before_delete: false, ..SEAL_ONLY }, BASE),
        breaks("broken: floor before config", RECOVERABLE, Rules { floor_after_config: false, ..SEAL_ONLY }, BASE),
        breaks("broken: server config unconditional", ORDERED, Rules { server_conditional: false, ..SEAL_ONLY }, BASE),
        breaks(
            "broken: recovery unconditional",
            RECOVERABLE,
            Rules { recoverer_conditional: false, ..SEAL_ONLY },
            RIVALS,
        ),
        breaks(
            "broken: log collected after seal",
            RECOVERABLE,
            Rules { log_gc_after_recovery: false, ..SEAL_ONLY },
            BASE,
        ),
        breaks("broken: seal deleted, no lease check", RECOVERABLE, Rules { delete_seal: true, ..SEAL_ONLY }, BASE),
        breaks("broken: reads without lease", FRESH, Rules { lease_gates_reads: false, ..SEAL_ONLY }, BASE),
        breaks("broken: fenced while the lease lives, reads", FRESH, forced, BASE),
        breaks(
            "broken: collector ignores pending",
            FILES_EXIST,
            Rules { gc_respects_pending: false, ..SEAL_ONLY },
            FILES,
        ),
        breaks("broken: scan before listing", FILES_EXIST, Rules { list_before_scan: false, ..SEAL_ONLY }, FILES),
    ]
}

fn splits() -> Vec<Scenario> {
    let on = |name, expect, fence, count_split_cells, join_leaves_marker| {
        let kind = Kind::Split(Split { fence, count_split_cells, join_leaves_marker });
        Scenario { name, expect, kind }
    };
    vec![
        on("ok: split, row claimed", Expect::Holds, Fence::Claim, false, true),
        on("ok: split, revision and cells counted", Expect::Holds, Fence::Revision, true, true),
        on("ok: split, owner and cells counted", Expect::Holds, Fence::Owner, true, true),
        on("written: split, owner condition only", Expect::Breaks(RECOVERABLE), Fence::Owner, false, true),
        on("written: split, no marker after join", Expect::Breaks(TILED), Fence::Claim, true, false),
    ]
}
