//! Progress of long commands, on standard error and only on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::count;

/// How often progress is displayed.
const INTERVAL: Duration = Duration::from_millis(100);
/// The resolution of the bar.
const STEPS: u64 = 1000;

pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    displayed: Option<Instant>,
}

impl Progress {
    /// Starts a bar that fills up.
    pub fn new() -> Progress {
        Progress::with_template("[{bar:30}] {percent:>3} %  {msg}")
    }

    /// Starts a line for work of unknown length.
    pub fn without_total() -> Progress {
        Progress::with_template("{msg}")
    }

    fn with_template(template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the templates are valid");
        // Hidden by itself when standard error is not a terminal.
        let bar = ProgressBar::new(STEPS).with_style(style.progress_chars("# "));
        Progress { bar, started: Instant::now(), displayed: None }
    }

    /// Shows the fraction done and the number of items seen.
    pub fn show(&mut self, done: f64, number: u64, things: &str) {
        if self.bar.is_hidden() || self.displayed.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        self.displayed = Some(Instant::now());
        self.bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        let elapsed = self.started.elapsed();
        let left = (done > 0.0 && done < 1.0).then(|| elapsed.mul_f64((1.0 - done) / done));
        self.bar.set_message(line(number, things, elapsed, left));
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(number: u64, things: &str, elapsed: Duration, left: Option<Duration>) -> String {
    let rate = (number as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let left = left.map(|left| format!(", {} s left", count(left.as_secs()))).unwrap_or_default();
    format!("{} {things}, {}/s{left}", count(number), count(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_shown_with_its_rate() {
        let text = line(12_345, "results", Duration::from_secs(5), None);
        assert_eq!(text, "12,345 results, 2,469/s");
        let text = line(9, "rows", Duration::from_secs(1), Some(Duration::from_secs(75)));
        assert_eq!(text, "9 rows, 9/s, 75 s left");
        // Without a terminal nothing is shown and nothing fails.
        let mut progress = Progress::new();
        progress.show(7.0, 1, "results");
        progress.clear();
    }
}
