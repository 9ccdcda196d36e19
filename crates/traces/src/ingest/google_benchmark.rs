//! Google Benchmark's JSON. Times are converted to nanoseconds; repetitions are reduced
//! to their median, unless the file contains only aggregates.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Report, tolerant};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Entry, Value};

#[derive(Deserialize)]
struct File {
    benchmarks: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    run_name: Option<String>,
    run_type: Option<String>,
    aggregate_name: Option<String>,
    aggregate_unit: Option<String>,
    real_time: Option<f64>,
    cpu_time: Option<f64>,
    time_unit: Option<String>,
    bytes_per_second: Option<f64>,
    items_per_second: Option<f64>,
    #[serde(default)]
    error_occurred: bool,
    #[serde(default)]
    skipped: bool,
}

/// The values measured under one name, by aggregate, measure and unit.
type Series = BTreeMap<(String, &'static str, &'static str), Vec<f64>>;

pub fn read(bytes: &[u8], labels: &Params) -> Result<Report> {
    let file: File = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("invalid Google Benchmark results: {error}")))?;
    let mut report = Report::default();
    let mut names: BTreeMap<&str, (Series, Series)> = BTreeMap::new();
    for run in &file.benchmarks {
        let is_summary = run.run_type.as_deref() == Some("aggregate");
        // Percentages of other numbers are not times.
        let is_share = run.aggregate_unit.as_deref() == Some("percentage");
        if run.error_occurred || run.skipped || is_share {
            report.skipped += 1;
            continue;
        }
        let series = names.entry(run.run_name.as_deref().unwrap_or(&run.name)).or_default();
        let summary =
            if is_summary { run.aggregate_name.clone().unwrap_or_default() } else { String::new() };
        let series = if is_summary { &mut series.1 } else { &mut series.0 };
        for (measure, unit, number) in run.numbers()? {
            series.entry((summary.clone(), measure, unit)).or_default().push(number);
        }
    }
    for (name, (runs, summaries)) in names {
        let kept = if runs.is_empty() {
            summaries
        } else {
            report.skipped += summaries.values().map(Vec::len).sum::<usize>();
            runs
        };
        for ((summary, measure, unit), numbers) in kept {
            let own = tolerant([("name", name), ("measure", measure), ("summary", &summary)])?;
            report.entries.push(Entry {
                params: labels.overlaid(&own)?,
                value: Value::Number(Some(median(numbers))),
                options: tolerant([("unit", unit)])?,
            });
        }
    }
    Ok(report)
}

impl Run {
    fn numbers(&self) -> Result<Vec<(&'static str, &'static str, f64)>> {
        let unit = self.time_unit.as_deref().unwrap_or("ns");
        let nanos = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            other => return Err(Error::invalid(format!("unknown time unit {other:?}"))),
        };
        let all = [
            ("real_time", "ns", self.real_time.map(|time| time * nanos)),
            ("cpu_time", "ns", self.cpu_time.map(|time| time * nanos)),
            ("bytes_per_second", "B/s", self.bytes_per_second),
            ("items_per_second", "1/s", self.items_per_second),
        ];
        let measured = all
            .into_iter()
            .filter_map(|(measure, unit, number)| number.map(|number| (measure, unit, number)));
        measured
            .map(|found| {
                if found.2.is_finite() {
                    return Ok(found);
                }
                Err(Error::invalid(format!(
                    "the value of {} is {}, not a finite number",
                    self.name, found.2
                )))
            })
            .collect()
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        (numbers[middle - 1] + numbers[middle]) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nanoseconds_and_repetitions_their_median() {
        let text = br#"{"context": {"num_cpus": 8}, "benchmarks": [
            {"name": "BM_a/8", "run_name": "BM_a/8", "run_type": "iteration", "repetitions": 3,
             "iterations": 100, "real_time": 2.0, "cpu_time": 1.0, "time_unit": "us"},
            {"name": "BM_a/8", "run_name": "BM_a/8", "run_type": "iteration",
             "real_time": 9.0, "cpu_time": 1.0, "time_unit": "us"},
            {"name": "BM_a/8", "run_name": "BM_a/8", "run_type": "iteration",
             "real_time": 3.0, "cpu_time": 1.0, "time_unit": "us"},
            {"name": "BM_a/8_mean", "run_name": "BM_a/8", "run_type": "aggregate",
             "aggregate_name": "mean", "real_time": 4.7, "cpu_time": 1.0, "time_unit": "us"},
            {"name": "BM_b_median", "run_name": "BM_b", "run_type": "aggregate",
             "aggregate_name": "median", "real_time": 5.0, "time_unit": "ns"},
            {"name": "BM_b_cv", "run_name": "BM_b", "run_type": "aggregate",
             "aggregate_name": "cv", "aggregate_unit": "percentage", "real_time": 0.1},
            {"name": "BM_c", "error_occurred": true, "error_message": "no"}]}"#;
        let report = read(text, &Params::default()).unwrap();
        let found: Vec<_> =
            report.entries.iter().map(|entry| (entry.params.id(), entry.value)).collect();
        let number = |number| Value::Number(Some(number));
        assert_eq!(
            found,
            [
                (",measure=cpu_time,name=BM_a/8,".into(), number(1000.0)),
                (",measure=real_time,name=BM_a/8,".into(), number(3000.0)),
                (",measure=real_time,name=BM_b,summary=median,".into(), number(5.0)),
            ]
        );
        assert_eq!(report.skipped, 4);
        assert!(read(b"{}", &Params::default()).is_err());
        let unit = br#"{"benchmarks": [{"name": "a", "real_time": 1, "time_unit": "fortnights"}]}"#;
        assert!(read(unit, &Params::default()).is_err());
    }
}
