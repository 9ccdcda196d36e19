//! The results that are measured with: tests x configurations x commits. A
//! digest changes every 50 commits, one trace in a hundred is flaky, one cell
//! in twenty is missing. The same in every run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use stele_traces::Digest;

use crate::Scale;

const CHANGES_EVERY: u32 = 50;
const FLAKY_ONE_IN: u64 = 100;
const MISSING_ONE_IN: u64 = 20;

/// A number that follows from others.
fn mixed(parts: [u64; 4]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts {
        state = (state ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 31;
    }
    state
}

pub fn hash(commit: u32) -> String {
    format!("{:040x}", u64::from(commit) + (1 << 40))
}

/// The digest of a trace at a commit; `None` where it is missing.
fn digest(test: u32, config: u32, commit: u32) -> Option<Digest> {
    let (test, config, at) = (u64::from(test), u64::from(config), u64::from(commit));
    if mixed([test, config, at, 1]) % MISSING_ONE_IN == 0 {
        return None;
    }
    let flaky = mixed([test, config, 0, 2]) % FLAKY_ONE_IN == 0;
    let flick = if flaky { mixed([test, config, at, 3]) % 3 } else { 0 };
    // Each trace changes at commits of its own.
    let shift = (mixed([test, config, 0, 4]) % u64::from(CHANGES_EVERY)) as u32;
    let version = u64::from((commit + shift) / CHANGES_EVERY);
    let name =
        [mixed([test, config, version, 10 + flick]), mixed([test, config, version, 20 + flick])];
    Some(Digest((u128::from(name[0]) << 64 | u128::from(name[1])).to_be_bytes()))
}

/// Writes one file for each commit, in our own JSON, and tells where they are
/// and how many results they hold.
pub fn write_files(scale: &Scale, dir: &Path) -> anyhow::Result<(Vec<PathBuf>, u64)> {
    let mut files = Vec::new();
    let mut entries = 0;
    for commit in 0..scale.commits {
        let path = dir.join(format!("{commit:05}.json"));
        let mut out = BufWriter::new(File::create(&path)?);
        write!(
            out,
            "{{\"commit\":\"{}\",\"time\":{},\"results\":[",
            hash(commit),
            1_700_000_000 + commit
        )?;
        let mut between = "";
        for test in 0..scale.tests {
            for config in 0..scale.configs {
                let Some(digest) = digest(test, config, commit) else { continue };
                let (os, gpu) = (config % 10, config / 10);
                write!(
                    out,
                    "{between}{{\"params\":{{\"name\":\"test-{test:04}\",\"os\":\"os-{os}\",\"gpu\":\"gpu-{gpu}\"}},\
                     \"digest\":\"{digest}\"}}"
                )?;
                between = ",\n";
                entries += 1;
            }
        }
        writeln!(out, "]}}")?;
        out.flush()?;
        files.push(path);
    }
    Ok((files, entries))
}
