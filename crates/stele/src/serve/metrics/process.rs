//! Process metrics from the operating system.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

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
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let since_boot = uptime.split_ascii_whitespace().next().and_then(|up| up.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let booted_seconds = now.as_secs_f64() - since_boot.unwrap_or(0.0);
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
        Process {
            open_files,
            open_files_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            ..from_stat(&stat, booted_seconds).unwrap_or_default()
        }
    }
}

/// Parses the line that `proc(5)` describes. The program name may contain anything, so
/// fields are counted from the last parenthesis.
fn from_stat(stat: &str, booted_seconds: f64) -> Option<Process> {
    let (_, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Some(Process {
        resident_bytes: number(24)? * rustix::param::page_size() as u64,
        virtual_bytes: number(23)?,
        started_seconds: booted_seconds + seconds(number(22)?),
        cpu_seconds: seconds(number(14)? + number(15)?),
        threads: number(20)?,
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
        assert!(from_stat(&line, 0.0).unwrap().cpu_seconds > 0.0);
        assert!(from_stat("", 0.0).is_none() && from_stat("1 (x) R 1", 0.0).is_none());
    }
}
