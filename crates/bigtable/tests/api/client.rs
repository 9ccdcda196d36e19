//! The client library against this server: in process, over the network, over TLS.

use stele_bigtable::Api;
use stele_bigtable::table::{Definition, Family};
use stele_bigtable_client::{
    Client, FamilyChange, Filter, GcRule, Mutation, NewTable, Options, Query, RowMutations,
    RowRange, Rule, Table,
};
use stele_engine::world::World;
use stele_tables::Tables;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;

/// A store in a temporary directory, with a table `t` of families `f` and `g`.
struct Served {
    api: Api,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Default::default(), World::real()).unwrap();
        let api = Api::new(tables).unwrap();
        let families = ["f", "g"].map(|name| (name.to_string(), Family::default()));
        let definition =
            Definition { families: families.into_iter().collect(), ..Definition::default() };
        api.tables().create("projects/p/instances/i/tables/t", definition).unwrap();
        Served { api, _dir: dir }
    }

    fn client(&self) -> Client {
        Client::in_process(self.api.routes(), Options::new("in process", "p", "i"))
    }

    fn table(&self) -> Table {
        self.client().table("t").unwrap()
    }
}

#[tokio::test]
async fn what_is_written_is_read_back() {
    let served = Served::new();
    let table = served.table();
    let mutations = [
        Mutation::set_at("f", "q", 2000, "new"),
        Mutation::set_at("f", "q", 1000, "old"),
        Mutation::set_at("g", "", 3000, ""),
    ];
    table.mutate_row("k", mutations).await.unwrap();
    let row = table.read_row("k", None).await.unwrap().unwrap();
    assert_eq!(row.key, "k");
    let versions: Vec<_> = row.column("f", b"q").map(|cell| cell.timestamp_micros).collect();
    assert_eq!(versions, [2000, 1000]);
    assert_eq!(row.value("g", b"").unwrap(), "");
    let newest = table.read_row("k", Some(Filter::latest())).await.unwrap().unwrap();
    assert_eq!(newest.cells.len(), 2);
    assert_eq!(table.read_row("other", None).await.unwrap(), None);
    assert_eq!(table.read_row("k", Some(Filter::family("h"))).await.unwrap(), None);
}

#[tokio::test]
async fn a_large_row_is_read_whole_with_and_without_a_filter() {
    let served = Served::new();
    let table = served.table();
    let cells = (0..3).map(|at| Mutation::set_at("f", "q", at * 1000, vec![b'v'; 1 << 20]));
    table.mutate_row("k", cells).await.unwrap();
    let row = table.read_row("k", None).await.unwrap().unwrap();
    assert_eq!(row.cells.iter().map(|cell| cell.value.len()).collect::<Vec<_>>(), [1 << 20; 3]);
    let newest = table.read_row("k", Some(Filter::versions(2))).await.unwrap().unwrap();
    assert_eq!(newest.cells.len(), 2);
}

#[tokio::test]
async fn every_constructor_builds_a_filter_that_the_service_accepts() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let served = Served::new();
    let table = served.table();
    table.mutate_row("k.1", [Mutation::set_at("f", "q*", 5000, "v\0")]).await.unwrap();
    for (passes, filter) in [
        (true, Filter::pass()),
        (false, Filter::block()),
        (true, Filter::chain([Filter::family("f"), Filter::qualifier(b"q*")])),
        (true, Filter::interleave([Filter::block(), Filter::value(b"v\0")])),
        (true, Filter::condition(Filter::value(b"w"), None, Some(Filter::pass()))),
        (false, Filter::condition(Filter::value(b"v\0"), None, Some(Filter::pass()))),
        (true, Filter::chain([Filter::sink(), Filter::block()])),
        (true, Filter::family_regex("[ef]")),
        (false, Filter::qualifier(b"qqq")),
        (true, Filter::qualifier_regex("q.")),
        (true, Filter::column("f", b"q*")),
        (false, Filter::column("g", b"q*")),
        (true, Filter::columns("f", Excluded("q".into()), Unbounded)),
        (true, Filter::row_regex("k\\..*")),
        (true, Filter::value_regex("v\\C")),
        (true, Filter::values(Included("v".into()), Excluded("w".into()))),
        (true, Filter::value_bitmask(&b"v\0"[..])),
        (true, Filter::timestamps(5000, None)),
        (false, Filter::timestamps(0, Some(5000))),
        (true, Filter::versions(3)),
        (true, Filter::cells_per_row(1)),
        (false, Filter::skip_cells(1)),
        (true, Filter::strip_values()),
        (true, Filter::label("seen")),
        (true, Filter::interleave([Filter::row_sample(0.5), Filter::pass()])),
    ] {
        let row = table.read_row("k.1", Some(filter.clone())).await;
        assert_eq!(row.unwrap().is_some(), passes, "{filter:?}");
    }
    let labelled = table.read_row("k.1", Some(Filter::label("seen"))).await.unwrap().unwrap();
    assert_eq!(labelled.cells[0].labels, ["seen"]);
    let stripped = table.read_row("k.1", Some(Filter::strip_values())).await.unwrap().unwrap();
    assert_eq!(stripped.cells[0].value, "");
}

