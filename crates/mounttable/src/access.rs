//! Access control at a node: lists of patterns by tag, inheritance from the parent, and
//! templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use crate::blessing::{self, Caller, EVERYBODY};
use crate::error::{Error, Result};

pub const PERMISSIONS_BYTES_MAX: usize = 100 << 10;

/// The prefix of template tags; within them `%%` is replaced by the child's name.
const TEMPLATE: &str = "%%/";
const CHILD: &str = "%%";

/// The tags that have a meaning; others are stored unchanged.
pub const ADMIN: &str = "Admin";
pub const CREATE: &str = "Create";
pub const MOUNT: &str = "Mount";
pub const READ: &str = "Read";
pub const RESOLVE: &str = "Resolve";

/// The patterns that a list includes and excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessList {
    #[serde(
        rename = "In",
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub included: Vec<String>,
    #[serde(
        rename = "NotIn",
        default,
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub excluded: Vec<String>,
}

/// Deserializes a list that may be null.
fn list<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    Option::<Vec<String>>::deserialize(input).map(Option::unwrap_or_default)
}

impl AccessList {
    pub fn of(included: impl IntoIterator<Item = impl Into<String>>) -> AccessList {
        AccessList {
            included: included.into_iter().map(Into::into).collect(),
            excluded: Vec::new(),
        }
    }

    /// Returns whether the list admits the caller. Blessings that an exclusion matches
    /// do not count; one of the others must be included. `...` matches every caller.
    pub fn admits(&self, caller: &Caller) -> bool {
        if self.included.iter().any(|pattern| pattern == EVERYBODY) {
            return true;
        }
        let matched = |patterns: &[String], name: &str| {
            patterns.iter().any(|pattern| blessing::matches(pattern, name))
        };
        let mut left = caller.blessings().iter().filter(|name| !matched(&self.excluded, name));
        left.any(|name| matched(&self.included, name))
    }

    fn add(&mut self, caller: &Caller) {
        self.included.extend(caller.blessings().iter().cloned());
    }

    fn normalise(&mut self) {
        for patterns in [&mut self.included, &mut self.excluded] {
            patterns.sort();
            patterns.dedup();
        }
    }

    /// Returns the list with the child's name substituted.
    fn expanded(&self, child: &str) -> AccessList {
        let expand = |patterns: &[String]| {
            patterns.iter().map(|pattern| pattern.replace(CHILD, child)).collect()
        };
        AccessList { included: expand(&self.included), excluded: expand(&self.excluded) }
    }
}

/// Access lists by tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Permissions(pub BTreeMap<String, AccessList>);

impl Permissions {
    /// Returns permissions that allow everything to everybody.
    pub fn open() -> Permissions {
        Permissions::default().with(ADMIN, [EVERYBODY])
    }

    pub fn with(
        mut self,
        tag: &str,
        included: impl IntoIterator<Item = impl Into<String>>,
    ) -> Permissions {
        self.0.insert(tag.into(), AccessList::of(included));
        self
    }

    pub fn from_json(json: &[u8]) -> Result<Permissions> {
        serde_json::from_slice(json).map_err(|error| Error::BadPermissions(error.to_string()))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("maps of lists of strings can be encoded as JSON")
    }

    pub fn check_size(&self) -> Result<()> {
        match self.to_json().len() {
            bytes if bytes > PERMISSIONS_BYTES_MAX => Err(Error::BadPermissions(format!(
                "they take {bytes} bytes, the limit is {PERMISSIONS_BYTES_MAX}"
            ))),
            _ => Ok(()),
        }
    }

    /// Rejects patterns that cannot match anybody: set by mistake, they would lock out
    /// everybody who is not on another list.
    pub fn check_patterns(&self) -> Result<()> {
        for (tag, list) in &self.0 {
            for pattern in list.included.iter().chain(&list.excluded) {
                if let Some(why) = blessing::mistake(pattern) {
                    let what = format!("pattern {pattern:?} of {tag} matches nobody: {why}");
                    return Err(Error::BadPermissions(what));
                }
            }
        }
        Ok(())
    }

    /// Returns whether a list of one of these tags admits the caller.
    pub fn admit(&self, caller: &Caller, tags: &[&str]) -> bool {
        tags.iter().any(|tag| self.0.get(*tag).is_some_and(|list| list.admits(caller)))
    }

    /// Returns the permissions with sorted lists without duplicates.
    pub fn normalised(mut self) -> Permissions {
        self.0.values_mut().for_each(AccessList::normalise);
        self
    }

    /// Returns the permissions with the caller added to the administrators.
    pub fn with_admin(mut self, caller: &Caller) -> Permissions {
        self.0.entry(ADMIN.into()).or_default().add(caller);
        self
    }

    pub fn has_template(&self) -> bool {
        self.0.keys().any(|tag| tag.starts_with(TEMPLATE))
    }

