//! The rules that are applied to each call.

use std::time::Duration;

use stele_grpc::MethodPath;
use tonic::Status;

use super::{Rule, known};

/// Rules in the order in which they are applied.
#[derive(Debug, Default)]
pub struct Rules {
    pub rules: Vec<Rule>,
    pub seed: u64,
}

impl Rules {
    /// Parses rules. A text may hold several, separated by `;`.
    pub(super) fn parse(texts: &[String], seed: u64) -> Result<Rules, String> {
        let texts = texts.iter().flat_map(|text| text.split(';')).map(str::trim);
        let rules = texts.filter(|text| !text.is_empty()).map(str::parse);
        Ok(Rules { rules: rules.collect::<Result<_, _>>()?, seed })
    }

    /// Parses rules and rejects any that no call can match.
    pub fn parse_known(texts: &[String], seed: u64) -> Result<Rules, String> {
        let rules = Rules::parse(texts, seed)?;
        rules.rules.iter().try_for_each(known::check)?;
        Ok(rules)
    }

    /// Returns what happens to a call: the sum of all delays, and the first error.
    pub(super) fn draw(
        &self,
        path: MethodPath<'_>,
        table: Option<&str>,
    ) -> (Duration, Option<Status>) {
        let (mut latency, mut answer) = (Duration::ZERO, None);
        for (position, rule) in self.rules.iter().enumerate() {
            if answer.is_none() && rule.covers(path) && rule.applies_to_table(table) {
                let fault = rule.draw(self.seed, position as u64);
                latency += fault.latency;
                answer = fault.error.map(|code| rule.status(code));
            }
        }
        (latency, answer)
    }
}
