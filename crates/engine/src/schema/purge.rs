//! Purge policy: which versions of a column are no longer needed.
//!
//! The policy is applied both while scanning and in compaction, so that what a reader
//! sees does not depend on what has been compacted.

/// Defines when a version is purged.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Purge {
    /// Never.
    #[default]
    Never,
    /// When this many newer versions of the column exist.
    MaxVersions(u32),
    /// When its timestamp is older than this many microseconds.
    MaxAge(i64),
    /// When it is at or below this timestamp and not the newest such version; the
    /// newest is purged too if it is a marker strictly below the waterline.
    Waterline(i64),
    /// When all of these purge it.
    All(Vec<Purge>),
    /// When any of these purges it.
    Any(Vec<Purge>),
}

/// The maximum nesting depth of policies.
pub const PURGE_DEPTH_MAX: usize = 16;

/// The properties of a version that the policy considers. `rank` counts versions of the
/// column from the newest, starting at 1; `rank_below` counts only those at or below
/// the policy's waterline.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub timestamp: i64,
    pub marker: bool,
    pub rank: u32,
    pub rank_below: u32,
}

impl Purge {
    /// Returns whether the version is purged at time `now_micros`.
    pub fn purges(&self, version: &Version, now_micros: i64) -> bool {
        match self {
            Purge::Never => false,
            Purge::MaxVersions(kept) => version.rank > *kept,
            Purge::MaxAge(age) => version.timestamp < now_micros.saturating_sub(*age),
            Purge::Waterline(line) => {
                version.timestamp <= *line
                    && (version.rank_below > 1 || (version.marker && version.timestamp < *line))
            }
            Purge::All(terms) => {
                !terms.is_empty() && terms.iter().all(|term| term.purges(version, now_micros))
            }
            Purge::Any(terms) => terms.iter().any(|term| term.purges(version, now_micros)),
        }
    }

    /// Returns the waterline of the policy, at any depth. A policy has at most one.
    pub fn waterline(&self) -> Option<i64> {
        match self {
            Purge::Waterline(line) => Some(*line),
            Purge::All(terms) | Purge::Any(terms) => terms.iter().find_map(Purge::waterline),
            _ => None,
        }
    }

    /// Returns whether versions newer than `timestamp` do not affect those at or below
    /// it.
    pub fn ignores_newer_than(&self, timestamp: i64) -> bool {
        match self {
            Purge::Never | Purge::MaxAge(_) => true,
            Purge::MaxVersions(_) => false,
            Purge::Waterline(line) => timestamp >= *line,
            Purge::All(terms) | Purge::Any(terms) => {
                terms.iter().all(|term| term.ignores_newer_than(timestamp))
            }
        }
    }

    /// Returns whether the policy depends on the current time.
    pub fn ages(&self) -> bool {
        match self {
            Purge::MaxAge(_) => true,
            Purge::Never | Purge::MaxVersions(_) | Purge::Waterline(_) => false,
            Purge::All(terms) | Purge::Any(terms) => terms.iter().any(Purge::ages),
        }
    }

    /// Returns whether the policy depends on the number of newer versions.
    pub fn ranks_versions(&self) -> bool {
        match self {
            Purge::Never | Purge::MaxAge(_) => false,
            Purge::MaxVersions(_) | Purge::Waterline(_) => true,
            Purge::All(terms) | Purge::Any(terms) => terms.iter().any(Purge::ranks_versions),
        }
    }

