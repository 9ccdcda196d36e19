//! Members of bindings: principals, and sets of them. Their namespaces are disjoint, so a
//! certificate for "root" is never the user "root".

use std::fmt;
use std::sync::Arc;

pub const ALL_USERS: &str = "allUsers";
pub const ALL_AUTHENTICATED: &str = "allAuthenticatedUsers";
pub const ALL_CERTIFICATES: &str = "allCertificates";
pub const ANONYMOUS: &str = "anonymous";

pub const USER: &str = "user:";
pub const SERVICE_ACCOUNT: &str = "serviceAccount:";
pub const GROUP: &str = "group:";
pub const SPIFFE: &str = "principal://spiffe/";
pub const CERTIFICATE_DNS: &str = "principal://cert/dns/";
pub const CERTIFICATE_NAME: &str = "principal://cert/cn/";
pub const OIDC: &str = "principal://oidc/";
pub const OIDC_GROUP: &str = "principalSet://oidc/";

/// The longest name of a member.
const BYTES_MAX: usize = 512;

/// The domain of service accounts of Google, whose keys are never accepted: a token that
/// such a key signed for this server could be replayed at Google.
const GOOGLE_ACCOUNTS: &str = "gserviceaccount.com";

/// A valid member of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member(Arc<str>);

impl Member {
    pub fn parse(text: &str) -> Result<Member, String> {
        let named = |prefix: &str| text.strip_prefix(prefix);
        let valid = match text {
            ALL_USERS | ALL_AUTHENTICATED | ALL_CERTIFICATES => true,
            _ => {
                named(USER).or(named(GROUP)).is_some_and(is_name)
                    || named(SERVICE_ACCOUNT).is_some_and(is_email)
                    || named(CERTIFICATE_DNS).or(named(CERTIFICATE_NAME)).is_some_and(is_name)
                    || named(SPIFFE).or(named(OIDC)).or(named(OIDC_GROUP)).is_some_and(is_pair)
            }
        };
        if !valid || text.len() > BYTES_MAX {
            let shown: String = text.chars().take(100).collect();
            return Err(format!(
                "invalid member {shown:?}: use user:NAME, serviceAccount:NAME@CLUSTER, group:NAME, \
                 principal://spiffe/DOMAIN/PATH, principal://cert/dns/NAME, \
                 principal://cert/cn/NAME, principal://oidc/ISSUER/SUBJECT, \
                 principalSet://oidc/ISSUER/GROUP, allAuthenticatedUsers, allCertificates or \
                 allUsers"
            ));
        }
        Ok(Member(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_everybody(&self) -> bool {
        &*self.0 == ALL_USERS
    }

    /// Returns whether this is one principal that can hold a token.
    pub fn is_user(&self) -> bool {
        self.0.starts_with(USER) || self.0.starts_with(SERVICE_ACCOUNT)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns whether this is a name without spaces and control characters.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|letter| letter.is_whitespace() || letter.is_control())
}

/// Returns whether this is the address of a service account of this cluster.
pub fn is_email(email: &str) -> bool {
    let (name, cluster) = email.split_once('@').unwrap_or_default();
    let plain = |text: &str| is_name(text) && !text.contains(['@', '/', ':']);
    let of_google = cluster == GOOGLE_ACCOUNTS
        || cluster.strip_suffix(GOOGLE_ACCOUNTS).is_some_and(|rest| rest.ends_with('.'));
    plain(name) && plain(cluster) && !of_google
}

fn is_pair(text: &str) -> bool {
    text.split_once('/').is_some_and(|(first, rest)| is_name(first) && is_name(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_known_forms_are_valid() {
        for valid in [
            "allUsers",
            "allAuthenticatedUsers",
            "allCertificates",
            "user:ada",
            "serviceAccount:ci@stele",
            "group:dev",
            "principal://spiffe/example.org/ns/ci",
            "principal://cert/dns/a.example.org",
            "principal://cert/cn/root",
            "principal://oidc/corp/1234",
            "principalSet://oidc/corp/dev",
        ] {
            assert_eq!(Member::parse(valid).unwrap().as_str(), valid);
        }
        for invalid in [
            "",
            "ada",
            "user:",
            "user:a b",
            "user:a\n",
            "serviceAccount:ci",
            "serviceAccount:ci@project.iam.gserviceaccount.com",
            "principal://spiffe/example.org",
            "principal://cert/ou/x",
            "domain:example.org",
            "allusers",
            "anonymous",
            "system:names",
            "local:0",
            &format!("user:{}", "a".repeat(600)),
        ] {
            let error = Member::parse(invalid).unwrap_err();
            assert!(error.contains("invalid member"), "{invalid}");
        }
    }
}
