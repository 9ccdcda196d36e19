//! The output of the soak: a CSV file, a plot, and a verdict.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use stele_bench_plot::{Line, Plot};

use crate::honest::{Course, Sample};

/// Writes the samples as CSV and, next to that file, as an SVG plot.
pub fn write(samples: &[Sample], csv: &Path) -> Result<()> {
    let mut text =
        String::from("seconds,rss_mb,ping_p99_ms,read_p99_ms,write_p99_ms,worst_ms,calls,errors\n");
    for sample in samples {
        let Sample {
            seconds, ping_p99_ms, read_p99_ms, write_p99_ms, worst_ms, calls, errors, ..
        } = sample;
        let rss = mb(sample);
        writeln!(
            text,
            "{seconds:.1},{rss:.0},{ping_p99_ms:.2},{read_p99_ms:.2},{write_p99_ms:.2},{worst_ms:.2},{calls},{errors}"
        )?;
    }
    std::fs::write(csv, text).with_context(|| format!("writing {}", csv.display()))?;
    plot(samples).write(&csv.with_extension("svg"))
}

fn mb(sample: &Sample) -> f64 {
    sample.rss_bytes as f64 / 1e6
}

fn plot(samples: &[Sample]) -> Plot {
    let line = |label: &str, colour: &'static str, value: fn(&Sample) -> f64| Line {
        label: label.to_string(),
        colour,
        points: samples.iter().map(|sample| (sample.seconds, value(sample))).collect(),
    };
    Plot {
        title: "A well-behaved client among hostile ones".to_string(),
        x_label: "seconds".to_string(),
        lines: vec![
            line("RSS, MB", "#2ca02c", mb),
            line("p99 of reads, ms", "#1f77b4", |sample| sample.read_p99_ms),
            line("p99 of writes, ms", "#d62728", |sample| sample.write_p99_ms),
            line("p99 of pings, ms", "#9467bd", |sample| sample.ping_p99_ms),
        ],
    }
}

/// Prints a summary and returns an error if a requirement was not met.
pub fn judge(course: &Course, rss_bound: u64) -> Result<()> {
    let samples = &course.samples;
    let [ping, read, write] =
        [0, 1, 2].map(|kind| course.times[kind].value_at_quantile(0.99) as f64 / 1e6);
    let worst = samples.iter().map(|sample| sample.worst_ms).fold(0.0, f64::max);
    let rss = samples.iter().map(|sample| sample.rss_bytes).max().unwrap_or(0);
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    let calls: u64 = samples.iter().map(|sample| sample.calls).sum();
    println!(
        "{} s, {calls} calls, {errors} failed; p99: ping {ping:.1} ms, read {read:.1} ms, write {write:.1} ms; longest call {worst:.0} ms; peak RSS {} MB, limit {} MB",
        samples.len(),
        rss / 1_000_000,
        rss_bound / 1_000_000,
    );
    ensure!(rss > 0, "the server has exited");
    ensure!(errors == 0, "{errors} calls of the well-behaved client failed");
    ensure!(rss <= rss_bound, "the server exceeded its memory limit");
    Ok(())
}
