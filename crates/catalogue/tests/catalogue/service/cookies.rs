//! Cookies make requests faster and never change their results.

use super::served::*;
use bytes::Bytes;
use proptest::prelude::*;
use stele_catalogue::client::{NewRecord, RecordKey, WalkStart};
use stele_catalogue::proto::*;
use stele_catalogue::service::{Answer, Get};

/// Reads one key in process, with any cookies.
fn read(served: &Served, target: &Target, key: &Bytes, cookie: &Bytes) -> (Option<Bytes>, Bytes) {
    #[derive(Default)]
    struct Kept(Option<Bytes>, Bytes);
    impl Answer for Kept {
        fn value(&mut self, value: &[u8]) {
            self.0 = Some(Bytes::copy_from_slice(value));
        }
        fn done(&mut self, _: Code, cookie: &[u8]) {
            self.1 = Bytes::copy_from_slice(cookie);
        }
        fn bytes(&self) -> usize {
            0
        }
    }
    let keys = vec![Key { key: key.clone(), cookie: cookie.clone(), expected: None }];
    let request = GetRequest { catalogue: Some(target.clone()), keys, flags: 0, at: 0 };
    let mut kept = Kept::default();
    Get::new(served.service.clone(), request).unwrap().step(&mut kept, 1).unwrap();
    (kept.0, kept.1)
}

