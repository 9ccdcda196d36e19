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
    /// Only readers that name the family see it, and deletes of rows and of ranges of
    /// rows do not cover it. All families of its group are hidden.
    pub hidden: bool,
}

impl Family {
    pub fn new(name: impl Into<Vec<u8>>) -> Family {
        Family { name: name.into(), purge: None, since: Txn::ZERO, hidden: false }
    }

    pub fn with_purge(name: impl Into<Vec<u8>>, purge: Purge) -> Family {
        Family { name: name.into(), purge: Some(purge), since: Txn::ZERO, hidden: false }
    }

    /// Creates a hidden family.
    pub fn hidden(name: impl Into<Vec<u8>>, purge: Purge) -> Family {
        Family { hidden: true, ..Family::with_purge(name, purge) }
    }
}

/// Families that are stored together, separately from the other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub families: Vec<Family>,
    /// Contains every family that no group names.
    pub wildcard: bool,
    /// In a wildcard group: cells of families that it does not list belong to dropped
    /// ones if they are at or below this txn. Set by the store when the group is added.
    pub since: Txn,
    /// The policy of families without their own.
    pub purge: Purge,
    pub compression: Compression,
    /// Uncompressed bytes per block; `None` uses the default of the compression.
    pub block_bytes: Option<u32>,
    /// Its blocks stay in memory once they were read, as far as the cache has space.
    pub in_memory: bool,
}

impl Group {
    pub fn new(name: impl Into<String>, families: impl IntoIterator<Item = Family>) -> Group {
        Group {
            name: name.into(),
            families: families.into_iter().collect(),
            wildcard: false,
            since: Txn::ZERO,
            purge: Purge::Never,
            compression: Compression::default(),
            block_bytes: None,
            in_memory: false,
        }
    }

    /// Whether the families of the group are hidden.
    pub fn is_hidden(&self) -> bool {
        self.families.first().is_some_and(|family| family.hidden)
    }

    fn policies(&self) -> impl Iterator<Item = &Purge> {
        let own = self.families.iter().filter_map(|family| family.purge.as_ref());
        own.chain([&self.purge])
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
    /// The number of groups without hidden families, which come first.
    visible: usize,
    annotation: Vec<u8>,
    splittable: bool,
}

/// The maximum length of a family name.
pub const FAMILY_BYTES_MAX: usize = 255;
pub(super) const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 256..=16 << 20;

impl Schema {
    pub fn new(groups: Vec<Group>) -> Result<Schema> {
        let invalid = |what: String| Err(Error::InvalidSchema(what));
        if groups.is_empty() {
            return invalid("a table needs at least one group".into());
        }
        let visible = groups.iter().take_while(|group| !group.is_hidden()).count();
        if visible == 0 || groups[visible..].iter().any(|group| !group.is_hidden()) {
            return invalid("groups of hidden families must come after the others".into());
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
                if family.hidden && (group.wildcard || group.families.iter().any(|f| !f.hidden)) {
                    let (name, group) = (Printable::from(&family.name[..]), &group.name);
                    return invalid(format!(
                        "hidden family {name} needs a group of hidden families only, unlike {group}"
                    ));
                }
                if !families.insert(&family.name) {
                    let name = Printable::from(&family.name[..]);
                    return invalid(format!("family {name} is listed twice"));
                }
            }
        }
        Ok(Schema { groups, visible, annotation: Vec::new(), splittable: true })
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

    /// Returns the schema of a table that may be split, or that has one tablet for ever.
    pub fn splittable(self, splittable: bool) -> Schema {
        Schema { splittable, ..self }
    }

