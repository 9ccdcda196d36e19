//! Decides whether a caller may do something to a resource.
//!
//! [`Rights`] is an immutable snapshot of all bindings, compiled for lookups: a decision
//! reads memory only. Resources are names; what is granted on one holds for everything
//! below it. `""` is the whole server.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::caller::Caller;
use crate::member::ALL_USERS;
use crate::permission::{Permission, PermissionSet};
use crate::policy::{Binding, Policy};
use crate::role::Role;

/// The project whose resources are never granted.
const RESERVED: &str = "projects/stele-system";

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// The proof that a caller was allowed to do one thing. Only [`Rights::authorize`] makes
/// one.
#[derive(Debug)]
#[must_use]
pub struct Grant {
    permission: Permission,
    generation: u64,
}

impl Grant {
    pub fn permission(&self) -> Permission {
        self.permission
    }

    /// Returns the number of the snapshot that allowed it.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// A refusal. It does not reveal whether the resource exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{principal} does not have the permission {permission} on {}", shown(.resource))]
pub struct Denied {
    pub principal: Arc<str>,
    pub permission: Permission,
    pub resource: String,
}

fn shown(resource: &str) -> String {
    match resource {
        "" => "the server".into(),
        resource => resource.chars().take(200).collect(),
    }
}

/// What one member may do.
#[derive(Debug, Default)]
struct Rules {
    /// On some resource at least.
    somewhere: PermissionSet,
    /// On every resource.
    everywhere: PermissionSet,
    on: HashMap<Box<str>, PermissionSet>,
}

/// A binding as an explanation shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub member: Arc<str>,
    pub role: Role,
    pub resource: Box<str>,
    /// Where the binding is written.
    pub source: Box<str>,
}

/// Why a caller may or may not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub allowed: bool,
    /// The bindings that allow it.
    pub by: Vec<Bound>,
    /// Bindings of the caller on other resources that would allow it there.
    pub elsewhere: Vec<Bound>,
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { member, role, resource, source } = self;
        write!(out, "{role} for {member} on {} ({source})", shown(resource))
    }
}

/// Everything that is granted at one moment.
#[derive(Debug)]
pub struct Rights {
    generation: u64,
    rules: HashMap<Arc<str>, Rules>,
    bound: Vec<Bound>,
}

impl Rights {
    /// Compiles a policy, and bindings from elsewhere.
    pub fn new(policy: &Policy, others: impl IntoIterator<Item = Binding>) -> Rights {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let mut rights = Rights { generation, rules: HashMap::new(), bound: Vec::new() };
        for binding in policy.bindings.iter().cloned().chain(others) {
            for member in &binding.members {
                // Those that belong to a group hold what is bound to it.
                let of_group = policy.groups.get(member.as_str()).into_iter().flatten();
                for holder in of_group.chain([member]) {
                    // The last line of defence: policies refuse this earlier.
                    if holder.as_str() == ALL_USERS && !policy.public_data {
                        continue;
                    }
                    rights.add(holder.as_str(), &binding);
                }
            }
        }
        rights
    }

