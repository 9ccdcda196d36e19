//! Stored results are read back: by tile, window and query, over tiles, in any order of
//! arrival.

use std::collections::HashSet;

use crate::support::*;
use stele_traces::memory::{Memory, RequestMemory};
use stele_traces::store::{Entry, Put, TableSettings, Value, copy};
use stele_traces::{CommitIndex, Error, Kind, Params, Store};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Three devices, two tests, three commits; one trace has data at the first commit
/// only.
fn fixture() -> Vec<(u32, &'static str, &'static str)> {
    let mut all = Vec::new();
    for (device, digests) in [("bullhead", "abc"), ("crosshatch", "aab"), ("angler", "ddd")] {
        for test in ["blur", "rect"] {
            let id: &str = Box::leak(format!(",device={device},name={test},").into_boxed_str());
            for (at, name) in (0..).zip(digests.chars()) {
                if device == "angler" && test == "rect" && at > 0 {
                    continue;
                }
                all.push((at, id, NAMES[name as usize - 'a' as usize]));
            }
        }
    }
    all
}

fn fixture_formatted() -> std::collections::BTreeMap<String, String> {
    expect([
        (",device=angler,name=blur,", "ddd"),
        (",device=angler,name=rect,", "d--"),
        (",device=bullhead,name=blur,", "abc"),
        (",device=bullhead,name=rect,", "abc"),
        (",device=crosshatch,name=blur,", "aab"),
        (",device=crosshatch,name=rect,", "aab"),
    ])
}

#[tokio::test]
async fn an_empty_table_gives_empty_answers() {
    let served = Served::new();
    let store = served.store(3).await;
    let grid = digests(&store, range(0, 2), "").await;
    assert_eq!((grid.columns.len(), grid.traces.len()), (3, 0));
    let grid = digests(&store, dense(3), "").await;
    assert_eq!((grid.columns.len(), grid.traces.len()), (0, 0));
    assert_eq!(store.history(&params(",a=b,")).await.unwrap(), None);
    let none = store.param_set(CommitIndex(0), CommitIndex(2)).await.unwrap();
    assert!(none.is_empty());
    assert_eq!(store.put(&[]).await.unwrap().entries, 0);
}

#[tokio::test]
async fn results_stored_one_by_one_in_reverse_order_give_the_same_grid() {
    let served = Served::new();
    let store = served.store(3).await;
    for (at, id, name) in fixture().into_iter().rev() {
        put(&store, at, vec![entry(id, name)]).await;
    }
    let grid = digests(&served.again().await, range(0, 2), "").await;
    assert_eq!(formatted(&grid, &NAMES), fixture_formatted());
    // Storing all of it again, together, changes nothing.
    let puts: Vec<Put> = (0..3)
        .map(|commit| {
            let of_commit = fixture().into_iter().filter(|(at, ..)| *at == commit);
            put_at(commit, NOON, of_commit.map(|(_, id, name)| entry(id, name)).collect())
        })
        .collect();
    assert_eq!(store.put(&puts).await.unwrap().entries, fixture().len());
    assert_eq!(digests(&store, range(0, 2), "").await, grid);
}

#[tokio::test]
async fn the_latest_result_wins_whatever_arrives_first() {
    let served = Served::new();
    let store = served.store(3).await;
    put(&store, 1, vec![entry(",a=1,", "b")]).await;
    let year = 365 * 86_400_000_000;
    store.put(&[put_at(1, NOON - 3 * year, vec![entry(",a=1,", "a")])]).await.unwrap();
    assert_eq!(
        formatted(&digests(&store, range(1, 1), "").await, &NAMES),
        expect([(",a=1,", "b")])
    );
    store.put(&[put_at(1, NOON + year, vec![entry(",a=1,", "c")])]).await.unwrap();
    assert_eq!(
        formatted(&digests(&store, range(1, 1), "").await, &NAMES),
        expect([(",a=1,", "c")])
    );
    // With equal times, the later write wins.
    store.put(&[put_at(1, NOON + year, vec![entry(",a=1,", "d")])]).await.unwrap();
    assert_eq!(
        formatted(&digests(&store, range(1, 1), "").await, &NAMES),
        expect([(",a=1,", "d")])
    );
}

