//! The policy file: bindings, groups, issuers of tokens, and what certificates stand for.
//!
//! docs/security.md describes it for operators. Errors name the line.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::jwt::Algorithm;
use crate::member::{Member, is_name};
use crate::role::Role;

/// The most bytes of a policy file.
const BYTES_MAX: usize = 4 << 20;

/// A role for members on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub role: Role,
    pub members: Vec<Member>,
    /// `""` is the whole server.
    pub resource: Box<str>,
    /// Where it is written, for explanations.
    pub source: Box<str>,
}

impl Binding {
    /// Returns whether it allows somebody to administer everything.
    pub fn is_of_admin(&self) -> bool {
        self.role == Role::SteleAdmin && self.resource.is_empty()
    }
}

/// An issuer of signed tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    pub id: String,
    pub iss: String,
    pub jwks_file: PathBuf,
    pub audiences: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    pub subject_claim: String,
    pub groups_claim: Option<String>,
}

/// What the policy file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub bindings: Vec<Binding>,
    /// The members of each group, by `group:NAME`.
    pub groups: HashMap<String, Vec<Member>>,
    pub issuers: Vec<Issuer>,
    /// The domains of SPIFFE ids that are accepted.
    pub trust_domains: Vec<String>,
    /// Whether roles may be bound to `allUsers`.
    pub public_data: bool,
    /// The blessings of principals in names, besides their own.
    pub blessings: BTreeMap<String, Vec<String>>,
}

