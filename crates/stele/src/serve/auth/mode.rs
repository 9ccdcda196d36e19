//! Whether callers are checked, decided once at startup.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Deserialize;
use stele_auth::audit::{Log, Target};

use super::super::data_dir::DataDir;
use super::super::listen::Ports;
use super::super::settings::{EffectiveSettings, PartialSettings};
use super::files::Files;
use super::gate::Gate;

/// The directory of identities within the data directory.
const DIR: &str = "auth";

/// Whether callers are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// If there are identities; without them, only this machine may connect
    #[default]
    Auto,
    /// Always
    On,
    /// Never: everybody who can connect may do everything
    None,
}

/// The settings of authentication and authorization.
#[derive(Clone, Debug, Default)]
pub struct AuthSettings {
    pub mode: AuthMode,
    /// `None` means inside the data directory.
    dir: Option<PathBuf>,
    /// `None` means `policy.toml` in the directory.
    policy: Option<PathBuf>,
    audit_log: Option<String>,
}

impl AuthSettings {
    pub fn new(given: &PartialSettings) -> AuthSettings {
        AuthSettings {
            mode: given.auth.unwrap_or_default(),
            dir: given.auth_dir.clone(),
            policy: given.auth_policy.clone(),
            audit_log: given.audit_log.clone(),
        }
    }
}

/// Decides whether callers are checked, and opens the gate if they are. Fails if other
/// machines could connect and nobody has decided that they may do everything.
pub fn open(
    settings: &EffectiveSettings,
    data_dir: &DataDir,
    ports: &Ports,
) -> anyhow::Result<Option<Arc<Gate>>> {
    let AuthSettings { mode, dir, policy, audit_log } = &settings.auth;
    if *mode == AuthMode::None {
        return Ok(None);
    }
    let dir = dir.clone().unwrap_or_else(|| data_dir.path.join(DIR));
    let files = Files::new(dir, policy.clone(), own_names(settings)?);
    let identities = files.read().context("the identities of callers")?;
    if !identities.exist && *mode == AuthMode::Auto {
        let certified = settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if ports.are_loopback() || certified {
            return Ok(None);
        }
        bail!(
            "--listen {}: other machines could connect, and no identities are configured. Create \
             an administrator with `stele auth token create user:NAME --role stele.admin`, or \
             accept only certificates with --tls-client-ca, or let everybody who can connect do \
             everything with --auth none",
            settings.listen
        );
    }
    if settings.cluster.is_some() {
        bail!(
            "callers cannot be checked in a cluster yet: servers have no identities for each \
             other's metastores; use --auth none and restrict access with --tls-client-ca"
        );
    }
    if !identities.has_admin {
        tracing::warn!(
            "nobody has the role stele.admin: create an administrator with `stele auth token \
             create user:NAME --role stele.admin`"
        );
    }
    if settings.tls.is_none() && !ports.are_loopback() {
        tracing::warn!("tokens travel in plain text: use --tls-cert and --tls-key");
    }
    let audit = audit_log.as_deref().and_then(Target::parse);
    let audit = audit.map(|target| Log::start(&target)).transpose().context("--audit-log")?;
    Ok(Some(Gate::new(files, identities, audit)))
}

/// Returns the host names by which clients know this server.
fn own_names(settings: &EffectiveSettings) -> anyhow::Result<Vec<String>> {
    let certified = settings.tls.as_ref().map(super::super::tls::certificate_names).transpose()?;
    let listed = settings.allowed_hosts.iter().cloned();
    let mut names: Vec<String> = certified.unwrap_or_default().into_iter().chain(listed).collect();
    names.push("localhost".into());
    names.push(settings.listen.clone());
    Ok(names)
}
