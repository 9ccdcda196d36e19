//! What varies between runs: the protocol's rules, which a variant can break one by one, and the bounds.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkFrom {
    /// The floor published in the metastore.
    Floor,
    /// Slot zero.
    Zero,
    /// One past the highest object a listing shows.
    Listing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnExists {
    /// Read the object back and compare it with what was sent.
    ReadBack,
    /// Take it for our own earlier attempt.
    Success,
    /// Take it for a fence and stop.
    Fenced,
}

/// R4.2: what a server does about a put that failed or is in doubt while its lease lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDoubt {
    /// Sends the same bytes to the same slot again, for as long as the lease lives.
    Resend,
    /// Halts, as R4.2 and R4.6 first said.
    Halt,
    /// Gives the slot up and goes on with the next.
    Skip,
    /// Resends, but has told the client that the write failed.
    Refuse,
}

/// Each field is one rule of the protocol; `Rules::CORRECTED` has them all.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// R4.4: the lease is checked after the put's response and before the ack.
    pub lease_gates_acks: bool,
    /// R5.1: reads are served only under a lease.
    pub lease_gates_reads: bool,
    /// The recoverer creates `dead/<E>` before it reads the floor.
    pub dead_marker: bool,
    /// The recoverer acts only after the lease is gone.
    pub wait_for_lease: bool,
    /// The floor transaction requires the lease key.
    pub floor_needs_lease: bool,
    /// The floor transaction requires that `dead/<E>` is absent.
    pub floor_needs_no_dead: bool,
    /// A late floor transaction cannot lower the floor.
    pub floor_only_rises: bool,
    /// The floor is published before objects are deleted.
    pub floor_before_delete: bool,
    /// The floor passes only data named by a saved config.
    pub floor_after_config: bool,
    pub walk_from: WalkFrom,
    /// The recoverer closes the log with a SEAL; otherwise it only reads up to the first hole.
    pub seal: bool,
    /// The end of the log is fixed in the metastore before anything is built from it.
    pub publish_end: bool,
    pub acks_in_order: bool,
    /// Data may be acked because a saved config names it, although its log object is in doubt.
    pub ack_when_stable: bool,
    pub on_exists: OnExists,
    pub on_doubt: OnDoubt,
    /// R1.5 for servers: config mutations are conditional on (owner, load number).
    pub server_conditional: bool,
    /// R1.5 for recoverers.
    pub recoverer_conditional: bool,
    /// The recoverer takes the row over before it builds from it.
    pub claim_row: bool,
    /// Recovered files have unique names; otherwise one name per (log, tablet), overwritten.
    pub unique_names: bool,
    /// Only data durable in the log is flushed.
    pub flush_durable_only: bool,
    /// A config row says from which slot of the owner's log it depends on.
    pub log_start_in_row: bool,
    /// Each load raises the transaction base; otherwise the base is the epoch.
    pub base_per_load: bool,
    /// Log objects are deleted only when no row depends on the log.
    pub log_gc_after_recovery: bool,
    /// R8.7: a row that names a log recovered before it did is cleared without reading that log.
    pub late_load_cleared: bool,
    /// The file collector lists files first and reads the rows second.
    pub list_before_scan: bool,
    /// The collector leaves pending files of live servers alone.
    pub gc_respects_pending: bool,
    /// The SEAL is deleted some time after recovery.
    pub delete_seal: bool,
    /// Readers see only data durable in the log.
    pub durable_reads: bool,
}

impl Rules {
    pub const CORRECTED: Rules = Rules {
        lease_gates_acks: true,
        lease_gates_reads: true,
        dead_marker: true,
        wait_for_lease: true,
        floor_needs_lease: true,
        floor_needs_no_dead: true,
        floor_only_rises: true,
        floor_before_delete: true,
        floor_after_config: true,
        walk_from: WalkFrom::Floor,
        seal: true,
        publish_end: true,
        acks_in_order: true,
        ack_when_stable: false,
        on_exists: OnExists::ReadBack,
        on_doubt: OnDoubt::Resend,
        server_conditional: true,
        recoverer_conditional: true,
        claim_row: true,
        unique_names: true,
        flush_durable_only: true,
        log_start_in_row: true,
        base_per_load: true,
        log_gc_after_recovery: true,
        late_load_cleared: true,
        list_before_scan: true,
        gc_respects_pending: true,
        delete_seal: false,
        durable_reads: true,
    };
}

/// Sizes and budgets. A budget is how often the environment may do something in one history.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub epochs: u8,
    pub live_at_start: u8,
    pub tablets: u8,
    pub slots: u8,
    pub writes: u8,
    pub window: u8,
    pub recoverers: u8,
    /// Leases of servers that lapse. Every later step of such a server is a zombie's.
    pub expiries: u8,
    /// Leases of recoverers that lapse.
    pub recoverer_expiries: u8,
    /// Claims taken from a recoverer that still has its lease.
    pub steals: u8,
    /// Puts that time out, whether or not they happened.
    pub timeouts: u8,
    /// Puts answered with an error (full bucket, 403, 503): they did not happen, earlier attempts still may.
    pub errors: u8,
    /// Floor transactions that arrive late.
    pub late_floors: u8,
    pub flushes: u8,
    pub compactions: u8,
    pub unloads: u8,
    pub file_gc_rounds: u8,
    pub log_gc: bool,
    /// Each write covers every tablet the server holds.
    pub batches: bool,
    /// A read counts as a promise, as an ack does.
    pub reads: bool,
    /// Whether a stale read counts as a fault.
    pub fresh_reads: bool,
    /// Whether an ack that is sent late, though for a write below the seal, counts as a fault.
    pub prompt_acks: bool,
    /// Whether a server that halts although its lease lives and nobody fenced it counts as a fault.
    pub steady: bool,
    /// Load mutations that arrive some time after they were made.
    pub late_loads: u8,
    /// Assignments to a server whose lease is gone.
    pub stale_assignments: u8,
}

impl Bounds {
    pub const BASE: Bounds = Bounds {
        epochs: 2,
        live_at_start: 1,
        tablets: 1,
        slots: 3,
        writes: 3,
        window: 2,
        recoverers: 1,
        expiries: 1,
        recoverer_expiries: 0,
        steals: 0,
        timeouts: 1,
        errors: 0,
        late_floors: 0,
        flushes: 1,
        compactions: 0,
        unloads: 0,
        file_gc_rounds: 0,
        log_gc: true,
        batches: false,
        reads: false,
        fresh_reads: true,
        prompt_acks: false,
        steady: false,
        late_loads: 0,
        stale_assignments: 0,
    };
}
