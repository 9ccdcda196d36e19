//! Substitutes for a pattern: the strings that it matches, if they are few, or
//! the common prefix of all matches. Both treat assertions as empty, so they may
//! be too wide; `pattern` narrows the strings by matching them.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// The maximum number of strings worth looking up one by one.
const STRINGS_MAX: usize = 64;
/// Their maximum total length.
const STRINGS_BYTES_MAX: usize = 64 << 10;
/// The longest useful prefix; no key is longer.
const PREFIX_MAX: usize = 16 << 10;

/// Returns all strings that match, sorted; `None` if there are too many.
pub(super) fn strings(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    Some(language(hir)?.into_iter().collect())
}

type Language = BTreeSet<Vec<u8>>;

fn language(hir: &Hir) -> Option<Language> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(Language::from([Vec::new()])),
        HirKind::Literal(literal) => bounded(Language::from([literal.0.to_vec()])),
        HirKind::Class(class) => members(class),
        HirKind::Capture(capture) => language(&capture.sub),
        HirKind::Repetition(repetition) => repeated(repetition),
        HirKind::Concat(parts) => parts
            .iter()
            .try_fold(Language::from([Vec::new()]), |all, part| product(all, &language(part)?)),
        HirKind::Alternation(branches) => {
            branches.iter().try_fold(Language::new(), |mut all, b| {
                all.append(&mut language(b)?);
                bounded(all)
            })
        }
    }
}

/// Returns `None` for a language that has become too large.
fn bounded(language: Language) -> Option<Language> {
    let bytes: usize = language.iter().map(Vec::len).sum();
    (language.len() <= STRINGS_MAX && bytes <= STRINGS_BYTES_MAX).then_some(language)
}

fn members(class: &Class) -> Option<Language> {
    match class {
        Class::Bytes(class) => {
            let count: usize = class.ranges().iter().map(|range| range.len()).sum();
            let bytes = class.ranges().iter().flat_map(|range| range.start()..=range.end());
            (count <= STRINGS_MAX).then(|| bytes.map(|byte| vec![byte]).collect())
        }
        // The simplification of the tree merges single characters into such a
        // class.
        Class::Unicode(class) => {
            let count: usize = class.ranges().iter().map(|range| range.len()).sum();
            let chars = class.ranges().iter().flat_map(|range| range.start()..=range.end());
            (count <= STRINGS_MAX).then(|| chars.map(|c| c.to_string().into_bytes()).collect())
        }
    }
}

/// Concatenates every string of one language with every string of the other.
fn product(all: Language, next: &Language) -> Option<Language> {
    let Some(tail) = next.first().filter(|_| next.len() == 1) else {
        let pairs =
            all.iter().flat_map(|head| next.iter().map(move |tail| [&head[..], tail].concat()));
        return bounded(pairs.collect());
    };
    // A long concatenation extends its strings in place.
    if tail.is_empty() {
        return Some(all);
    }
    let grown = all.into_iter().map(|mut head| {
        head.extend_from_slice(tail);
        head
    });
    bounded(grown.collect())
}

fn repeated(repetition: &Repetition) -> Option<Language> {
    let only_empty = Language::from([Vec::new()]);
    if repetition.max == Some(0) {
        return Some(only_empty);
    }
    let operand = language(&repetition.sub)?;
    // Neither grows with the repeat count.
    if operand.is_empty() && repetition.min == 0 {
        return Some(only_empty);
    }
    if operand.is_empty() || operand == only_empty {
        return Some(operand);
    }
    let max = repetition.max?;
    let mut power = only_empty;
    let mut all = Language::new();
    for count in 0..=max {
        if count >= repetition.min {
            all.extend(power.iter().cloned());
            all = bounded(all)?;
        }
        if count < max {
            power = product(power, &operand)?;
        }
    }
    Some(all)
}

/// Returns the common prefix of all matches, possibly empty.
pub(super) fn prefix(hir: &Hir) -> Vec<u8> {
    start(hir).map(|start| start.bytes).unwrap_or_default()
}

