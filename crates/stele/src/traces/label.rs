//! `stele traces label`: records the triage of a digest.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use stele_traces::Digest;
use stele_traces::store::{Label as Kept, NewLabel};

use super::{Place, told};
use crate::Outcome;
use crate::output::json_line;

/// Label a digest of a test as positive, negative or untriaged.
#[derive(Args)]
pub struct Label {
    #[command(flatten)]
    place: Place,
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
            Choice::Untriaged => Kept::Untriaged,
            Choice::Positive => Kept::Positive,
            Choice::Negative => Kept::Negative,
        };
        let labelled = self.place.run(async |store| {
            let mut labels = store.labels([self.test.as_str()]).await.map_err(told)?;
            let labels = labels.remove(&self.test).unwrap_or_default();
            let expected = labels.get(&self.digest).map_or(Kept::Untriaged, |it| it.label);
            let (test, by) = (self.test.clone(), self.by.clone());
            let new = NewLabel { test, digest: self.digest, label, expected, by };
            store.label(&new).await.map_err(|error| anyhow!(error.to_string()))
        })?;
        let mut out = io::stdout().lock();
        if self.place.json {
            json_line(&mut out, &labelled)?;
        } else {
            let label = json!(labelled.label);
            let label = label.as_str().unwrap_or_default();
            writeln!(out, "{} of {} is {label}", self.digest, self.test)?;
        }
        Ok(Outcome::Sound)
    }
}
