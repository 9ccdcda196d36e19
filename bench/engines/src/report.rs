//! Prints the outcomes of all engines and rounds as Markdown tables.

use crate::data::Shape;
use crate::engine::{BEFORE, NAMES, OURS, PEERS};
use crate::workload::{Outcome, WORKLOADS, Workload};

/// An outcome, with its engine and round.
pub struct Entry {
    pub engine: &'static str,
    pub round: usize,
    pub outcome: Outcome,
}

/// All outcomes for one data set.
pub struct Report {
    pub shape: Shape,
    pub rounds: usize,
    pub entries: Vec<Entry>,
}

/// Whether Stele passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The median over the rounds of Stele's result relative to the better peer of that
    /// round. A round is short, so load on the machine affects all engines alike.
    pub ratio: f64,
    pub bar: Option<f64>,
    pub met: bool,
}

impl Report {
    fn values(
        &self,
        engine: &str,
        workload: Workload,
        value: impl Fn(&Outcome) -> f64,
    ) -> Vec<f64> {
        let entries = self.entries.iter().filter(|entry| entry.engine == engine);
        let outcomes = entries.map(|entry| &entry.outcome);
        outcomes.filter(|outcome| outcome.workload == workload).map(value).collect()
    }

    fn score(
        &self,
        engine: &str,
        workload: Workload,
        round: usize,
        value: impl Fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let found = self.entries.iter().find(|entry| {
            entry.engine == engine && entry.round == round && entry.outcome.workload == workload
        });
        found.map(|entry| value(&entry.outcome))
    }

    /// Returns whether two builds of Stele are compared.
    fn has_before(&self) -> bool {
        self.entries.iter().any(|entry| entry.engine == BEFORE)
    }

    /// Returns the median over the rounds of the ratio of the current build to the
    /// earlier one.
    fn change(&self, workload: Workload, value: impl Fn(&Outcome) -> f64) -> Option<f64> {
        let ratios = (0..self.rounds).filter_map(|round| {
            let before = self.score(BEFORE, workload, round, &value)?;
            let after = self.score(OURS, workload, round, &value)?;
            (before > 0.0).then(|| after / before)
        });
        median(ratios.collect())
    }

    /// Compares Stele with the better of the peers.
    pub fn verdict(&self, workload: Workload) -> Option<Verdict> {
        let less_is_better = workload == Workload::Disk;
        let ratios = (0..self.rounds).filter_map(|round| {
            let peers = PEERS.iter().filter_map(|peer| self.score(peer, workload, round, headline));
            let best = if less_is_better {
                peers.fold(f64::INFINITY, f64::min)
            } else {
                peers.fold(0.0, f64::max)
            };
            let ours = self.score(OURS, workload, round, headline)?;
            (best.is_finite() && best > 0.0).then(|| ours / best)
        });
        let ratio = median(ratios.collect())?;
        let bar = workload.bar(self.shape);
        let met = bar.is_none_or(|bar| if less_is_better { ratio <= bar } else { ratio >= bar });
        Some(Verdict { ratio, bar, met })
    }

    pub fn print(&self) {
        let Shape { keys, value_bytes } = self.shape;
        println!("\n### {} keys of 16 B, values of {value_bytes} B\n", grouped(keys as f64));
        println!("Operations/s and CPU µs per operation; median of {} rounds.\n", self.rounds);
        let last =
            if self.has_before() { &["ratio", "CPU ratio"][..] } else { &["ratio", "bar", ""] };
        self.print_head("workload", last);
        for workload in self.workloads() {
            self.print_speed(workload);
        }
        println!("\nTime of one call, p50 / p99 in µs.\n");
        self.print_head("workload", &[]);
        for workload in self.workloads().filter(|workload| workload.has_latency()) {
            self.print_latency(workload);
        }
    }

    /// Returns the workloads that ran.
    fn workloads(&self) -> impl Iterator<Item = Workload> {
        let done = |&workload: &Workload| {
            self.entries.iter().any(|entry| entry.outcome.workload == workload)
        };
        WORKLOADS.into_iter().filter(done)
    }

