//! A git repository, asked with the `git` program: which commits the main
//! branch has, in order, and which commit a name means.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::store::Commit;

const FIELD: char = '\x1f';
const TEXT_BYTES_MAX: usize = 1000;

/// All commits on the first-parent line up to `branch`, the oldest first.
pub fn commits(repository: &Path, branch: &str) -> Result<Vec<Commit>> {
    let shallow = run(repository, &["rev-parse", "--is-shallow-repository"])?;
    if shallow.trim() == "true" {
        return Err(Error::invalid(format!(
            "{} is a shallow clone, so its commits cannot be counted: `git fetch --unshallow`",
            repository.display()
        )));
    }
    let format = "--format=%H%x1f%aN <%aE>%x1f%ct%x1f%s";
    let log = ["log", "--first-parent", "--reverse", format, "--end-of-options", branch, "--"];
    let told = run(repository, &log)?;
    told.lines().map(commit).collect()
}

/// The hash of what a name means, such as `HEAD~3`.
pub fn resolve(repository: &Path, name: &str) -> Result<String> {
    let commit = format!("{name}^{{commit}}");
    let told = run(repository, &["rev-parse", "--verify", "--end-of-options", &commit])?;
    // Some versions repeat the separator.
    told.lines().last().map(str::to_string).ok_or_else(|| Error::UnknownCommit(name.into()))
}

fn run(repository: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(arguments);
    command.stdin(Stdio::null()).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    let output = command
        .output()
        .map_err(|error| Error::invalid(format!("the git program cannot be started: {error}")))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(Error::invalid(format!("{}: {}", repository.display(), told.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn commit(line: &str) -> Result<Commit> {
    let mut fields = line.splitn(4, FIELD);
    let (hash, author, time) = (fields.next(), fields.next(), fields.next());
    let subject = fields.next().unwrap_or_default();
    let time = time.and_then(|time| time.parse().ok());
    let (Some(hash), Some(author), Some(time)) = (hash, author, time) else {
        return Err(Error::invalid(format!("git told something strange: {line:?}")));
    };
    let text = |text: &str| super::cut(text, TEXT_BYTES_MAX).to_string();
    Ok(Commit { hash: hash.into(), author: text(author), time, subject: text(subject) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_commit() {
        let found = commit("abc\x1fAda <ada@example.org>\x1f12\x1fa \x1f b").unwrap();
        assert_eq!((found.time, found.subject.as_str()), (12, "a \x1f b"));
        assert!(commit("abc").is_err());
    }

    #[test]
    fn names_are_never_taken_for_options() {
        let dir = tempfile::tempdir().unwrap();
        assert!(resolve(dir.path(), "--help").is_err());
        assert!(commits(dir.path(), "--output=x").is_err());
        assert!(!dir.path().join("x").exists());
    }
}
