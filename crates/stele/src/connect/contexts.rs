//! The file with named servers: `$XDG_CONFIG_HOME/stele/config.toml`, by default
//! `~/.config/stele/config.toml`. `stele context` changes it; every command reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// All contexts, and the name of the one in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    pub current: Option<String>,
    #[serde(default, rename = "context")]
    pub all: BTreeMap<String, Context>,
}

/// A server and what to use of it. Secrets stay in files of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Context {
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
}

impl Contexts {
    /// Returns the path of the file, if the environment has a home directory.
    pub fn path() -> Option<PathBuf> {
        let of =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")))?;
        Some(config.join("stele").join("config.toml"))
    }

    /// Reads the file. Without one, there are no contexts.
    pub fn read() -> anyhow::Result<Contexts> {
        match Contexts::path() {
            Some(path) => Contexts::read_file(&path),
            None => Ok(Contexts::default()),
        }
    }

    fn read_file(path: &Path) -> anyhow::Result<Contexts> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        toml::from_str(&text).with_context(|| format!("invalid {}", path.display()))
    }

    pub fn get(&self, name: &str) -> anyhow::Result<&Context> {
        let Some(context) = self.all.get(name) else {
            let known: Vec<_> = self.all.keys().map(String::as_str).collect();
            match known.is_empty() {
                true => bail!("context {name} not found; `stele context set` creates one"),
                false => bail!("context {name} not found; there are {}", known.join(", ")),
            }
        };
        Ok(context)
    }

    /// Replaces the file in one step.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = Contexts::path().context("neither HOME nor XDG_CONFIG_HOME is set")?;
        let failed = || format!("cannot write {}", path.display());
        let dir = path.parent().context("the path of the contexts has no directory")?;
        fs::create_dir_all(dir).with_context(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(dir).with_context(failed)?;
        io::Write::write_all(&mut file, self.text().as_bytes()).with_context(failed)?;
        file.persist(&path).with_context(failed)?;
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::from("# Written by `stele context`.\n");
        // The strings of JSON are strings of TOML as well.
        let quoted = |value: &str| serde_json::Value::from(value).to_string();
        if let Some(current) = &self.current {
            let _ = writeln!(text, "current = {}", quoted(current));
        }
        for (name, context) in &self.all {
            let _ = writeln!(text, "\n[context.{}]", quoted(name));
            let _ = writeln!(text, "server = {}", quoted(&context.server));
            for (key, value) in [("project", &context.project), ("instance", &context.instance)] {
                if let Some(value) = value {
                    let _ = writeln!(text, "{key} = {}", quoted(value));
                }
            }
            let files = [&context.tls_ca, &context.tls_cert, &context.tls_key];
            for (key, file) in ["tls-ca", "tls-cert", "tls-key"].into_iter().zip(files) {
                if let Some(file) = file {
                    let _ = writeln!(text, "{key} = {}", quoted(&file.to_string_lossy()));
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let laptop = Context { server: "127.0.0.1:18086".into(), ..Context::default() };
        let full = Context {
            server: "https://db.example.com".into(),
            project: Some("p \"q\"\\".into()),
            instance: Some("i".into()),
            tls_ca: Some("/etc/ca.pem".into()),
            tls_cert: Some("/c".into()),
            tls_key: Some("/k".into()),
        };
        let all = [("laptop".to_string(), laptop), ("a.b c".to_string(), full)].into();
        let contexts = Contexts { current: Some("laptop".into()), all };
        let read: Contexts = toml::from_str(&contexts.text()).unwrap();
        assert_eq!(read, contexts);
        assert_eq!(
            toml::from_str::<Contexts>(&Contexts::default().text()).unwrap(),
            Contexts::default()
        );
        let missing = contexts.get("desktop").unwrap_err().to_string();
        assert!(missing.contains("a.b c, laptop"), "{missing}");
    }
}
