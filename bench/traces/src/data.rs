//! The results used by the benchmark: tests x configurations x commits. A digest
//! changes every 50 commits, one trace in a hundred is flaky, one cell in twenty is
//! missing. Every run uses the same results.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use stele_traces::Digest;

use crate::Scale;

const CHANGES_EVERY: u32 = 50;
const FLAKY_ONE_IN: u64 = 100;
const MISSING_ONE_IN: u64 = 20;

/// Hashes numbers into a pseudo-random one.
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

fn is_missing(test: u32, config: u32, commit: u32) -> bool {
    mixed([test.into(), config.into(), commit.into(), 1]).is_multiple_of(MISSING_ONE_IN)
}

/// Returns the digest of a trace at a commit, or `None` if the cell is missing.
fn digest(test: u32, config: u32, commit: u32) -> Option<Digest> {
    if is_missing(test, config, commit) {
        return None;
    }
    let (test, config, at) = (u64::from(test), u64::from(config), u64::from(commit));
    let flaky = mixed([test, config, 0, 2]).is_multiple_of(FLAKY_ONE_IN);
    let flick = if flaky { mixed([test, config, at, 3]) % 3 } else { 0 };
    // Each trace changes at different commits.
    let shift = (mixed([test, config, 0, 4]) % u64::from(CHANGES_EVERY)) as u32;
    let version = u64::from((commit + shift) / CHANGES_EVERY);
    let name =
        [mixed([test, config, version, 10 + flick]), mixed([test, config, version, 20 + flick])];
    Some(Digest((u128::from(name[0]) << 64 | u128::from(name[1])).to_be_bytes()))
}

/// Returns the path of a commit's file.
pub fn path(dir: &Path, commit: u32) -> PathBuf {
    dir.join(format!("{commit:05}.json"))
}

/// Returns the number of results at this scale.
pub fn results(scale: &Scale) -> u64 {
    let all = (0..scale.tests)
        .flat_map(|test| (0..scale.configs).map(move |config| (test, config)))
        .flat_map(|(test, config)| (0..scale.commits).map(move |at| (test, config, at)));
    all.filter(|(test, config, at)| !is_missing(*test, *config, *at)).count() as u64
}

/// Writes one file per commit in the native JSON format and returns the number of
/// results.
pub fn write_files(scale: &Scale, dir: &Path) -> anyhow::Result<u64> {
    let mut entries = 0;
    for commit in 0..scale.commits {
        let mut out = BufWriter::new(File::create(path(dir, commit))?);
        write!(
            out,
            "{{\"commit\":\"{}\",\"time\":{},\"results\":[",
            hash(commit),
            1_700_000_000 + commit * 977
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
    }
    Ok(entries)
}
