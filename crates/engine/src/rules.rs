//! The rules of the ownership protocol that a simulation can switch off one by one, to
//! show that it notices. Names are those of the model in `models/ownership`;
//! `docs/ownership.md` explains them. Everything but tests uses [`Rules::CORRECTED`].

/// What a server does about an object that exists already in a slot of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExists {
    /// Reads the object back and compares it with what was sent.
    ReadBack,
    /// Takes it for its own earlier attempt.
    Success,
}

/// What a server does about a put that failed or is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDoubt {
    /// Sends the same bytes to the same slot again.
    Resend,
    /// Halts.
    Halt,
    /// Gives the slot up and continues with the next.
    Skip,
}

/// Where the walk along the slots of a dead log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkFrom {
    /// At the published floor.
    Floor,
    /// At slot zero.
    Zero,
    /// After the last object that a listing shows.
    Listing,
}

/// Each field is one rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// R8.1: a log is recovered only after the lease of its server is gone.
    pub wait_for_lease: bool,
    /// R6.4: a late transaction cannot lower the floor.
    pub floor_only_rises: bool,
    /// R6.5: the floor is published before objects are deleted.
    pub floor_before_delete: bool,
    /// R8.2.
    pub walk_from: WalkFrom,
    /// R1.5 for servers: changes of rows are conditional.
    pub server_conditional: bool,
    /// R1.5 for recoverers.
    pub recoverer_conditional: bool,
    /// R3.2: each load takes a generation; otherwise txns follow the epoch.
    pub base_per_load: bool,
    /// R4.4: a slot is acknowledged after all slots before it.
    pub acks_in_order: bool,
    /// R4.3.
    pub on_exists: OnExists,
    /// R4.2.
    pub on_doubt: OnDoubt,
    /// R8.2: the log of a dead server is closed with a SEAL; otherwise it is only read up
    /// to the first free slot.
    pub seal: bool,
    /// R8.5: commits that are in files are not replayed.
    pub skip_flushed: bool,
    /// R6.3: the floor follows from changes of rows that were applied.
    pub floor_after_config: bool,
    /// R9.1: the objects of a log are deleted after no row depends on it.
    pub log_gc_after_recovery: bool,
    /// R9.3: files are listed before rows are read.
    pub list_before_scan: bool,
    /// R9.3: files are left alone whose names a live server may still give to a row.
    pub gc_respects_pending: bool,
}

impl Rules {
    /// All rules.
    pub const CORRECTED: Rules = Rules {
        wait_for_lease: true,
        floor_only_rises: true,
        floor_before_delete: true,
        walk_from: WalkFrom::Floor,
        server_conditional: true,
        recoverer_conditional: true,
        base_per_load: true,
        acks_in_order: true,
        on_exists: OnExists::ReadBack,
        on_doubt: OnDoubt::Resend,
        seal: true,
        skip_flushed: true,
        floor_after_config: true,
        log_gc_after_recovery: true,
        list_before_scan: true,
        gc_respects_pending: true,
    };
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::CORRECTED
    }
}
