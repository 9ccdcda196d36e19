//! Policies of Bigtable resources, as Bigtable's clients read and write them.

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::member::Member;
use crate::policy::{Binding, check_resource};
use crate::role::Role;
use crate::token::sha256;

const MEMBERS_MAX: usize = 1500;
const BYTES_MAX: usize = 64 << 10;

/// A policy as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IamPolicy {
    pub bindings: Vec<IamBinding>,
    /// The table that it was written for: another table of the same name has no policy.
    #[serde(default)]
    pub table_id: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IamBinding {
    pub role: String,
    pub members: Vec<String>,
}

impl IamPolicy {
    /// Checks a policy and returns its bindings on the resource.
    pub fn check(&self, resource: &str, public_data: bool) -> Result<Vec<Binding>, String> {
        if !resource.starts_with("projects/") {
            return Err(format!("{resource:?} is not a Bigtable resource"));
        }
        check_resource(resource)?;
        let members: usize = self.bindings.iter().map(|binding| binding.members.len()).sum();
        if members > MEMBERS_MAX {
            return Err(format!("a policy has at most {MEMBERS_MAX} members, got {members}"));
        }
        if self.encode().len() > BYTES_MAX {
            return Err("a policy has at most 64 KiB".into());
        }
        let source = format!("IAM policy of {resource}");
        let binding = |binding: &IamBinding| {
            let name = &binding.role;
            let role = Role::parse(name).filter(|role| role.name().starts_with("bigtable."));
            let role = role.ok_or_else(|| {
                let shown: String = name.chars().take(100).collect();
                format!(
                    "unknown role {shown:?}: use roles/bigtable.viewer, roles/bigtable.reader, \
                     roles/bigtable.user or roles/bigtable.admin"
                )
            })?;
            let parsed: Result<Vec<_>, _> =
                binding.members.iter().map(|member| Member::parse(member)).collect();
            let members = parsed?;
            if members.iter().any(Member::is_everybody) && !(public_data && role.is_readonly()) {
                return Err(format!(
                    "{role} cannot be bound to allUsers: only roles that read can, and only with \
                     public-data = true in the server's policy file"
                ));
            }
            Ok(Binding { role, members, resource: resource.into(), source: source.as_str().into() })
        };
        self.bindings.iter().map(binding).collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers can be written as JSON")
    }

    pub fn decode(bytes: &[u8]) -> Result<IamPolicy, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Identifies this version of the policy.
    pub fn etag(&self) -> Vec<u8> {
        hex::encode(&sha256(&self.encode())[..8]).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "projects/p/instances/i/tables/t";

    fn policy(role: &str, members: &[&str]) -> IamPolicy {
        let members = members.iter().map(|member| member.to_string()).collect();
        let bindings = vec![IamBinding { role: role.into(), members }];
        IamPolicy { bindings, table_id: Some(7) }
    }

    #[test]
    fn a_policy_is_stored_and_becomes_bindings() {
        let policy = policy("roles/bigtable.reader", &["user:ada", "group:dev"]);
        assert_eq!(IamPolicy::decode(&policy.encode()).unwrap(), policy);
        let bindings = policy.check(TABLE, false).unwrap();
        assert_eq!((bindings[0].role, &*bindings[0].resource), (Role::BigtableReader, TABLE));
        let other = IamPolicy { table_id: Some(8), ..policy.clone() };
        assert_ne!(policy.etag(), other.etag());
        assert_eq!(policy.etag(), policy.clone().etag());
    }

    #[test]
    fn a_policy_that_cannot_be_meant_is_refused() {
        let many: Vec<String> = (0..1501).map(|n| format!("user:{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = format!("user:{}", "a".repeat(500));
        for (policy, why) in [
            (policy("roles/stele.admin", &["user:ada"]), "unknown role"),
            (policy("roles/owner", &["user:ada"]), "unknown role"),
            (policy("roles/bigtable.reader", &["ada"]), "invalid member"),
            (policy("roles/bigtable.reader", &["allUsers"]), "allUsers"),
            (policy("roles/bigtable.reader", &many), "1500 members"),
            (policy("roles/bigtable.reader", &vec![&*long; 140]), "64 KiB"),
        ] {
            let error = policy.check(TABLE, false).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let public = policy("roles/bigtable.reader", &["allUsers"]);
        assert!(public.check(TABLE, true).is_ok());
        assert!(policy("roles/bigtable.user", &["allUsers"]).check(TABLE, true).is_err());
        for resource in ["metastore", "projects/p/instances/-", "x"] {
            assert!(public.check(resource, true).is_err(), "{resource}");
        }
    }
}
