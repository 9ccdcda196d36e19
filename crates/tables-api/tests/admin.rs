//! The administration of tablets as a client uses it.

use std::path::Path;

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Options};
use stele_grpc::Services;
use stele_tables::{Placement, Tables};
use stele_tables_api::proto::dump_config_reply::Part;
use stele_tables_api::proto::{RowRange, TabletState, VerifyTableReply};
use stele_tables_api::{Admin, Client, Replies};
use tonic::{Code, Status};

const TABLE: &str = "projects/p/instances/i/tables/t";

struct Served {
    dir: tempfile::TempDir,
    tables: Tables,
    client: Client,
}

impl Served {
    /// Serves a table of two groups, in which each of the rows a to d has a cell.
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Options::default(), World::real()).unwrap();
        let groups = vec![
            Group::new("small", [Family::new("f")]),
            Group::new("large", [Family::new("g"), Family::new("h")]),
        ];
        tables.create(TABLE, Schema::new(groups).unwrap()).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        tables.create("hidden", schema).unwrap();
        let admin = Admin::new(tables.clone()).with_access(|_, name| match name {
            "hidden" => Err(Status::permission_denied("not for you")),
            _ => Ok(()),
        });
        let client = Client::in_process(Services::default().with(admin.service()));
        let served = Served { dir, tables, client };
        served.fill();
        served
    }

    fn fill(&self) {
        let table = self.tables.table(TABLE).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table);
        for row in ["a", "b", "c", "d"] {
            commit.row(row.as_bytes()).set(b"f", b"q", 1, b"value");
        }
        let Placement::Here(local) = self.tables.place(table, b"a");
        self.tables.tenure().open(local.apply_blocking(&commit.finish())).unwrap();
    }

    /// Compacts the table and returns the number of tablets that were compacted.
    async fn compact(&self) -> u64 {
        let replies = all(self.client.compact(TABLE).await.unwrap()).await.unwrap();
        assert!(replies.iter().all(|reply| reply.tablets_done <= reply.tablets), "{replies:?}");
        replies.last().unwrap().tablets_done
    }

    async fn verify(&self) -> Vec<VerifyTableReply> {
        all(self.client.verify(TABLE).await.unwrap()).await.unwrap()
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("fragments").join(name)
    }
}

async fn all<T>(mut replies: Replies<T>) -> Result<Vec<T>, Status> {
    let mut found = Vec::new();
    while let Some(reply) = replies.next().await? {
        found.push(reply);
    }
    Ok(found)
}

#[tokio::test]
async fn tablets_are_listed_with_their_rows_sizes_and_files() {
    let served = Served::new();
    let client = &served.client;
    assert!(client.split(TABLE, b"c").await.unwrap());
    assert!(!client.split(TABLE, b"c").await.unwrap());
    assert_eq!(served.compact().await, 2);
    let tablets = client.tablets(TABLE).await.unwrap();
    let rows: Vec<_> =
        tablets.iter().map(|tablet| (&tablet.start_row[..], tablet.end_row.as_deref())).collect();
    assert_eq!(rows, [(&b""[..], Some(&b"c"[..])), (b"c", None)]);
    assert_ne!(tablets[0].id, tablets[1].id);
    assert_eq!((tablets[0].load, tablets[1].load), (1, 2), "the upper one keeps its id");
    for tablet in &tablets {
        assert_eq!(tablet.state(), TabletState::Active);
        assert!(tablet.disk_bytes > 0);
        let groups: Vec<_> = tablet
            .groups
            .iter()
            .map(|group| (group.name.as_str(), group.runs, group.files, group.damaged_files))
            .collect();
        assert_eq!(groups, [("small", 1, 1, 0), ("large", 0, 0, 0)]);
    }
    client.join(TABLE, b"c").await.unwrap();
    let joined = client.tablets(TABLE).await.unwrap();
    assert_eq!((joined.len(), &joined[0].id), (1, &tablets[1].id));
}

#[tokio::test]
async fn more_tablets_than_fit_in_a_message_are_all_listed() {
    let served = Served::new();
    let splits: Vec<Vec<u8>> = (0..600u32).map(|number| number.to_be_bytes().to_vec()).collect();
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    served.tables.create_with_splits("many", schema, splits.clone()).unwrap();
    let tablets = served.client.tablets("many").await.unwrap();
    let starts: Vec<_> = tablets[1..].iter().map(|tablet| tablet.start_row.to_vec()).collect();
    assert_eq!(starts, splits);
}