#[tokio::test]
async fn scans_take_ranges_prefixes_limits_and_go_backwards() {
    let served = Served::new();
    let table = served.table();
    let rows = (0..300).map(|at| {
        RowMutations::new(format!("r{at:03}"), [Mutation::set_at("f", "q", 0, vec![b'v'; 4000])])
    });
    assert!(table.mutate_rows(rows).await.iter().all(Result::is_ok));
    let read = async |query: Query| {
        let rows = table.read_rows(query).collect().await.unwrap();
        let keys = rows.iter().map(|row| String::from_utf8(row.key.to_vec()).unwrap());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(read(Query::all()).await.len(), 300);
    assert_eq!(read(Query::prefix("r12")).await.len(), 10);
    assert_eq!(read(Query::keys(["r001", "nothing", "r000"])).await, ["r000", "r001"]);
    let range = Query::range(RowRange::new("r010", "r012")).and_key("r299");
    assert_eq!(read(range).await, ["r010", "r011", "r299"]);
    assert_eq!(read(Query::all().reversed().limit(2)).await, ["r299", "r298"]);
    assert_eq!(read(Query::ranges([])).await, Vec::<String>::new());
}

#[tokio::test]
async fn deletes_checks_and_increments_do_as_they_say() {
    let served = Served::new();
    let table = served.table();
    let grown = table.read_modify_write("n", [Rule::increment("f", "n", 5)]).await.unwrap();
    assert_eq!(grown.latest("f", b"n").unwrap().number(), Some(5));
    let rules = [Rule::increment("f", "n", -7), Rule::append("g", "s", "ab")];
    let grown = table.read_modify_write("n", rules).await.unwrap();
    assert_eq!(grown.latest("f", b"n").unwrap().number(), Some(-2));
    assert_eq!(grown.value("g", b"s").unwrap(), "ab");

    let version = |value: &'static str| {
        let same = [Filter::column("f", b"v"), Filter::latest(), Filter::value(value.as_bytes())];
        Some(Filter::chain(same))
    };
    table.mutate_row("c", [Mutation::set("f", "v", "1")]).await.unwrap();
    let set = |value: &'static str| [Mutation::set("f", "v", value)];
    assert!(table.check_and_mutate("c", version("1"), set("2"), []).await.unwrap());
    assert!(!table.check_and_mutate("c", version("1"), set("3"), []).await.unwrap());
    let row = table.read_row("c", Some(Filter::latest())).await.unwrap().unwrap();
    assert_eq!(row.value("f", b"v").unwrap(), "2");
    assert!(!table.check_and_mutate("none", None, set("x"), set("y")).await.unwrap());

    table.mutate_row("c", [Mutation::delete_column("f", "v")]).await.unwrap();
    assert_eq!(table.read_row("c", None).await.unwrap(), None);
    table.mutate_row("n", [Mutation::delete_family("f")]).await.unwrap();
    assert_eq!(table.read_row("n", None).await.unwrap().unwrap().cells.len(), 1);
    table.mutate_row("n", [Mutation::delete_row()]).await.unwrap();
    assert_eq!(table.read_row("n", None).await.unwrap(), None);
    assert_eq!(table.sample_row_keys().await.unwrap().last().unwrap().key, "");
}

