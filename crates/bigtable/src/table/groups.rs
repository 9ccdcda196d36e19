//! The locality groups of a table: which families are stored together, and how. The
//! Bigtable API has no notion of them; they are declared through Stele's own API.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use stele_engine::schema::{Compression, Family as EngineFamily, Group, Purge, Schema};

use super::definition::Definition;
use super::family::{self, Family};
use super::gc;
use super::registry::Successor;
use super::token_family::TOKEN_GROUP;
use crate::error::{Error, Result};

/// A locality group as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyGroup {
    pub name: String,
    pub families: BTreeSet<String>,
    /// Contains every family that no group names.
    pub wildcard: bool,
    pub compression: Compression,
    pub block_bytes: Option<u32>,
    pub in_memory: bool,
}

/// A group as it is stored with the definition of its table.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GroupRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    families: Vec<String>,
    #[prost(bool, tag = "3")]
    wildcard: bool,
    #[prost(uint32, tag = "4")]
    compression: u32,
    #[prost(uint32, optional, tag = "5")]
    block_bytes: Option<u32>,
    #[prost(bool, tag = "6")]
    in_memory: bool,
}

impl FamilyGroup {
    pub(super) fn record(&self) -> GroupRecord {
        GroupRecord {
            name: self.name.clone(),
            families: self.families.iter().cloned().collect(),
            wildcard: self.wildcard,
            compression: self.compression.to_byte().into(),
            block_bytes: self.block_bytes,
            in_memory: self.in_memory,
        }
    }

    /// Returns the group of a record; the error describes the damage.
    pub(super) fn from_record(record: GroupRecord) -> Result<FamilyGroup, String> {
        let compression = u8::try_from(record.compression).ok().and_then(Compression::from_byte);
        let unknown = || format!("unknown compression {}", record.compression);
        Ok(FamilyGroup {
            compression: compression.ok_or_else(unknown)?,
            name: record.name,
            families: record.families.into_iter().collect(),
            wildcard: record.wildcard,
            block_bytes: record.block_bytes,
            in_memory: record.in_memory,
        })
    }
}

impl Definition {
    /// Returns the groups of the engine. A family that no group names is in the wildcard
    /// group, or in the first group if there is none.
    pub(super) fn engine_groups(&self, families: Vec<EngineFamily>) -> Vec<Group> {
        if self.groups.is_empty() {
            let group = Group::new("default", families);
            return vec![Group { compression: self.compression, ..group }];
        }
        let rest = self.groups.iter().position(|group| group.wildcard).unwrap_or(0);
        let group = |group: &FamilyGroup| Group {
            compression: group.compression,
            block_bytes: group.block_bytes,
            in_memory: group.in_memory,
            ..Group::new(&group.name, [])
        };
        let mut groups: Vec<Group> = self.groups.iter().map(group).collect();
        for family in families {
            let names = |group: &FamilyGroup| {
                group.families.iter().any(|name| name.as_bytes() == family.name)
            };
            let at = self.groups.iter().position(names).unwrap_or(rest);
            groups[at].families.push(family);
        }
        groups
    }

    /// Returns the groups as they are declared: families with their purge policies, and
    /// the group to which new ones are added as the wildcard group.
    pub fn grouping(&self) -> Result<Schema> {
        let schema = self.schema()?;
        let rest = self.groups.iter().position(|group| group.wildcard);
        let rest = if self.groups.is_empty() { Some(0) } else { rest };
        let visible = schema.groups()[..schema.visible_groups()].iter().enumerate();
        let groups = visible.map(|(at, group)| {
            let mut group = Group { wildcard: rest == Some(at), ..group.clone() };
            // No rule is the same as never.
            let own = group.families.iter_mut();
            own.filter(|family| family.purge == Some(Purge::Never)).for_each(|f| f.purge = None);
            group
        });
        Ok(Schema::new(groups.collect())?)
    }

    /// Returns the definition with the families and groups of `schema`, of which a purge
    /// policy becomes a garbage-collection rule. Families that the wildcard group may hold
    /// are kept; others that `schema` lacks are dropped, which `drops` permits.
    pub fn regrouped(&self, table: &str, schema: &Schema, drops: bool) -> Result<Successor> {
        let mut families = BTreeMap::new();
        let mut groups = Vec::new();
        for group in schema.groups() {
            if group.name == TOKEN_GROUP {
                return Err(Error::Invalid(format!("the group name {TOKEN_GROUP} is reserved")));
            }
            let mut names = BTreeSet::new();
            for declared in &group.families {
                let name = String::from_utf8_lossy(&declared.name).into_owned();
                family::check_name(&name)?;
                let policy = declared.purge.as_ref().unwrap_or(&group.purge);
                families.insert(name.clone(), self.with_policy(&name, policy)?);
                names.insert(name);
            }
            groups.push(FamilyGroup {
                name: group.name.clone(),
                families: names,
                wildcard: group.wildcard,
                compression: group.compression,
                block_bytes: group.block_bytes,
                in_memory: group.in_memory,
            });
        }
        let is_open = groups.iter().any(|group| group.wildcard);
        let mut dropped = Vec::new();
        for (name, family) in &self.families {
            if families.contains_key(name) {
                continue;
            }
            if is_open {
                families.insert(name.clone(), family.clone());
            } else {
                dropped.push(name.as_str());
            }
        }
        if !dropped.is_empty() && (self.deletion_protection || !drops) {
            let why = if self.deletion_protection {
                "the table has deletion protection"
            } else {
                "name them in a group, add * to the columns of one, or permit it explicitly"
            };
            let dropped = dropped.join(", ");
            return Err(Error::Precondition(format!(
                "the schema would drop families of {table} with all their cells: {dropped}: {why}"
            )));
        }
        let definition = Definition { families, groups, ..self.clone() };
        Ok(Successor { definition, emptied: BTreeSet::new() })
    }