    /// Returns the permissions of a new child: the template with its name, or else a
    /// copy. The caller becomes administrator of the requested node (`is_last`), not of
    /// those created on the path to it.
    pub fn for_child(&self, element: &str, caller: &Caller, is_last: bool) -> Result<Permissions> {
        if !self.has_template() {
            let copy = self.clone();
            return Ok(if is_last { copy.with_admin(caller) } else { copy }.normalised());
        }
        // A name such as `...` or `a:b` would admit others than itself.
        if !blessing::is_component(element) {
            return Err(Error::InvalidName {
                name: element.into(),
                why: "the parent has templates, and the name cannot be part of a pattern".into(),
            });
        }
        let expanded = self.0.iter().filter_map(|(tag, list)| {
            Some((tag.strip_prefix(TEMPLATE)?.to_string(), list.expanded(element)))
        });
        Ok(Permissions(expanded.collect()).normalised())
    }

    /// Returns these tags as a template for children.
    pub fn as_template(&self) -> impl Iterator<Item = (String, AccessList)> {
        self.0.iter().map(|(tag, list)| (format!("{TEMPLATE}{tag}"), list.clone()))
    }
}

/// A cache of decoded permissions, because most nodes have those of their parents.
pub struct PermissionsPool {
    cache: quick_cache::sync::Cache<Bytes, Arc<Permissions>>,
}

const POOLED_MAX: usize = 4096;
const POOLED_BYTES_MAX: usize = 4096;

impl Default for PermissionsPool {
    fn default() -> PermissionsPool {
        PermissionsPool { cache: quick_cache::sync::Cache::new(POOLED_MAX) }
    }
}

impl PermissionsPool {
    pub fn parse(&self, json: &[u8]) -> Result<Arc<Permissions>> {
        if let Some(cached) = self.cache.get(json) {
            return Ok(cached);
        }
        let read = Arc::new(Permissions::from_json(json)?);
        if json.len() <= POOLED_BYTES_MAX {
            self.cache.insert(Bytes::copy_from_slice(json), read.clone());
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_permissions_are_decoded_once() {
        let pool = PermissionsPool::default();
        let json = Permissions::open().to_json();
        let first = pool.parse(json.as_bytes()).unwrap();
        assert!(Arc::ptr_eq(&first, &pool.parse(json.as_bytes()).unwrap()));
        assert_eq!(*first, Permissions::open());
        assert!(pool.parse(b"{").is_err());
    }

    fn list(included: &[&str], excluded: &[&str]) -> AccessList {
        AccessList {
            included: included.iter().map(|name| name.to_string()).collect(),
            excluded: excluded.iter().map(|name| name.to_string()).collect(),
        }
    }

    #[test]
    fn exclusions_remove_blessings_and_three_dots_match_everybody() {
        let admits = |included: &[&str], excluded: &[&str], blessings: &[&str]| {
            list(included, excluded).admits(&Caller::with(blessings.iter().copied()))
        };
        assert!(admits(&["a"], &[], &["a:b"]));
        assert!(!admits(&["a"], &["a:b"], &["a:b:c"]));
        assert!(admits(&["a"], &["a:b"], &["a:c"]));
        assert!(admits(&["a"], &["a:b"], &["a:b", "a"]));
        assert!(!admits(&["a"], &[], &[]));
        assert!(!admits(&[], &[], &["a"]));
        assert!(admits(&["..."], &[], &[]));
        assert!(admits(&["..."], &["a"], &["a"]));
    }

    #[test]
    fn json_is_compatible_with_the_predecessor() {
        let read = Permissions::from_json(br#"{"Admin":{"In":["b","a","a"],"NotIn":null},"X":{}}"#);
        let read = read.unwrap().normalised();
        assert_eq!(read.to_json(), r#"{"Admin":{"In":["a","b"]},"X":{}}"#);
        assert_eq!(Permissions::from_json(read.to_json().as_bytes()).unwrap(), read);
        for bad in ["", "[]", r#"{"Admin":{"in":[]}}"#, r#"{"Admin":{"In":"a"}}"#] {
            assert!(Permissions::from_json(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn children_inherit_a_copy_and_the_requested_one_adds_its_creator() {
        let parent = Permissions::default().with(ADMIN, ["root"]).with(READ, ["..."]);
        let alice = Caller::with(["alice", "a2"]);
        assert_eq!(parent.for_child("x", &alice, false).unwrap(), parent);
        let last = parent.for_child("x", &alice, true).unwrap();
        assert_eq!(last, parent.with(ADMIN, ["a2", "alice", "root"]));
    }

    #[test]
    fn a_child_of_a_template_gets_only_the_template() {
        let parent = Permissions::open().with("%%/Admin", ["root:%%"]).with("%%/Read", ["..."]);
        let alice = Caller::with(["alice"]);
        let child = parent.for_child("bob", &alice, true).unwrap();
        assert_eq!(child, Permissions::default().with(ADMIN, ["root:bob"]).with(READ, ["..."]));
        for trap in ["...", "$", "a:b", "a,b"] {
            assert!(parent.for_child(trap, &alice, true).is_err(), "{trap}");
        }
    }
}
