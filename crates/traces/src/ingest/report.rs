//! Reports: the results in one file, whatever its format.

use std::collections::HashMap;
use std::str::FromStr;

use super::seen::Seen;
use super::{criterion, google_benchmark, json, junit};
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
                "unknown format {other:?}: use json, junit, criterion or google-benchmark"
            ))),
        }
    }
}

/// Converts seconds since 1970, up to the year 9999, to microseconds.
pub fn time_micros(seconds: f64) -> Result<i64> {
    if !(0.0..253_402_300_800.0).contains(&seconds) {
        return Err(Error::invalid(format!("invalid time {seconds}: use seconds since 1970")));
    }
    Ok((seconds * 1e6) as i64)
}

/// Results read from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The commit named in the file.
    pub commit: Option<String>,
    pub time_micros: Option<i64>,
    pub entries: Vec<Entry>,
    /// Number of ignored results: failed benchmarks and aggregates.
    pub skipped: usize,
}

/// Reads one file after another.
pub struct Reader {
    labels: Params,
    seen: Seen,
}

impl Reader {
    /// Creates a reader. `labels` are added to each result's params, which take
    /// precedence.
    pub fn new(labels: Params) -> Reader {
        Reader { labels, seen: Seen::default() }
    }

    /// Reads all reports of a file.
    pub fn read(&mut self, format: Format, bytes: &[u8]) -> Result<Vec<Report>> {
        let labels = &self.labels;
        let mut report = match format {
            Format::Json => {
                self.seen.clear_if_full();
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

/// Detects the format of a file from its first bytes.
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

/// Keeps the last of several results with the same params, at the position of the
/// first.
pub fn last_of_each(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut positions: HashMap<(Kind, Params), usize> = HashMap::with_capacity(entries.len());
    for entry in entries {
        match positions.get(&(entry.value.kind(), entry.params.clone())) {
            Some(at) => kept[*at] = entry,
            None => {
                positions.insert((entry.value.kind(), entry.params.clone()), kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

/// Returns params of the pairs that are not blank. Values that are too long are
/// truncated, because the programs that write them have no limits.
pub fn tolerant<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Params> {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.trim().is_empty());
    Params::new(pairs.map(|(key, value)| (key, cut(value, VALUE_BYTES_MAX))))
}

/// Returns at most `bytes_max` bytes of a text, cut at a character boundary.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Value;

    #[test]
    fn formats_are_detected() {
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
