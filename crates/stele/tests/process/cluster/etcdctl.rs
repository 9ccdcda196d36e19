//! etcd's command-line client against all members, with certificates on every connection
//! and users. Runs if `STELE_ETCDCTL` names the client, as in `scripts/test`.

use std::ffi::OsString;
use std::process::{Command, Output};
use std::time::Instant;

use super::members::{NAMES, free_port, spawn_all};
use super::secure::member;
use crate::serve::secure::{Authority, save};
use crate::support::TIMEOUT;

/// The client and the flags of every call.
struct Etcdctl {
    program: OsString,
    flags: Vec<String>,
}

impl Etcdctl {
    fn run(&self, args: &[&str]) -> Output {
        let mut call = Command::new(&self.program);
        call.env("ETCDCTL_API", "3").args(&self.flags).args(args);
        call.output().unwrap()
    }

    /// Returns the output of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn by(&self, user: &str) -> Etcdctl {
        let flags = [&self.flags[..], &["--user".to_string(), user.to_string()]].concat();
        Etcdctl { program: self.program.clone(), flags }
    }
}

#[test]
fn etcdctl_uses_all_members_with_certificates_and_users() {
    let Some(program) = std::env::var_os("STELE_ETCDCTL") else { return };
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let [peer_ports, client_ports] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let url = |(name, port): (&str, u16)| format!("{name}=https://localhost:{port}");
    let members = NAMES.into_iter().zip(peer_ports).map(url).collect::<Vec<_>>().join(",");
    let identity = authority.sign();
    let file = |name: &str, text: &str| save(dir.path(), name, text);
    let (ca, cert, key) =
        (file("ca", &authority.pem()), file("cert", &identity.0), file("key", &identity.1));
    let endpoints = client_ports.map(|port| format!("https://localhost:{port}"));
    let commands = [0, 1, 2].map(|at| {
        let mut start = member(dir.path(), at, &members, &endpoints[at], &authority, &identity);
        start.args(["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca]);
        start
    });
    let mut running = spawn_all(commands).map(Some);
    let with = |endpoints: &str| {
        let flags = ["--endpoints", endpoints, "--cacert", &ca, "--cert", &cert, "--key", &key];
        let flags = [&flags[..], &["--command-timeout", "30s"]].concat();
        let flags = flags.into_iter().map(str::to_string).collect();
        Etcdctl { program: program.clone(), flags }
    };
    let all = with(&endpoints.join(","));
    all.ok(&["user", "add", "root:toor"]);
    all.ok(&["user", "grant-role", "root", "root"]);
    all.ok(&["user", "add", "ada:secret"]);
    all.ok(&["role", "add", "reader"]);
    all.ok(&["role", "grant-permission", "reader", "read", "k"]);
    all.ok(&["user", "grant-role", "ada", "reader"]);
    all.ok(&["auth", "enable"]);
    let root = all.by("root:toor");
    root.ok(&["put", "k", "v"]);
    // A token of one member is good at all others.
    for endpoint in &endpoints {
        assert_eq!(with(endpoint).by("ada:secret").ok(&["get", "k"]), "k\nv\n");
    }
    let status = root.ok(&["endpoint", "status"]);
    assert_eq!(status.matches(", true,").count(), 1, "one leads: {status}");
    assert_eq!(root.ok(&["member", "list"]).matches("started").count(), 3);
    // Leadership moves, and the leader is killed.
    let line = |status: &str, leads: &str| {
        status.lines().find(|line| line.contains(leads)).unwrap().to_string()
    };
    let id = line(&status, ", false,").split(", ").nth(1).unwrap().to_string();
    assert!(root.ok(&["move-leader", &id]).contains("transferred"));
    let leader = line(&root.ok(&["endpoint", "status"]), ", true,");
    assert!(leader.contains(&id), "{leader}");
    let killed = endpoints.iter().position(|endpoint| leader.contains(endpoint)).unwrap();
    running[killed].take().unwrap().kill();
    // The client gives its password 2 s, and an election may take longer.
    let begun = Instant::now();
    while !root.run(&["put", "k", "after"]).status.success() {
        assert!(begun.elapsed() < TIMEOUT, "no writes without the leader that was killed");
    }
    assert_eq!(all.by("ada:secret").ok(&["get", "k"]), "k\nafter\n");
}