#[tokio::test]
async fn each_error_has_its_code() {
    let served = Served::new();
    let client = &served.client;
    let code = |refused: Result<(), Status>| refused.unwrap_err().code();
    assert_eq!(code(client.split("no", b"r").await.map(drop)), Code::NotFound);
    assert_eq!(code(client.tablets("no").await.map(drop)), Code::NotFound);
    assert_eq!(code(client.compact("no").await.map(drop)), Code::NotFound);
    assert_eq!(code(client.verify("no").await.map(drop)), Code::NotFound);
    assert_eq!(code(client.dump_config(Some("no")).await.map(drop)), Code::NotFound);
    assert_eq!(code(client.split(TABLE, b"").await.map(drop)), Code::InvalidArgument);
    let long = vec![b'x'; 1 << 20];
    assert_eq!(code(client.split(TABLE, &long).await.map(drop)), Code::InvalidArgument);
    assert_eq!(code(client.join(TABLE, b"c").await), Code::InvalidArgument);
    assert_eq!(code(client.join(TABLE, b"").await), Code::InvalidArgument);
    assert_eq!(code(client.split("hidden", b"r").await.map(drop)), Code::PermissionDenied);
    assert_eq!(code(client.tablets("hidden").await.map(drop)), Code::PermissionDenied);
}

