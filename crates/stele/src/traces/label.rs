//! `stele traces label` and `labels`: sets and lists the triage of digests.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use stele_traces::Digest;
use stele_traces::store::{Label as Stored, NewLabel};

use super::{TableArgs, user_error};
use crate::Outcome;
use crate::output::json_line;

/// Label a digest of a test as positive, negative or untriaged.
#[derive(Args)]
pub struct Label {
    #[command(flatten)]
    table: TableArgs,
    /// Test, as named by the table's test key.
    test: String,
    /// Digest: 32 hex digits, as `trace` and `query --json` show them.
    digest: Digest,
    label: Choice,
    /// Author of the label.
    #[arg(long, default_value = "")]
    by: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    Untriaged,
    Positive,
    Negative,
}

impl Label {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let label = match self.label {
            Choice::Untriaged => Stored::Untriaged,
            Choice::Positive => Stored::Positive,
            Choice::Negative => Stored::Negative,
        };
        let labelled = self.table.run(async |store| {
            let mut labels = store.labels([self.test.as_str()]).await.map_err(user_error)?;
            let labels = labels.remove(&self.test).unwrap_or_default();
            let expected = labels.get(&self.digest).map_or(Stored::Untriaged, |it| it.label);
            let (test, by) = (self.test.clone(), self.by.clone());
            let new = NewLabel { test, digest: self.digest, label, expected, by };
            store.label(&new).await.map_err(|error| anyhow!(error.to_string()))
        })?;
        let mut out = io::stdout().lock();
        if self.table.json {
            json_line(&mut out, &labelled)?;
        } else {
            let label = json!(labelled.label);
            let label = label.as_str().unwrap_or_default();
            writeln!(out, "digest {} of {} labelled {label}", self.digest, self.test)?;
        }
        Ok(Outcome::Sound)
    }
}

/// Show all labels of digests; with --json, as a backup.
#[derive(Args)]
pub struct Labels {
    #[command(flatten)]
    table: TableArgs,
}

impl Labels {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let all = self.table.run(async |store| store.all_labels().await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        for (test, labels) in &all {
            for (digest, labelled) in labels {
                let mut listed = json!(labelled);
                if self.table.json {
                    listed["test"] = json!(test);
                    listed["digest"] = json!(digest);
                    json_line(&mut out, &listed)?;
                } else {
                    let label = listed["label"].as_str().unwrap_or_default();
                    writeln!(out, "{label:9}  {digest}  {test}  {}", labelled.by)?;
                }
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}