/// Returns the common prefix of several strings.
pub(super) fn common_prefix(strings: &[Vec<u8>]) -> Vec<u8> {
    // The strings are sorted, so the prefix of the first and the last is common
    // to all.
    match strings {
        [first, .., last] => shared(first, last).to_vec(),
        [only] => only.clone(),
        [] => Vec::new(),
    }
}

/// The common beginning of the matches of a subexpression.
struct Start {
    bytes: Vec<u8>,
    /// Whether `bytes` is the only match, so that the following part extends it.
    whole: bool,
}

impl Start {
    fn whole(bytes: Vec<u8>) -> Start {
        let whole = bytes.len() <= PREFIX_MAX;
        let mut start = Start { bytes, whole };
        start.bytes.truncate(PREFIX_MAX);
        start
    }

    fn followed_by(mut self, next: &Start) -> Start {
        if !self.whole {
            return self;
        }
        self.bytes.extend_from_slice(&next.bytes);
        let grown = Start::whole(self.bytes);
        Start { whole: grown.whole && next.whole, ..grown }
    }

    fn or(self, other: &Start) -> Start {
        let same = self.bytes == other.bytes;
        let bytes = shared(&self.bytes, &other.bytes).to_vec();
        Start { whole: self.whole && other.whole && same, bytes }
    }
}

fn shared<'a>(left: &'a [u8], right: &[u8]) -> &'a [u8] {
    let length = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    &left[..length]
}

/// Returns `None` for a subexpression that matches nothing.
fn start(hir: &Hir) -> Option<Start> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(Start::whole(Vec::new())),
        HirKind::Literal(literal) => Some(Start::whole(literal.0.to_vec())),
        HirKind::Class(class) if class.is_empty() => None,
        HirKind::Class(_) => Some(Start { bytes: Vec::new(), whole: false }),
        HirKind::Capture(capture) => start(&capture.sub),
        HirKind::Repetition(repetition) => start_of_repetition(repetition),
        HirKind::Concat(parts) => parts
            .iter()
            .try_fold(Start::whole(Vec::new()), |all, part| Some(all.followed_by(&start(part)?))),
        HirKind::Alternation(branches) => {
            branches.iter().filter_map(start).reduce(|all, branch| all.or(&branch))
        }
    }
}

fn start_of_repetition(repetition: &Repetition) -> Option<Start> {
    let operand = match start(&repetition.sub) {
        Some(operand) => operand,
        None if repetition.min == 0 => return Some(Start::whole(Vec::new())),
        None => return None,
    };
    let mut all = Start::whole(Vec::new());
    for _ in 0..repetition.min {
        if !all.whole {
            break;
        }
        all = all.followed_by(&operand);
    }
    if repetition.max != Some(repetition.min) {
        all.whole = false;
    }
    Some(all)
}

/// What may follow the prefix of a pattern that has no other constraint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// `key\C*`
    Anything,
    /// `key.*`
    OneLine,
}