    /// Validates the policy; the error describes the problem.
    pub fn check(&self) -> Result<(), String> {
        self.check_depth(0)?;
        match self.waterlines() {
            0 | 1 => Ok(()),
            _ => Err("a purge policy can have at most one waterline".to_string()),
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), String> {
        if depth > PURGE_DEPTH_MAX {
            return Err(format!("purge policies can be nested at most {PURGE_DEPTH_MAX} deep"));
        }
        match self {
            Purge::MaxVersions(0) => Err("max versions must be at least 1".to_string()),
            Purge::MaxAge(age) if *age < 0 => Err("max age must not be negative".to_string()),
            Purge::All(terms) | Purge::Any(terms) => {
                terms.iter().try_for_each(|term| term.check_depth(depth + 1))
            }
            _ => Ok(()),
        }
    }

    fn waterlines(&self) -> usize {
        match self {
            Purge::Waterline(_) => 1,
            Purge::All(terms) | Purge::Any(terms) => terms.iter().map(Purge::waterlines).sum(),
            _ => 0,
        }
    }
}

/// Ranks the versions of one column, which arrive newest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ranks {
    all: u32,
    below: u32,
}

impl Ranks {
    /// Ranks the next version of the column.
    pub fn next(&mut self, policy: &Purge, timestamp: i64, marker: bool) -> Version {
        self.all = self.all.saturating_add(1);
        if policy.waterline().is_some_and(|line| timestamp <= line) {
            self.below = self.below.saturating_add(1);
        }
        Version { timestamp, marker, rank: self.all, rank_below: self.below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(policy: &Purge, now: i64, versions: &[(i64, bool)]) -> Vec<i64> {
        let mut ranks = Ranks::default();
        versions
            .iter()
            .map(|&(timestamp, marker)| ranks.next(policy, timestamp, marker))
            .filter(|version| !policy.purges(version, now))
            .map(|version| version.timestamp)
            .collect()
    }

    fn puts(timestamps: &[i64]) -> Vec<(i64, bool)> {
        timestamps.iter().map(|&timestamp| (timestamp, false)).collect()
    }

    #[test]
    fn versions_ages_and_their_nesting_follow_the_truth_table() {
        let versions = puts(&[50, 40, 30, 20]);
        let two = Purge::MaxVersions(2);
        let young = Purge::MaxAge(25);
        assert_eq!(kept(&Purge::Never, 60, &versions), [50, 40, 30, 20]);
        assert_eq!(kept(&two, 60, &versions), [50, 40]);
        assert_eq!(kept(&young, 60, &versions), [50, 40]);
        assert_eq!(
            kept(&Purge::All(vec![two.clone(), young.clone()]), 55, &versions),
            [50, 40, 30]
        );
        assert_eq!(kept(&Purge::Any(vec![two.clone(), Purge::MaxAge(15)]), 60, &versions), [50]);
        assert_eq!(kept(&Purge::All(vec![]), 60, &versions), [50, 40, 30, 20]);
        let nested = Purge::Any(vec![Purge::All(vec![two, young]), Purge::MaxVersions(3)]);
        assert_eq!(kept(&nested, 60, &versions), [50, 40]);
    }

    #[test]
    fn a_waterline_keeps_all_above_and_the_newest_below_unless_it_marks_an_erasure() {
        let line = Purge::Waterline(30);
        assert_eq!(kept(&line, 0, &puts(&[50, 40, 30, 20])), [50, 40, 30]);
        assert_eq!(kept(&line, 0, &puts(&[50, 29, 20])), [50, 29]);
        assert_eq!(kept(&line, 0, &[(50, false), (29, true), (20, false)]), [50]);
        assert_eq!(kept(&line, 0, &[(30, true), (20, false)]), [30], "a marker on the line stays");
        assert_eq!(kept(&line, 0, &[(31, true), (20, false)]), [31, 20]);
    }

    #[test]
    fn an_invalid_policy_is_rejected() {
        assert!(Purge::MaxVersions(0).check().is_err());
        assert!(Purge::MaxAge(-1).check().is_err());
        assert!(Purge::Any(vec![Purge::Waterline(1), Purge::Waterline(2)]).check().is_err());
        let deep = (0..20).fold(Purge::Never, |inner, _| Purge::All(vec![inner]));
        assert!(deep.check().is_err());
    }
}
