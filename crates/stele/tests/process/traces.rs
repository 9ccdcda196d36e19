//! `stele traces` end to end: a git history of a few hundred commits, JUnit reports and
//! Criterion directories as real tools write them, a server, and the commands.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Server, command};

const COMMITS: usize = 300;
/// The commit that breaks a test, and the one that slows down a benchmark.
const BREAKS: usize = 200;
const SLOWS: usize = 150;

/// A server whose traces are used.
struct TraceServer {
    grpc: String,
    http: String,
    _process: Server,
}

impl TraceServer {
    fn start() -> TraceServer {
        let process = Server::start(&["--ephemeral"]);
        let (grpc, http) = (process.address("grpc"), process.address("http"));
        TraceServer { grpc, http, _process: process }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let all = [&["traces"], arguments, &["--endpoint", &self.grpc]].concat();
        command(&all).output().unwrap()
    }

    /// Returns the JSON output of a command that must exit with this code.
    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command that must be rejected.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Creates a repository with a history. Returns the hashes of its main branch.
fn repository(dir: &Path) -> Vec<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir).args(arguments);
        command
    };
    assert!(git(&["init", "-q", "-b", "main"]).status().unwrap().success());
    let mut stream = String::new();
    for at in 0..COMMITS {
        let who = ["Ada <ada@example.org>", "Grace <grace@example.org>"][at % 2];
        let subject = format!("Change {at}\n");
        let time = 1_700_000_000 + at * 600;
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter {who} {time} +0000\ndata {}\n{subject}\
             M 644 inline file\ndata {}\n{at}\n",
            subject.len(),
            at.to_string().len() + 1
        );
    }
    let mut import = git(&["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
    let log = git(&["rev-list", "--reverse", "main"]).output().unwrap();
    String::from_utf8(log.stdout).unwrap().lines().map(str::to_string).collect()
}

/// Writes a report like a test runner's.
fn junit(dir: &Path, at: usize) -> PathBuf {
    let mut cases = String::new();
    for test in ["parses", "prints", "merges"] {
        let outcome = if test == "prints" && at >= BREAKS {
            "<failure message=\"assertion failed: 3 != 4\">stack</failure>"
        } else {
            ""
        };
        let _ = write!(
            cases,
            "<testcase classname=\"lib\" name=\"{test}\" time=\"0.25\">{outcome}</testcase>"
        );
    }
    let path = dir.join(format!("junit-{at}.xml"));
    let head = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";
    std::fs::write(
        &path,
        format!("{head}<testsuites><testsuite name=\"unit\">{cases}</testsuite></testsuites>"),
    )
    .unwrap();
    path
}

/// Writes a directory like Criterion's.
fn criterion(dir: &Path, at: usize) -> PathBuf {
    let path = dir.join(format!("criterion-{at}"));
    for (name, base) in [("sort", 1000.0), ("search", 50.0)] {
        let slow = if name == "sort" && at >= SLOWS { 1.3 } else { 1.0 };
        let mean = base * slow * (1.0 + 0.004 * ((at / 10 * 7 % 11) as f64 - 5.0) / 5.0);
        let new = path.join(name).join("new");
        std::fs::create_dir_all(&new).unwrap();
        let benchmark = format!(
            r#"{{"group_id":"{name}","function_id":null,"value_str":null,"throughput":null,"full_id":"{name}","directory_name":"{name}","title":"{name}"}}"#
        );
        std::fs::write(new.join("benchmark.json"), benchmark).unwrap();
        let estimates = format!(
            r#"{{"mean":{{"point_estimate":{mean},"standard_error":1.0}},"median":{{"point_estimate":{mean}}}}}"#
        );
        std::fs::write(new.join("estimates.json"), estimates).unwrap();
    }
    path
}

struct Project {
    server: TraceServer,
    dir: TempDir,
    hashes: Vec<String>,
}

impl Project {
    /// Starts a server with the results of every tenth commit.
    fn new() -> Project {
        let (server, dir) = (TraceServer::start(), tempfile::tempdir().unwrap());
        let hashes = repository(dir.path());
        assert_eq!(hashes.len(), COMMITS);
        server.text(&["init", "ci"]);
        let project = Project { server, dir, hashes };
        for at in (0..COMMITS).step_by(10) {
            let ingested = project.ingest(at);
            assert_eq!(ingested["results"], 10, "{ingested}");
            assert_eq!(ingested["commits"], if at == 0 { COMMITS } else { 0 });
        }
        project
    }

    fn ingest(&self, at: usize) -> Value {
        let files = self.dir.path().join("out");
        std::fs::create_dir_all(&files).unwrap();
        let (junit, criterion) = (junit(&files, at), criterion(&files, at));
        let repo = self.dir.path().to_str().unwrap();
        let paths = [junit.to_str().unwrap(), criterion.to_str().unwrap()];
        let commit = ["--commit", &self.hashes[at], "--param", "os=linux", "--repo", repo];
        self.server.json(0, &[&["ingest", "ci"], &paths[..], &commit[..]].concat())
    }
}

#[test]
fn a_repository_with_reports_answers_what_changed_when_and_where() {
    let project = Project::new();
    let (server, hashes) = (&project.server, &project.hashes);
    let id = ",class=lib,name=prints,os=linux,suite=unit,";
    let found = server.json(0, &["bisect", "ci", id]);
    assert_eq!((&found["good"], &found["bad"]), (&190.into(), &200.into()));
    assert_eq!(found["suspects"].as_array().unwrap().len(), 10);
    assert_eq!(found["suspects"][9]["commit"]["hash"], hashes[200]);
    assert_eq!(found["suspects"][9]["commit"]["subject"], "Change 200");
    let slow = ",group=sort,measure=mean,name=sort,os=linux,";
    let found = server.json(0, &["bisect", "ci", slow, "--numbers"]);
    assert_eq!((&found["good"], &found["bad"]), (&140.into(), &150.into()));
    let same = ",class=lib,name=parses,os=linux,suite=unit,";
    assert_eq!(server.json(1, &["bisect", "ci", same])["changed"], false);
    let missing = server.run(&["bisect", "ci", ",name=nosuch,"]);
    assert_eq!(missing.status.code(), Some(2), "a typo is no stable trace");

    let diff = server.json(1, &["diff", "ci", &hashes[190], &hashes[210]]);
    assert_eq!((&diff["same"], diff["different"].as_array().unwrap().len()), (&2.into(), 1));
    assert_eq!(diff["different"][0]["params"]["name"], "prints");
    assert_eq!(server.json(0, &["diff", "ci", "@210", "@290"])["same"], 3);

    let text = server.text(&["query", "ci", "class=lib", "-n", "12"]);
    assert!(text.starts_with("3 traces at 12 commits, @180 to @290\n"), "{text}");
    assert!(text.contains("aabbbbbbbbbb  ,class=lib,name=prints"), "{text}");
    assert!(text.contains("aaaaaaaaaaaa  ,class=lib,name=parses"), "{text}");
    let set = server.json(0, &["params", "ci"]);
    assert_eq!(set["os"], serde_json::json!(["linux"]));
    let trace = server.json(0, &["trace", "ci", id]);
    assert_eq!(trace["digests"].as_array().unwrap().len(), 30);
    assert_eq!(trace["options"]["status"], "failed");
    let steps = server.text(&["steps", "ci", "measure=mean"]);
    assert!(steps.starts_with('+') && steps.contains("@140 to @150"), "{steps}");
    assert!(steps.ends_with("1 step in 2 traces\n"), "{steps}");
}

#[test]
fn a_build_is_held_up_until_what_is_new_has_been_looked_at() {
    let project = Project::new();
    let server = &project.server;
    let broken = server.json(1, &["check", "ci", "class=lib"]);
    assert_eq!((&broken["label"], &broken["commit"]), (&"untriaged".into(), &290.into()));
    server.text(&["check", "ci", "class=lib", "--last", "@190"]);
    server.text(&["check", "ci", "class=lib", "--untriaged-ok"]);
    let blamed = server.json(1, &["blame", "ci", "name=prints", "-n", "12"]);
    assert_eq!(blamed["digest"], broken["digest"], "{blamed}");
    assert_eq!(blamed["suspects"].as_array().unwrap().len(), 10);
    let digest = broken["digest"].as_str().unwrap();
    let printed = server.text(&["label", "ci", "prints", digest, "positive", "--by", "ada"]);
    assert_eq!(printed, format!("digest {digest} of prints labelled positive\n"));
    assert_eq!(server.text(&["check", "ci", "class=lib"]), "3 traces: 0 negative, 0 untriaged\n");
    server.text(&["label", "ci", "prints", digest, "negative"]);
    assert_eq!(server.json(1, &["check", "ci", "--untriaged-ok"])["label"], "negative");
    let kept = server.json(0, &["labels", "ci"]);
    assert_eq!((&kept["test"], &kept["label"]), (&"prints".into(), &"negative".into()));
}

#[test]
fn pages_are_served_by_a_process_of_its_own_beside_the_one_that_keeps_the_rows() {
    let server = TraceServer::start();
    server.text(&["init", "ci"]);
    // The environment does not override --bigtable.
    let serve = ["traces", "serve", "--listen", "127.0.0.1:0", "--bigtable", &server.grpc];
    let mut pages = command(&serve)
        .env("STELE_ENDPOINT", "127.0.0.1:1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(pages.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("traces at http://").unwrap_or_default();
    let address = address.strip_suffix("/traces").unwrap_or_default().to_string();
    let listed = std::panic::catch_unwind(|| get(&address, "/traces/v1/tables"));
    let foreign =
        std::panic::catch_unwind(|| get_as(&address, "/traces/v1/tables", "evil.example"));
    // An idle connection does not delay shutdown.
    let _idle = std::net::TcpStream::connect(&address).unwrap();
    rustix::process::kill_process(Pid::from_child(&pages), Signal::TERM).unwrap();
    assert!(pages.wait().unwrap().success());
    assert!(listed.unwrap().contains(r#""table":"ci""#));
    assert!(foreign.unwrap().starts_with("HTTP/1.1 421"));
}

fn get(address: &str, page: &str) -> String {
    get_as(address, page, "x")
}

fn get_as(address: &str, page: &str, host: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {page} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    answer
}

#[test]
fn ingesting_twice_and_copying_change_nothing() {
    let project = Project::new();
    let server = &project.server;
    let before = server.text(&["query", "ci", "", "--json"]);
    for at in [0, 200, 290] {
        project.ingest(at);
    }
    assert_eq!(server.text(&["query", "ci", "", "--json"]), before);
    let elsewhere = TraceServer::start();
    let to = ["copy", "ci", "--to-table", "there", "--to-endpoint", &elsewhere.grpc];
    assert!(server.json(0, &to)["rows"].as_u64().unwrap() > 20);
    assert_eq!(elsewhere.text(&["query", "there", "", "--json"]), before);
    assert!(server.refused(&["copy", "ci", "--to-table", "ci"]).contains("itself"));
}

/// A repository as continuous integration checks it out: `main` of the origin is fetched,
/// and the checked-out commit is on no branch.
struct Checkout {
    dir: TempDir,
}

impl Checkout {
    /// Creates commits c0 to c2 on the main branch of the origin.
    fn new() -> Checkout {
        let checkout = Checkout { dir: tempfile::tempdir().unwrap() };
        checkout.git(&["init", "-q", "-b", "local"]);
        for name in ["c0", "c1", "c2"] {
            checkout.commit(name);
        }
        checkout.publish();
        checkout.git(&["checkout", "-q", "--detach"]);
        checkout.git(&["branch", "-q", "-D", "local"]);
        checkout
    }

    fn git(&self, arguments: &[&str]) {
        let who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
        let mut command = Command::new("git");
        command.arg("-C").arg(self.dir.path()).args(who).args(arguments);
        assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{arguments:?}");
    }

    fn commit(&self, subject: &str) {
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
    }

    /// Makes the checked-out commit the head of the origin's main branch.
    fn publish(&self) {
        self.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    }

    /// Returns the arguments that ingest a report for the checked-out commit.
    fn ingest<'a>(&'a self, report: &'a Path) -> [&'a str; 5] {
        let repo = self.dir.path().to_str().unwrap();
        ["ingest", "ci", "--repo", repo, report.to_str().unwrap()]
    }
}

#[test]
fn a_pull_request_is_refused_and_the_main_branch_goes_on() {
    let (server, checkout) = (TraceServer::start(), Checkout::new());
    server.text(&["init", "ci"]);
    let report = junit(checkout.dir.path(), 0);
    let ingest = checkout.ingest(&report);
    assert_eq!(server.json(0, &ingest)["commits"], 3);
    let before = server.text(&["query", "ci", "", "--json"]);

    // The merge commit of a pull request: its first parent is main's head.
    checkout.git(&["checkout", "-q", "-b", "feature", "HEAD~1"]);
    checkout.commit("a change");
    checkout.git(&["checkout", "-q", "--detach", "origin/main"]);
    checkout.git(&["merge", "-q", "--no-ff", "feature", "-m", "merge of the pull request"]);
    for refused in ["HEAD", "feature"] {
        checkout.git(&["checkout", "-q", "--detach", refused]);
        let message = server.refused(&ingest);
        assert!(message.contains("not on the first-parent line of origin/main"), "{message}");
        let skipped = server.json(0, &[&ingest[..], &["--skip-off-branch"]].concat());
        assert_eq!((&skipped["commits"], &skipped["results"]), (&0.into(), &0.into()));
    }
    assert_eq!(server.text(&["query", "ci", "", "--json"]), before);

    checkout.git(&["checkout", "-q", "--detach", "origin/main"]);
    checkout.commit("c3");
    checkout.publish();
    let done = server.json(0, &ingest);
    assert_eq!((&done["commits"], &done["results"]), (&1.into(), &6.into()));
}

#[test]
fn a_late_job_stores_its_results() {
    let (server, checkout) = (TraceServer::start(), Checkout::new());
    server.text(&["init", "ci"]);
    let report = junit(checkout.dir.path(), 0);
    let ingest = checkout.ingest(&report);
    assert_eq!(server.json(0, &ingest)["commits"], 3);
    // This checkout was made before c2 was pushed.
    checkout.git(&["checkout", "-q", "--detach", "HEAD~1"]);
    checkout.publish();
    let done = server.json(0, &ingest);
    assert_eq!((&done["commits"], &done["results"]), (&0.into(), &6.into()));
    let text = server.text(&["query", "ci", "name=parses"]);
    assert!(text.contains("at 2 commits, @1 to @2"), "{text}");
}

#[test]
fn a_table_that_follows_another_branch_says_so() {
    let (server, checkout) = (TraceServer::start(), Checkout::new());
    server.text(&["init", "ci"]);
    let report = junit(checkout.dir.path(), 0);
    let ingest = checkout.ingest(&report);
    checkout.commit("only here");
    // A branch that is named explicitly is followed.
    assert_eq!(server.json(0, &[&ingest[..], &["--branch", "HEAD"]].concat())["commits"], 4);
    checkout.git(&["checkout", "-q", "--detach", "origin/main"]);
    checkout.commit("c3");
    checkout.publish();
    let message = server.refused(&ingest);
    assert!(message.contains("origin/main: @3 of the table is"), "{message}");
    assert!(message.contains("--branch"), "{message}");
}

#[test]
fn failures_are_reported_with_what_to_do() {
    let server = TraceServer::start();
    assert!(server.refused(&["query", "none"]).contains("stele traces init"));
    server.text(&["init", "ci"]);
    server.text(&["init", "ci"]);
    assert!(server.refused(&["init", "ci", "--tile", "7"]).contains("cannot be changed"));
    assert!(server.refused(&["trace", "ci", "x"]).contains("invalid trace id"));
    assert!(server.refused(&["ingest", "ci"]).contains("nothing to ingest"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.json");
    std::fs::write(&file, r#"{"results":[{"params":{"a":"b"},"value":1}]}"#).unwrap();
    let file = file.to_str().unwrap();
    assert!(server.refused(&["ingest", "ci", file]).contains("names no commit"));
    assert!(server.refused(&["ingest", "ci", file, "--commit", "abcdef1"]).contains("register"));
    assert!(server.refused(&["ingest", "ci", file, "--format", "xml"]).contains("junit"));
    // The pages are served beside the commands.
    let answer = get(&server.http, "/traces/v1/tables");
    assert!(answer.contains(r#""table":"ci""#), "{answer}");
}
