//! Questions to a running server.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::Value;

use crate::Outcome;
use crate::connect::HttpServer;
use crate::output::json_line;

/// Show who the server takes the caller for, and its roles.
#[derive(Args)]
pub struct WhoAmI {
    #[command(flatten)]
    server: HttpServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show whether a principal may do something, and which binding decides. Exits with 1 if
/// it may not.
#[derive(Args)]
pub struct Can {
    /// Such as bigtable.tables.readRows
    permission: String,
    /// Such as projects/P/instances/I/tables/T; the whole server if left out
    #[arg(default_value = "", hide_default_value = true)]
    resource: String,
    /// Ask about this principal instead of the caller; needs stele.admin
    #[arg(long = "as", value_name = "PRINCIPAL")]
    principal: Option<String>,
    #[command(flatten)]
    server: HttpServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl WhoAmI {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let answer = ask(&self.server, "/auth/v1/whoami")?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &answer)?;
            return Ok(Outcome::Sound);
        }
        if answer["mode"] == "none" {
            writeln!(out, "callers are not checked: everybody may do everything")?;
            return Ok(Outcome::Sound);
        }
        writeln!(out, "{} (by {})", text(&answer["principal"]), text(&answer["credential"]))?;
        lines(&mut out, &answer["bindings"])?;
        Ok(Outcome::Sound)
    }
}

impl Can {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let mut path = format!(
            "/auth/v1/can?permission={}&resource={}",
            escape(&self.permission),
            escape(&self.resource)
        );
        if let Some(principal) = &self.principal {
            path += &format!("&principal={}", escape(principal));
        }
        let answer = ask(&self.server, &path)?;
        let allowed = answer["allowed"] == true;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &answer)?;
        } else if allowed {
            writeln!(out, "yes")?;
            lines(&mut out, &answer["by"])?;
        } else {
            writeln!(out, "no")?;
            if answer["elsewhere"].as_array().is_some_and(|some| !some.is_empty()) {
                writeln!(out, "elsewhere:")?;
            }
            lines(&mut out, &answer["elsewhere"])?;
        }
        Ok(if allowed { Outcome::Sound } else { Outcome::Absent })
    }
}

fn ask(server: &HttpServer, path: &str) -> anyhow::Result<Value> {
    let answer = server.request(Method::GET, path, String::new())?;
    serde_json::from_slice(&answer).context("invalid response of the server")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn lines(out: &mut impl Write, bindings: &Value) -> io::Result<()> {
    for binding in bindings.as_array().into_iter().flatten() {
        writeln!(out, "  {}", text(binding))?;
    }
    Ok(())
}

/// Escapes a text for a query.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    text.bytes().fold(String::new(), |escaped, byte| match plain(byte) {
        true => escaped + &char::from(byte).to_string(),
        false => escaped + &format!("%{byte:02X}"),
    })
}