#[tokio::test]
async fn a_grid_can_span_tiles() {
    let served = Served::new();
    let store = served.store(1101).await;
    for (at, name) in [(254, "a"), (255, "b"), (256, "c"), (1100, "d")] {
        put(&store, at, vec![entry(",a=1,", name)]).await;
    }
    put(&store, 256, vec![entry(",a=2,b=3,", "e")]).await;
    let grid = digests(&served.again().await, range(254, 257), "").await;
    assert_eq!(columns(&grid), [254, 255, 256, 257]);
    assert_eq!(formatted(&grid, &NAMES), expect([(",a=1,", "abc-"), (",a=2,b=3,", "--e-")]));
    let history = store.history(&params(",a=1,")).await.unwrap().unwrap();
    let found: Vec<_> = history.digests.iter().map(|(at, digest)| (at.0, *digest)).collect();
    let expected = [(254, "a"), (255, "b"), (256, "c"), (1100, "d")];
    assert_eq!(found, expected.map(|(at, name)| (at, digest(name))));
}

#[tokio::test]
async fn dense_windows_contain_exactly_the_newest_commits_with_data() {
    for (total, with_data) in [
        (1023, [795, 987, 1001]),
        (1101, [300, 501, 557]),
        (1101, [0, 256, 512]),
        (1101, [255, 511, 767]),
        (1101, [50, 800, 1100]),
    ] {
        let served = Served::new();
        let store = served.store(total).await;
        for (at, name) in with_data.into_iter().zip(NAMES) {
            put(&store, at, vec![entry(",a=1,", name), entry(&format!(",a={name}2,"), name)]).await;
        }
        for count in [3, 4, total as usize, total as usize + 1000, 100_000] {
            let grid = digests(&store, dense(count), "").await;
            assert_eq!(columns(&grid), with_data, "{count} of {total}");
            assert_eq!(formatted(&grid, &NAMES)[",a=1,"], "abc");
        }
        let grid = digests(&store, dense(2), "").await;
        assert_eq!(columns(&grid), with_data[1..]);
        let expected = expect([(",a=1,", "bc"), (",a=b2,", "b-"), (",a=c2,", "-c")]);
        assert_eq!(formatted(&grid, &NAMES), expected);
        let window =
            stele_traces::store::Window::Dense { count: 2, last: Some(CommitIndex(with_data[1])) };
        assert_eq!(columns(&digests(&store, window, "").await), with_data[..2]);
    }
}

#[tokio::test]
async fn a_dense_window_counts_only_commits_where_the_selected_traces_have_data() {
    let served = Served::new();
    let store = served.store(600).await;
    for at in 0..600 {
        let id = if at % 200 == 0 { ",name=rare," } else { ",name=often," };
        if at % 10 == 0 {
            put(&store, at, vec![entry(id, "a")]).await;
        }
    }
    let grid = digests(&store, dense(5), "name=rare").await;
    assert_eq!(columns(&grid), [0, 200, 400]);
    assert_eq!(columns(&digests(&store, dense(2), "name=rare").await), [200, 400]);
    // A deleted result no longer counts as data.
    store.put(&[put_at(400, NOON + 1000, vec![entry(",name=rare,", "")])]).await.unwrap();
    assert_eq!(columns(&digests(&store, dense(2), "name=rare").await), [0, 200]);
}