#[tokio::test]
async fn a_verification_reports_its_progress_and_every_problem() {
    let served = Served::new();
    served.client.split(TABLE, b"c").await.unwrap();
    served.compact().await;
    let replies = served.verify().await;
    let last = replies.last().unwrap();
    assert_eq!((last.tablets, last.files_done, last.bytes_done), (2, last.files, last.bytes));
    assert!(replies.iter().all(|reply| reply.problems.is_empty()), "{replies:?}");
    let checked: Vec<_> = replies.iter().filter_map(|reply| reply.checked.as_ref()).collect();
    assert_eq!(checked.len() as u64, last.files);
    assert_eq!(checked.iter().map(|file| file.cells).sum::<u64>(), 4);
    assert!(checked.iter().all(|file| file.sound && file.group == "small"));
    let damaged = served.file(&checked[0].name);
    flip(&damaged, 10);
    let replies = served.verify().await;
    let problems: Vec<_> = replies.iter().flat_map(|reply| &reply.problems).collect();
    assert_eq!(problems[0].file, checked[0].name);
    assert!(problems[0].description.contains("checksum"), "{problems:?}");
    assert!(!replies.iter().all(|reply| reply.checked.as_ref().is_none_or(|file| file.sound)));
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn tablets_are_unloaded_and_loaded_by_rows() {
    use TabletState::{Active, Unloaded};
    let served = Served::new();
    let client = &served.client;
    client.split(TABLE, b"b").await.unwrap();
    client.split(TABLE, b"c").await.unwrap();
    let range = |start: &'static str, end: Option<&'static str>| RowRange {
        start: start.into(),
        end: end.map(Into::into),
    };
    let all = || range("", None);
    let states = async || -> Vec<TabletState> {
        let tablets = client.tablets(TABLE).await.unwrap();
        tablets.iter().map(|tablet| tablet.state()).collect()
    };
    assert_eq!(client.unload(TABLE, range("b", Some("bb"))).await.unwrap(), 1);
    assert_eq!(states().await, [Active, Unloaded, Active]);
    assert_eq!(client.unload(TABLE, all()).await.unwrap(), 2);
    assert_eq!(client.unload(TABLE, all()).await.unwrap(), 0);
    let split = client.split(TABLE, b"bx").await.unwrap_err();
    assert_eq!(split.code(), Code::FailedPrecondition, "{split:?}");
    let last = served.verify().await.pop().unwrap();
    assert!(last.files > 0 && last.files == last.files_done, "unloaded tablets are checked too");
    assert_eq!(served.compact().await, 3, "they are skipped");
    assert_eq!(client.load(TABLE, range("c", None)).await.unwrap(), 1);
    assert_eq!(states().await, [Unloaded, Unloaded, Active]);
    assert_eq!(client.load(TABLE, all()).await.unwrap(), 2);
    let empty = client.load(TABLE, range("b", Some("a"))).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
    let absent = client.unload("no", all()).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
}

#[tokio::test]
async fn the_config_names_tables_tablets_and_files() {
    let served = Served::new();
    served.client.split(TABLE, b"c").await.unwrap();
    served.compact().await;
    let dump = async |table| {
        let replies = all(served.client.dump_config(table).await.unwrap()).await.unwrap();
        replies.into_iter().map(|reply| reply.part.unwrap()).collect::<Vec<_>>()
    };
    let parts = dump(None).await;
    let Part::Store(store) = &parts[0] else { panic!("{parts:?}") };
    assert_eq!((store.tables, store.tablets), (2, 3), "the hidden one is counted");
    assert_eq!(store.store_id, served.tables.store_id().unwrap());
    let Part::Table(table) = &parts[1] else { panic!("{parts:?}") };
    assert_eq!((table.name.as_str(), table.tablets), (TABLE, 2));
    assert_eq!(table.groups[1].families, ["g", "h"]);
    let tablets: Vec<_> = parts[2..]
        .iter()
        .map(|part| match part {
            Part::Tablet(tablet) => tablet,
            other => panic!("only the tablets follow: {other:?}"),
        })
        .collect();
    assert_eq!(tablets.len(), 2);
    for tablet in &tablets {
        assert_eq!(tablet.table_id, table.id);
        for file in &tablet.chains[0].files {
            assert!(served.file(&file.name).exists());
            assert!(file.share_bytes <= file.bytes && file.cells > 0, "{file:?}");
        }
    }
    assert_eq!(dump(Some(TABLE)).await, parts);
}

/// Returns the code of an error.
fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Code {
    outcome.unwrap_err().code()
}

#[tokio::test]
async fn backups_are_created_listed_restored_and_deleted() {
    let served = Served::new();
    let client = &served.client;
    let created = client.create_backup(TABLE, "b-1.x_y", Some(i64::MAX)).await.unwrap();
    assert_eq!((created.table.as_str(), created.tablets), (TABLE, 1));
    assert_eq!(created.expires_micros, Some(i64::MAX));
    assert_eq!(client.backups(None).await.unwrap(), std::slice::from_ref(&created));
    assert_eq!(client.backups(Some(TABLE)).await.unwrap(), std::slice::from_ref(&created));
    assert_eq!(client.backups(Some("other")).await.unwrap(), []);
    assert_eq!(client.backup("b-1.x_y").await.unwrap(), created);
    let copy = "projects/p/instances/i/tables/copy";
    client.restore("b-1.x_y", copy).await.unwrap();
    assert_eq!(client.tablets(copy).await.unwrap().len(), 1);
    assert_eq!(code(client.restore("b-1.x_y", copy).await), Code::AlreadyExists);
    let again = client.create_backup(TABLE, "b-1.x_y", None).await;
    assert_eq!(code(again), Code::AlreadyExists);
    client.delete_backup("b-1.x_y").await.unwrap();
    assert_eq!(code(client.delete_backup("b-1.x_y").await), Code::NotFound);
    assert_eq!(code(client.restore("b-1.x_y", TABLE).await), Code::NotFound);
}

#[tokio::test]
async fn names_of_backups_and_restored_tables_are_checked() {
    let served = Served::new();
    let client = &served.client;
    let long = "x".repeat(51);
    for name in ["", "a/b", "a b", "\u{e9}", &long] {
        let refused = client.create_backup(TABLE, name, None).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{name}");
    }
    assert_eq!(code(client.create_backup(TABLE, "b", Some(1)).await), Code::InvalidArgument);
    assert_eq!(code(client.create_backup("none", "b", None).await), Code::NotFound);
    client.create_backup(TABLE, "b", None).await.unwrap();
    let targets = [
        "",
        "catalogues",
        "projects/p",
        "projects/p/instances/i/tables/",
        "projects/p/instances//tables/t",
        "projects/p/instances/i/tables/a/b",
        "projects/p/instances/i/tables/a b",
    ];
    for target in targets {
        let refused = client.restore("b", target).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{target}");
    }
}

#[tokio::test]
async fn backups_and_deleted_tables_of_others_are_not_shown() {
    let served = Served::new();
    let client = &served.client;
    assert_eq!(code(client.create_backup("hidden", "b", None).await), Code::PermissionDenied);
    let hidden = served.tables.table("hidden").unwrap();
    served.tables.create_backup(hidden, "secret", None).unwrap();
    assert_eq!(client.backups(None).await.unwrap(), []);
    assert_eq!(code(client.backup("secret").await), Code::NotFound);
    assert_eq!(code(client.delete_backup("secret").await), Code::NotFound);
    assert_eq!(code(client.restore("secret", "mine").await), Code::NotFound);
    client.create_backup(TABLE, "mine", None).await.unwrap();
    assert_eq!(code(client.restore("mine", "hidden").await), Code::PermissionDenied);
    served.tables.create("catalogue", Schema::with_families([]).unwrap()).unwrap();
    let other = client.create_backup("catalogue", "c", None).await;
    assert_eq!(code(other), Code::InvalidArgument, "a table of another service");
    let tables = served.tables.clone().keeping_deleted(std::time::Duration::from_secs(60));
    tables.delete(hidden).unwrap();
    assert_eq!(client.deleted().await.unwrap(), []);
    assert_eq!(code(client.undelete("hidden").await), Code::PermissionDenied);
    let replies = all(client.dump_config(None).await.unwrap()).await.unwrap();
    let names: Vec<String> = replies
        .into_iter()
        .filter_map(|reply| match reply.part {
            Some(Part::Table(table)) => Some(table.name),
            _ => None,
        })
        .collect();
    assert_eq!(names, [TABLE, "mine", "catalogue"]);
}

#[tokio::test]
async fn a_deleted_table_is_listed_and_brought_back() {
    let served = Served::new();
    let client = &served.client;
    let tables = served.tables.clone().keeping_deleted(std::time::Duration::from_secs(60));
    tables.delete(tables.table(TABLE).unwrap()).unwrap();
    let deleted = client.deleted().await.unwrap();
    assert_eq!((deleted.len(), deleted[0].name.as_str(), deleted[0].tablets), (1, TABLE, 1));
    client.undelete(TABLE).await.unwrap();
    assert_eq!(client.tablets(TABLE).await.unwrap().len(), 1);
    assert_eq!(client.deleted().await.unwrap(), []);
    assert_eq!(code(client.undelete(TABLE).await), Code::NotFound);
}

fn schema(text: &str) -> Schema {
    Schema::parse(text).unwrap()
}

#[tokio::test]
async fn schemas_are_shown_created_and_altered() {
    let served = Served::new();
    let client = &served.client;
    let before = client.schema(TABLE).await.unwrap();
    let names: Vec<&str> = before.groups().iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["small", "large"]);
    let text = "schema:all columns=\"f g\" purge=\"max-history=3\" in-memory=\"true\"\n\
                schema:rest columns=\"h *\" purge:h=\"max-age=1d or max-history=2\" blocksize=\"4096\"";
    client.alter(TABLE, &schema(text), false).await.unwrap();
    assert_eq!(client.schema(TABLE).await.unwrap().text(), schema(text).text());
    assert_eq!(served.compact().await, 1, "the moved family is rewritten");
    let files = served.client.tablets(TABLE).await.unwrap();
    assert_eq!(files[0].groups[0].files, 1, "{files:?}");

    // What would drop families has to be permitted.
    let fewer = schema("schema:all columns=\"f\"");
    let error = client.alter(TABLE, &fewer, false).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("\"g\", \"h\", *"), "{error}");
    assert_eq!(client.schema(TABLE).await.unwrap().text(), schema(text).text());
    client.alter(TABLE, &fewer, true).await.unwrap();
    assert_eq!(client.schema(TABLE).await.unwrap().text(), fewer.text());

    client.create("new", &schema(text), vec!["m".into()]).await.unwrap();
    assert_eq!(client.tablets("new").await.unwrap().len(), 2);
    let again = client.create("new", &fewer, Vec::new()).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    let missing = client.alter("nowhere", &fewer, false).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    for refused in
        [client.schema("hidden").await.map(drop), client.alter("hidden", &fewer, true).await]
    {
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
    assert_eq!(
        client.create("hidden", &fewer, Vec::new()).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}
