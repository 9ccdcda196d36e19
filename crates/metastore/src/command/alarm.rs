//! Alarms of members.

/// A condition under which a member refuses requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// The quota is used up: writes that take space are refused.
    NoSpace,
    /// The data is damaged: all reads and writes are refused.
    Corrupt,
}

/// An alarm that has been raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveAlarm {
    pub member: u64,
    pub alarm: Alarm,
    /// Raised by an operator: it stays until an operator clears it.
    pub by_hand: bool,
}

/// Raises or clears an alarm of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAction {
    Activate {
        member: u64,
        alarm: Alarm,
    },
    /// Raised by an operator.
    ActivateByHand {
        member: u64,
        alarm: Alarm,
    },
    Deactivate {
        member: u64,
        alarm: Alarm,
    },
}
