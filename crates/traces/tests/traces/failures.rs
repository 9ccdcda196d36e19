//! Failed calls, rejected rows and damaged rows are reported as such, and do no harm
//! afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use stele_bigtable_client::{FamilyChange, Mutation};
use stele_traces::{CommitIndex, Error, Kind, Params, Store};
use tonic::service::Routes;

/// Returns the server's routes, where `count` calls of one method fail, before or after
/// they take effect.
fn failing(served: &Served, method: &'static str, count: usize, done_first: bool) -> Routes {
    let left = Arc::new(AtomicUsize::new(count));
    let layer = middleware::from_fn(move |request: Request, next: Next| {
        let left = left.clone();
        async move {
            let fails = request.uri().path().ends_with(method)
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_ok();
            if !fails {
                return next.run(request).await;
            }
            if done_first {
                let _ = next.run(request).await;
            }
            let status = [("grpc-status", "14"), ("content-type", "application/grpc")];
            status.into_response()
        }
    });
    Routes::from(served.api.routes().into_axum_router().layer(layer))
}

async fn opened(routes: Routes) -> Store {
    Store::open(&client(routes), "t").await.unwrap()
}

#[tokio::test]
async fn conditional_writes_with_unknown_outcome_are_resolved_by_reading() {
    for done_first in [false, true] {
        let served = Served::new();
        served.store(3).await;
        let store = opened(failing(&served, "/CheckAndMutateRow", 2, done_first)).await;
        put(&store, 0, vec![entry(",a=1,", "a"), entry(",a=2,", "b")]).await;
        let grid = digests(&served.again().await, dense(3), "").await;
        assert_eq!(formatted(&grid, &["a", "b"]), expect([(",a=1,", "a"), (",a=2,", "b")]));
        assert_eq!(served.again().await.load_digest_map().await.unwrap(), 2);
    }
}

#[tokio::test]
async fn a_lost_counter_response_leaves_a_gap_and_no_duplicate() {
    let served = Served::new();
    served.store(3).await;
    let store = opened(failing(&served, "/ReadModifyWriteRow", 1, true)).await;
    put(&store, 0, vec![entry(",a=1,", "a")]).await;
    put(&served.again().await, 0, vec![entry(",a=2,", "b")]).await;
    let grid = digests(&served.again().await, dense(3), "").await;
    assert_eq!(formatted(&grid, &["a", "b"]), expect([(",a=1,", "a"), (",a=2,", "b")]));
}

#[tokio::test]
async fn a_param_set_that_cannot_be_written_is_an_error() {
    let served = Served::new();
    served.store(3).await;
    let client = served.client();
    client.modify_families("t", [FamilyChange::Drop { family: "O".into() }]).await.unwrap();
    let store = served.again().await;
    let error = store.put(&[put_at(0, NOON, vec![entry(",a=1,", "a")])]).await.err().unwrap();
    assert!(matches!(error, Error::Rows(_)), "{error}");
    // Nothing was stored that depends on it.
    assert!(digests(&store, dense(3), "").await.traces.is_empty());
}

#[tokio::test]
async fn the_error_names_rows_that_were_not_written() {
    let served = Served::new();
    let store = served.store(3).await;
    let change = FamilyChange::Drop { family: "P".into() };
    served.client().modify_families("t", [change]).await.unwrap();
    let mut with_options = entry(",a=1,", "a");
    with_options.options = Params::new([("file", "x.rs")]).unwrap();
    let entries = vec![with_options.clone(), entry(",a=2,", "b")];
    let error = store.put(&[put_at(0, NOON, entries.clone())]).await.err().unwrap();
    let Error::Partial { failed, of, .. } = &error else { panic!("{error}") };
    assert_eq!((failed.len(), *of), (1, 3));
    assert!(failed[0].contains(":ts:p:"), "{error}");
    // The other rows are stored, and the same put succeeds later.
    assert_eq!(digests(&store, dense(3), "").await.traces.len(), 2);
    let change = FamilyChange::Create {
        family: "P".into(),
        gc_rule: stele_bigtable_client::GcRule::MaxVersions(1),
    };
    served.client().modify_families("t", [change]).await.unwrap();
    store.put(&[put_at(0, NOON, entries)]).await.unwrap();
    let history = store.history(&with_options.params).await.unwrap().unwrap();
    assert_eq!(history.options.id(), ",file=x.rs,");
}