    /// Returns a family, as it is or new, with a purge policy.
    fn with_policy(&self, name: &str, policy: &Purge) -> Result<Family> {
        let old = self.families.get(name).cloned().unwrap_or_default();
        // A rule that says the same is kept as it was declared.
        if gc::purge(old.gc_rule.as_ref())? == *policy {
            return Ok(old);
        }
        let gc_rule = gc::rule(policy)?.map(gc::validate).transpose()?;
        Ok(Family { gc_rule, ..old })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(families: &[&str]) -> Definition {
        let families = families.iter().map(|name| (name.to_string(), Family::default()));
        Definition { families: families.collect(), ..Definition::default() }
    }

    fn regrouped(old: &Definition, text: &str, drops: bool) -> Result<Definition> {
        let schema = Schema::parse(text).unwrap();
        old.regrouped("t", &schema, drops).map(|successor| successor.definition)
    }

    fn groups(definition: &Definition) -> Vec<(String, Vec<String>)> {
        let schema = definition.schema().unwrap();
        let names = |group: &Group| {
            let names =
                group.families.iter().map(|f| String::from_utf8_lossy(&f.name).into_owned());
            (group.name.clone(), names.collect())
        };
        schema.groups().iter().map(names).collect()
    }

    fn group(name: &str, families: &[&str]) -> (String, Vec<String>) {
        (name.into(), families.iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn a_grouped_definition_comes_back_from_its_schema_and_its_text() {
        let text = "schema:hot columns=\"a b\" purge=\"max-history=2\" purge:b=\"never\" in-memory=\"true\"\n\
                    schema:rest columns=\"*\" compression=\"zstd\" blocksize=\"4096\"";
        let next = regrouped(&definition(&["a", "c"]), text, false).unwrap();
        assert_eq!(groups(&next), [group("hot", &["a", "b"]), group("rest", &["c"])]);
        assert_eq!(Definition::from_schema("t", &next.schema().unwrap()).unwrap(), next);
        let printed = next.grouping().unwrap();
        let again = next.regrouped("t", &printed, false).unwrap().definition;
        assert_eq!(groups(&again), groups(&next));
        assert_eq!(again.families, next.families);
        assert!(printed.groups()[0].in_memory && printed.groups()[1].wildcard);
        // The wildcard is the table's own: the engine knows all families.
        assert!(next.schema().unwrap().groups().iter().all(|group| !group.wildcard));
    }

    #[test]
    fn a_new_family_is_in_the_wildcard_group_or_else_in_the_first() {
        let old = definition(&["a", "b"]);
        let mut open =
            regrouped(&old, "schema:x columns=\"a\"\nschema:y columns=\"*\"", false).unwrap();
        open.families.insert("c".into(), Family::default());
        assert_eq!(groups(&open), [group("x", &["a"]), group("y", &["b", "c"])]);
        let text = "schema:x columns=\"a\"\nschema:y columns=\"b\"";
        let mut closed = regrouped(&old, text, false).unwrap();
        closed.families.insert("c".into(), Family::default());
        assert_eq!(groups(&closed), [group("x", &["a", "c"]), group("y", &["b"])]);
    }

    #[test]
    fn families_are_dropped_only_if_that_is_permitted() {
        let old = definition(&["a", "b"]);
        let error = regrouped(&old, "schema:x columns=\"a\"", false).unwrap_err();
        assert!(matches!(error, Error::Precondition(_)) && error.to_string().contains(": b: "));
        let next = regrouped(&old, "schema:x columns=\"a\"", true).unwrap();
        assert_eq!(groups(&next), [group("x", &["a"])]);
        let protected = Definition { deletion_protection: true, ..old };
        assert!(regrouped(&protected, "schema:x columns=\"a\"", true).is_err());
        let waterline =
            regrouped(&protected, "schema:x columns=\"*\" purge=\"waterline=3\"", false);
        assert!(waterline.is_ok(), "no family of the group has it");
        let waterline = "schema:x columns=\"a *\" purge=\"waterline=3\"";
        assert!(matches!(regrouped(&protected, waterline, false), Err(Error::Invalid(_))));
    }
}