#[tokio::test]
async fn errors_name_the_call_the_table_and_the_reason() {
    let served = Served::new();
    let error = served.client().table("absent").unwrap().read_row("k", None).await.unwrap_err();
    assert!(error.is_not_found() && !error.is_retryable());
    let message = error.to_string();
    assert!(message.starts_with("ReadRows of projects/p/instances/i/tables/absent: "), "{message}");
    let rows = [
        RowMutations::new("a", [Mutation::set("f", "q", "v")]),
        RowMutations::new("b", [Mutation::set("nope", "q", "v")]),
    ];
    let outcomes = served.table().mutate_rows(rows).await;
    assert!(outcomes[0].is_ok());
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("Requested column family not found"), "{error}");
}

#[tokio::test]
async fn tables_are_administered() {
    let served = Served::new();
    let client = served.client();
    let rule: GcRule = "maxage=7d || maxversions=2".parse().unwrap();
    let new = NewTable::new("made").family("a", rule.clone()).family("b", GcRule::Never);
    let made = client.create_table(new.clone().split("m").split("c")).await.unwrap();
    assert_eq!(made.name, "projects/p/instances/i/tables/made");
    assert_eq!(made.families["a"].gc_rule, rule);
    assert_eq!(client.get_table("made").await.unwrap(), made);
    assert_eq!(client.list_tables().await.unwrap(), ["made", "t"]);
    let again = client.create_table(new).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    assert!(again.to_string().starts_with("CreateTable of projects/p/instances/i/tables/made"));

    let table = client.table("made").unwrap();
    let samples = table.sample_row_keys().await.unwrap();
    assert_eq!(
        samples.iter().map(|sample| &sample.key[..]).collect::<Vec<_>>(),
        [&b"c"[..], b"m", b""]
    );
    let changes = [
        FamilyChange::Create { family: "c".into(), gc_rule: GcRule::MaxVersions(1) },
        FamilyChange::SetGcRule { family: "a".into(), gc_rule: GcRule::Never },
        FamilyChange::Drop { family: "b".into() },
    ];
    let changed = client.modify_families("made", changes).await.unwrap();
    assert_eq!(changed.families.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(changed.families["a"].gc_rule, GcRule::Never);

    let rows = ["x1", "x2", "y1", "z1"]
        .map(|key| RowMutations::new(key, [Mutation::set_at("c", "q", 0, "v")]));
    assert!(table.mutate_rows(rows).await.iter().all(Result::is_ok));
    client.drop_row_range("made", "x").await.unwrap();
    assert_eq!(table.read_rows(Query::all()).collect().await.unwrap().len(), 2);
    client.drop_all_rows("made").await.unwrap();
    assert!(table.read_rows(Query::all()).collect().await.unwrap().is_empty());
    client.drop_table("made").await.unwrap();
    assert!(client.get_table("made").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_same_calls_go_over_the_network() {
    let served = Served::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = served.api.routes();
    let serving = tokio::spawn(
        tonic::transport::Server::builder()
            .add_routes(routes)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let mut options = Options::new(address, "p", "i");
    options.channels = 3;
    let table = Client::connect(options).await.unwrap().table("t").unwrap();
    for at in 0..6 {
        table.mutate_row(format!("k{at}"), [Mutation::set("f", "q", "v")]).await.unwrap();
    }
    assert_eq!(table.read_rows(Query::all()).collect().await.unwrap().len(), 6);
    serving.abort();
}

#[tokio::test]
async fn tls_trusts_only_the_certificates_it_is_given() {
    let served = Served::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = tonic::transport::Identity::from_pem(&certificate, key);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = tonic::transport::ServerTlsConfig::new().identity(identity);
    let serving = tokio::spawn(
        tonic::transport::Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_routes(served.api.routes())
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let mut options = Options::new(format!("https://localhost:{port}"), "p", "i");
    options.tls.ca = Some(certificate.into_bytes());
    let client = Client::connect(options.clone()).await.unwrap();
    assert_eq!(client.table("t").unwrap().read_row("k", None).await.unwrap(), None);
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    options.tls.ca = Some(other.cert.pem().into_bytes());
    let error = Client::connect(options).await.err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
    serving.abort();
}
