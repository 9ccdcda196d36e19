//! Arbitrary text and bytes give a result or an error, never a panic, and parsed values
//! can be formatted and parsed again.

use bytes::Bytes;
use proptest::prelude::*;
use stele_bigtable_client::{Cell, Row};
use stele_mounttable::access::{Permissions, PermissionsPool};
use stele_mounttable::address::Endpoint;
use stele_mounttable::identity::Tokens;
use stele_mounttable::node::Branch;
use stele_mounttable::pattern::Pattern;
use stele_mounttable::{FirstNodes, NodeName, blessing, name};

/// Generates text with many special characters.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            4 => proptest::sample::select(
                vec!["/", "a", "b", "ab", ".", "..", "...", "*", "***", "?", "[", "]", "-", "^",
                     "\\", "@", "@@", "@6@", "(", ")@", ":", "#", "%", "%2F", "$", ",", "__", "1"]
            ).prop_map(str::to_string),
            1 => any::<char>().prop_map(String::from),
        ],
        0..12,
    )
    .prop_map(|parts| parts.concat())
}

/// Matches naively: tries every length of every run.
fn matches_slowly(pattern: &[char], name: &[char]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some('*'), _) => {
            matches_slowly(&pattern[1..], name)
                || !name.is_empty() && matches_slowly(pattern, &name[1..])
        }
        (Some('?'), Some(_)) => matches_slowly(&pattern[1..], &name[1..]),
        (Some(one), Some(other)) if one == other => matches_slowly(&pattern[1..], &name[1..]),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn arbitrary_names_are_accepted_or_rejected(given in text()) {
        prop_assert_eq!(name::clean(&name::clean(&given)), name::clean(&given));
        let (address, rest) = name::split_address(&given);
        if name::is_rooted(&given) && !address.is_empty() {
            prop_assert_eq!(name::join_address(&address, &rest), name::clean(&given));
        }
        prop_assert_eq!(name::decode_element(&name::encode_element(&given)), Some(given.clone()));
        if let Ok(node) = NodeName::parse(&given) {
            prop_assert_eq!(NodeName::parse(node.as_str()).unwrap(), node.clone());
            prop_assert_eq!(NodeName::from_row_key(node.row_key().as_bytes()), Some(node));
        }
    }

    #[test]
    fn addresses_patterns_and_lists_are_accepted_or_rejected(given in text(), other in text()) {
        if let Some(endpoint) = Endpoint::of_server(&given) {
            let _ = endpoint.host_port();
        }
        if let Ok(pattern) = Pattern::parse(&given) {
            let _ = pattern.matches(&other);
            let again = Pattern::parse(&pattern.to_string()).unwrap();
            prop_assert_eq!(again.to_string(), pattern.to_string());
        }
        let _ = blessing::matches(&given, &other);
        let _ = Tokens::parse(&given);
        let _ = Permissions::from_json(given.as_bytes());
        let _ = FirstNodes::from_json(given.as_bytes());
    }

    #[test]
    fn wildcards_match_like_exhaustive_search(pattern in "[ab*?]{1,8}", name in "[ab]{0,8}") {
        prop_assume!(pattern != "***");
        let slowly = matches_slowly(
            &pattern.chars().collect::<Vec<_>>(),
            &name.chars().collect::<Vec<_>>(),
        );
        prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&name), slowly);
    }

    #[test]
    fn rows_of_any_bytes_are_nodes_or_damaged(
        key in proptest::collection::vec(any::<u8>(), 0..20),
        cells in proptest::collection::vec(
            (
                proptest::sample::select(vec!["m", "s", "c", "x"]),
                prop_oneof![
                    proptest::sample::select(vec![&b"i"[..], b"v", b"c", b"s", b"p"])
                        .prop_map(<[u8]>::to_vec),
                    proptest::collection::vec(any::<u8>(), 0..12),
                ],
                any::<i64>(),
                proptest::collection::vec(any::<u8>(), 0..12),
            ),
            0..8,
        ),
        own_key in any::<bool>(),
    ) {
        let key = if own_key { NodeName::root().row_key().into_bytes() } else { key };
        let cell = |(family, qualifier, timestamp_micros, value): (&str, Vec<u8>, i64, Vec<u8>)| Cell {
            family: family.into(),
            qualifier: qualifier.into(),
            timestamp_micros,
            value: value.into(),
            labels: vec![],
        };
        let row = Row { key: Bytes::from(key), cells: cells.into_iter().map(cell).collect() };
        if let Ok(Branch { node, .. }) = Branch::decode(&row, &PermissionsPool::default()) {
            let _ = (node.flags(0), node.permissions_version());
        }
    }
}