fn target(id: u128, cookie: Bytes) -> Target {
    Target { fid: Bytes::copy_from_slice(fid(id).bytes()), cookie }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_cookie_skips_the_meta_catalogue() {
    let served = Served::new();
    let cookie = served.client.create(&[fid(1)], 0).await.unwrap().cookies.remove(0);
    let handle = served.client.catalogue(fid(1));
    handle.put(vec![record("k", "v")], 0).await.unwrap();
    let lookups = || served.service.counts().lookups;
    let before = lookups();
    for _ in 0..10 {
        read(&served, &target(1, cookie.clone()), &"k".into(), &Bytes::new());
    }
    assert_eq!(lookups(), before);
    // The handle has cached it from its first reply.
    handle.put(vec![record("k", "w")], 0).await.unwrap();
    handle.get_one("k").await.unwrap();
    assert_eq!(lookups(), before);
    read(&served, &target(1, Bytes::new()), &"k".into(), &Bytes::new());
    assert_eq!(lookups(), before + 1);
    // The cookie of another or a deleted catalogue is ignored.
    served.filled(2, 1).await;
    let (value, _) = read(&served, &target(2, cookie.clone()), &"k000".into(), &Bytes::new());
    assert_eq!(value.unwrap(), "v0");
    served.client.delete(&[fid(1)], 0).await.unwrap();
    served.client.create(&[fid(1)], Flag::Reuse as u32).await.unwrap();
    let (value, _) = read(&served, &target(1, cookie), &"k".into(), &Bytes::new());
    assert_eq!(value, None, "the new catalogue is empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_cookie_leads_to_the_record_until_it_is_written() {
    let served = Served::new();
    let handle = served.filled(1, 200).await;
    served.flush();
    let key: Bytes = "k007".into();
    let (value, cookie) = read(&served, &target(1, Bytes::new()), &key, &Bytes::new());
    assert_eq!(value.unwrap(), "v7");
    let places = || served.service.counts().places;
    let before = places();
    let by_cookie = |cookie: &Bytes| read(&served, &target(1, Bytes::new()), &key, cookie);
    assert_eq!(by_cookie(&cookie), (Some("v7".into()), cookie.clone()));
    assert_eq!(places(), before + 1);
    // A walk returns locations too, and can start at one.
    let cookies: Vec<Bytes> = {
        let mut records = handle.next(from(vec![start("k000", 200)], 0)).await.unwrap();
        let mut cookies = Vec::new();
        while let Some(step) = records.next().await.unwrap() {
            if let stele_catalogue::client::Step::Record { cookie, .. } = step {
                cookies.push(cookie);
            }
        }
        cookies
    };
    assert_eq!(by_cookie(&cookies[7]).0.unwrap(), "v7");
    assert_eq!(places(), before + 2);
    let begin = WalkStart { cookie: cookies[7].clone(), ..start("k007", 1) };
    assert_eq!(groups(handle.next(from(vec![begin], 0)).await.unwrap()).await[0].0, ["k007"]);
    assert_eq!(places(), before + 3);
    let before = before + 2;
    // Put and Del use the location as well.
    let put = NewRecord { cookie: cookie.clone(), ..record("k007", "new") };
    let reply = handle.put(vec![put], Flag::CreateIfAbsent as u32).await.unwrap();
    assert_eq!((reply.count, places()), (0, before + 2));
    let put = NewRecord { cookie: cookie.clone(), ..record("k007", "new") };
    handle.put(vec![put], 0).await.unwrap();
    assert_eq!(places(), before + 3);
    assert_eq!(by_cookie(&cookie).0.unwrap(), "new");
    assert_eq!(places(), before + 3, "the record has been overwritten since");
    served.flush();
    let cookie = by_cookie(&Bytes::new()).1;
    let range = Range { start: "k008".into(), ..Default::default() };
    handle.del_range(Some(range), 0).await.unwrap();
    assert_eq!(by_cookie(&cookie).0.unwrap(), "new");
    assert_eq!(places(), before + 4, "an adjacent range does not matter");
    handle.del_range(None, 0).await.unwrap();
    assert_eq!(by_cookie(&cookie).0, None);
    handle.del(vec![RecordKey { cookie, ..super::served::key("k007") }], 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_of_a_put_has_no_location_until_the_record_is_flushed() {
    let served = Served::new();
    let handle = served.filled(1, 3).await;
    let reply = handle.put(vec![record("k", "v"), record("k001", "w")], 0).await.unwrap();
    assert!(reply.cookies.iter().all(|cookie| !cookie.is_empty()), "one for each stored record");
    let lookups = served.service.counts().lookups;
    let places = || served.service.counts().places;
    let before = places();
    // Together with the catalogue's cookie it saves the lookup in the meta-catalogue;
    // the record itself is in memory and has no location yet.
    let whole = target(1, reply.catalogue_cookie.clone());
    let (value, cookie) = read(&served, &whole, &"k".into(), &reply.cookies[0]);
    assert_eq!((value.unwrap(), places()), ("v".into(), before));
    served.flush();
    let (value, placed) = read(&served, &whole, &"k".into(), &cookie);
    assert_eq!((value.unwrap(), places()), ("v".into(), before));
    assert_ne!(cookie, placed, "now it has a location");
    let (value, _) = read(&served, &whole, &"k".into(), &placed);
    assert_eq!((value.unwrap(), places()), ("v".into(), before + 1));
    assert_eq!(served.service.counts().lookups, lookups);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_backwards_tells_places_too() {
    let served = Served::new();
    let handle = served.filled(1, 200).await;
    served.flush();
    let mut records = handle.prev(from(vec![WalkStart::at_edge(200)], 0)).await.unwrap();
    let before = served.service.counts().places;
    let mut number = 200;
    while let Some(step) = records.next().await.unwrap() {
        if let stele_catalogue::client::Step::Record { key, cookie, .. } = step {
            number -= 1;
            let (value, _) = read(&served, &target(1, Bytes::new()), &key.joined(), &cookie);
            assert_eq!(value.unwrap(), format!("v{number}"));
        }
    }
    assert_eq!(served.service.counts().places, before + 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn forged_cookies_answer_like_none(
        seeds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        number in 0usize..200,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build().unwrap();
        runtime.block_on(async {
            let served = Served::new();
            served.filled(1, 200).await;
            served.filled(2, 100).await;
            served.flush();
            let key = |number: usize| Bytes::from(format!("k{number:03}"));
            let plain = target(1, Bytes::new());
            let (_, good) = read(&served, &plain, &key(number / 2), &Bytes::new());
            let catalogue = served.client.lookup(&[fid(2)]).await.unwrap().cookies.remove(0);
            let forge = |cookie: &Bytes| {
                let mut forged = cookie.to_vec();
                for (at, byte) in &seeds {
                    let at = at.index(forged.len());
                    forged[at] = *byte;
                }
                Bytes::from(forged)
            };
            let expected = Some(Bytes::from(format!("v{number}")));
            for cookie in [good.clone(), forge(&good), bytes.clone().into(), catalogue.clone()] {
                for whole in [Bytes::new(), catalogue.clone(), forge(&catalogue), bytes.clone().into()] {
                    let read = read(&served, &target(1, whole), &key(number), &cookie);
                    prop_assert_eq!(&read.0, &expected);
                }
            }
            Ok(())
        })?;
    }
}
