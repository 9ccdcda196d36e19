//! Reads a git repository with the `git` program: the commits of the main branch in
//! order, and the commit that a name refers to.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::store::Commit;

const FIELD: char = '\x1f';
const TEXT_BYTES_MAX: usize = 1000;

/// Returns all commits on the first-parent line up to `branch`, the oldest first.
pub fn commits(repository: &Path, branch: &str) -> Result<Vec<Commit>> {
    let shallow = run(repository, &["rev-parse", "--is-shallow-repository"])?;
    if shallow.trim() == "true" {
        return Err(Error::invalid(format!(
            "{} is a shallow clone, so its commits cannot be counted: run `git fetch --unshallow`",
            repository.display()
        )));
    }
    let format = "--format=%H%x1f%aN <%aE>%x1f%ct%x1f%s";
    let log = ["log", "--first-parent", "--reverse", format, "--end-of-options", branch, "--"];
    let output = run(repository, &log)?;
    output.lines().map(commit).collect()
}

/// Returns the branch that a table follows by default: the default branch of `origin`,
/// or else `main` or `master`, remote or local, or else the only branch of a repository
/// without remotes. The checked-out commit is not used, because continuous integration
/// checks out feature branches, and merge commits of pull requests that are on no
/// branch.
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
            "cannot determine the main branch of {}: pass --branch",
            repository.display()
        ))
    })
}

/// Returns the hash that a name such as `HEAD~3` refers to.
pub fn resolve(repository: &Path, name: &str) -> Result<String> {
    let commit = format!("{name}^{{commit}}");
    let output = run(repository, &["rev-parse", "--verify", "--end-of-options", &commit])?;
    // Some versions of git print the separator too.
    output.lines().last().map(str::to_string).ok_or_else(|| Error::UnknownCommit(name.into()))
}

fn run(repository: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(arguments);
    command.stdin(Stdio::null()).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    let output =
        command.output().map_err(|error| Error::invalid(format!("cannot run git: {error}")))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr);
        return Err(Error::invalid(format!("{}: {}", repository.display(), output.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn commit(line: &str) -> Result<Commit> {
    let mut fields = line.splitn(4, FIELD);
    let (hash, author, time) = (fields.next(), fields.next(), fields.next());
    let subject = fields.next().unwrap_or_default();
    let time = time.and_then(|time| time.parse().ok());
    let (Some(hash), Some(author), Some(time)) = (hash, author, time) else {
        return Err(Error::invalid(format!("unexpected output of git: {line:?}")));
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
        assert!(main_branch(dir.path()).is_err(), "a branch exists already");
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
    fn names_are_never_parsed_as_options() {
        let dir = tempfile::tempdir().unwrap();
        assert!(resolve(dir.path(), "--help").is_err());
        assert!(commits(dir.path(), "--output=x").is_err());
        assert!(!dir.path().join("x").exists());
    }
}
