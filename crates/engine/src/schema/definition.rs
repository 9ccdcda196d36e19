//! The definition of a table: its groups and their families.

use super::compression::Compression;
use super::purge::Purge;
use crate::error::{Error, Printable, Result};
use crate::txn::Txn;

/// A column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    pub name: Vec<u8>,
    /// `None` uses the group's policy.
    pub purge: Option<Purge>,
    /// Cells at or below this txn belong to a dropped family of the same name. Set by
    /// the store when a family is added.
    pub since: Txn,
}

impl Family {
    pub fn new(name: impl Into<Vec<u8>>) -> Family {
        Family { name: name.into(), purge: None, since: Txn::ZERO }
    }

    pub fn with_purge(name: impl Into<Vec<u8>>, purge: Purge) -> Family {
        Family { name: name.into(), purge: Some(purge), since: Txn::ZERO }
    }
}

/// Families that are stored together, separately from the other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub families: Vec<Family>,
    /// Contains every family that no group names.
    pub wildcard: bool,
    /// The policy of families without their own.
    pub purge: Purge,
    pub compression: Compression,
    /// Uncompressed bytes per block; `None` uses the default of the compression.
    pub block_bytes: Option<u32>,
}

impl Group {
    pub fn new(name: impl Into<String>, families: impl IntoIterator<Item = Family>) -> Group {
        Group {
            name: name.into(),
            families: families.into_iter().collect(),
            wildcard: false,
            purge: Purge::Never,
            compression: Compression::default(),
            block_bytes: None,
        }
    }

    /// Returns the block size to write with.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes.unwrap_or(match self.compression {
            Compression::Zstd => 64 << 10,
            Compression::None | Compression::Lz4 => 16 << 10,
        })
    }
}

/// The position of a family in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyRef {
    pub group: usize,
    /// `None` for a family that belongs to the wildcard group without being listed.
    pub family: Option<usize>,
}

/// The groups of a table. Always valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    groups: Vec<Group>,
    annotation: Vec<u8>,
}

/// The maximum length of a family name.
pub const FAMILY_BYTES_MAX: usize = 255;
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 256..=16 << 20;

impl Schema {
    pub fn new(groups: Vec<Group>) -> Result<Schema> {
        let invalid = |what: String| Err(Error::InvalidSchema(what));
        if groups.is_empty() {
            return invalid("a table needs at least one group".into());
        }
        if groups.iter().filter(|group| group.wildcard).count() > 1 {
            return invalid("at most one group can be the wildcard group".into());
        }
        let mut names = std::collections::BTreeSet::new();
        let mut families = std::collections::BTreeSet::new();
        for group in &groups {
            if !names.insert(&group.name) {
                return invalid(format!("there are two groups named {}", group.name));
            }
            if group.block_bytes.is_some_and(|bytes| !BLOCK_BYTES.contains(&bytes)) {
                return invalid(format!(
                    "block size of group {} must be between {} and {} bytes",
                    group.name,
                    BLOCK_BYTES.start(),
                    BLOCK_BYTES.end()
                ));
            }
            group.purge.check().map_err(Error::InvalidSchema)?;
            for family in &group.families {
                check_family_name(&family.name).map_err(Error::InvalidSchema)?;
                if let Some(purge) = &family.purge {
                    purge.check().map_err(Error::InvalidSchema)?;
                }
                if !families.insert(&family.name) {
                    let name = Printable::from(&family.name[..]);
                    return invalid(format!("family {name} is listed twice"));
                }
            }
        }
        Ok(Schema { groups, annotation: Vec::new() })
    }

    /// Creates a schema of one group with these families.
    pub fn with_families(families: impl IntoIterator<Item = Family>) -> Result<Schema> {
        Schema::new(vec![Group::new("default", families)])
    }

    /// Attaches the caller's annotation, which is stored and replaced together with the
    /// schema.
    pub fn annotated(self, annotation: impl Into<Vec<u8>>) -> Schema {
        Schema { annotation: annotation.into(), ..self }
    }

