//! The states of a tablet, from unloaded to loaded and back.

use std::fmt;

use super::chain::Tablet;
use super::table::Table;
use crate::error::{Error, NotLoaded, Printable, Result};
use crate::txn::Txn;

/// How far a tablet is loaded. A load passes through the states from `Unloaded` to
/// `Active`, an unload through the later ones and back to `Unloaded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TabletState {
    /// Its rows are neither read nor written.
    Unloaded = 0,
    /// Its config is being read.
    Reading = 1,
    /// The log of its former owner is being replayed. No store with its own log is
    /// ever seen in this state: it replays before it serves.
    Replaying = 2,
    /// It is being recorded in the config as loaded.
    Claiming = 3,
    /// Takes writes; reads still wait.
    Writable = 4,
    /// Takes reads and writes.
    #[default]
    Active = 5,
    /// Takes reads only, while its memory is flushed.
    ReadOnly = 6,
    /// Takes nothing any more, while the config is being changed.
    Closing = 7,
}

impl TabletState {
    /// Returns the number of the state.
    pub fn number(self) -> u8 {
        self as u8
    }

    #[inline]
    pub fn can_read(self) -> bool {
        matches!(self, TabletState::Active | TabletState::ReadOnly)
    }

    #[inline]
    pub fn can_write(self) -> bool {
        matches!(self, TabletState::Active | TabletState::Writable)
    }

    /// Whether requests should wait: the tablet will soon be active.
    pub fn is_loading(self) -> bool {
        (TabletState::Reading..=TabletState::Writable).contains(&self)
    }

    /// Whether the tablet is unloaded or will soon be.
    pub fn is_unloading(self) -> bool {
        matches!(self, TabletState::Unloaded | TabletState::ReadOnly | TabletState::Closing)
    }
}

impl fmt::Display for TabletState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TabletState::Unloaded => "unloaded",
            TabletState::Active => "active",
            state if state.is_loading() => "loading",
            _ => "unloading",
        })
    }
}

impl Tablet {
    /// Fails unless the row can be read.
    #[inline]
    pub fn check_read(&self, table: &Table, row: &[u8]) -> Result<()> {
        if self.state.can_read() { Ok(()) } else { Err(self.not_loaded(table, row)) }
    }

    /// Fails unless the tablet can be read as of a txn.
    #[inline]
    pub fn check_snapshot(&self, snapshot: Txn) -> Result<()> {
        if snapshot >= self.readable_from {
            Ok(())
        } else {
            Err(Error::SnapshotExpired { snapshot })
        }
    }

    /// Fails unless the row can be written.
    pub fn check_write(&self, table: &Table, row: &[u8]) -> Result<()> {
        if self.state.can_write() { Ok(()) } else { Err(self.not_loaded(table, row)) }
    }

    /// Fails unless the tablet takes reads and writes.
    pub fn check_active(&self, table: &Table) -> Result<()> {
        let active = self.state == TabletState::Active;
        if active { Ok(()) } else { Err(self.not_loaded(table, &self.rows.start)) }
    }

    /// Returns the error for a request for a row that is not served.
    #[cold]
    pub fn not_loaded(&self, table: &Table, row: &[u8]) -> Error {
        Error::TabletNotLoaded(Box::new(NotLoaded {
            id: table.id,
            table: table.name.clone(),
            row: Printable::from(row),
            bounds: self.rows.clone(),
            load: self.load,
            state: self.state,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TabletState; 8] = [
        TabletState::Unloaded,
        TabletState::Reading,
        TabletState::Replaying,
        TabletState::Claiming,
        TabletState::Writable,
        TabletState::Active,
        TabletState::ReadOnly,
        TabletState::Closing,
    ];

    #[test]
    fn scale_7_6_the_states_are_numbered_and_say_what_is_served() {
        assert_eq!(ALL.map(TabletState::number), [0, 1, 2, 3, 4, 5, 6, 7]);
        let numbers = |chosen: fn(TabletState) -> bool| {
            let chosen = ALL.into_iter().filter(|state| chosen(*state));
            chosen.map(TabletState::number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(TabletState::can_write), [4, 5]);
        assert_eq!(numbers(TabletState::can_read), [5, 6]);
        assert_eq!(numbers(TabletState::is_loading), [1, 2, 3, 4]);
        assert_eq!(numbers(TabletState::is_unloading), [0, 6, 7]);
        let names = ALL.map(|state| state.to_string());
        let loading = ["loading"; 4].map(String::from);
        assert_eq!(names[0], "unloaded");
        assert_eq!(names[1..5], loading);
        assert_eq!(names[5..], ["active", "unloading", "unloading"]);
    }
}
