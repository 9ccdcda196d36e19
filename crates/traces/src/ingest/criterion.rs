//! Criterion's output: a directory `new` for each benchmark, with `benchmark.json` and
//! `estimates.json`. Mean and median become numbers in nanoseconds.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Report, tolerant};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Entry, Value};

/// The maximum size of a file; a larger one is not from Criterion.
const FILE_BYTES_MAX: u64 = 16 << 20;
const DEPTH_MAX: usize = 16;
const FILES_MAX: usize = 100_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    benchmarks: Vec<Measured>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    benchmark: Benchmark,
    estimates: Estimates,
}

/// Other fields that Criterion writes are ignored.
#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    full_id: String,
}

#[derive(Deserialize)]
struct Estimates {
    mean: Estimate,
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// Reads `{"benchmarks": [{"benchmark": ..., "estimates": ...}]}`, which combines both
/// files of every benchmark in one document for upload.
pub fn read(bytes: &[u8], labels: &Params) -> Result<Report> {
    let both: Both = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("invalid Criterion results: {error}")))?;
    let mut report = Report::default();
    for measured in &both.benchmarks {
        report.entries.extend(measured.entries(labels)?);
    }
    Ok(report)
}

/// Reads all benchmarks below a directory such as `target/criterion`. Their time is
/// that of the newest file.
pub fn read_directory(directory: &Path, labels: &Params) -> Result<Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    find(directory, DEPTH_MAX, &mut found)?;
    found.sort();
    for new in found {
        let benchmark = parse(&new.join("benchmark.json"))?;
        let estimates = new.join("estimates.json");
        // The modification time of a directory does not change with its files.
        report.time_micros = report.time_micros.max(modified_micros(&estimates));
        let estimates = parse(&estimates)?;
        report.entries.extend(Measured { benchmark, estimates }.entries(labels)?);
    }
    report.entries = super::last_of_each(report.entries);
    Ok(report)
}

fn modified_micros(path: &Path) -> Option<i64> {
    let modified = std::fs::metadata(path).ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}

/// Finds directories named `new` that contain a measurement. Symbolic links are not
/// followed.
fn find(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable =
        |error: std::io::Error| Error::invalid(format!("{}: {error}", directory.display()));
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !entry.file_type().map_err(unreadable)?.is_dir() || depth == 0 {
            continue;
        }
        let path = entry.path();
        if entry.file_name() == "new" && path.join("estimates.json").is_file() {
            found.push(path);
        } else {
            find(&path, depth - 1, found)?;
        }
        if found.len() > FILES_MAX {
            return Err(Error::TooLarge(format!("more than {FILES_MAX} benchmarks")));
        }
    }
    Ok(())
}

fn parse<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let wrong = |why: String| Error::invalid(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

impl Measured {
    fn entries(&self, labels: &Params) -> Result<Vec<Entry>> {
        let benchmark = &self.benchmark;
        let own = tolerant([
            ("name", &*benchmark.full_id),
            ("group", &*benchmark.group_id),
            ("function", benchmark.function_id.as_deref().unwrap_or("")),
            ("value", benchmark.value_str.as_deref().unwrap_or("")),
        ])?;
        let params = labels.overlaid(&own)?;
        let options = tolerant([("unit", "ns")])?;
        [("mean", &self.estimates.mean), ("median", &self.estimates.median)]
            .into_iter()
            .map(|(measure, estimate)| {
                let number = estimate.point_estimate;
                if !number.is_finite() {
                    return Err(Error::invalid(format!(
                        "the value of {params} is {number}, not a finite number"
                    )));
                }
                Ok(Entry {
                    params: params.overlaid(&tolerant([("measure", measure)])?)?,
                    value: Value::Number(Some(number)),
                    options: options.clone(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCHMARK: &str = r#"{"group_id":"sort","function_id":"quick","value_str":"1000",
        "throughput":{"Elements":1000},"full_id":"sort/quick/1000",
        "directory_name":"sort/quick/1000","title":"sort/quick/1000"}"#;
    const ESTIMATES: &str = r#"{"mean":{"confidence_interval":{"confidence_level":0.95,
        "lower_bound":1.0,"upper_bound":2.0},"point_estimate":1.5,"standard_error":0.1},
        "median":{"point_estimate":1.4},"median_abs_dev":{},"slope":null,"std_dev":{}}"#;

    #[test]
    fn directories_and_uploads_give_the_same_report() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("sort/quick/1000/new");
        std::fs::create_dir_all(&new).unwrap();
        std::fs::create_dir_all(dir.path().join("report")).unwrap();
        std::fs::write(new.join("benchmark.json"), BENCHMARK).unwrap();
        std::fs::write(new.join("estimates.json"), ESTIMATES).unwrap();
        // An older run left its results next to the new ones.
        let made = std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_700_000_000_000_000);
        let estimates = File::options().write(true).open(new.join("estimates.json")).unwrap();
        estimates.set_modified(made).unwrap();
        let mut read_here = read_directory(dir.path(), &Params::default()).unwrap();
        assert_eq!(read_here.time_micros.take(), Some(1_700_000_000_000_000));
        let sent =
            format!(r#"{{"benchmarks":[{{"benchmark":{BENCHMARK},"estimates":{ESTIMATES}}}]}}"#);
        assert_eq!(read_here, read(sent.as_bytes(), &Params::default()).unwrap());
        let found: Vec<_> =
            read_here.entries.iter().map(|entry| (entry.params.id(), entry.value)).collect();
        let id = |measure| {
            format!(",function=quick,group=sort,measure={measure},name=sort/quick/1000,value=1000,")
        };
        assert_eq!(found[0], (id("mean"), Value::Number(Some(1.5))));
        assert_eq!(found[1], (id("median"), Value::Number(Some(1.4))));
    }

    #[test]
    fn a_benchmark_without_estimates_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/new");
        std::fs::create_dir_all(&new).unwrap();
        std::fs::write(new.join("estimates.json"), "{}").unwrap();
        let error = read_directory(dir.path(), &Params::default()).unwrap_err().to_string();
        assert!(error.contains("benchmark.json"), "{error}");
        assert!(read(b"{\"benchmarks\":[{}]}", &Params::default()).is_err());
    }
}
