//! A measured value and its description.

use serde::Serialize;

use crate::report::grouped;

/// A measured value and its description.
#[derive(Serialize)]
pub struct Finding {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// The upper bound of the value, if there is one.
    pub at_most: Option<f64>,
}

impl Finding {
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Finding {
        Finding { what: what.into(), value, unit, at_most: None }
    }

    pub fn at_most(mut self, limit: f64) -> Finding {
        self.at_most = Some(limit);
        self
    }

    pub(super) fn row(&self) -> String {
        let text = |value: f64| {
            if value >= 1_000.0 { grouped(value) } else { format!("{value:.2}") }
        };
        let (limit, word) = match self.at_most {
            None => (String::new(), ""),
            Some(limit) if self.value <= limit => (text(limit), "met"),
            Some(limit) => (text(limit), "**missed**"),
        };
        format!("| {} | {} {} | {limit} | {word} |", self.what, text(self.value), self.unit)
    }
}