    /// Whether the table may be split into tablets.
    pub fn is_splittable(&self) -> bool {
        self.splittable
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the number of groups without hidden families, which come first.
    pub fn visible_groups(&self) -> usize {
        self.visible
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

    /// Returns the group of a family; `None` if the table has no such family.
    pub fn group_of(&self, name: &[u8]) -> Option<usize> {
        self.find(name).map(|at| at.group)
    }

    /// Returns the families that groups name.
    fn named(&self) -> impl Iterator<Item = &Family> {
        self.groups.iter().flat_map(|group| &group.families)
    }

    /// Returns whether a family is hidden; `None` if the table has no such family.
    fn hides(&self, name: &[u8]) -> Option<bool> {
        self.group_of(name).map(|group| group >= self.visible)
    }

    /// Returns the policy of a family found by `find`.
    pub fn purge(&self, at: FamilyRef) -> &Purge {
        let group = &self.groups[at.group];
        let own = at.family.and_then(|family| group.families[family].purge.as_ref());
        own.unwrap_or(&group.purge)
    }

    /// Returns the newest txn that predates a family found by `find`.
    pub fn since(&self, at: FamilyRef) -> Txn {
        let group = &self.groups[at.group];
        at.family.map_or(group.since, |family| group.families[family].since)
    }

    /// Returns whether a cell belongs to a dropped family of the same name.
    pub fn predates(&self, at: FamilyRef, txn: Txn) -> bool {
        let since = self.since(at);
        since > Txn::ZERO && txn <= since
    }

    /// Returns this schema with every family that `old` lacks or that is `emptied`
    /// starting after `now`. A family that `old` names and this schema leaves to its
    /// wildcard group is listed there if its cells would otherwise be mistaken.
    pub fn succeeding(mut self, old: &Schema, emptied: &[&[u8]], now: Txn) -> Schema {
        let since = |name: &[u8]| {
            let kept = old.find(name).filter(|_| !emptied.contains(&name));
            kept.map_or(now, |at| old.since(at))
        };
        let unnamed = old
            .named()
            .filter(|family| self.find(&family.name).is_some_and(|at| at.family.is_none()));
        let unnamed: Vec<Family> =
            unnamed.map(|family| Family { purge: None, ..family.clone() }).collect();
        for family in self.groups.iter_mut().flat_map(|group| &mut group.families) {
            family.since = since(&family.name);
        }
        let before = old.groups.iter().find(|group| group.wildcard);
        let before = before.map_or(now, |group| group.since);
        if let Some(group) = self.groups.iter_mut().find(|group| group.wildcard) {
            group.since = before;
            let listed = unnamed.into_iter().map(|family| {
                let since = since(&family.name);
                Family { since, ..family }
            });
            group.families.extend(listed.filter(|family| family.since != before));
        }
        self
    }

    /// Returns the visible families of this schema that `next` lacks, in a form that people
    /// can read; a star for those that only its wildcard group holds.
    pub fn lost_in(&self, next: &Schema) -> Vec<String> {
        let is_open = |schema: &Schema| schema.groups.iter().any(|group| group.wildcard);
        let visible = self.groups[..self.visible].iter().flat_map(|group| &group.families);
        let lost = visible.filter(|family| next.find(&family.name).is_none());
        let lost = lost.map(|family| Printable::from(&family.name[..]).to_string());
        lost.chain((is_open(self) && !is_open(next)).then(|| "*".to_string())).collect()
    }

    /// Returns this schema with the hidden groups of `old`, its annotation, and as
    /// splittable as `old`.
    pub fn with_hidden_of(mut self, old: &Schema) -> Result<Schema> {
        self.groups.extend_from_slice(&old.groups[old.visible..]);
        let next = Schema::new(self.groups)?;
        Ok(next.annotated(old.annotation.clone()).splittable(old.splittable))
    }

    /// Returns whether any policy counts the versions of a column.
    pub fn ranks_versions(&self) -> bool {
        self.policies().any(Purge::ranks_versions)
    }

    /// Returns whether any policy of a visible family depends on the age of a version.
    pub fn ages(&self) -> bool {
        self.groups[..self.visible].iter().flat_map(Group::policies).any(Purge::ages)
    }

    /// Returns whether any policy of a group depends on the age of a version.
    pub fn ages_in(&self, group: usize) -> bool {
        self.groups[group].policies().any(Purge::ages)
    }

    fn policies(&self) -> impl Iterator<Item = &Purge> {
        self.groups.iter().flat_map(Group::policies)
    }

    /// Returns whether each group of this schema is also a group of `next`, with the
    /// same families except for those that one of them lacks, so that `next` only adds
    /// groups of hidden families.
    pub fn keeps_groups(&self, next: &Schema) -> bool {
        let same_groups = self.groups.len() <= next.groups.len()
            && self.visible == next.visible
            && self
                .groups
                .iter()
                .zip(&next.groups)
                .all(|(old, new)| old.name == new.name && old.wildcard == new.wildcard);
        // Check the families of both: one that a schema does not list is in its
        // wildcard group.
        same_groups
            && self.named().chain(next.named()).all(|family| {
                match (self.group_of(&family.name), next.group_of(&family.name)) {
                    (Some(old), Some(new)) => old == new,
                    _ => true,
                }
            })
    }

    /// Checks that `next` can replace this schema and has the same groups.
    pub fn check_successor(&self, next: &Schema) -> Result<()> {
        self.check_regroup(next)?;
        if self.keeps_groups(next) {
            return Ok(());
        }
        let what = "the groups differ, so the files of the tablets must be regrouped";
        Err(Error::InvalidSchema(what.into()))
    }

    /// Checks that `next` can replace this schema, whose families may be in other groups:
    /// none may become hidden or visible.
    pub fn check_regroup(&self, next: &Schema) -> Result<()> {
        let hidden_groups = |schema: &Schema| schema.groups.len() - schema.visible;
        if hidden_groups(next) < hidden_groups(self) {
            return Err(Error::InvalidSchema("a hidden group cannot be removed".into()));
        }
        for family in self.named().chain(next.named()) {
            let hidden = [self, next].map(|schema| schema.hides(&family.name));
            if let [Some(old), Some(new)] = hidden
                && old != new
            {
                let name = Printable::from(&family.name[..]);
                return Err(Error::InvalidSchema(format!(
                    "family {name} cannot become hidden or visible"
                )));
            }
            if let [Some(true), None] = hidden {
                let name = Printable::from(&family.name[..]);
                return Err(Error::InvalidSchema(format!(
                    "hidden family {name} cannot be removed"
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
    fn naming_a_family_that_a_wildcard_group_holds_moves_it() {
        let wild = |families: Vec<Family>| Group { wildcard: true, ..Group::new("rest", families) };
        let old = Schema::new(vec![Group::new("x", [Family::new("f")]), wild(vec![])]).unwrap();
        let named = [Family::new("f"), Family::new("g")];
        let moved = Schema::new(vec![Group::new("x", named), wild(vec![])]).unwrap();
        assert!(!old.keeps_groups(&moved), "cells of g lie in the wildcard group");
        assert!(old.check_regroup(&moved).is_ok());
        let rest = wild(vec![Family::new("g")]);
        let stays = Schema::new(vec![Group::new("x", [Family::new("f")]), rest]).unwrap();
        assert!(old.check_successor(&stays).is_ok());
    }

    #[test]
    fn a_successor_keeps_the_groups_unless_a_family_moves() {
        let schema = |x: &[&str], y: &[&str]| {
            let families =
                |names: &[&str]| names.iter().map(|n| Family::new(*n)).collect::<Vec<_>>();
            Schema::new(vec![Group::new("x", families(x)), Group::new("y", families(y))]).unwrap()
        };
        let old = schema(&["a", "b"], &["c"]);
        assert!(old.check_successor(&schema(&["a", "d"], &["c"])).is_ok());
        assert!(old.check_successor(&schema(&["a"], &["b", "c"])).is_err());
        let fewer = Schema::with_families([Family::new("a")]).unwrap();
        assert!(old.check_successor(&fewer).is_err());
        assert!(old.check_regroup(&schema(&["a"], &["b", "c"])).is_ok());
        assert!(old.check_regroup(&fewer).is_ok());
    }

    #[test]
    fn a_family_keeps_its_cells_when_it_is_named_or_left_to_the_wildcard_group() {
        let wild = |families: Vec<Family>| Group { wildcard: true, ..Group::new("rest", families) };
        let schema = |named: &[&str], rest: Option<&[&str]>| {
            let families =
                |names: &[&str]| names.iter().map(|name| Family::new(*name)).collect::<Vec<_>>();
            let rest = rest.map(|names| wild(families(names)));
            Schema::new([Group::new("x", families(named))].into_iter().chain(rest).collect())
        };
        let since = |schema: &Schema, name: &str| {
            schema.since(schema.find(name.as_bytes()).expect("the family exists"))
        };
        let [one, two, three] = [1, 2, 3].map(Txn::base);
        let open = schema(&["f"], Some(&[])).unwrap();
        let named = schema(&["f", "g"], Some(&[])).unwrap().succeeding(&open, &[], one);
        assert_eq!(since(&named, "g"), Txn::ZERO, "the wildcard group held it");
        // Cells from before a family was emptied stay hidden when it is no longer named.
        let emptied = schema(&["f", "g"], Some(&[])).unwrap().succeeding(&named, &[b"g"], one);
        let unnamed = schema(&["f"], Some(&[])).unwrap().succeeding(&emptied, &[], two);
        assert_eq!((since(&unnamed, "g"), since(&unnamed, "h")), (one, Txn::ZERO));
        // A new wildcard group does not bring back families that were dropped before.
        let closed = schema(&["f"], None).unwrap().succeeding(&unnamed, &[], two);
        assert!(closed.find(b"g").is_none());
        let opened = schema(&[], Some(&[])).unwrap().succeeding(&closed, &[], three);
        assert_eq!((since(&opened, "g"), since(&opened, "f")), (three, Txn::ZERO));
    }

    #[test]
    fn scale_6_10_hidden_families_have_groups_of_their_own_and_remain_hidden() {
        let hidden = |name: &str| Family::hidden(name, Purge::Never);
        let schema = |groups: Vec<Group>| Schema::new(groups);
        let visible = || Group::new("x", [Family::new("f")]);
        let old = schema(vec![visible(), Group::new("h", [hidden("t"), hidden("u")])]).unwrap();
        assert!(schema(vec![Group::new("x", [Family::new("f"), hidden("t")])]).is_err());
        let wild = Group { wildcard: true, ..Group::new("h", [hidden("t")]) };
        assert!(schema(vec![visible(), wild]).is_err());
        let shown = schema(vec![visible(), Group::new("h", [Family::new("t")])]).unwrap();
        assert!(old.check_successor(&shown).is_err());
        let fewer = schema(vec![visible(), Group::new("h", [hidden("u")])]).unwrap();
        assert!(old.check_successor(&fewer).is_err(), "a hidden family would be removed");
        let none = schema(vec![visible(), Group::new("h", [])]).unwrap();
        assert!(old.check_successor(&none).is_err(), "the group would no longer be hidden");
        // Groups are added only if they are hidden, and after the others.
        let kept = || Group::new("h", [hidden("t"), hidden("u")]);
        let more = [visible(), kept(), Group::new("i", [hidden("v")])];
        assert!(old.check_successor(&schema(more.to_vec()).unwrap()).is_ok());
        let wider = [visible(), Group::new("y", []), kept()];
        assert!(old.check_successor(&schema(wider.to_vec()).unwrap()).is_err());
        let first = [Group::new("h", [hidden("t")]), visible()];
        assert!(schema(first.to_vec()).is_err());
    }

    #[test]
    fn a_family_that_leaves_the_wildcard_group_moves() {
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
