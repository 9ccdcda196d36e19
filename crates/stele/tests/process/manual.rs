//! Completion scripts and man pages.

use crate::support::command;

#[test]
fn a_completion_script_knows_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = command(&["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for name in ["serve", "catalogue", "metastore", "gc-rule", "dump-config", "ephemeral"] {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    assert_eq!(command(&["completions", "dos"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn every_command_has_a_man_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("share/man1");
    let output = command(&["man", pages.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("created "));
    for (page, says) in [
        ("stele.1", "stele"),
        ("stele-serve.1", "STELE_DATA"),
        ("stele-table-create.1", "family"),
        ("stele-table-verify.1", "checksum"),
        ("stele-metastore-lease-grant.1", "seconds"),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(says), "{page}: {text}");
    }
}
