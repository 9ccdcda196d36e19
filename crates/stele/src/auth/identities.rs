//! Tokens, keys and bindings in the directory of a server.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use stele_auth::Policy;
use stele_auth::audit::timestamp;
use stele_auth::credentials::{Changing, Credentials, StoredBinding};
use stele_bigtable_client::parse_age;

use super::{AuthDir, Bind};
use crate::Outcome;
use crate::output::table;

const EXPIRES_MAX: Duration = Duration::from_secs(400 * 86_400);

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Begins a change of the directory.
pub fn change(dir: &AuthDir) -> anyhow::Result<Changing> {
    let path = dir.path();
    Changing::begin(&path).with_context(|| path.display().to_string())
}

pub fn create_token(
    dir: &AuthDir,
    principal: &str,
    expires: &str,
    role: Option<String>,
) -> anyhow::Result<Outcome> {
    let lifetime = parse_age(expires).filter(|age| !age.is_zero() && *age <= EXPIRES_MAX);
    let lifetime = lifetime.with_context(|| {
        format!("invalid --expires {expires:?}: use 30d, 12h or another time of at most 400d")
    })?;
    let mut changing = change(dir)?;
    let now = now();
    let created = changing.create_token(principal, now, now + lifetime.as_secs());
    let (id, token) = created.map_err(anyhow::Error::msg)?;
    if let Some(role) = role {
        let (member, resource) = (principal.to_owned(), String::new());
        changing.bind(StoredBinding { member, role, resource }).map_err(anyhow::Error::msg)?;
    }
    changing.save().context("saving the token")?;
    eprintln!("created token {id} for {principal}, valid until {}", date(now + lifetime.as_secs()));
    writeln!(io::stdout(), "{token}")?;
    Ok(Outcome::Sound)
}

pub fn list_tokens(dir: &AuthDir) -> anyhow::Result<Outcome> {
    let credentials = read(dir)?;
    let mut lines = table(&["token", "principal", "created", "expires"], 4);
    for token in credentials.tokens() {
        let expired = if token.expires <= now() { " (expired)" } else { "" };
        let expires = format!("{}{expired}", date(token.expires));
        lines.add_row([token.id.clone(), token.principal.clone(), date(token.created), expires]);
    }
    match credentials.tokens().is_empty() {
        true => writeln!(io::stdout(), "no tokens")?,
        false => writeln!(io::stdout(), "{lines}")?,
    }
    Ok(Outcome::Sound)
}

pub fn list_keys(dir: &AuthDir) -> anyhow::Result<Outcome> {
    let credentials = read(dir)?;
    let mut lines = table(&["key", "service account", "created"], 3);
    for key in credentials.keys() {
        lines.add_row([key.id.clone(), key.email.clone(), date(key.created)]);
    }
    match credentials.keys().is_empty() {
        true => writeln!(io::stdout(), "no keys")?,
        false => writeln!(io::stdout(), "{lines}")?,
    }
    Ok(Outcome::Sound)
}

pub fn revoke(dir: &AuthDir, id: &str) -> anyhow::Result<Outcome> {
    let mut changing = change(dir)?;
    let Some(principal) = changing.revoke(id) else {
        bail!("{id} not found: `stele auth token list` and `stele auth key list` show all ids");
    };
    changing.save()?;
    writeln!(io::stdout(), "revoked {id} of {principal}")?;
    Ok(Outcome::Sound)
}

pub fn bind(bind: Bind) -> anyhow::Result<Outcome> {
    let (dir, binding) = parts(bind);
    let mut changing = change(&dir)?;
    let is_new = changing.bind(binding).map_err(anyhow::Error::msg)?;
    changing.save()?;
    writeln!(io::stdout(), "{}", if is_new { "bound" } else { "already bound" })?;
    Ok(Outcome::Sound)
}

pub fn unbind(bind: Bind) -> anyhow::Result<Outcome> {
    let (dir, binding) = parts(bind);
    let policy = match std::fs::read_to_string(dir.path().join("policy.toml")) {
        Ok(text) => Policy::parse(&text).map_err(|error| anyhow!("policy.toml, {error}"))?,
        Err(_) => Policy::default(),
    };
    let mut changing = change(&dir)?;
    if !changing.unbind(&binding, &policy).map_err(anyhow::Error::msg)? {
        bail!("binding not found: it may be in the policy file, which commands do not change");
    }
    changing.save()?;
    writeln!(io::stdout(), "unbound")?;
    Ok(Outcome::Sound)
}

/// Checks a policy file.
pub fn check(file: &Path) -> anyhow::Result<Outcome> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let policy = Policy::parse(&text).map_err(|error| anyhow!("{}, {error}", file.display()))?;
    writeln!(io::stdout(), "{} bindings", policy.bindings.len())?;
    Ok(Outcome::Sound)
}

fn parts(bind: Bind) -> (AuthDir, StoredBinding) {
    let Bind { member, role, resource, dir } = bind;
    // Stored in one form, so that `unbind` finds what `bind` has written.
    let role = role.strip_prefix("roles/").unwrap_or(&role).to_owned();
    (dir, StoredBinding { member, role, resource })
}

fn read(dir: &AuthDir) -> anyhow::Result<Credentials> {
    let path = dir.path();
    Credentials::read(&path).with_context(|| path.display().to_string())
}

fn date(seconds: u64) -> String {
    let micros = i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
    timestamp(micros).chars().take(10).collect()
}