#[tokio::test]
async fn interrupted_reads_are_retried() {
    let served = Served::new();
    put(&served.store(3).await, 0, vec![entry(",a=1,", "a")]).await;
    let store = opened(failing(&served, "/ReadRows", 3, false)).await;
    assert_eq!(digests(&store, dense(3), "").await.traces.len(), 1);
}

#[tokio::test]
async fn damaged_rows_are_reported_and_unknown_ids_are_counted() {
    let served = Served::new();
    let store = served.store(3).await;
    put(&store, 0, vec![entry(",a=1,", "a"), number(",a=1,", 1.0)]).await;
    let table = served.client().table("t").unwrap();
    let set = |family: &str, column: &'static str, value: &'static [u8]| {
        [Mutation::set_at(family, column, NOON, value)]
    };
    // An id that is in no set, as if a put was stored during the read.
    table.mutate_row("00:ts:t:2147483647:,9=9,", set("T", "000", b"\x01")).await.unwrap();
    let grid = digests(&store, range(0, 2), "").await;
    assert_eq!((grid.traces.len(), grid.skipped), (1, 1));
    // The whole tile, so that no column is filtered out.
    let read = async || served.again().await.grid(Kind::Digests, range(0, 255), &query("")).await;
    let row = "00:ts:t:2147483647:,0=0,";
    for (column, value, expected) in [
        ("256", &b"\x01"[..], "not an offset"),
        ("abc", b"\x01", "not an offset"),
        ("001", b"\x80", "cannot be decoded"),
        ("001", b"\x00", "cannot be decoded"),
        ("001", b"\xff\x7f", "has no digest"),
    ] {
        table.mutate_row(row, set("T", column, value)).await.unwrap();
        let error = read().await.err().unwrap();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        table.mutate_row(row, [Mutation::delete_row()]).await.unwrap();
    }
    assert!(read().await.is_ok());
    let sets = ":ts:o:2147483647:";
    for (column, value) in [("OPS", &b"\x01\x00"[..]), ("H", b"x"), ("OPS", b"")] {
        let time = NOON * 2;
        let damage = [Mutation::set_at("O", column, time, value)];
        table.mutate_row(sets, damage).await.unwrap();
        let error = read().await.err().unwrap();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        let undo = [Mutation::delete_cells("O", column, time, None)];
        table.mutate_row(sets, undo).await.unwrap();
    }
    assert!(read().await.is_ok());
    table.mutate_row(sets, [Mutation::delete_column("O", "H")]).await.unwrap();
    assert!(matches!(read().await, Err(Error::Damaged { .. })));
    let none = store.param_set(CommitIndex(0), CommitIndex(9)).await;
    assert!(matches!(none, Err(Error::Damaged { .. })));
}

#[tokio::test]
async fn an_inconsistent_digest_map_is_reported() {
    let served = Served::new();
    put(&served.store(3).await, 0, vec![entry(",a=1,", "a")]).await;
    let table = served.client().table("t").unwrap();
    let (prefix, rest) = ("11:ts:d:0000000000:92e", "b5ffee6ae2fec3ad71c777531578f");
    // Id 1 belongs to `a`.
    for (column, value, expected) in [
        (rest, &b"\x81\x80\x80\x00"[..], "duplicate"),
        (rest, b"\x00", "cannot be decoded"),
        (rest, b"", "cannot be decoded"),
        (&rest[1..], b"\x02", "cannot be decoded"),
    ] {
        let set = [Mutation::set_at("D", column.to_string(), 1000, value)];
        table.mutate_row(prefix, set).await.unwrap();
        let loaded = served.again().await.load_digest_map().await;
        let Err(error) = loaded else { panic!("{column} {value:?} was accepted") };
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        table.mutate_row(prefix, [Mutation::delete_row()]).await.unwrap();
    }
    assert_eq!(served.again().await.load_digest_map().await.unwrap(), 1);
}
