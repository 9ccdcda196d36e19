//! Purge policies as the model understands them, written down a second time so
//! that a mistake in the engine's own evaluation shows.

use stele_engine::schema::{Purge, Schema};

/// How many versions of a column have come by, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranks {
    pub all: u32,
    /// Of those at or below the policy's waterline.
    pub below: u32,
}

impl Ranks {
    pub fn count(&mut self, policy: &Purge, at: i64) {
        self.all += 1;
        if line(policy).is_some_and(|line| at <= line) {
            self.below += 1;
        }
    }
}

/// The policy of a family: its own, or that of its group; `None` when the
/// table has no such family.
pub fn of_family<'a>(schema: &'a Schema, family: &[u8]) -> Option<&'a Purge> {
    for group in schema.groups() {
        for known in &group.families {
            if known.name == family {
                return Some(known.purge.as_ref().unwrap_or(&group.purge));
            }
        }
    }
    schema.groups().iter().find(|group| group.wildcard).map(|group| &group.purge)
}

/// Whether a version goes, given the ranks it was counted into.
pub fn purges(policy: &Purge, at: i64, marker: bool, ranks: Ranks, now: i64) -> bool {
    let term = |term: &Purge| purges(term, at, marker, ranks, now);
    match policy {
        Purge::Never => false,
        Purge::MaxVersions(kept) => ranks.all > *kept,
        Purge::MaxAge(age) => i128::from(at) < i128::from(now) - i128::from(*age),
        Purge::Waterline(line) if at > *line => false,
        Purge::Waterline(line) => ranks.below > 1 || (marker && at < *line),
        Purge::All(terms) => !terms.is_empty() && terms.iter().all(term),
        Purge::Any(terms) => terms.iter().any(term),
    }
}

pub fn never(policy: &Purge) -> bool {
    *policy == Purge::Never
}

/// Whether the verdict changes as time passes.
pub fn ages(policy: &Purge) -> bool {
    match policy {
        Purge::MaxAge(_) => true,
        Purge::All(terms) | Purge::Any(terms) => terms.iter().any(ages),
        _ => false,
    }
}

fn line(policy: &Purge) -> Option<i64> {
    match policy {
        Purge::Waterline(line) => Some(*line),
        Purge::All(terms) | Purge::Any(terms) => terms.iter().find_map(line),
        _ => None,
    }
}
