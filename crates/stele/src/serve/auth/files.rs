//! The files of identities and policy, and their changes while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use stele_auth::authenticate::jwks_path;
use stele_auth::{Authenticator, Credentials, Policy, credentials};

use super::super::shutdown::Phases;
use super::gate::Gate;

const POLICY: &str = "policy.toml";
/// How often files are checked for changes.
const INTERVAL: Duration = Duration::from_millis(500);

/// Where the files are.
pub struct Files {
    dir: PathBuf,
    policy: PathBuf,
    /// Whether the policy file must exist.
    policy_given: bool,
    own_names: Vec<String>,
}

/// What the files contain.
pub struct Identities {
    pub authenticator: Authenticator,
    pub policy: Policy,
    /// Whether any identity or binding is configured.
    pub exist: bool,
    pub has_admin: bool,
}

/// What tells a changed file from an unchanged one.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

impl Files {
    pub fn new(dir: PathBuf, policy: Option<PathBuf>, own_names: Vec<String>) -> Files {
        let policy_given = policy.is_some();
        let policy = policy.unwrap_or_else(|| dir.join(POLICY));
        Files { dir, policy, policy_given, own_names }
    }

    pub fn read(&self) -> anyhow::Result<Identities> {
        let (mut policy, has_policy) = match std::fs::read_to_string(&self.policy) {
            Ok(text) => {
                let parsed = Policy::parse(&text);
                (parsed.with_context(|| self.policy.display().to_string())?, true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.policy_given => {
                (Policy::default(), false)
            }
            Err(error) => {
                return Err(error).with_context(|| self.policy.display().to_string());
            }
        };
        let found = Credentials::read(&self.dir)
            .with_context(|| self.dir.join(credentials::FILE).display().to_string())?;
        let exist = has_policy || !found.is_empty();
        policy.bindings.extend(found.bindings().iter().cloned());
        let base = self.policy.parent().unwrap_or(Path::new(""));
        let authenticator = Authenticator::new(found, &policy, self.own_names.clone(), base)
            .map_err(anyhow::Error::msg)?;
        Ok(Identities { has_admin: policy.has_admin(), authenticator, policy, exist })
    }

    fn stamp(&self, policy: &Policy) -> Stamp {
        let base = self.policy.parent().unwrap_or(Path::new(""));
        let keys = policy.issuers.iter().map(|issuer| jwks_path(issuer, base));
        let paths = [self.policy.clone(), self.dir.join(credentials::FILE)].into_iter().chain(keys);
        let of = |path: PathBuf| {
            use std::os::unix::fs::MetadataExt;
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
        };
        paths.map(of).collect()
    }
}

/// Applies changes of the files until the server drains. Files that cannot be read leave
/// what was in force.
pub async fn follow(gate: Arc<Gate>, phases: &'static Phases) {
    let mut seen = gate.files().stamp(&gate.policy());
    let mut ticks = tokio::time::interval(INTERVAL);
    while phases.draining.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = gate.files().stamp(&gate.policy());
        if now == seen {
            continue;
        }
        match gate.files().read() {
            Ok(identities) => {
                tracing::info!("identities and policy read again");
                gate.replace(identities);
            }
            Err(error) => {
                tracing::error!("identities and policy left as they were: {error:#}");
                gate.count_failed_reload();
            }
        }
        // The new policy may name other files.
        seen = match gate.files().stamp(&gate.policy()) {
            read if read.len() == now.len() => now,
            read => read,
        };
    }
}
