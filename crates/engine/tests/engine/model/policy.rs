//! The model's own implementation of purge policies, independent of the engine's so
//! that a mistake in the engine is detected.

use stele_engine::schema::{Purge, Schema};

/// The number of versions of a column seen so far, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranks {
    pub all: u32,
    /// Those at or below the policy's waterline.
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

/// Returns the policy of a family: its own, or that of its group; `None` if the table
/// has no such family.
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

/// Returns whether a version is purged, given the ranks that include it.
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

/// Returns whether the result depends on the current time.
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
