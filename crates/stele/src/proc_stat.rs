//! The status line of a process in `/proc`.

use std::fs;

use anyhow::Context;

/// The numbers of `/proc/PID/stat`.
pub struct ProcStat {
    /// The fields from the third on.
    fields: Vec<String>,
}

impl ProcStat {
    pub fn of_self() -> anyhow::Result<ProcStat> {
        ProcStat::read("self")
    }

    pub fn of(pid: u32) -> anyhow::Result<ProcStat> {
        ProcStat::read(&pid.to_string())
    }

    fn read(pid: &str) -> anyhow::Result<ProcStat> {
        let path = format!("/proc/{pid}/stat");
        let line = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        ProcStat::parse(&line).with_context(|| format!("{path} does not contain the CPU time"))
    }

    /// Parses the line that `proc(5)` describes. The program name may contain anything, so
    /// fields are counted from the last parenthesis.
    pub fn parse(line: &str) -> Option<ProcStat> {
        let (_, after) = line.rsplit_once(')')?;
        let fields = after.split_ascii_whitespace().map(str::to_string).collect();
        let stat = ProcStat { fields };
        stat.cpu_ticks().map(|_| stat)
    }

    /// Returns a field by its number in `proc(5)`.
    pub fn number(&self, field: usize) -> Option<u64> {
        self.fields.get(field.checked_sub(3)?)?.parse().ok()
    }

    /// Returns the CPU time so far, in user and kernel mode.
    pub fn cpu_seconds(&self) -> f64 {
        seconds(self.cpu_ticks().unwrap_or(0))
    }

    fn cpu_ticks(&self) -> Option<u64> {
        Some(self.number(14)? + self.number(15)?)
    }
}

/// Converts clock ticks to seconds.
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_program_name() {
        let parse = |line: &str| Some(ProcStat::parse(line)?.cpu_ticks().unwrap());
        assert_eq!(parse("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20"), Some(200));
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 500 0 3 0 250 50 0 0 20 0 4 0 100 1 1";
        assert_eq!(parse(line), Some(300));
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
        assert!(ProcStat::of_self().unwrap().cpu_seconds() >= 0.0);
        assert!(ProcStat::of(std::process::id()).is_ok());
    }
}
