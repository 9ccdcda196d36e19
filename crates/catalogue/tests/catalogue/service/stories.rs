//! The behaviour of the service, by scenario.

use super::served::*;
use prost::Message;
use stele_catalogue::client::{NewRecord, Step, Walk, WalkStart};
use stele_catalogue::fid::{DEATHROW, META, RETIRED};
use stele_catalogue::limits::{KEY_BYTES_MAX, PINS_MAX, VALUE_BYTES_MAX};
use stele_catalogue::proto::*;
use stele_catalogue::{Condemned, Entry, Fid};
use tonic::Code as Status;

#[tokio::test(flavor = "multi_thread")]
async fn catalogues_are_listed_in_numeric_order_after_those_of_the_service() {
    let served = Served::new();
    let made: Vec<Fid> = [300, 1, 255, 256, 1 << 70].map(fid).to_vec();
    served.client.create(&made, 0).await.unwrap();
    let listed = |reply: ListReply| {
        let fids = reply.catalogues.iter().map(|listed| Fid::from_wire(&listed.fid).unwrap());
        (fids.collect::<Vec<_>>(), Code::try_from(reply.code).unwrap())
    };
    let all = [META, RETIRED, DEATHROW, fid(1), fid(255), fid(256), fid(300), fid(1 << 70)];
    let reply = served.client.list(None, 100, 0).await.unwrap();
    assert!(reply.catalogues[3..].iter().all(|listed| listed.created_micros > 0));
    assert_eq!(listed(reply), (all.to_vec(), Code::End));
    let reply = served.client.list(Some(fid(256)), 2, 0).await.unwrap();
    assert_eq!(listed(reply), (all[5..7].to_vec(), Code::Ok));
    let reply = served.client.list(Some(fid(2)), 1, Flag::Slant as u32).await.unwrap();
    assert_eq!(listed(reply), (vec![fid(255)], Code::Ok));
    let reply = served.client.list(Some(fid(2)), 1, 0).await.unwrap();
    assert_eq!(listed(reply), (vec![], Code::Absent));
    let reply = served.client.list(Some(fid(1)), 0, 0).await.unwrap();
    assert_eq!(listed(reply), (vec![], Code::Ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_meta_catalogue_can_be_read_but_not_written() {
    let served = Served::new();
    served.filled(1, 3).await;
    let meta = served.client.catalogue(META);
    let value = meta.get_one(fid(1).bytes().to_vec()).await.unwrap().unwrap();
    assert!(Entry::decode(&value.joined()).unwrap().since_micros > 0);
    assert_eq!(meta.get_one(fid(2).bytes().to_vec()).await.unwrap(), None);
    assert_eq!(served.client.stat(&[META]).await.unwrap()[0].records, 4);

    let denied = |error: tonic::Status| {
        assert_eq!(error.code(), Status::PermissionDenied);
        assert!(error.message().contains("belongs to the service"), "{error}");
    };
    for reserved in [META, RETIRED, DEATHROW, Fid::of_id(255).unwrap()] {
        let handle = served.client.catalogue(reserved);
        denied(handle.put(vec![record("k", "v")], 8).await.unwrap_err());
        denied(handle.del(vec![key("k")], 0).await.unwrap_err());
        denied(handle.del_range(None, 0).await.unwrap_err());
        denied(served.client.create(&[fid(9), reserved], 0).await.unwrap_err());
        denied(served.client.delete(&[fid(1), reserved], 0).await.unwrap_err());
    }
    let codes = served.client.lookup(&[fid(1), fid(9)]).await.unwrap().codes;
    assert_eq!(codes, [Code::Ok as i32, Code::Absent as i32]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_reused_only_with_the_reuse_flag() {
    let served = Served::new();
    let handle = served.filled(1, 3).await;
    let again = served.client.create(&[fid(1)], 0).await.unwrap();
    assert_eq!((codes(again.codes()), again.count), (vec![Code::Exists], 0));
    assert!(!again.cookies[0].is_empty(), "an existing catalogue has a cookie too");
    served.client.delete(&[fid(1)], 0).await.unwrap();
    let again = served.client.create(&[fid(1), fid(2)], 0).await.unwrap();
    assert_eq!(codes(again.codes()), [Code::Retired, Code::Ok]);
    let lookup = served.client.lookup(&[fid(1)]).await.unwrap();
    assert_eq!(codes(lookup.codes()), [Code::Retired]);
    let refused = handle.put(vec![record("k", "v")], Flag::CreateCatalogue as u32).await;
    assert_eq!(refused.unwrap_err().code(), Status::FailedPrecondition);
    let reused = served.client.create(&[fid(1)], Flag::Reuse as u32).await.unwrap();
    assert_eq!(codes(reused.codes()), [Code::Ok]);
    assert_eq!(handle.get_one("k000").await.unwrap(), None, "the old records stay deleted");
    assert_eq!(served.client.stat(&[fid(1)]).await.unwrap()[0].records, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_of_deletes_returns_a_code_for_each_id() {
    let served = Served::new();
    served.filled(1, 2).await;
    served.filled(3, 0).await;
    let fids = [fid(1), fid(2), fid(3), fid(1)];
    let kept = served.client.delete(&fids, Flag::AllOrNothing as u32).await.unwrap();
    assert_eq!(
        (codes(kept.codes()), kept.count),
        (vec![Code::Ok, Code::Absent, Code::Ok, Code::Absent], 0)
    );
    assert_eq!(
        codes(served.client.lookup(&[fid(1), fid(3)]).await.unwrap().codes()),
        [Code::Ok; 2]
    );
    let gone = served.client.delete(&fids, 0).await.unwrap();
    assert_eq!(gone.count, 2);
    assert_eq!(codes(gone.codes()), [Code::Ok, Code::Absent, Code::Ok, Code::Absent]);
    let missing = served.client.delete(&fids, Flag::MissingOk as u32).await.unwrap();
    assert_eq!((codes(missing.codes()), missing.count), (vec![Code::Ok; 4], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_keys_in_one_vector_are_processed_in_order() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let twice = |a: &str, b: &str| vec![record("k", a), record("j", "x"), record("k", b)];
    for (flag, expected, value) in [
        (Flag::InsertOnly, [Code::Ok, Code::Ok, Code::Exists], "1"),
        (Flag::CreateIfAbsent, [Code::Ok; 3], "1"),
        (Flag::Overwrite, [Code::Ok; 3], "2"),
        (Flag::None, [Code::Ok; 3], "2"),
    ] {
        let reply = handle.put(twice("1", "2"), flag as u32).await.unwrap();
        assert_eq!(codes(reply.codes()), expected, "{flag:?}");
        let got = handle.get_one("k").await.unwrap().unwrap().joined();
        assert_eq!(got, value, "{flag:?}");
        let gone = handle.del(vec![key("k"), key("k"), key("j")], 0).await.unwrap();
        assert_eq!(codes(gone.codes()), [Code::Ok, Code::Absent, Code::Ok]);
        assert_eq!(gone.count, 2);
    }
    let chained = vec![
        record("k", "1"),
        NewRecord { expected: Some("1".into()), ..record("k", "2") },
        NewRecord { expected: Some("1".into()), ..record("k", "3") },
    ];
    let reply = handle.put(chained, 0).await.unwrap();
    assert_eq!(codes(reply.codes()), [Code::Ok, Code::Ok, Code::Unexpected]);
    assert_eq!(handle.get_one("k").await.unwrap().unwrap().joined(), "2");
    let reply = handle.put(twice("8", "9"), Flag::InsertOnly as u32 | Flag::AllOrNothing as u32);
    let reply = reply.await.unwrap();
    assert_eq!((reply.applied, reply.count), (false, 0));
    assert_eq!(handle.get_one("j").await.unwrap(), None, "nothing is applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_ordered_shorter_first_and_may_be_empty() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"\xFF"];
    let records = keys.iter().rev().map(|key| NewRecord::new(key.to_vec(), vec![key.len() as u8]));
    handle.put(records.collect(), 0).await.unwrap();
    let start = WalkStart::at_edge(10);
    for backward in [false, true] {
        let request = from(vec![start.clone()], 0);
        let mut records = match backward {
            false => handle.next(request).await.unwrap(),
            true => handle.prev(request).await.unwrap(),
        };
        let mut seen = Vec::new();
        while let Some(step) = records.next().await.unwrap() {
            if let Step::Record { key, .. } = step {
                seen.push(key.joined().to_vec());
            }
        }
        if backward {
            seen.reverse();
        }
        assert_eq!(seen, keys.map(<[u8]>::to_vec));
    }
    // The empty value of the empty key is a value.
    handle.put(vec![NewRecord::new("", "")], 0).await.unwrap();
    assert!(handle.get_one("").await.unwrap().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_start_has_its_own_group_even_without_records() {
    let served = Served::new();
    let handle = served.filled(1, 5).await;
    let starts =
        || vec![start("a", 2), start("k001", 2), start("b", 2), start("k003", 9), start("k000", 0)];
    let group = |keys: &[&str], code| (keys.iter().map(ToString::to_string).collect(), code);
    let seen = groups(handle.next(from(starts(), 0)).await.unwrap()).await;
    let expected = [
        group(&[], Code::Absent),
        group(&["k001", "k002"], Code::Ok),
        group(&[], Code::Absent),
        group(&["k003", "k004"], Code::End),
        group(&[], Code::Ok),
    ];
    assert_eq!(seen, expected);
    let flags = Flag::Slant as u32 | Flag::ExcludeStart as u32;
    let seen = groups(handle.next(from(starts(), flags)).await.unwrap()).await;
    let expected = [
        group(&["k000", "k001"], Code::Ok),
        group(&["k002", "k003"], Code::Ok),
        group(&["k000", "k001"], Code::Ok),
        group(&["k004"], Code::End),
        group(&[], Code::Ok),
    ];
    assert_eq!(seen, expected);
    let seen = groups(handle.prev(from(vec![start("k0015", 9)], flags)).await.unwrap()).await;
    assert_eq!(seen, [group(&["k001", "k000"], Code::End)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_of_large_records_spans_many_messages() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let records = (0..40).map(|n| NewRecord::new(format!("k{n:02}").into_bytes(), vec![n; 50_000]));
    handle.put(records.collect(), 0).await.unwrap();
    let flags = Flag::ExcludeStart as u32;
    let seen =
        groups(handle.next(from(vec![start("k00", 100), start("k30", 5)], flags)).await.unwrap())
            .await;
    assert_eq!((seen[0].0.len(), seen[0].1), (39, Code::End));
    assert_eq!((seen[1].0.len(), seen[1].1), (5, Code::Ok));
    let keys = (0..40).rev().map(|n| key(&format!("k{n:02}"))).collect();
    let found = handle.get(keys, 0, 0).await.unwrap();
    let values = found.into_iter().map(|found| found.value.joined()[0]).collect::<Vec<_>>();
    assert_eq!(values, (0..40).rev().collect::<Vec<u8>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_mistake_and_nothing_is_applied() {
    let served = Served::new();
    let handle = served.filled(1, 3).await;
    let expect_error = |error: tonic::Status, code: Status, what: &str| {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(what), "{error}");
    };
    let invalid = Status::InvalidArgument;
    expect_error(handle.put(vec![], 0).await.unwrap_err(), invalid, "empty");
    expect_error(handle.del(vec![], 0).await.unwrap_err(), invalid, "empty");
    expect_error(handle.get(vec![], 0, 0).await.unwrap_err(), invalid, "empty");
    expect_error(handle.next(from(vec![], 0)).await.map(drop).unwrap_err(), invalid, "empty");
    expect_error(served.client.create(&[], 0).await.unwrap_err(), invalid, "empty");
    expect_error(
        handle.put(vec![record("a", "b")], 64).await.unwrap_err(),
        invalid,
        "flag SLANT is not supported",
    );
    expect_error(
        handle.del(vec![key("a")], 1).await.unwrap_err(),
        invalid,
        "flag INSERT_ONLY is not supported",
    );
    expect_error(
        handle.put(vec![record("a", "b")], 3).await.unwrap_err(),
        invalid,
        "mutually exclusive",
    );
    let long = NewRecord::new(vec![0; KEY_BYTES_MAX + 1], "");
    let what = format!("a key of {} bytes exceeds the limit of {KEY_BYTES_MAX}", KEY_BYTES_MAX + 1);
    expect_error(handle.put(vec![record("a", "b"), long], 0).await.unwrap_err(), invalid, &what);
    let large = NewRecord::new("a", vec![0; VALUE_BYTES_MAX + 1]);
    expect_error(
        handle.put(vec![record("a", "b"), large], 0).await.unwrap_err(),
        invalid,
        "a value of",
    );
    let missing = served.client.catalogue(fid(2));
    expect_error(
        missing.put(vec![record("a", "b")], 0).await.unwrap_err(),
        Status::NotFound,
        "not found",
    );
    expect_error(missing.get_one("a").await.unwrap_err(), Status::NotFound, "not found");
    expect_error(handle.count(None, 77).await.unwrap_err(), Status::Aborted, "no longer pinned");
    expect_error(served.client.fsync(u64::MAX).await.unwrap_err(), invalid, "no commit");
    let count = handle.count(None, 0).await.unwrap();
    assert_eq!(count.records, 3);
    // The largest record is accepted.
    let largest = NewRecord::new(vec![b'z'; KEY_BYTES_MAX], vec![1; VALUE_BYTES_MAX]);
    handle.put(vec![largest], 0).await.unwrap();
    let value = handle.get_one(vec![b'z'; KEY_BYTES_MAX]).await.unwrap().unwrap();
    assert_eq!(value.len(), VALUE_BYTES_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fid_of_another_type_or_length_is_rejected() {
    let served = Served::new();
    let calls =
        stele_catalogue::proto::CreateRequest { fids: vec![vec![b'T'; 16].into()], flags: 0 };
    let wrong = served.service.create(&calls).unwrap_err();
    assert!(wrong.to_string().contains("type 0x54"), "{wrong}");
    let calls =
        stele_catalogue::proto::CreateRequest { fids: vec![vec![b'i'; 15].into()], flags: 0 };
    let wrong = served.service.create(&calls).unwrap_err();
    assert!(wrong.to_string().contains("16 bytes"), "{wrong}");
    assert_eq!(calls.encode_to_vec().len(), 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_stay_right_through_overwrites_deletes_and_ranges() {
    let served = Served::new();
    let handle = served.filled(1, 10).await;
    let totals = async || {
        let stat = served.client.stat(&[fid(1)]).await.unwrap()[0];
        let counted = handle.count(None, 0).await.unwrap();
        assert_eq!((stat.records, stat.bytes), (counted.records, counted.bytes));
        (stat.records, stat.bytes)
    };
    assert_eq!(totals().await, (10, 10 * 6));
    handle.put(vec![record("k000", "longer"), record("k000", "x")], 0).await.unwrap();
    assert_eq!(totals().await, (10, 10 * 6 - 1));
    handle.del(vec![key("k000"), key("none")], 0).await.unwrap();
    assert_eq!(totals().await, (9, 9 * 6));
    let range = Range { start: "k003".into(), end: Some("k006".into()), ..Default::default() };
    let reply = handle.del_range(Some(range), 0).await.unwrap();
    assert_eq!((reply.count, totals().await), (3, (6, 6 * 6)));
    let range = Range { prefix: "k00".into(), ..Default::default() };
    assert_eq!(handle.count(Some(range), 0).await.unwrap().records, 6);
    assert_eq!(handle.del_range(None, 0).await.unwrap().count, 6);
    assert_eq!(totals().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_at_a_pinned_txn_see_the_old_records() {
    let served = Served::new();
    let handle = served.filled(1, 4).await;
    let mut records = handle.next(from(vec![start("k000", 2)], Flag::Pin as u32)).await.unwrap();
    while records.next().await.unwrap().is_some() {}
    let pinned = records.pinned.unwrap();
    handle.put(vec![record("k002", "new"), record("k9", "new")], 0).await.unwrap();
    handle.del(vec![key("k003")], 0).await.unwrap();
    let request = Walk { at: pinned, ..from(vec![start("k002", 9)], 0) };
    assert_eq!(groups(handle.next(request).await.unwrap()).await[0].0, ["k002", "k003"]);
    let found = handle.get(vec![key("k002")], 0, pinned).await.unwrap();
    assert_eq!(found[0].value, b"v2");
    assert_eq!(handle.count(None, pinned).await.unwrap().records, 4);
    assert!(served.client.unpin(pinned).await.unwrap());
    assert!(!served.client.unpin(pinned).await.unwrap());
    let gone = handle.count(None, pinned).await.unwrap_err();
    assert_eq!(gone.code(), Status::Aborted);
    let now = served.client.pin().await.unwrap();
    assert_eq!(handle.count(None, now).await.unwrap().records, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_txns_are_limited_and_a_walk_can_pin_again_after_an_unpin() {
    let served = Served::new();
    let handle = served.filled(1, 1).await;
    let mut pinned = Vec::new();
    for _ in 0..PINS_MAX {
        pinned.push(served.client.pin().await.unwrap());
        handle.put(vec![record("k", "v")], 0).await.unwrap();
    }
    let full = served.client.pin().await.unwrap_err();
    assert_eq!(full.code(), Status::ResourceExhausted, "{full}");
    let walk = || from(vec![start("k", 1)], Flag::Pin as u32);
    let full = handle.next(walk()).await.map(drop).unwrap_err();
    assert_eq!(full.code(), Status::ResourceExhausted, "{full}");
    assert!(served.client.unpin(pinned[0]).await.unwrap());
    handle.next(walk()).await.unwrap();
    assert_eq!(handle.count(None, pinned[1]).await.unwrap().records, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_fails_without_wrong_records_when_its_catalogue_is_deleted() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let records = (0..200).map(|n| NewRecord::new(format!("k{n:03}").into_bytes(), vec![n; 5_000]));
    handle.put(records.collect(), 0).await.unwrap();
    let mut records = handle.next(from(vec![start("k000", 200)], 0)).await.unwrap();
    records.next().await.unwrap().unwrap();
    served.client.delete(&[fid(1)], 0).await.unwrap();
    while served.service.collect_step().unwrap() {}
    let mut seen = 1;
    let ended = loop {
        match records.next().await {
            Ok(Some(Step::Record { value, .. })) => {
                assert_eq!(value, vec![seen; 5_000], "complete and in order until the error");
                seen += 1;
            }
            Ok(other) => panic!("the walk must fail: {other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Status::NotFound, "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_vectors_of_catalogues_return_a_code_for_each() {
    let served = Served::new();
    let fids: Vec<Fid> = (0..4096).map(fid).collect();
    let none = served.client.lookup(&fids).await.unwrap();
    assert_eq!((codes(none.codes()), none.count), (vec![Code::Absent; 4096], 0));
    let odd: Vec<Fid> = fids.iter().copied().skip(1).step_by(2).collect();
    let made = served.client.create(&odd, 0).await.unwrap();
    assert_eq!((made.count, made.cookies.len()), (2048, 2048));
    let found = codes(served.client.lookup(&fids).await.unwrap().codes());
    let expected = [Code::Absent, Code::Ok].repeat(2048);
    assert_eq!(found, expected);
    assert_eq!(served.client.delete(&fids, Flag::MissingOk as u32).await.unwrap().count, 2048);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_no_wait_is_durable_after_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::of(dir.path());
    let handle = served.filled(1, 0).await;
    let reply = handle.put(vec![record("k", "v")], Flag::NoWait as u32).await.unwrap();
    let durable = served.client.fsync(reply.txn).await.unwrap();
    assert!(durable >= reply.txn);
    assert_eq!(handle.get_one("k").await.unwrap().unwrap(), b"v");
    drop((handle, served));
    let served = Served::of(dir.path());
    let forgotten = served.client.fsync(reply.txn).await.unwrap_err();
    assert_eq!(forgotten.code(), Status::Aborted, "its durability is unknown after a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_can_create_its_catalogue() {
    let served = Served::new();
    let handle = served.client.catalogue(fid(1));
    let flags = Flag::CreateCatalogue as u32;
    let refused = vec![NewRecord { expected: Some(Default::default()), ..record("k", "v") }];
    let reply = handle.put(refused, flags).await.unwrap();
    assert_eq!(codes(reply.codes()), [Code::Absent]);
    assert_eq!(codes(served.client.lookup(&[fid(1)]).await.unwrap().codes()), [Code::Absent]);
    handle.put(vec![record("k", "v"), record("l", "w")], flags).await.unwrap();
    handle.put(vec![record("m", "x")], flags).await.unwrap();
    let stat = served.client.stat(&[fid(1)]).await.unwrap()[0];
    assert_eq!((stat.code(), stat.records, stat.bytes), (Code::Ok, 3, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_catalogue_disappears_immediately_and_its_records_later() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::of(dir.path());
    let handle = served.filled(1, 0).await;
    let records = (0..70_000u32).map(|n| NewRecord::new(n.to_be_bytes().to_vec(), vec![7; 20]));
    handle.put(records.collect(), Flag::NoCookies as u32).await.unwrap();
    served.client.delete(&[fid(1)], 0).await.unwrap();
    assert_eq!(handle.get_one("k").await.unwrap_err().code(), Status::NotFound);
    // No collector runs, so that every step can be observed.
    let deathrow = served.client.catalogue(DEATHROW);
    let waiting = async || {
        let starts = vec![WalkStart::at_edge(9)];
        let mut records = deathrow.next(from(starts, 0)).await.unwrap();
        match records.next().await.unwrap() {
            Some(Step::Record { value, .. }) => Condemned::decode(&value.joined()),
            _ => None,
        }
    };
    let condemned = waiting().await.unwrap();
    assert_eq!((condemned.fid, condemned.records, condemned.removed), (fid(1), 70_000, 0));
    // The service is dropped before they are removed, and another one does it.
    drop((handle, deathrow, served));
    let served = Served::of(dir.path());
    assert_eq!(served.service.deathrow_len(), 1);
    let (one, other) = (served.client.clone(), served.client.clone());
    let waiters = tokio::spawn(async move {
        let (a, b) = tokio::join!(one.await_deathrow(), other.await_deathrow());
        a.and(b)
    });
    let collector = stele_catalogue::Collector::start(&served.service).unwrap();
    waiters.await.unwrap().unwrap();
    assert_eq!(served.service.deathrow_len(), 0);
    let retired = served.client.lookup(&[fid(1)]).await.unwrap();
    assert_eq!(codes(retired.codes()), [Code::Retired]);
    let left = stored_records(&served);
    assert_eq!(left, 0, "all its records were removed");
    drop(served);
    collector.join();
}

/// Returns the number of steps that the deathrow takes for this many catalogues with
/// this many records each.
async fn steps_to_remove(catalogues: u32, records: u32) -> usize {
    let served = Served::new();
    let fids: Vec<Fid> = (0..catalogues).map(|at| fid(u128::from(at))).collect();
    served.client.create(&fids, 0).await.unwrap();
    for fid in &fids {
        let records = (0..records).map(|n| NewRecord::new(n.to_be_bytes().to_vec(), "v"));
        let records: Vec<_> = records.collect();
        if !records.is_empty() {
            served.client.catalogue(*fid).put(records, Flag::NoCookies as u32).await.unwrap();
        }
    }
    // The newer ones first.
    for fids in [&fids[fids.len() / 2..], &fids[..fids.len() / 2]] {
        if !fids.is_empty() {
            served.client.delete(fids, 0).await.unwrap();
        }
    }
    assert_eq!(served.service.deathrow_len(), fids.len());
    let mut steps = 0;
    while served.service.collect_step().unwrap() {
        steps += 1;
    }
    assert_eq!((served.service.deathrow_len(), stored_records(&served)), (0, 0));
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_catalogue_is_removed_in_one_step_whatever_it_holds() {
    assert_eq!(steps_to_remove(1, 10).await, 1);
    assert_eq!(steps_to_remove(1, 80_000).await, 1);
    // Many catalogues share steps.
    assert_eq!(steps_to_remove(2_000, 0).await, 8);
}