    /// Returns the caller's annotation, which is opaque to the engine.
    pub fn annotation(&self) -> &[u8] {
        &self.annotation
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the position of a family; `None` if the table has no such family.
    pub fn find(&self, name: &[u8]) -> Option<FamilyRef> {
        for (group, known) in self.groups.iter().enumerate() {
            if let Some(at) = known.families.iter().position(|family| family.name == name) {
                return Some(FamilyRef { group, family: Some(at) });
            }
        }
        let group = self.groups.iter().position(|group| group.wildcard)?;
        Some(FamilyRef { group, family: None })
    }

    /// Returns the policy of a family found by `find`.
    pub fn purge(&self, at: FamilyRef) -> &Purge {
        let group = &self.groups[at.group];
        let own = at.family.and_then(|family| group.families[family].purge.as_ref());
        own.unwrap_or(&group.purge)
    }

    /// Returns the newest txn that predates a family found by `find`.
    pub fn since(&self, at: FamilyRef) -> Txn {
        at.family.map_or(Txn::ZERO, |family| self.groups[at.group].families[family].since)
    }

    /// Returns whether a cell belongs to a dropped family of the same name.
    pub fn predates(&self, at: FamilyRef, txn: Txn) -> bool {
        let since = self.since(at);
        since > Txn::ZERO && txn <= since
    }

    /// Returns this schema with every family that `old` lacks or that is `emptied`
    /// starting after `now`.
    pub fn succeeding(mut self, old: &Schema, emptied: &[&[u8]], now: Txn) -> Schema {
        for family in self.groups.iter_mut().flat_map(|group| &mut group.families) {
            let known = old.groups.iter().flat_map(|group| &group.families);
            let kept = known.filter(|known| !emptied.contains(&&known.name[..]));
            let before = kept.into_iter().find(|known| known.name == family.name);
            family.since = before.map_or(now, |before| before.since);
        }
        self
    }

    /// Returns whether any policy counts the versions of a column.
    pub fn ranks_versions(&self) -> bool {
        self.policies().any(Purge::ranks_versions)
    }

    /// Returns whether any policy depends on the age of a version.
    pub fn ages(&self) -> bool {
        self.policies().any(Purge::ages)
    }

    fn policies(&self) -> impl Iterator<Item = &Purge> {
        self.groups.iter().flat_map(|group| {
            let own = group.families.iter().filter_map(|family| family.purge.as_ref());
            own.chain([&group.purge])
        })
    }

    /// Checks that `next` can replace this schema: the groups are fixed, and no family
    /// may move between them.
    pub fn check_successor(&self, next: &Schema) -> Result<()> {
        let same_groups = self.groups.len() == next.groups.len()
            && self
                .groups
                .iter()
                .zip(&next.groups)
                .all(|(old, new)| old.name == new.name && old.wildcard == new.wildcard);
        if !same_groups {
            return Err(Error::InvalidSchema("the groups of a table cannot change".into()));
        }
        // Check the families of both: one that a schema does not list is in its
        // wildcard group.
        let named = self.groups.iter().chain(&next.groups).flat_map(|group| &group.families);
        for family in named {
            let moved = match (self.find(&family.name), next.find(&family.name)) {
                (Some(old), Some(new)) => old.group != new.group,
                _ => false,
            };
            if moved {
                let name = Printable::from(&family.name[..]);
                return Err(Error::InvalidSchema(format!(
                    "family {name} cannot move to another group"
                )));
            }
        }
        Ok(())
    }
}

/// Checks a family name: non-empty, not too long and without NUL, which terminates it
/// in the cell key.
pub(crate) fn check_family_name(name: &[u8]) -> Result<(), String> {
    if name.is_empty() || name.len() > FAMILY_BYTES_MAX || name.contains(&0) {
        return Err(format!(
            "family name {} must have 1 to {FAMILY_BYTES_MAX} bytes and no NUL",
            Printable::from(name)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_belongs_to_one_group() {
        let two = |a: &str, b: &str| {
            Schema::new(vec![Group::new("x", [Family::new(a)]), Group::new("y", [Family::new(b)])])
        };
        let schema = two("f", "g").unwrap();
        assert_eq!(schema.find(b"g").unwrap().group, 1);
        assert!(schema.find(b"h").is_none());
        assert!(two("f", "f").is_err());
        assert!(two("f", "").is_err());
        assert!(two("f", "a\0b").is_err());
    }

    #[test]
    fn at_most_one_group_is_a_wildcard_and_it_takes_the_rest() {
        let wild = |name: &str| Group { wildcard: true, ..Group::new(name, []) };
        let schema = Schema::new(vec![Group::new("x", [Family::new("f")]), wild("rest")]).unwrap();
        assert_eq!(schema.find(b"f").unwrap().group, 0);
        assert_eq!(schema.find(b"anything").unwrap().group, 1);
        assert!(Schema::new(vec![wild("a"), wild("b")]).is_err());
        assert!(Schema::new(vec![]).is_err());
    }

    #[test]
    fn a_family_that_a_wildcard_group_may_hold_is_not_named_in_another() {
        let wild = |families: Vec<Family>| Group { wildcard: true, ..Group::new("rest", families) };
        let old = Schema::new(vec![Group::new("x", [Family::new("f")]), wild(vec![])]).unwrap();
        let named = [Family::new("f"), Family::new("g")];
        let moved = Schema::new(vec![Group::new("x", named), wild(vec![])]).unwrap();
        assert!(old.check_successor(&moved).is_err(), "cells of g lie in the wildcard group");
        let rest = wild(vec![Family::new("g")]);
        let stays = Schema::new(vec![Group::new("x", [Family::new("f")]), rest]).unwrap();
        assert!(old.check_successor(&stays).is_ok());
    }

    #[test]
    fn a_successor_may_add_and_drop_families_but_not_move_them() {
        let schema = |x: &[&str], y: &[&str]| {
            let families =
                |names: &[&str]| names.iter().map(|n| Family::new(*n)).collect::<Vec<_>>();
            Schema::new(vec![Group::new("x", families(x)), Group::new("y", families(y))]).unwrap()
        };
        let old = schema(&["a", "b"], &["c"]);
        assert!(old.check_successor(&schema(&["a", "d"], &["c"])).is_ok());
        assert!(old.check_successor(&schema(&["a"], &["b", "c"])).is_err());
        assert!(old.check_successor(&Schema::with_families([Family::new("a")]).unwrap()).is_err());
    }

    #[test]
    fn a_successor_takes_no_family_out_of_the_wildcard_group() {
        let schema = |named: &[&str], kept: &[&str]| {
            let families =
                |names: &[&str]| names.iter().map(|n| Family::new(*n)).collect::<Vec<_>>();
            let rest = Group { wildcard: true, ..Group::new("rest", families(kept)) };
            Schema::new(vec![Group::new("x", families(named)), rest]).unwrap()
        };
        let old = schema(&["a"], &[]);
        assert!(old.check_successor(&schema(&["a"], &["b"])).is_ok());
        assert!(old.check_successor(&schema(&["a", "b"], &[])).is_err());
    }
}
