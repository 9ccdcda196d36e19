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

/// The branch that a table follows if none is given: the default branch of
/// `origin`, or else `main` or `master`, there or here, or else the only branch
/// of a repository without remotes. The checked-out commit decides nothing:
/// continuous integration checks out feature branches, and merge commits of
/// pull requests that no branch has.
pub fn main_branch(repository: &Path) -> Result<String> {
    let refs =
        run(repository, &["for-each-ref", "--format=%(refname)", "refs/remotes", "refs/heads"])?;
    let refs: Vec<&str> = refs.lines().collect();
    let wanted = [
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/main",
        "refs/remotes/origin/master",
        "refs/heads/main",
        "refs/heads/master",
    ];
    let found = wanted.into_iter().find(|name| refs.contains(name));
    let only = || match refs[..] {
        [only] if only.starts_with("refs/heads/") => Some(only),
        _ => None,
    };
    found.or_else(only).map(str::to_string).ok_or_else(|| {
        Error::invalid(format!(
            "cannot tell which branch of {} is the main branch: pass --branch",
            repository.display()
        ))
    })
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
    fn the_main_branch_is_that_of_the_origin_before_any_local_one() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| run(dir.path(), arguments).unwrap();
        git(&["init", "-q", "-b", "trunk"]);
        assert!(main_branch(dir.path()).is_err(), "there is no branch yet");
        let who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
        git(&[&who[..], &["commit", "-q", "--allow-empty", "-m", "one"]].concat());
        let found = || main_branch(dir.path()).map_err(|error| error.to_string());
        assert_eq!(found().unwrap(), "refs/heads/trunk");
        git(&["checkout", "-q", "-b", "feature"]);
        assert!(found().unwrap_err().contains("--branch"));
        for name in ["refs/heads/master", "refs/heads/main", "refs/remotes/origin/main"] {
            git(&["update-ref", name, "HEAD"]);
            assert_eq!(found().unwrap(), name);
        }
        git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"]);
        assert_eq!(found().unwrap(), "refs/remotes/origin/main", "trunk was not fetched");
        git(&["update-ref", "refs/remotes/origin/trunk", "HEAD"]);
        assert_eq!(found().unwrap(), "refs/remotes/origin/HEAD");
    }

    #[test]
    fn names_are_never_taken_for_options() {
        let dir = tempfile::tempdir().unwrap();
        assert!(resolve(dir.path(), "--help").is_err());
        assert!(commits(dir.path(), "--output=x").is_err());
        assert!(!dir.path().join("x").exists());
    }
}
