//! A reference: a fragment file as part of a chain.

use std::fmt;

use crate::cell::rows::RowRange;
use crate::schema::check_family_name;
use crate::txn::Txn;

/// A fragment file and the rows of it that belong to a chain. It says enough to
/// choose what to read and what to compact without opening the file, and to tell
/// which rows are lost if the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub name: FileName,
    pub bytes: u64,
    pub cells: u64,
    /// The oldest and the newest commit in the file.
    pub txn_min: Txn,
    pub txn_max: Txn,
    /// The rows in use, if they are not simply those of the tablet. Others in the
    /// file were rewritten into other files or belong to another tablet.
    pub rows: Option<RowRange>,
    /// The families in use, in ascending order; `None` for all. Others in the file
    /// belong to another chain. Deletes of rows are in use in any case.
    pub families: Option<Vec<Vec<u8>>>,
    /// `None` if the reference was written before version 4 of the manifest.
    pub facts: Option<FileFacts>,
    /// Approximate size of the rows in use.
    pub share: u64,
    /// The unfinished compaction that left the reference; 0 if none did. Runs with
    /// references of one unit are compacted together.
    pub unit: u64,
    /// Whether the reference belongs to the same run as the previous one.
    pub joins: bool,
}

/// What is known of a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Size of index, filters and footer, at the end of the file.
    pub meta_bytes: u64,
    /// Approximate size of the entries that the file itself deletes.
    pub dead_bytes: u64,
    /// A range with all rows of the file.
    pub held: RowRange,
    /// Whether it has range tombstones.
    pub has_spans: bool,
    /// The greatest timestamp of its cells, if there are any.
    pub timestamp_max: Option<i64>,
}

impl Reference {
    /// Returns the rows in use in a tablet; empty if there are none.
    pub fn live_rows(&self, tablet: &RowRange) -> RowRange {
        let rows = match &self.rows {
            Some(rows) => rows.intersection(tablet),
            None => tablet.clone(),
        };
        match &self.facts {
            Some(facts) => rows.intersection(&facts.held),
            None => rows,
        }
    }

    /// Whether the families in use, if they are restricted, are valid, distinct and in
    /// order.
    pub(super) fn has_valid_families(&self) -> bool {
        self.families.as_ref().is_none_or(|families| {
            let valid = families.iter().all(|name| check_family_name(name).is_ok());
            valid && families.windows(2).all(|pair| pair[0] < pair[1])
        })
    }

    /// Returns what identifies the reference in its chain.
    pub fn key(&self) -> ReferenceKey {
        let (rows, families) = (self.rows.clone(), self.families.clone());
        ReferenceKey { name: self.name, rows, families }
    }
}

/// Identifies a reference in a chain, in which a file may occur several times for
/// different rows or families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceKey {
    pub name: FileName,
    pub rows: Option<RowRange>,
    pub families: Option<Vec<Vec<u8>>>,
}

/// The name of a fragment file: the incarnation that created it and a number.
/// Names are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    pub incarnation: u64,
    pub number: u64,
}

impl FileName {
    /// Parses a name written by `Display`.
    pub fn parse(name: &str) -> Option<FileName> {
        let (incarnation, number) = name.strip_suffix(".frag")?.split_once('-')?;
        let parsed =
            FileName { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{:08}.frag", self.incarnation, self.number)
    }
}
