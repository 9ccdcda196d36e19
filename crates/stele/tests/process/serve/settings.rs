//! Settings: precedence of the sources, and the errors about mistakes.

use std::fs;

use crate::support::{Server, command, refused};

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let file = at("stele.toml");
    let text = format!(
        "# A comment.\ndata = {:?}\nhttp-port = \"off\"\ngrpc-port = 0\nmemory = \"64MiB\"\n",
        at("by-file")
    );
    fs::write(&file, text).unwrap();
    let by_file = Server::spawn(command(&["serve", "--config", &file]));
    assert_eq!(by_file.data(), at("by-file"));
    assert!(by_file.ready["http"].is_null());

    let not_ephemeral = command(&["serve", "--config", &file, "--ephemeral=false"]);
    drop(by_file);
    assert_eq!(Server::spawn(not_ephemeral).data(), at("by-file"));

    let mut by_environment = command(&["serve"]);
    by_environment.env("STELE_CONFIG", &file).env("STELE_DATA", at("by-environment"));
    by_environment.env("STELE_HTTP_PORT", "0");
    let by_environment = Server::spawn(by_environment);
    assert_eq!(by_environment.data(), at("by-environment"));
    // A quarter of the memory set in the file is for cells.
    let cells = by_environment.metric("stele_memory_limit_bytes");
    assert_eq!(cells, Some(f64::from(16 << 20)));

    let mut by_flag = command(&["serve", "--data", &at("by-flag"), "--memory=128MiB"]);
    by_flag.env("STELE_CONFIG", &file).env("STELE_DATA", at("by-environment"));
    by_flag.env("STELE_HTTP_PORT", "0").env("STELE_MEMORY", "96MiB");
    let by_flag = Server::spawn(by_flag);
    assert_eq!(by_flag.data(), at("by-flag"));
    assert_eq!(by_flag.metric("stele_memory_limit_bytes"), Some(f64::from(32 << 20)));
}

#[test]
fn a_mistake_is_reported_with_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stele.toml");
    let file = file.to_str().unwrap();
    for (text, says) in [
        ("http-port = 'off'\ngrpc_port = 8086\n", &["line 2", "grpc_port"][..]),
        ("\n\nmemory = '5 loaves'\n", &["line 3", "512MiB"]),
        ("data = 'x'\nephemeral = true\n", &["either --data or --ephemeral"]),
        ("memory = '1MiB'\n", &["too small"]),
        ("tls-cert = 'x'\n", &["--tls-key"]),
    ] {
        fs::write(file, text).unwrap();
        let printed = refused(&mut command(&["serve", "--config", file]));
        assert!(says.iter().all(|says| printed.contains(says)), "{printed}");
    }
    let printed = refused(&mut command(&["serve", "--config", "/no/such/file"]));
    assert!(printed.contains("/no/such/file"), "{printed}");
    let printed = refused(&mut command(&["serve", "--ephemeral", "--log", "=nonsense=["]));
    assert!(printed.contains("--log"), "{printed}");
    let output = command(&["serve", "--memory", "lots"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("512MiB"));
}

#[test]
fn logs_are_text_or_json() {
    let server = Server::start(&["--ephemeral", "--log-format", "json", "--log", "info"]);
    let ended = server.terminate();
    let logged: Vec<serde_json::Value> =
        ended.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(logged.iter().any(|line| line["message"] == "shutting down"), "{}", ended.stderr);
}
