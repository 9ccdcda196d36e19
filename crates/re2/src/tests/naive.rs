//! A brute-force matcher: computes, for each part of a pattern, all positions at
//! which a match from here may end. It shares nothing with the parser; a pattern
//! is generated as a tree and written out as text.

use std::collections::BTreeSet;

/// How a byte is written.
#[derive(Clone, Copy, Debug)]
pub enum Spelling {
    Plain,
    Hex,
    Braces,
    Octal,
    Quoted,
    Class,
}

/// A pattern as a tree.
#[derive(Clone, Debug)]
pub enum Tree {
    Byte(u8, Spelling),
    Dot,
    AnyByte,
    /// Ranges, and whether they are negated.
    Class(Vec<(u8, u8)>, bool),
    Word(bool),
    Start,
    End,
    LineStart,
    LineEnd,
    Boundary(bool),
    Concat(Vec<Tree>),
    Alternate(Vec<Tree>),
    Repeat(Box<Tree>, usize, Option<usize>, bool),
    Fold(Box<Tree>),
    DotAll(Box<Tree>),
    Group(Box<Tree>),
}

/// The flags in effect for a part.
#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    dot_all: bool,
}

impl Tree {
    pub fn matches(&self, text: &[u8]) -> bool {
        self.ends(text, 0, Flags::default()).contains(&text.len())
    }

    fn ends(&self, text: &[u8], at: usize, flags: Flags) -> BTreeSet<usize> {
        let next = text.get(at).copied();
        let one = |is_member: &dyn Fn(u8) -> bool| match next {
            Some(byte) if is_member(byte) => BTreeSet::from([at + 1]),
            _ => BTreeSet::new(),
        };
        let here = |holds: bool| holds.then_some(at).into_iter().collect();
        let before = at.checked_sub(1).map(|before| text[before]);
        match self {
            Tree::Byte(byte, _) => one(&|b| same(*byte, b, flags.fold)),
            Tree::Dot => one(&|b| flags.dot_all || b != b'\n'),
            Tree::AnyByte => one(&|_| true),
            Tree::Class(ranges, negated) => one(&|b| {
                let in_ranges = |b: u8| ranges.iter().any(|&(lo, hi)| lo <= b && b <= hi);
                let both = [b.to_ascii_lowercase(), b.to_ascii_uppercase()];
                let found = in_ranges(b) || (flags.fold && both.into_iter().any(in_ranges));
                found != *negated
            }),
            Tree::Word(yes) => one(&|b| is_word(Some(b)) == *yes),
            Tree::Start => here(at == 0),
            Tree::End => here(at == text.len()),
            Tree::LineStart => here(before.is_none_or(|b| b == b'\n')),
            Tree::LineEnd => here(next.is_none_or(|b| b == b'\n')),
            Tree::Boundary(yes) => here((is_word(before) != is_word(next)) == *yes),
            Tree::Concat(parts) => parts.iter().fold(BTreeSet::from([at]), |all, part| {
                all.into_iter().flat_map(|at| part.ends(text, at, flags)).collect()
            }),
            Tree::Alternate(branches) => {
                branches.iter().flat_map(|branch| branch.ends(text, at, flags)).collect()
            }
            Tree::Repeat(part, min, max, _) => {
                // More rounds than bytes reach no new position.
                let rounds = max.unwrap_or(min + text.len());
                let mut round = BTreeSet::from([at]);
                let mut all = BTreeSet::new();
                for count in 0..=rounds {
                    if count >= *min {
                        all.extend(&round);
                    }
                    round = round.into_iter().flat_map(|at| part.ends(text, at, flags)).collect();
                }
                all
            }
            Tree::Fold(part) => part.ends(text, at, Flags { fold: true, ..flags }),
            Tree::DotAll(part) => part.ends(text, at, Flags { dot_all: true, ..flags }),
            Tree::Group(part) => part.ends(text, at, flags),
        }
    }

    /// Returns the pattern as a client would send it.
    pub fn spell(&self) -> Vec<u8> {
        match self {
            Tree::Byte(byte, spelling) => spell_byte(*byte, *spelling),
            Tree::Dot => b".".to_vec(),
            Tree::AnyByte => b"\\C".to_vec(),
            Tree::Class(ranges, negated) => {
                let mut class = if *negated { b"[^".to_vec() } else { b"[".to_vec() };
                for (lo, hi) in ranges {
                    class.extend(format!("\\x{lo:02x}-\\x{{{hi:x}}}").into_bytes());
                }
                class.push(b']');
                class
            }
            Tree::Word(true) => b"\\w".to_vec(),
            Tree::Word(false) => b"[[:^word:]]".to_vec(),
            Tree::Start => b"^".to_vec(),
            Tree::End => b"$".to_vec(),
            Tree::LineStart => b"(?m:^)".to_vec(),
            Tree::LineEnd => b"(?m:$)".to_vec(),
            Tree::Boundary(true) => b"\\b".to_vec(),
            Tree::Boundary(false) => b"\\B".to_vec(),
            Tree::Concat(parts) => {
                let parts: Vec<_> = parts.iter().map(Tree::spell).collect();
                parenthesized("(?:", &parts.concat())
            }
            Tree::Alternate(branches) => {
                let branches: Vec<_> = branches.iter().map(Tree::spell).collect();
                parenthesized("(?:", &branches.join(&b'|'))
            }
            Tree::Repeat(part, min, max, lazy) => {
                let mut pattern = parenthesized("(?:", &part.spell());
                pattern.extend(spell_counts(*min, *max).into_bytes());
                pattern.extend(lazy.then_some(b'?'));
                pattern
            }
            Tree::Fold(part) => parenthesized("(?i:", &part.spell()),
            Tree::DotAll(part) => parenthesized("((?s)", &part.spell()),
            Tree::Group(part) => parenthesized("(?P<name>", &part.spell()),
        }
    }
}

fn same(expected: u8, byte: u8, fold: bool) -> bool {
    expected == byte || (fold && expected.eq_ignore_ascii_case(&byte))
}

fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn parenthesized(opening: &str, inner: &[u8]) -> Vec<u8> {
    [opening.as_bytes(), inner, b")"].concat()
}

fn spell_counts(min: usize, max: Option<usize>) -> String {
    match (min, max) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) if min == max => format!("{{{min}}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

fn spell_byte(byte: u8, spelling: Spelling) -> Vec<u8> {
    match spelling {
        Spelling::Plain if byte.is_ascii_punctuation() => vec![b'\\', byte],
        Spelling::Plain => vec![byte],
        Spelling::Hex => format!("\\x{byte:02X}").into_bytes(),
        Spelling::Braces => format!("\\x{{{byte:x}}}").into_bytes(),
        Spelling::Octal => format!("\\{byte:03o}").into_bytes(),
        Spelling::Quoted => [b"\\Q", &[byte][..], b"\\E"].concat(),
        Spelling::Class if byte == b'^' => b"[\\^]".to_vec(),
        Spelling::Class if byte == b'\\' => b"[\\\\]".to_vec(),
        Spelling::Class => vec![b'[', byte, b']'],
    }
}