/// An invalid policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct PolicyError {
    pub line: usize,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    binding: Vec<FileBinding>,
    #[serde(default)]
    groups: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    issuer: Vec<FileIssuer>,
    #[serde(default)]
    certificates: FileCertificates,
    #[serde(default)]
    public_data: bool,
    #[serde(default)]
    blessings: BTreeMap<Spanned<String>, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBinding {
    role: Spanned<String>,
    members: Vec<Spanned<String>>,
    resource: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileIssuer {
    id: Spanned<String>,
    iss: Spanned<String>,
    jwks_file: PathBuf,
    audiences: Spanned<Vec<String>>,
    algorithms: Vec<Spanned<String>>,
    #[serde(default = "subject")]
    subject_claim: String,
    groups_claim: Option<String>,
}

fn subject() -> String {
    "sub".into()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileCertificates {
    #[serde(default)]
    trust_domains: Vec<Spanned<String>>,
}

/// Converts positions in a text to lines.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, span: Range<usize>) -> usize {
        let before = &self.0.as_bytes()[..span.start.min(self.0.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, span: Range<usize>, why: impl Into<String>) -> PolicyError {
        PolicyError { line: self.of(span), why: why.into() }
    }

    fn member(&self, text: &Spanned<String>) -> Result<Member, PolicyError> {
        Member::parse(text.get_ref()).map_err(|why| self.error(text.span(), why))
    }

    fn group(&self, text: &Spanned<String>) -> Result<Member, PolicyError> {
        let member = self.member(text)?;
        if member.as_str().starts_with("group:") || member.as_str().starts_with("all") {
            let why = format!("a group cannot contain {member}: list principals");
            return Err(self.error(text.span(), why));
        }
        Ok(member)
    }

    fn binding(&self, binding: &FileBinding, file: &File) -> Result<Binding, PolicyError> {
        let role = binding.role.get_ref();
        let role = Role::parse(role).ok_or_else(|| {
            let known: Vec<_> = Role::ALL.iter().map(|role| role.name()).collect();
            let why = format!("unknown role {role:?}: use {}", known.join(", "));
            self.error(binding.role.span(), why)
        })?;
        let mut members = Vec::new();
        for text in &binding.members {
            let member = self.member(text)?;
            if let Some(group) = member.as_str().strip_prefix("group:")
                && !file.groups.keys().any(|known| known.get_ref() == group)
            {
                let why = format!("unknown group {group:?}: list its members under [groups]");
                return Err(self.error(text.span(), why));
            }
            if member.is_everybody() && !file.public_data {
                let why = "allUsers needs public-data = true at the top of the file";
                return Err(self.error(text.span(), why));
            }
            if member.is_everybody() && !role.is_readonly() {
                let why =
                    format!("{role} cannot be bound to allUsers: bind a role that only reads");
                return Err(self.error(text.span(), why));
            }
            members.push(member);
        }
        let resource = match &binding.resource {
            None => "",
            Some(resource) => {
                check_resource(resource.get_ref())
                    .map_err(|why| self.error(resource.span(), why))?;
                resource.get_ref()
            }
        };
        let source = format!("policy file, line {}", self.of(binding.role.span()));
        Ok(Binding { role, members, resource: resource.into(), source: source.into() })
    }

    fn issuer(&self, issuer: FileIssuer) -> Result<Issuer, PolicyError> {
        let id = issuer.id.get_ref();
        if !is_name(id) || id.contains('/') {
            let why = format!("invalid id {id:?}: use a name without spaces and slashes");
            return Err(self.error(issuer.id.span(), why));
        }
        if issuer.iss.get_ref().is_empty() {
            return Err(self.error(issuer.iss.span(), "iss is empty: give the tokens' issuer"));
        }
        if issuer.audiences.get_ref().is_empty() {
            let why = "audiences is empty: list what the tokens' aud claim must name";
            return Err(self.error(issuer.audiences.span(), why));
        }
        let mut algorithms = Vec::new();
        for text in &issuer.algorithms {
            let algorithm = Algorithm::parse(text.get_ref()).ok_or_else(|| {
                let why =
                    format!("unknown algorithm {:?}: use RS256, ES256 or EdDSA", text.get_ref());
                self.error(text.span(), why)
            })?;
            algorithms.push(algorithm);
        }
        if algorithms.is_empty() {
            return Err(self.error(issuer.id.span(), "algorithms is empty: use [\"RS256\"]"));
        }
        Ok(Issuer {
            id: issuer.id.into_inner(),
            iss: issuer.iss.into_inner(),
            jwks_file: issuer.jwks_file,
            audiences: issuer.audiences.into_inner(),
            algorithms,
            subject_claim: issuer.subject_claim,
            groups_claim: issuer.groups_claim,
        })
    }
}

/// Checks the name of a resource that a role can be bound to.
pub fn check_resource(name: &str) -> Result<(), String> {
    let parts: Vec<&str> = name.split('/').collect();
    let kinds: Vec<&str> = parts.iter().copied().step_by(2).collect();
    let known = match kinds[..] {
        ["metastore" | "names" | "server"] => parts.len() == 1,
        ["catalogues" | "traces"] => true,
        ["projects"] | ["projects", "instances"] => true,
        ["projects", "instances", kind] => matches!(
            kind,
            "tables" | "clusters" | "appProfiles" | "logicalViews" | "materializedViews"
        ),
        ["projects", "instances", "tables", kind] => {
            matches!(kind, "authorizedViews" | "schemaBundles")
        }
        ["projects", "instances", "clusters", kind] => kind == "backups",
        _ => false,
    };
    let paired = parts.len() == 1 || parts.len().is_multiple_of(2);
    let named = parts.iter().skip(1).step_by(2).all(|id| is_name(id) && *id != "-");
    if !known || !paired || !named || (kinds[0] == "projects" && parts.len() == 1) {
        let shown: String = name.chars().take(200).collect();
        return Err(format!(
            "invalid resource {shown:?}: use projects/P, projects/P/instances/I, \
             projects/P/instances/I/tables/T, catalogues/FID, metastore, names, traces/TABLE or \
             server, or leave it out for everything"
        ));
    }
    Ok(())
}

impl Policy {
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let lines = Lines(text);
        if text.len() > BYTES_MAX {
            return Err(lines.error(0..0, "a policy file has at most 4 MiB"));
        }
        let file: File = toml::from_str(text).map_err(|error| {
            lines.error(error.span().unwrap_or(0..0), error.message().trim().to_owned())
        })?;
        let mut policy = Policy { public_data: file.public_data, ..Policy::default() };
        for binding in &file.binding {
            policy.bindings.push(lines.binding(binding, &file)?);
        }
        for (name, listed) in &file.groups {
            if !is_name(name.get_ref()) {
                return Err(lines.error(name.span(), format!("invalid group {name:?}")));
            }
            let members: Result<Vec<_>, _> = listed.iter().map(|one| lines.group(one)).collect();
            policy.groups.insert(format!("group:{}", name.get_ref()), members?);
        }
        for issuer in file.issuer {
            let (id, span) = (issuer.id.get_ref().clone(), issuer.id.span());
            let issuer = lines.issuer(issuer)?;
            if policy.issuers.iter().any(|other| other.id == id || other.iss == issuer.iss) {
                return Err(lines.error(span, format!("the issuer {id:?} is listed twice")));
            }
            policy.issuers.push(issuer);
        }
        for domain in &file.certificates.trust_domains {
            if !is_name(domain.get_ref()) || domain.get_ref().contains('/') {
                return Err(lines.error(domain.span(), "invalid trust domain"));
            }
            policy.trust_domains.push(domain.get_ref().to_ascii_lowercase());
        }
        for (name, blessings) in &file.blessings {
            let member = lines.member(name)?;
            policy.blessings.insert(member.as_str().into(), blessings.clone());
        }
        Ok(policy)
    }

    /// Returns whether somebody may administer everything.
    pub fn has_admin(&self) -> bool {
        self.bindings.iter().any(Binding::is_of_admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
public-data = true

[[binding]]
role = "stele.admin"
members = ["group:ops"]

[[binding]]
role = "roles/bigtable.reader"
members = ["allUsers", "principalSet://oidc/corp/dev"]
resource = "projects/p/instances/i/tables/t"

[groups]
ops = ["user:ada", "principal://cert/cn/ops"]

[[issuer]]
id = "corp"
iss = "https://accounts.example.com"
jwks-file = "/etc/stele/corp.json"
audiences = ["stele"]
algorithms = ["RS256", "ES256"]
groups-claim = "groups"

[certificates]
trust-domains = ["Example.org"]

[blessings]
"user:ada" = ["dev:u:ada"]
"#;

    #[test]
    fn a_policy_is_read() {
        let policy = Policy::parse(GOOD).unwrap();
        assert_eq!(policy.bindings.len(), 2);
        assert_eq!(policy.bindings[1].role, Role::BigtableReader);
        assert_eq!(&*policy.bindings[1].source, "policy file, line 9");
        assert_eq!(policy.groups["group:ops"].len(), 2);
        assert_eq!(policy.issuers[0].subject_claim, "sub");
        assert_eq!(policy.trust_domains, ["example.org"]);
        assert!(policy.has_admin() && policy.public_data);
        assert_eq!(Policy::parse("").unwrap(), Policy::default());
    }

    #[test]
    fn an_error_names_its_line() {
        let wrong = |from: &str, to: &str| {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = Policy::parse(&text).unwrap_err();
            (error.line, error.why)
        };
        for (from, to, line, why) in [
            ("roles/bigtable.reader", "bigtable.writer", 9, "unknown role"),
            ("group:ops", "group:op", 6, "unknown group"),
            ("public-data = true", "", 10, "public-data"),
            ("bigtable.reader", "bigtable.user", 10, "only reads"),
            ("tables/t", "table/t", 11, "invalid resource"),
            ("user:ada", "ada", 14, "invalid member"),
            ("\"user:ada\", ", "\"group:ops\", ", 14, "cannot contain"),
            ("members = [\"group:ops\"]", "member = []", 6, "unknown field"),
            ("\"ES256\"", "\"HS256\"", 21, "unknown algorithm"),
            ("[\"stele\"]", "[]", 20, "audiences is empty"),
            ("id = \"corp\"", "id = \"a/b\"", 17, "invalid id"),
            ("[groups]", "[groups", 13, ""),
        ] {
            let (found, text) = wrong(from, to);
            assert!(found == line && text.contains(why), "{to}: line {found}: {text}");
        }
    }

    #[test]
    fn only_resources_that_exist_in_the_hierarchy_can_be_bound() {
        for valid in [
            "projects/p",
            "projects/p/instances/i",
            "projects/p/instances/i/tables/t/authorizedViews/v",
            "projects/p/instances/i/clusters/c/backups/b",
            "catalogues",
            "catalogues/1:2",
            "metastore",
            "names",
            "traces/t",
            "server",
        ] {
            assert_eq!(check_resource(valid), Ok(()), "{valid}");
        }
        for invalid in [
            "",
            "projects",
            "projects/",
            "projects/p/",
            "projects/p/instances",
            "projects/p/instances/-",
            "projects/p/tables/t",
            "metastore/k",
            "tables/t",
            "/projects/p",
            "projects/p q",
        ] {
            assert!(check_resource(invalid).is_err(), "{invalid}");
        }
    }
}
