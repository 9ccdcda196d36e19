//! Random patterns: compared with the naive matcher, and as hostile bytes.
//! `STELE_LONG=1` runs twenty times as many.

use proptest::prelude::*;

use super::super::Pattern;
use super::naive::{Spelling, Tree};

/// The bytes of patterns and texts; few, so that they often match.
const BYTES: &[u8] = b"abAB_-.\n\\]\xE9\xC9\x00\xFF";

fn cases(count: u32) -> ProptestConfig {
    let factor = if std::env::var_os("STELE_LONG").is_some() { 20 } else { 1 };
    ProptestConfig::with_cases(count * factor)
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![3 => prop::sample::select(&b"ab"[..]), 1 => prop::sample::select(BYTES)]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(byte(), 0..6)
}

fn spelled_byte() -> impl Strategy<Value = Tree> {
    let spellings = [
        Spelling::Plain,
        Spelling::Plain,
        Spelling::Hex,
        Spelling::Braces,
        Spelling::Octal,
        Spelling::Quoted,
        Spelling::Class,
    ];
    (byte(), prop::sample::select(spellings.to_vec())).prop_map(|(b, s)| Tree::Byte(b, s))
}

fn class() -> impl Strategy<Value = Tree> {
    let range = (byte(), byte()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    (prop::collection::vec(range, 1..3), any::<bool>())
        .prop_map(|(ranges, negated)| Tree::Class(ranges, negated))
}

fn leaf() -> impl Strategy<Value = Tree> {
    prop_oneof![
        8 => spelled_byte(),
        2 => class(),
        1 => Just(Tree::Dot),
        1 => Just(Tree::AnyByte),
        1 => any::<bool>().prop_map(Tree::Word),
        1 => prop::sample::select(vec![Tree::Start, Tree::End, Tree::LineStart, Tree::LineEnd]),
        1 => any::<bool>().prop_map(Tree::Boundary),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    leaf().prop_recursive(5, 20, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 0..4);
        let counts = (0..3usize, prop::option::of(0..3usize), any::<bool>());
        prop_oneof![
            4 => several.clone().prop_map(Tree::Concat),
            2 => several.prop_filter("no branch at all", |all| !all.is_empty())
                .prop_map(Tree::Alternate),
            2 => (inner.clone(), counts).prop_map(|(part, (min, more, lazy))| {
                Tree::Repeat(Box::new(part), min, more.map(|more| min + more), lazy)
            }),
            1 => inner.clone().prop_map(|part| Tree::Fold(Box::new(part))),
            1 => inner.clone().prop_map(|part| Tree::DotAll(Box::new(part))),
            1 => inner.prop_map(|part| Tree::Group(Box::new(part))),
        ]
    })
}

/// Fragments of syntax, valid and invalid.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"a",
        b"\xE9",
        b"(",
        b")",
        b"|",
        b"*",
        b"+",
        b"?",
        b"{2}",
        b"{2,",
        b"{1000}",
        b"{,",
        b"[",
        b"]",
        b"[^",
        b"-",
        b"[[:",
        b":]",
        b"[:alpha:]",
        b"\\",
        b"\\Q",
        b"\\E",
        b"\\p",
        b"\\p{",
        b"Lu}",
        b"\\x",
        b"\\x{",
        b"41",
        b"}",
        b"\\1",
        b"\\07",
        b"^",
        b"$",
        b"\\b",
        b"(?",
        b"(?i)",
        b"(?s:",
        b"(?P<",
        b"n>",
        b"(?-",
        b".",
        b"\\C",
        b"\\d",
        b"\x00",
        b"\n",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

/// Returns whether a pattern's results for this text are consistent.
fn agrees_with_itself(pattern: &Pattern, text: &[u8]) -> bool {
    let matches = pattern.matches(text);
    let listed = pattern.literals().map(|all| all.iter().any(|literal| literal == text));
    listed.is_none_or(|listed| listed == matches)
        && (!matches || text.starts_with(pattern.prefix()))
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn a_pattern_matches_what_the_naive_matcher_matches(
        tree in tree(),
        texts in prop::collection::vec(text(), 12),
    ) {
        let source = tree.spell();
        let spelled = source.escape_ascii().to_string();
        let pattern = Pattern::new(&source).map_err(|e| TestCaseError::fail(format!("{spelled}: {e}")))?;
        let listed = pattern.literals().unwrap_or_default().iter();
        for literal in listed.clone() {
            prop_assert!(tree.matches(literal), "{} lists {:?}", spelled, literal);
        }
        for text in texts.iter().chain(listed).chain([&pattern.prefix().to_vec()]) {
            prop_assert_eq!(pattern.matches(text), tree.matches(text), "{} on {:?}", spelled, text);
            prop_assert!(agrees_with_itself(&pattern, text), "{} on {:?}", spelled, text);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(error) = Pattern::new(&bytes) {
            prop_assert!(error.offset <= bytes.len());
        }
    }

    #[test]
    fn no_pieces_of_syntax_make_the_parser_panic(source in soup(), text in text()) {
        match Pattern::new(&source) {
            Ok(pattern) => prop_assert!(agrees_with_itself(&pattern, &text)),
            Err(error) => prop_assert!(error.offset <= source.len()),
        }
    }
}