/// Returns the tail of a pattern that is a prefix and a tail, with or without
/// anchors; most patterns in practice are.
pub(super) fn tail(hir: &Hir) -> Option<Tail> {
    let mut parts = match hir.kind() {
        HirKind::Concat(parts) => &parts[..],
        _ => std::slice::from_ref(hir),
    };
    while let [first, rest @ ..] = parts
        && *first.kind() == HirKind::Look(Look::Start)
    {
        parts = rest;
    }
    while let [rest @ .., last] = parts
        && *last.kind() == HirKind::Look(Look::End)
    {
        parts = rest;
    }
    if let [first, rest @ ..] = parts
        && matches!(first.kind(), HirKind::Literal(literal) if literal.0.len() <= PREFIX_MAX)
    {
        parts = rest;
    }
    let [only] = parts else { return None };
    let HirKind::Repetition(Repetition { min: 0, max: None, sub, .. }) = only.kind() else {
        return None;
    };
    let HirKind::Class(Class::Bytes(class)) = sub.kind() else { return None };
    let ranges = class.ranges().iter().map(|range| (range.start(), range.end()));
    match ranges.collect::<Vec<_>>()[..] {
        [(0, 0xFF)] => Some(Tail::Anything),
        [(0, 0x09), (0x0B, 0xFF)] => Some(Tail::OneLine),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn strings_of(source: &str) -> Option<Vec<String>> {
        let all = strings(&parse(source.as_bytes()).unwrap().0)?;
        Some(all.into_iter().map(|string| string.escape_ascii().to_string()).collect())
    }

    fn prefix_of(source: &str) -> String {
        prefix(&parse(source.as_bytes()).unwrap().0).escape_ascii().to_string()
    }

    #[test]
    fn few_strings_are_listed_in_order_and_once() {
        let lists: &[(&str, &[&str])] = &[
            ("", &[""]),
            ("foo", &["foo"]),
            ("b|a|c|a", &["a", "b", "c"]),
            (r"\Qx.y\E", &["x.y"]),
            ("[a-c]1", &["a1", "b1", "c1"]),
            ("(?i)ab", &["AB", "Ab", "aB", "ab"]),
            ("a?b{2}", &["abb", "bb"]),
            ("x{0,3}", &["", "x", "xx", "xxx"]),
            ("(a|b){2}", &["aa", "ab", "ba", "bb"]),
            ("(|a|aa){2}", &["", "a", "aa", "aaa", "aaaa"]),
            ("()*|(){5,}", &[""]),
            ("a{0}", &[""]),
            (r"[^\x00-\xff]", &[]),
            (r"a[^\x00-\xff]*|b[^\x00-\xff]+", &["a"]),
            (r"\xff|\x00", &[r"\x00", r"\xff"]),
            ("\u{e9}|a", &["a", r"\xc3\xa9"]),
        ];
        for (source, expected) in lists {
            assert_eq!(strings_of(source).unwrap(), *expected, "{source}");
        }
    }

    #[test]
    fn many_strings_are_not_listed() {
        assert_eq!(strings_of("(a|b){6}").map(|all| all.len()), Some(64));
        for source in ["(a|b){6}|c", "a*", ".", "(a|b){1000}", "x{0,64}", "(a{1000})+", r"\W"] {
            assert_eq!(strings_of(source), None, "{source}");
        }
        let long = "a".repeat(1000);
        assert_eq!(strings_of(&format!("{long}[a-z]{{1}}")).map(|all| all.len()), Some(26));
        assert_eq!(strings_of(&format!("{long}(a|b){{6}}{long}")), None);
    }

    #[test]
    fn a_prefix_is_what_all_matches_share() {
        let prefixes = [
            ("", ""),
            ("foo", "foo"),
            ("foo.*", "foo"),
            ("^foo.*", "foo"),
            ("foo|fob", "fo"),
            ("foo|", ""),
            ("(ab|ac)d*", "a"),
            ("(ab)+c", "ab"),
            ("(ab){2}c.", "ababc"),
            ("(ab){2,}c.", "abab"),
            ("(ab)*c", ""),
            ("a?b", ""),
            ("x(y|yz)w", "xy"),
            ("(x|x)y.", "xy"),
            (r"[^\x00-\xff]b|cd", "cd"),
            (r"a[^\x00-\xff]*b.", "ab"),
            ("(?i)foo", ""),
            ("1(?i)foo", "1"),
            (r"\bfoo\b.*", "foo"),
            (r"\377\C*", r"\xff"),
        ];
        for (source, expected) in prefixes {
            assert_eq!(prefix_of(source), expected, "{source}");
        }
    }

    #[test]
    fn a_prefix_is_cut_where_no_key_is_longer() {
        let long = format!("({}){{30}}b", "a".repeat(1000));
        assert_eq!(prefix_of(&long).len(), PREFIX_MAX);
        assert_eq!(tail(&parse(format!("{long}.*").as_bytes()).unwrap().0), None);
        let long = format!("{}.*", "a".repeat(PREFIX_MAX + 1));
        assert_eq!(tail(&parse(long.as_bytes()).unwrap().0), None);
    }
}
