//! Reads a log at open, and refuses one that does not belong to the state
//! beside it.

use std::path::Path;

use stele_engine::log::{ItemKind, LogItem};

use super::Position;
use super::entries::Entries;
use super::log::RAFT_STREAM;
use super::record::{HardState, decode_entry};
use super::rules::Rules;
use crate::error::{Error, Result};

/// The replay of a log.
pub struct Replay<'a> {
    log_dir: &'a Path,
    applied: Position,
    /// Whether applied entries are kept too, for other members.
    keeps_applied: bool,
    entries: Entries,
    rules: Rules,
    last_cut: Option<u64>,
}

impl<'a> Replay<'a> {
    pub fn new(
        log_dir: &'a Path,
        applied: Position,
        keeps_applied: bool,
        rules: Rules,
    ) -> Replay<'a> {
        let (entries, last_cut) = (Entries::default(), None);
        Replay { log_dir, applied, keeps_applied, entries, rules, last_cut }
    }

    pub fn item(&mut self, item: &LogItem) -> stele_engine::Result<()> {
        if item.stream != RAFT_STREAM {
            return Ok(());
        }
        let damaged =
            |what: &str| Err(stele_engine::Error::data_loss(self.log_dir, item.offset, what));
        match item.kind {
            ItemKind::State => {}
            // The entries that replaced those removed follow, and may have been
            // applied: `check` compares the result.
            ItemKind::Cut => {
                let index = item.index.saturating_sub(1);
                self.last_cut = Some(index);
                if index < self.entries.last.index {
                    self.entries.truncate_after(index);
                }
            }
            ItemKind::Data => {
                let last = self.entries.last.index;
                if last > 0 && item.index != last + 1 {
                    return damaged("the preceding entry is missing");
                }
                // The payload may be a slice of a large read; keep only the
                // entry.
                let payload = bytes::Bytes::copy_from_slice(&item.payload);
                match decode_entry(item.index, payload) {
                    Err(what) => return damaged(what),
                    Ok(entry) if self.keeps_applied || item.index > self.applied.index => {
                        self.entries.push(entry);
                    }
                    Ok(entry) => {
                        self.entries.note(Position::of(&entry.log_id), &entry.payload);
                    }
                }
            }
        }
        Ok(())
    }

    pub fn finish(self, state: &HardState) -> Entries {
        let mut entries = self.entries;
        if let Some(index) = self.last_cut.filter(|_| self.rules.replay_old_cut) {
            entries.truncate_after(index.min(entries.last.index));
        }
        entries.memberships.retain(|(at, _)| at.index > state.membership_at.index);
        entries.memberships.insert(0, (state.membership_at, state.membership.clone()));
        if entries.last.index < state.purged.index {
            entries.last = state.purged;
            entries.terms = vec![state.purged];
        }
        if self.keeps_applied {
            entries.purge(state.purged);
        } else {
            // Applied entries are on disk outside the log.
            entries.purge(self.applied);
        }
        entries
    }
}

/// Refuses a log that belongs to another member, or that does not match the
/// machine's state.
pub fn check(
    dir: &Path,
    member: u64,
    state: &HardState,
    entries: &Entries,
    applied: Position,
) -> Result<()> {
    let refuse = |what: String| Err(Error::Config(format!("{}: {what}", dir.display())));
    if state.member != member {
        let owner = state.member;
        return refuse(format!("this is the log of member {owner:x}, not of member {member:x}"));
    }
    let (last, purged) = (entries.last.index, state.purged.index);
    if last < applied.index {
        return refuse(format!(
            "the log ends at entry {last}, but the state has applied entry {}: the log was lost or \
             replaced; restore both from the same backup",
            applied.index
        ));
    }
    if applied.index < purged {
        return refuse(format!(
            "the log begins after entry {purged}, but the state has applied only up to entry {}: \
             the state was lost or replaced; restore both from the same backup",
            applied.index
        ));
    }
    if entries.position(applied.index).term != applied.term {
        return refuse(format!(
            "the log and the state have different terms for entry {}: they belong to different members; \
             restore both from the same backup",
            applied.index
        ));
    }
    Ok(())
}
