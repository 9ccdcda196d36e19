//! S1.5: one process serves every row, and services reach rows only through `Tables`.

use std::fs;
use std::path::{Path, PathBuf};

use stele_engine::{Options, ScanSpec};
use stele_tables::Placement;

use crate::fixture::{Fixture, write};

#[test]
fn scale_1_5_in_one_process_every_row_is_here() {
    let fixture = Fixture::new(Options::default());
    let other = fixture.tables.table("other").unwrap();
    for table in [fixture.table, other] {
        for row in [&b""[..], b"a", b"\xff\xff"] {
            let Placement::Here(local) = fixture.tables.place(table, row);
            let mut cells = 0;
            let read = local.read_row(row, &ScanSpec::default(), |_| cells += 1);
            fixture.tables.tenure().open(read).unwrap();
            assert_eq!(cells, 0);
        }
    }
    write(&fixture.tables, other, "b");
    assert!(fixture.rows().is_empty(), "the other table was written");
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn scale_1_5_the_bigtable_and_catalogue_services_do_not_name_the_store() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for service in ["bigtable", "catalogue"] {
        let mut files = Vec::new();
        sources(&crates.join(service).join("src"), &mut files);
        assert!(files.len() > 20, "{service} has moved");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let is_word = |line: &&str| {
                line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "Store")
            };
            assert_eq!(lines.find(is_word), None, "{}", file.display());
        }
    }
}
