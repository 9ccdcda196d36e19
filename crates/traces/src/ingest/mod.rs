//! What test runners and benchmarks write, read into results.
//!
//! `json` is our own format, `junit` test reports, `criterion` and
//! `google_benchmark` measurements; `git` tells the order of commits. Readers
//! take bytes that nobody vouches for: they refuse, and never guess. `files`
//! reads many of them while a store takes what was read; `seen` are the params
//! that they have in common.

mod criterion;
mod files;
pub mod git;
mod google_benchmark;
mod json;
mod junit;
mod seen;

use std::collections::HashMap;
use std::str::FromStr;

pub use criterion::read_directory as read_criterion_directory;
pub use files::{Files, Ingested};
pub use junit::{harmless, words};
use seen::Seen;

use crate::error::{Error, Result};
use crate::params::{Params, VALUE_BYTES_MAX};
use crate::row_name::Kind;
use crate::store::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Junit,
    Criterion,
    GoogleBenchmark,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format> {
        match text {
            "json" => Ok(Format::Json),
            "junit" => Ok(Format::Junit),
            "criterion" => Ok(Format::Criterion),
            "google-benchmark" => Ok(Format::GoogleBenchmark),
            other => Err(Error::invalid(format!(
                "{other:?} is no format: json, junit, criterion or google-benchmark"
            ))),
        }
    }
}

/// Results read from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The commit that the file names.
    pub commit: Option<String>,
    pub time_micros: Option<i64>,
    pub entries: Vec<Entry>,
    /// Results that hold nothing to keep: failed benchmarks, summaries.
    pub skipped: usize,
}

/// Reads one file after another.
pub struct Reader {
    labels: Params,
    seen: Seen,
}

impl Reader {
    /// `labels` are laid under each result's params.
    pub fn new(labels: Params) -> Reader {
        Reader { labels, seen: Seen::default() }
    }

    /// Reads all reports of a file.
    pub fn read(&mut self, format: Format, bytes: &[u8]) -> Result<Vec<Report>> {
        let labels = &self.labels;
        let mut report = match format {
            Format::Json => {
                self.seen.make_room();
                return json::read(bytes, labels, &mut self.seen);
            }
            Format::Junit => junit::read(bytes, labels)?,
            Format::Criterion => criterion::read(bytes, labels)?,
            Format::GoogleBenchmark => google_benchmark::read(bytes, labels)?,
        };
        report.entries = last_of_each(report.entries);
        Ok(vec![report])
    }
}

/// Tells the format of a file by how it begins.
pub fn guess(bytes: &[u8]) -> Option<Format> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if *first == b'<' || bytes.starts_with(b"\xef\xbb\xbf<") {
        return Some(Format::Junit);
    }
    let head = &bytes[..bytes.len().min(64 << 10)];
    let has = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
    if has(b"\"context\"") && (has(b"\"benchmarks\"") || has(b"\"num_cpus\"")) {
        return Some(Format::GoogleBenchmark);
    }
    if has(b"\"estimates\"") && has(b"\"benchmarks\"") {
        return Some(Format::Criterion);
    }
    (*first == b'{').then_some(Format::Json)
}

/// Of results with the same params the last, where the first one stood.
pub fn last_of_each(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut places: HashMap<(Kind, Params), usize> = HashMap::with_capacity(entries.len());
    for entry in entries {
        match places.get(&(entry.value.kind(), entry.params.clone())) {
            Some(at) => kept[*at] = entry,
            None => {
                places.insert((entry.value.kind(), entry.params.clone()), kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

/// Params out of what is not blank; values that are too long are cut, because
/// they come from programs that know no limits.
fn tolerant<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Params> {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.trim().is_empty());
    Params::new(pairs.map(|(key, value)| (key, cut(value, VALUE_BYTES_MAX))))
}

/// At most so many bytes, at a letter's end.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Value;

    #[test]
    fn formats_are_told_apart() {
        for (text, format) in [
            ("<?xml version='1.0'?><testsuites/>", Some(Format::Junit)),
            ("\n<testsuite/>", Some(Format::Junit)),
            (r#"{"context": {"num_cpus": 1}, "benchmarks": []}"#, Some(Format::GoogleBenchmark)),
            (r#"{"benchmarks":[{"benchmark":{},"estimates":{}}]}"#, Some(Format::Criterion)),
            (r#"{"commit": "x", "results": []}"#, Some(Format::Json)),
            ("", None),
            ("PNG", None),
        ] {
            assert_eq!(guess(text.as_bytes()), format, "{text}");
        }
    }

    #[test]
    fn the_last_of_equal_results_is_kept() {
        let entry = |id: &str, number| Entry {
            params: Params::parse(id).unwrap(),
            value: Value::Number(Some(number)),
            options: Params::default(),
        };
        let kept =
            last_of_each(vec![entry(",a=1,", 1.0), entry(",a=2,", 2.0), entry(",a=1,", 3.0)]);
        assert_eq!(kept, [entry(",a=1,", 3.0), entry(",a=2,", 2.0)]);
    }
}