    fn add(&mut self, member: &str, binding: &Binding) {
        let member: Arc<str> = member.into();
        let rules = self.rules.entry(member.clone()).or_default();
        let granted = binding.role.permissions();
        rules.somewhere = rules.somewhere.and(granted);
        if binding.resource.is_empty() {
            rules.everywhere = rules.everywhere.and(granted);
        } else {
            let on = rules.on.entry(binding.resource.clone()).or_default();
            *on = on.and(granted);
        }
        self.bound.push(Bound {
            member,
            role: binding.role,
            resource: binding.resource.clone(),
            source: binding.source.clone(),
        });
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Decides whether the caller may do this to the resource.
    pub fn authorize(
        &self,
        caller: &Caller,
        permission: Permission,
        resource: &str,
    ) -> Result<Grant, Denied> {
        let allowed = !is_reserved(resource)
            && caller.members().any(|member| {
                let Some(rules) = self.rules.get(member) else { return false };
                rules.somewhere.contains(permission)
                    && (rules.everywhere.contains(permission)
                        || ancestors(resource).any(|name| {
                            rules.on.get(name).is_some_and(|on| on.contains(permission))
                        }))
            });
        match allowed {
            true => Ok(Grant { permission, generation: self.generation }),
            false => Err(Denied {
                principal: caller.principal().clone(),
                permission,
                resource: resource.into(),
            }),
        }
    }

    /// Returns whether the caller may do this to some resource: the answer to a request
    /// whose resource is not known yet.
    pub fn holds_somewhere(&self, caller: &Caller, permission: Permission) -> bool {
        let mut held = caller.members().filter_map(|member| self.rules.get(member));
        held.any(|rules| rules.somewhere.contains(permission))
    }

    /// Returns whether the caller may do this to every resource that is not reserved.
    pub fn holds_everywhere(&self, caller: &Caller, permission: Permission) -> bool {
        let mut held = caller.members().filter_map(|member| self.rules.get(member));
        held.any(|rules| rules.everywhere.contains(permission))
    }

    /// Returns whether anything at all is granted to a caller with a credential.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Explains the decision of [`Rights::authorize`].
    pub fn explain(&self, caller: &Caller, permission: Permission, resource: &str) -> Explanation {
        let mut explanation = Explanation {
            allowed: self.authorize(caller, permission, resource).is_ok(),
            by: Vec::new(),
            elsewhere: Vec::new(),
        };
        for bound in &self.bound {
            let of_caller = caller.members().any(|member| member == &*bound.member);
            if !of_caller || !bound.role.permissions().contains(permission) {
                continue;
            }
            let above = bound.resource.is_empty()
                || ancestors(resource).any(|name| name == &*bound.resource);
            match above && explanation.allowed {
                true => explanation.by.push(bound.clone()),
                false => explanation.elsewhere.push(bound.clone()),
            }
        }
        explanation
    }

    /// Returns the bindings of a caller, for `whoami`.
    pub fn bound(&self, caller: &Caller) -> Vec<Bound> {
        let of_caller = |bound: &&Bound| caller.members().any(|member| member == &*bound.member);
        self.bound.iter().filter(of_caller).cloned().collect()
    }
}

fn is_reserved(resource: &str) -> bool {
    resource.strip_prefix(RESERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns a resource and everything above it, except the server. Names are pairs of a
/// kind and an id, as in `projects/p/instances/i`; the kind of the first pair stands for
/// all of that kind, as in `catalogues`.
fn ancestors(resource: &str) -> impl Iterator<Item = &str> {
    let first = Some(resource).filter(|resource| !resource.is_empty());
    std::iter::successors(first, |name| {
        let kind = &name[..name.rfind('/')?];
        match kind.rfind('/') {
            Some(end) => Some(&name[..end]),
            None => Some(kind).filter(|kind| *kind != "projects"),
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Member;

    const TABLE: &str = "projects/p/instances/i/tables/t";

    fn binding(role: Role, member: &str, resource: &str) -> Binding {
        Binding {
            role,
            members: vec![Member::parse(member).unwrap()],
            resource: resource.into(),
            source: "test".into(),
        }
    }

    fn rights(bindings: &[(Role, &str, &str)]) -> Rights {
        let bindings = bindings.iter().map(|(role, member, on)| binding(*role, member, on));
        Rights::new(&Policy::default(), bindings)
    }

    fn may(rights: &Rights, member: &str, permission: Permission, resource: &str) -> bool {
        rights.authorize(&Caller::named(member), permission, resource).is_ok()
    }

    #[test]
    fn ancestors_are_pairs_of_kind_and_id() {
        let of = |name| ancestors(name).collect::<Vec<_>>();
        let up = [TABLE, "projects/p/instances/i", "projects/p"];
        assert_eq!(of(TABLE), up);
        assert_eq!(of("metastore"), ["metastore"]);
        assert_eq!(of("catalogues/1:2"), ["catalogues/1:2", "catalogues"]);
        assert!(of("").is_empty());
    }

    #[test]
    fn a_role_holds_for_its_resource_and_everything_below_it_and_nothing_else() {
        let rights = rights(&[(Role::BigtableReader, "user:ada", "projects/p/instances/i")]);
        let read = Permission::TablesReadRows;
        assert!(may(&rights, "user:ada", read, TABLE));
        assert!(may(&rights, "user:ada", read, &format!("{TABLE}/authorizedViews/v")));
        for other in [
            "",
            "projects/p",
            "projects/p/instances/ii/tables/t",
            "projects/p/instances/i2",
            "projects/q/instances/i/tables/t",
            "catalogues/1:2",
        ] {
            assert!(!may(&rights, "user:ada", read, other), "{other}");
        }
        assert!(!may(&rights, "user:ada", Permission::TablesMutateRows, TABLE));
        assert!(!may(&rights, "user:bob", read, TABLE));
        assert!(!may(&rights, "principal://cert/cn/ada", read, TABLE));
    }

    #[test]
    fn nobody_is_granted_the_reserved_project() {
        let rights = rights(&[(Role::SteleAdmin, "user:ada", "")]);
        let all = |name: &str| may(&rights, "user:ada", Permission::TablesReadRows, name);
        assert!(all(TABLE) && all("projects/stele-systems/instances/i") && all(""));
        assert!(!all("projects/stele-system") && !all("projects/stele-system/instances/names"));
    }

    #[test]
    fn everybody_is_granted_something_only_if_the_policy_allows_public_data() {
        let public = || [binding(Role::BigtableReader, "allUsers", "projects/p")];
        let mut policy = Policy::default();
        let anonymous = Caller::anonymous();
        let read = Permission::TablesReadRows;
        assert!(Rights::new(&policy, public()).authorize(&anonymous, read, TABLE).is_err());
        policy.public_data = true;
        let open = Rights::new(&policy, public());
        assert!(open.authorize(&anonymous, read, TABLE).is_ok());
        assert!(may(&open, "user:ada", read, TABLE));
        let known = rights(&[(Role::BigtableReader, "allAuthenticatedUsers", "projects/p")]);
        assert!(known.authorize(&anonymous, read, TABLE).is_err());
        assert!(may(&known, "user:ada", read, TABLE));
    }

    #[test]
    fn an_explanation_names_the_binding_that_allows_and_those_elsewhere() {
        let rights = rights(&[
            (Role::BigtableReader, "user:ada", "projects/p"),
            (Role::BigtableUser, "user:ada", "projects/q"),
        ]);
        let ada = Caller::named("user:ada");
        let read = rights.explain(&ada, Permission::TablesReadRows, TABLE);
        assert!(read.allowed);
        assert_eq!(read.by[0].to_string(), "bigtable.reader for user:ada on projects/p (test)");
        let write = rights.explain(&ada, Permission::TablesMutateRows, TABLE);
        assert!(!write.allowed && write.by.is_empty());
        assert_eq!(&*write.elsewhere[0].resource, "projects/q");
        assert_eq!(rights.bound(&ada).len(), 2);
        let denied = rights.authorize(&ada, Permission::TablesMutateRows, TABLE).unwrap_err();
        assert_eq!(
            denied.to_string(),
            format!("user:ada does not have the permission bigtable.tables.mutateRows on {TABLE}")
        );
    }

    const MEMBERS: &[&str] =
        &["user:a", "user:b", "allAuthenticatedUsers", "allCertificates", "principal://cert/cn/a"];
    const RESOURCES: &[&str] = &[
        "",
        "projects/p",
        "projects/p/instances/i",
        TABLE,
        "projects/p/instances/j",
        "metastore",
        "catalogues",
        "catalogues/1:2",
    ];

    fn any_binding() -> impl Strategy<Value = (Role, &'static str, &'static str)> {
        let role = proptest::sample::select(Role::ALL);
        (role, proptest::sample::select(MEMBERS), proptest::sample::select(RESOURCES))
    }

    proptest! {
        #[test]
        fn a_further_binding_never_removes_a_permission(
            bindings in proptest::collection::vec(any_binding(), 0..6),
            further in any_binding(),
            permission in proptest::sample::select(Permission::ALL),
            resource in proptest::sample::select(RESOURCES),
            member in proptest::sample::select(MEMBERS),
        ) {
            let before = may(&rights(&bindings), member, permission, resource);
            let with = [&bindings[..], &[further]].concat();
            prop_assert!(!before || may(&rights(&with), member, permission, resource));
        }

        #[test]
        fn a_decision_is_that_of_the_plain_definition(
            bindings in proptest::collection::vec(any_binding(), 0..6),
            permission in proptest::sample::select(Permission::ALL),
            resource in proptest::sample::select(RESOURCES),
            member in proptest::sample::select(MEMBERS),
        ) {
            let caller = Caller::named(member);
            let above = |on: &str| {
                on.is_empty() || resource == on || resource.starts_with(&format!("{on}/"))
            };
            let expected = bindings.iter().any(|(role, holder, on)| {
                caller.members().any(|member| member == *holder)
                    && role.permissions().contains(permission)
                    && above(on)
            });
            let rights = rights(&bindings);
            prop_assert_eq!(may(&rights, member, permission, resource), expected);
            let explained = rights.explain(&caller, permission, resource);
            prop_assert_eq!(explained.allowed, expected);
            prop_assert_eq!(!explained.by.is_empty(), expected);
            if expected {
                prop_assert!(rights.holds_somewhere(&caller, permission));
            }
            if rights.holds_everywhere(&caller, permission) {
                prop_assert!(expected);
            }
        }
    }
}
