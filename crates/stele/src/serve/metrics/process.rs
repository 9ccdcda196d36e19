//! Process metrics from the operating system.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use crate::proc_stat::{ProcStat, seconds};

/// Numbers from `/proc/self`; zero where they cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    /// Seconds since 1970.
    pub started_seconds: f64,
    pub cpu_seconds: f64,
    pub threads: u64,
    pub open_files: u64,
    pub open_files_max: u64,
}

impl Process {
    pub fn now() -> Process {
        let stat = ProcStat::of_self().ok();
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let since_boot = uptime.split_ascii_whitespace().next().and_then(|up| up.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let booted_seconds = now.as_secs_f64() - since_boot.unwrap_or(0.0);
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
        Process {
            open_files,
            open_files_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            ..stat.and_then(|stat| from_stat(&stat, booted_seconds)).unwrap_or_default()
        }
    }
}

/// Returns the numbers of the status line.
fn from_stat(stat: &ProcStat, booted_seconds: f64) -> Option<Process> {
    Some(Process {
        resident_bytes: stat.number(24)? * rustix::param::page_size() as u64,
        virtual_bytes: stat.number(23)?,
        started_seconds: booted_seconds + seconds(stat.number(22)?),
        cpu_seconds: stat.cpu_seconds(),
        threads: stat.number(20)?,
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let now = Process::now();
        assert!(now.resident_bytes > 1 << 20, "{now:?}");
        assert!(now.started_seconds > 1e9 && now.virtual_bytes > now.resident_bytes, "{now:?}");
        assert!(now.threads >= 1 && now.open_files >= 1, "{now:?}");
        assert!(now.open_files_max >= now.open_files, "{now:?}");
    }

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let zeros = "0 ".repeat(20);
        let line = format!("1 (a) b) R 2 3 4 5 6 7 8 9 10 11 100 50 {zeros}");
        let stat = ProcStat::parse(&line).unwrap();
        assert!(from_stat(&stat, 0.0).unwrap().cpu_seconds > 0.0);
        assert!(ProcStat::parse("").is_none() && ProcStat::parse("1 (x) R 1").is_none());
    }
}
