//! A progress bar on standard error, shown only on a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::output::count;

const EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

pub struct Progress {
    terminal: bool,
    shown_at: Option<Instant>,
    begun: Instant,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { terminal: io::stderr().is_terminal(), shown_at: None, begun: Instant::now() }
    }

    /// Shows the fraction done and the number of items seen.
    pub fn show(&mut self, done: f64, number: u64, things: &str) {
        if !self.terminal || self.shown_at.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.shown_at = Some(Instant::now());
        eprint!("\r\x1b[K{}", bar(done, number, things, self.begun.elapsed()));
    }

    pub fn clear(&self) {
        if self.shown_at.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

fn bar(done: f64, number: u64, things: &str, elapsed: Duration) -> String {
    let done = done.clamp(0.0, 1.0);
    let full = (done * WIDTH as f64) as usize;
    let rate = (number as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    format!(
        "[{}{}] {:3.0} %  {} {things}, {}/s",
        "#".repeat(full),
        " ".repeat(WIDTH - full),
        done * 100.0,
        count(number),
        count(rate)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let half = bar(0.5, 12_345, "results", Duration::from_secs(1));
        assert!(half.starts_with("[###############               ]  50 %"), "{half}");
        assert!(half.ends_with("12,345 results, 12,345/s"), "{half}");
        assert!(bar(7.0, 1, "results", Duration::ZERO).contains("100 %"));
    }
}
