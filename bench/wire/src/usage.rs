//! The resources that processes use.

use std::fs;

/// Returns CPU seconds (user + system) and resident bytes, summed over `pids`.
pub fn proc_usage(pids: &[u32]) -> (f64, u64) {
    let (mut cpu, mut rss) = (0.0, 0);
    for pid in pids {
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            let rest = stat.rsplit(')').next().unwrap_or("");
            let f: Vec<&str> = rest.split_whitespace().collect();
            let ticks = |i: usize| f.get(i).and_then(|s| s.parse::<f64>().ok()).unwrap_or(0.0);
            cpu += (ticks(11) + ticks(12)) / 100.0; // USER_HZ is 100 on Linux
            rss += ticks(21) as u64 * 4096;
        }
    }
    (cpu, rss)
}