    /// Returns the engines that ran, in the order of the columns.
    fn engines(&self) -> impl Iterator<Item = &'static str> {
        let ran = |name: &&str| self.entries.iter().any(|entry| entry.engine == *name);
        [BEFORE].into_iter().chain(NAMES.iter().copied()).filter(ran)
    }

    fn print_head(&self, first: &str, last: &[&str]) {
        let mut columns = vec![first];
        for engine in self.engines() {
            columns.push(engine);
        }
        columns.extend(last);
        println!("| {} |", columns.join(" | "));
        println!("|{}", "---|".repeat(columns.len()));
    }

    fn print_row(
        &self,
        workload: Workload,
        cell: impl Fn(&str) -> Option<String>,
        last: &[String],
    ) {
        let cells = self.engines().map(|name| cell(name).unwrap_or_default());
        let columns: Vec<String> =
            [workload.title().to_string()].into_iter().chain(cells).chain(last.to_vec()).collect();
        println!("| {} |", columns.join(" | "));
    }

    fn print_speed(&self, workload: Workload) {
        let cpu = |outcome: &Outcome| outcome.measured.cpu_us_per_operation();
        let ratio = |ratio: Option<f64>| ratio.map(|it| format!("{it:.2}")).unwrap_or_default();
        let last = match self.verdict(workload) {
            _ if self.has_before() => {
                vec![ratio(self.change(workload, headline)), ratio(self.change(workload, cpu))]
            }
            None => vec![String::new(); 3],
            Some(Verdict { ratio, bar: None, .. }) => {
                vec![format!("{ratio:.2}"), String::new(), String::new()]
            }
            Some(Verdict { ratio, bar: Some(bar), met }) => {
                let word = if met { "met" } else { "**missed**" };
                vec![format!("{ratio:.2}"), format!("{bar:.1}"), word.to_string()]
            }
        };
        let cell = |name: &str| {
            let score = median(self.values(name, workload, headline))?;
            if workload == Workload::Disk {
                return Some(format!("{:.1}", score / 1e6));
            }
            let cpu = median(self.values(name, workload, cpu))?;
            Some(format!("{} ({cpu:.2})", grouped(score)))
        };
        self.print_row(workload, cell, &last);
    }

    fn print_latency(&self, workload: Workload) {
        let cell = |name: &str| {
            let p50 = median(self.values(name, workload, |outcome| outcome.measured.p50_us))?;
            let p99 = median(self.values(name, workload, |outcome| outcome.measured.p99_us))?;
            Some(format!("{p50:.1} / {p99:.1}"))
        };
        self.print_row(workload, cell, &[]);
    }
}

/// Returns the number by which engines are compared.
fn headline(outcome: &Outcome) -> f64 {
    match outcome.workload {
        Workload::Disk => outcome.bytes as f64,
        _ => outcome.measured.per_second(),
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Formats a whole number with separated thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Measured;

    fn entry(engine: &'static str, round: usize, workload: Workload, score: u64) -> Entry {
        let measured = Measured { operations: score, seconds: 1.0, ..Measured::default() };
        Entry { engine, round, outcome: Outcome { workload, measured, bytes: score } }
    }

    fn report(entries: Vec<Entry>) -> Report {
        Report { shape: Shape { keys: 1, value_bytes: 100 }, rounds: 3, entries }
    }

    #[test]
    fn stele_is_compared_with_the_better_peer_of_each_round() {
        let scores = [("stele", [24, 10, 300]), ("rocksdb", [10, 1, 100]), ("fjall", [20, 10, 3])];
        let entries = scores.iter().flat_map(|(engine, scores)| {
            let rounds = scores.iter().enumerate();
            rounds.map(|(round, score)| entry(engine, round, Workload::Fill, *score))
        });
        let verdict = report(entries.collect()).verdict(Workload::Fill).unwrap();
        assert_eq!(verdict, Verdict { ratio: 1.2, bar: Some(1.2), met: true });
    }

    #[test]
    fn builds_are_compared_round_by_round() {
        let scores = [(BEFORE, [10, 100, 1000]), (OURS, [11, 150, 1200])];
        let entries = scores.iter().flat_map(|(engine, scores)| {
            let rounds = scores.iter().enumerate();
            rounds.map(|(round, score)| entry(engine, round, Workload::Read, *score))
        });
        let report = report(entries.collect());
        assert_eq!(report.change(Workload::Read, headline), Some(1.2));
        assert_eq!(report.change(Workload::Scan, headline), None);
        assert_eq!(report.engines().collect::<Vec<_>>(), [BEFORE, OURS]);
    }

    #[test]
    fn fewer_bytes_on_disk_are_better() {
        let entries = [("stele", 90), ("rocksdb", 100), ("fjall", 80)]
            .map(|(engine, bytes)| entry(engine, 0, Workload::Disk, bytes));
        let verdict = report(entries.into()).verdict(Workload::Disk).unwrap();
        assert_eq!((verdict.ratio, verdict.met), (90.0 / 80.0, false));
        assert_eq!(report(vec![]).verdict(Workload::Disk), None);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(999.6), "1,000");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(median(vec![3.0, 1.0, 2.0, 10.0]), Some(2.5));
    }
}
