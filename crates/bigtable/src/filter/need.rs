//! The part of its input that a filter needs: cells outside it can be excluded
//! beforehand without changing the result.
//!
//! A chain needs what its first stage needs, restricted to what the later stages
//! need, as far as it makes no difference for the stages in between whether cells
//! are excluded before or after them. A limit on the cells of a row, for
//! instance, would count different cells.

use stele_engine::{RowRange, TimeRange};

use super::columns::{ColumnSet, Families};
use super::node::Node;
use super::ranges::Ranges;

/// The cells that a filter needs, and which cells can be excluded before it
/// instead of after it.
#[derive(Clone, Debug)]
pub struct Need {
    pub columns: ColumnSet,
    pub times: TimeRange,
    ahead: Ahead,
}

#[derive(Clone, Copy, Debug)]
struct Ahead {
    columns: bool,
    /// Versions older than some time.
    older: bool,
    /// Versions newer than some time.
    newer: bool,
}

impl Ahead {
    const ALL: Ahead = Ahead { columns: true, older: true, newer: true };
    const NONE: Ahead = Ahead { columns: false, older: false, newer: false };

    fn and(self, other: Ahead) -> Ahead {
        Ahead {
            columns: self.columns && other.columns,
            older: self.older && other.older,
            newer: self.newer && other.newer,
        }
    }
}

impl Need {
    pub fn new(node: &Node, families: &Families<'_>) -> Need {
        let all = Need { columns: ColumnSet::all(), times: TimeRange::ALL, ahead: Ahead::ALL };
        let columns = |columns| Need { columns, ..all.clone() };
        match node {
            Node::PassAll | Node::RowKey(_) | Node::RowSample(_) | Node::Strip | Node::Label(_) => {
                all
            }
            Node::Value(_) | Node::ValueRange(_) | Node::ValueMask(_) => all,
            Node::BlockAll => columns(ColumnSet::none(families)),
            Node::Family(pattern) => columns(families.matching(pattern)),
            Node::Qualifier(pattern) => match pattern.literals() {
                Some(literals) => columns(families.qualifiers(Ranges::points(literals))),
                None if pattern.prefix().is_empty() => all,
                None => {
                    let prefix = RowRange::prefix(pattern.prefix());
                    columns(families.qualifiers(Ranges::from_unsorted(vec![prefix])))
                }
            },
            Node::Column(range) => columns(families.range(range)),
            Node::Times(times) => Need { times: *times, ..all },
            Node::ColumnLimit(_) => Need { ahead: Ahead { newer: false, ..Ahead::ALL }, ..all },
            Node::RowOffset(_) | Node::RowLimit(_) | Node::Sink => {
                Need { ahead: Ahead::NONE, ..all }
            }
            Node::Chain(stages) => {
                stages.iter().fold(all, |need, stage| need.then(Need::new(stage, families)))
            }
            Node::Interleave(branches) => {
                let needs = branches.iter().map(|branch| Need::new(branch, families));
                needs.reduce(Need::or).expect("an interleave has branches")
            }
            Node::Condition(condition) => {
                let predicate = Need::new(&condition.predicate, families);
                let then = Need::new(&condition.then, families);
                let otherwise = Need::new(&condition.otherwise, families);
                Need { ahead: Ahead::NONE, ..predicate.or(then).or(otherwise) }
            }
        }
    }

    /// Returns the need of this filter followed by another.
    fn then(self, next: Need) -> Need {
        let Ahead { columns, older, newer } = self.ahead;
        Need {
            columns: if columns { self.columns.intersection(next.columns) } else { self.columns },
            times: TimeRange {
                min: if older { self.times.min.max(next.times.min) } else { self.times.min },
                max: if newer { self.times.max.min(next.times.max) } else { self.times.max },
            },
            ahead: self.ahead.and(next.ahead),
        }
    }

    /// Returns the need of two filters that get the same input.
    fn or(self, other: Need) -> Need {
        Need {
            columns: self.columns.union(other.columns),
            times: match (self.times.is_empty(), other.times.is_empty()) {
                (true, _) => other.times,
                (_, true) => self.times,
                _ => TimeRange {
                    min: self.times.min.min(other.times.min),
                    max: self.times.max.max(other.times.max),
                },
            },
            ahead: self.ahead.and(other.ahead),
        }
    }
}

/// Returns the rows of which a filter may pass anything.
pub fn rows(node: &Node) -> Ranges {
    match node {
        Node::BlockAll => Ranges::none(),
        Node::RowKey(pattern) => match pattern.literals() {
            Some(literals) => Ranges::points(literals),
            None => Ranges::from_unsorted(vec![RowRange::prefix(pattern.prefix())]),
        },
        Node::Chain(stages) => {
            // Sunk cells bypass all later stages.
            let sink = stages.iter().position(Node::has_sink);
            let all_pass = &stages[..sink.map_or(stages.len(), |sink| sink + 1)];
            all_pass.iter().fold(Ranges::all(), |set, stage| set.intersection(&rows(stage)))
        }
        Node::Interleave(branches) => {
            branches.iter().fold(Ranges::none(), |set, branch| set.union(rows(branch)))
        }
        Node::Condition(condition) => {
            let then = rows(&condition.predicate).intersection(&rows(&condition.then));
            then.union(rows(&condition.otherwise))
        }
        _ => Ranges::all(),
    }
}

/// Returns the maximum number of versions of each column that a filter needs,
/// given an input with timestamps in `times`.
pub fn versions(node: &Node, times: TimeRange) -> Option<u32> {
    let versions = Versions::new(node, times);
    (versions.most < u32::MAX).then_some(versions.most.max(1))
}

struct Versions {
    most: u32,
    /// The newest N of its output come from the newest N of its input.
    newest_first: bool,
}

impl Versions {
    fn new(node: &Node, times: TimeRange) -> Versions {
        let any = |newest_first| Versions { most: u32::MAX, newest_first };
        match node {
            Node::PassAll | Node::RowKey(_) | Node::RowSample(_) | Node::Strip | Node::Label(_) => {
                any(true)
            }
            Node::Family(_) | Node::Qualifier(_) | Node::Column(_) => any(true),
            // May drop old versions, but none that is newer than one it keeps.
            Node::Times(range) => any(range.max >= times.max),
            Node::Value(_) | Node::ValueRange(_) | Node::ValueMask(_) => any(false),
            Node::RowOffset(_) | Node::Sink => any(false),
            Node::BlockAll => Versions { most: 0, newest_first: true },
            // All cells that pass may be of one column, but then they are its
            // newest.
            Node::RowLimit(cells) => Versions { most: *cells, newest_first: false },
            Node::ColumnLimit(cells) => Versions { most: *cells, newest_first: true },
            Node::Chain(stages) => stages.iter().fold(any(true), |versions, stage| {
                if !versions.newest_first {
                    return versions;
                }
                let next = Versions::new(stage, times);
                Versions { most: versions.most.min(next.most), ..next }
            }),
            Node::Interleave(branches) => {
                let none = Versions { most: 0, newest_first: true };
                branches.iter().map(|branch| Versions::new(branch, times)).fold(none, Versions::or)
            }
            Node::Condition(condition) => {
                let predicate = Versions::new(&condition.predicate, times);
                let then = Versions::new(&condition.then, times);
                let otherwise = Versions::new(&condition.otherwise, times);
                Versions { newest_first: false, ..predicate.or(then).or(otherwise) }
            }
        }
    }

    fn or(self, other: Versions) -> Versions {
        Versions {
            most: self.most.max(other.most),
            newest_first: self.newest_first && other.newest_first,
        }
    }
}