#[tokio::test]
async fn queries_select_the_same_traces_few_or_many() {
    let served = Served::new();
    let store = served.store(2).await;
    let all: Vec<Entry> = (0..300)
        .map(|at| {
            let id = format!(",config=c{},name=t{},os=o{},", at % 5, at / 5, at % 2);
            entry(&id, NAMES[at % 8])
        })
        .collect();
    put(&store, 0, all.clone()).await;
    for text in [
        "",
        "config=c1",
        "config=c1&os=o0",
        "name=t7",
        "name=t7&config=!c1",
        "name=~^t1",
        "config=c1&unknown=x",
        "unknown=!x",
        "name=none",
        "config=*&name=t3&name=t4",
    ] {
        let grid = digests(&store, range(0, 1), text).await;
        let expected: HashSet<_> = all
            .iter()
            .filter(|entry| query(text).matches(&entry.params))
            .map(|entry| entry.params.id())
            .collect();
        let found: HashSet<_> = grid.traces.iter().map(|trace| trace.params.id()).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[tokio::test]
async fn digests_and_numbers_of_one_trace_are_stored_separately() {
    let served = Served::new();
    let store = served.store(300).await;
    put(&store, 1, vec![entry(",a=1,", "a"), number(",a=1,", 0.0)]).await;
    put(&store, 290, vec![number(",a=1,", -2.5), number(",a=2,", 1e300)]).await;
    let grid = store.grid(Kind::Numbers, dense(9), &query("")).await.unwrap();
    assert_eq!(columns(&grid), [1, 290]);
    assert_eq!(
        formatted(&grid, &[]),
        expect([(",a=1,", "[0.0, -2.5]"), (",a=2,", "[NaN, 1e300]")])
    );
    let history = store.history(&params(",a=1,")).await.unwrap().unwrap();
    assert_eq!(history.digests, [(CommitIndex(1), digest("a"))]);
    assert_eq!(history.numbers, [(CommitIndex(1), 0.0), (CommitIndex(290), -2.5)]);
    assert_eq!(columns(&digests(&store, dense(9), "").await), [1]);
}

#[tokio::test]
async fn options_of_the_newest_commit_apply_and_empty_ones_change_nothing() {
    let served = Served::new();
    let store = served.store(10).await;
    let with = |file: &str| Entry {
        options: Params::new([("file", file)]).unwrap(),
        ..entry(",a=1,", "a")
    };
    let options = async || store.history(&params(",a=1,")).await.unwrap().unwrap().options.id();
    put(&store, 5, vec![with("five.rs")]).await;
    put(&store, 2, vec![with("two.rs")]).await;
    assert_eq!(options().await, ",file=five.rs,");
    put(&store, 7, vec![entry(",a=1,", "b")]).await;
    assert_eq!(options().await, ",file=five.rs,");
    put(&store, 8, vec![with("eight.rs")]).await;
    assert_eq!(options().await, ",file=eight.rs,");
    // Different options do not make a different trace.
    assert_eq!(digests(&store, dense(9), "").await.traces.len(), 1);
}

#[tokio::test]
async fn options_of_many_traces_are_those_of_the_newest_tile_that_has_any() {
    let served = Served::new();
    let store = served.store(300).await;
    let with = |at: usize, line: &str| {
        let options = Params::new([("line", line)]).unwrap();
        Entry { options, ..entry(&format!(",name=t{at},"), "a") }
    };
    put(&store, 1, (0..1200).map(|at| with(at, "old")).collect()).await;
    let newer = (0..1200).map(|at| match at % 3 {
        0 => with(at, "new"),
        1 => entry(&format!(",name=t{at},"), "b"),
        _ => entry(&format!(",name=other{at},"), "b"),
    });
    put(&store, 299, newer.collect()).await;
    let all: Vec<Params> = (0..1200).map(|at| params(&format!(",name=t{at},"))).collect();
    let commits = [1, 299].map(CommitIndex);
    for wanted in [&all[..], &all[..50], &all[..1]] {
        let found = store.options(wanted, &commits).await.unwrap();
        assert_eq!(found.len(), wanted.len());
        for (at, params) in wanted.iter().enumerate() {
            let expected = if at % 3 == 0 { ",line=new," } else { ",line=old," };
            assert_eq!(found[params].id(), expected, "{params}");
        }
    }
    let newest = store.options(&all, &commits[1..]).await.unwrap();
    assert_eq!(newest.len(), 400);
    assert!(store.options(&[params(",name=none,")], &commits).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_param_set_of_a_range_is_that_of_its_tiles() {
    let served = Served::new();
    let store = served.store(600).await;
    put(&store, 1, vec![entry(",os=a,", "a")]).await;
    put(&store, 300, vec![entry(",gpu=x,os=b,", "a")]).await;
    put(&store, 599, vec![entry(",os=c,", "a")]).await;
    let all = store.param_set(CommitIndex(0), CommitIndex(599)).await.unwrap();
    assert_eq!(serde_json::to_string(&all).unwrap(), r#"{"gpu":["x"],"os":["a","b","c"]}"#);
    let middle = store.param_set(CommitIndex(300), CommitIndex(310)).await.unwrap();
    assert_eq!(serde_json::to_string(&middle).unwrap(), r#"{"gpu":["x"],"os":["b"]}"#);
}

#[tokio::test]
async fn digests_are_numbered_from_one_and_batches_may_overlap() {
    let served = Served::new();
    let store = served.store(40).await;
    let names = |from: usize, to: usize| -> Vec<Entry> {
        (from..to).map(|at| entry(&format!(",n={at},"), &format!("digest {at}"))).collect()
    };
    put(&store, 0, names(0, 90)).await;
    assert_eq!(store.load_digest_map().await.unwrap(), 90);
    put(&store, 1, names(80, 100)).await;
    assert_eq!(served.again().await.load_digest_map().await.unwrap(), 100);
    // Another process continues the numbering, and ids take more than one byte.
    let other = served.again().await;
    for round in 0..9 {
        put(&other, 2 + round, names(100 + round as usize * 113, 213 + round as usize * 113)).await;
    }
    assert_eq!(served.again().await.load_digest_map().await.unwrap(), 100 + 9 * 113);
    let grid = digests(&store, range(0, 39), "").await;
    assert_eq!(grid.traces.len(), 100 + 9 * 113);
    let distinct: HashSet<_> = grid.digests.iter().collect();
    assert_eq!(distinct.len(), 100 + 9 * 113);
    for trace in &grid.traces {
        let stele_traces::store::Cells::Digests(cells) = &trace.cells else { panic!() };
        let expected = digest(&format!("digest {}", trace.params.get("n").unwrap()));
        let found = cells.iter().filter(|number| **number != 0);
        assert!(found.map(|number| grid.digests[*number as usize - 1]).all(|it| it == expected));
    }
}

#[tokio::test]
async fn settings_are_recorded_and_checked() {
    let served = Served::new();
    let client = served.client();
    let missing = Store::open(&client, "t").await.err().unwrap();
    assert!(matches!(missing, Error::NotFound(_)), "{missing}");
    let settings = TableSettings { tile: 10, shards: 3, ..TableSettings::default() };
    Store::init(&client, "t", settings.clone()).await.unwrap();
    let store = Store::init(&client, "t", settings.clone()).await.unwrap();
    assert_eq!(store.settings(), &settings);
    let other = Store::init(&client, "t", TableSettings::default()).await.err().unwrap();
    assert!(matches!(other, Error::Conflict(_)), "{other}");
    for (tile, shards) in [(0, 1), (1001, 1), (1, 0), (1, 101)] {
        let wrong = TableSettings { tile, shards, ..TableSettings::default() };
        assert!(matches!(Store::init(&client, "u", wrong).await, Err(Error::Invalid(_))));
    }
    assert_eq!(client.list_tables().await.unwrap(), ["t"]);
    // Small tiles hold the same results.
    register(&store, 45).await;
    for at in [0, 9, 10, 44] {
        put(&store, at, vec![entry(",a=1,", "a")]).await;
    }
    assert_eq!(columns(&digests(&store, dense(9), "").await), [0, 9, 10, 44]);
}

#[tokio::test]
async fn unknown_commits_and_invalid_results_store_nothing() {
    let served = Served::new();
    let store = served.store(3).await;
    let good = || put_at(0, NOON, vec![entry(",a=1,", "a")]);
    let bad = put_at(1, NOON, vec![number(",a=1,", f64::NAN)]);
    assert!(matches!(store.put(&[good(), bad]).await, Err(Error::Invalid(_))));
    let unknown = put_at(77, NOON, vec![entry(",a=1,", "a")]);
    let error = store.put(&[good(), unknown]).await.err().unwrap();
    assert!(matches!(error, Error::UnknownCommit(_)), "{error}");
    let twice = store.put(&[good(), good()]).await;
    assert!(matches!(twice, Err(Error::Invalid(_))));
    let none =
        Put { entries: vec![Entry { params: Params::default(), ..entry(",a=1,", "a") }], ..good() };
    assert!(matches!(store.put(&[none]).await, Err(Error::Invalid(_))));
    let strange = Put { commit: "no hash".into(), ..good() };
    assert!(matches!(store.put(&[strange]).await, Err(Error::Invalid(_))));
    assert_eq!(digests(&store, dense(9), "").await.columns, []);
    let none = store.param_set(CommitIndex(0), CommitIndex(2)).await.unwrap();
    assert!(none.is_empty());
    assert_eq!(store.load_digest_map().await.unwrap(), 0);
    // After the commit is registered the same put succeeds.
    register(&store, 78).await;
    store.put(&[put_at(77, NOON, vec![entry(",a=1,", "a")])]).await.unwrap();
    assert_eq!(columns(&digests(&store, dense(9), "").await), [77]);
}

#[tokio::test]
async fn a_copy_reads_like_the_original() {
    let served = Served::new();
    let store = served.store(300).await;
    for (at, id, name) in fixture() {
        put(&store, at * 130, vec![entry(id, name), number(id, f64::from(at))]).await;
    }
    let elsewhere = Served::new();
    let copied = copy(&store, &elsewhere.client(), "u", &mut |_| {}).await.unwrap();
    assert!(copied.rows > 20, "{copied:?}");
    let twice = copy(&store, &elsewhere.client(), "u", &mut |_| {}).await.unwrap();
    assert_eq!(twice, copied);
    let there = Store::open(&elsewhere.client(), "u").await.unwrap();
    assert_eq!(there.settings(), store.settings());
    for kind in [Kind::Digests, Kind::Numbers] {
        let one = store.grid(kind, dense(9), &query("")).await.unwrap();
        let other = there.grid(kind, dense(9), &query("")).await.unwrap();
        assert_eq!(formatted(&one, &NAMES), formatted(&other, &NAMES));
        assert_eq!(one.traces.len(), 6);
    }
    // New digests in the copy continue the numbering.
    put(&there, 1, vec![entry(",a=1,", "new"), entry(",a=2,", "a")]).await;
    let grid = digests(&there, range(1, 1), "").await;
    assert_eq!(formatted(&grid, &["new", "a"]), expect([(",a=1,", "new"), (",a=2,", "a")]));
    let value = Value::Digest(Some(digest("a")));
    assert_eq!(value.kind(), Kind::Digests);
    let settings = TableSettings { shards: 5, ..TableSettings::default() };
    Store::init(&elsewhere.client(), "v", settings).await.unwrap();
    assert!(matches!(
        copy(&store, &elsewhere.client(), "v", &mut |_| {}).await,
        Err(Error::Conflict(_))
    ));
}

#[tokio::test]
async fn a_grid_is_charged_while_it_is_held_and_rejected_if_it_does_not_fit() {
    let served = Served::new();
    let store = served.store(3).await;
    let entries = (0..100).map(|at| number(&format!(",a={at},"), 1.0)).collect();
    put(&store, 0, entries).await;
    let pool = Memory::new(0).grids;
    let mut held = RequestMemory::of(&pool);
    let few = store.grid_within(Kind::Numbers, range(0, 99), &query(""), &mut held).await.unwrap();
    assert_eq!(few.traces.len(), 100);
    assert!((80_000..200_000).contains(&pool.used()), "{}", pool.used());
    drop((few, held));
    assert_eq!(pool.used(), 0);
    let mut held = RequestMemory::of(&pool);
    let many = store.grid_within(Kind::Numbers, range(0, 99_999), &query(""), &mut held).await;
    let error = many.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error}");
    drop(held);
    assert_eq!(pool.used(), 0);
}
