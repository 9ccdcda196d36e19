//! The text form of a schema: one statement per group, with the attributes of the group.
//!
//! ```text
//! # Comments end with the line.
//! schema:hot columns="name email" purge="max-history=3" in-memory="true"
//! schema:rest columns="*" compression="zstd" blocksize="65536"
//! ```
//!
//! Hidden families are not part of it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::compression::Compression;
use super::definition::{BLOCK_BYTES, Family, Group, Schema, check_family_name};
use super::purge::Purge;
use super::purge_text::{parse_purge, purge_text};
use super::text_scanner::{Letter, Position, Scanner, TextError, bytes, shown};

const ATTRIBUTES: &str = "columns, purge, purge:FAMILY, compression, blocksize or in-memory";

/// An attribute and the position of its value.
struct Attribute {
    value: Vec<Letter>,
    at: Position,
}

/// A statement as it was read.
struct Statement {
    name: String,
    at: Position,
    attributes: BTreeMap<Vec<u8>, Attribute>,
}

impl Schema {
    /// Parses the text form of a schema.
    pub fn parse(text: &str) -> Result<Schema, TextError> {
        let (start, mut scanner) = (Position::START, Scanner::new(text));
        let mut statements: Vec<Statement> = Vec::new();
        loop {
            scanner.skip_space();
            if scanner.peek().is_none() {
                break;
            }
            let at = scanner.at;
            let word = scanner.word()?;
            match word.split_at_checked(b"schema:".len()) {
                Some((keyword, name)) if bytes(keyword) == b"schema:" => {
                    let name = group_name(&mut scanner, name, at)?;
                    if statements.iter().any(|other| other.name == name) {
                        return at.error(format!("group {name:?} is given twice"));
                    }
                    statements.push(Statement { name, at, attributes: BTreeMap::new() });
                }
                _ => attribute(&mut scanner, statements.last_mut(), &word, at)?,
            }
        }
        if statements.is_empty() {
            return start.error("the text has no group: begin with schema:NAME columns=\"...\"");
        }
        let mut families = BTreeMap::new();
        let mut wildcard = None;
        let mut groups = Vec::with_capacity(statements.len());
        for statement in statements {
            groups.push(group(statement, &mut families, &mut wildcard)?);
        }
        Schema::new(groups).or_else(|error| start.error(error.to_string()))
    }

    /// Returns the text form of the schema, without hidden families.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for group in &self.groups()[..self.visible_groups()] {
            write_group(&mut text, group).expect("a string can always grow");
        }
        text
    }
}

fn group_name(
    scanner: &mut Scanner<'_>,
    word: &[Letter],
    at: Position,
) -> Result<String, TextError> {
    let name = if word.is_empty() && scanner.peek() == Some(b'"') {
        bytes(&scanner.quoted()?)
    } else {
        bytes(word)
    };
    String::from_utf8(name).or_else(|_| at.error("the name of a group is not UTF-8"))
}

fn attribute(
    scanner: &mut Scanner<'_>,
    statement: Option<&mut Statement>,
    name: &[Letter],
    at: Position,
) -> Result<(), TextError> {
    let Some(statement) = statement else {
        return at.error("expected schema:NAME before attributes");
    };
    scanner.skip_space();
    if scanner.peek() != Some(b'=') {
        let found = shown(name);
        return at.error(format!("expected {ATTRIBUTES} and =\"VALUE\", found {found:?}"));
    }
    scanner.advance();
    scanner.skip_space();
    let value_at = scanner.at;
    let known = [&b"columns"[..], b"purge", b"compression", b"blocksize", b"in-memory"];
    let key = bytes(name);
    if !known.contains(&&key[..]) && !key.starts_with(b"purge:") {
        return at.error(format!("unknown attribute {:?}: use {ATTRIBUTES}", shown(name)));
    }
    let value = scanner.quoted()?;
    if statement.attributes.insert(key, Attribute { value, at: value_at }).is_some() {
        let (name, group) = (shown(name), &statement.name);
        return at.error(format!("{name} of group {group:?} is given twice"));
    }
    Ok(())
}

/// Returns the group of a statement. `families` and `wildcard` are those of earlier groups.
fn group(
    mut statement: Statement,
    families: &mut BTreeMap<Vec<u8>, String>,
    wildcard: &mut Option<String>,
) -> Result<Group, TextError> {
    let Some(columns) = statement.attributes.remove(&b"columns"[..]) else {
        let name = &statement.name;
        return statement
            .at
            .error(format!("group {name:?} has no columns: use columns=\"FAMILY ...\" or \"*\""));
    };
    let mut group = Group::new(&statement.name, []);
    for name in columns.value.split(Letter::is_space).filter(|name| !name.is_empty()) {
        let at = name[0].at;
        if name.len() == 1 && name[0].is(b'*') {
            if let Some(other) = wildcard.replace(group.name.clone()) {
                return at.error(format!("group {other:?} already contains all other families"));
            }
            group.wildcard = true;
            continue;
        }
        let family = bytes(name);
        check_family_name(&family).or_else(|what| at.error(what))?;
        if let Some(other) = families.insert(family.clone(), group.name.clone()) {
            return at.error(format!("family {:?} is already in group {other:?}", shown(name)));
        }
        group.families.push(Family::new(family));
    }
    for (key, Attribute { value, at }) in statement.attributes {
        let word = String::from_utf8(bytes(&value)).unwrap_or_default();
        match &key[..] {
            b"purge" => group.purge = parse_purge(&value, at)?,
            b"compression" => group.compression = compression(&word, at)?,
            b"blocksize" => group.block_bytes = Some(block_bytes(&word, at)?),
            b"in-memory" => {
                group.in_memory = match word.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return at.error("in-memory must be \"true\" or \"false\""),
                };
            }
            key => {
                let name = &key[b"purge:".len()..];
                let family = group.families.iter_mut().find(|family| family.name == name);
                let Some(family) = family else {
                    let name = name.escape_ascii().to_string();
                    return at.error(format!("family {name:?} is not in the columns of the group"));
                };
                family.purge = Some(parse_purge(&value, at)?);
            }
        }
    }
    Ok(group)
}

fn compression(word: &str, at: Position) -> Result<Compression, TextError> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    match all.into_iter().find(|compression| compression.to_string() == word) {
        Some(compression) => Ok(compression),
        None => at.error(format!("unknown compression {word:?}: use none, lz4 or zstd")),
    }
}

fn block_bytes(word: &str, at: Position) -> Result<u32, TextError> {
    match word.parse().ok().filter(|bytes| BLOCK_BYTES.contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => at.error(format!(
            "invalid blocksize {word:?}: use a number of bytes between {} and {}",
            BLOCK_BYTES.start(),
            BLOCK_BYTES.end()
        )),
    }
}

fn write_group(text: &mut String, group: &Group) -> fmt::Result {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if group.name.bytes().all(plain) {
        write!(text, "schema:{}", group.name)?;
    } else {
        write!(text, "schema:\"{}\"", escaped(group.name.as_bytes()))?;
    }
    let names = group.families.iter().map(|family| escaped(&family.name));
    let names: Vec<String> = names.chain(group.wildcard.then(|| "*".to_string())).collect();
    write!(text, " columns=\"{}\"", names.join(" "))?;
    if group.purge != Purge::Never {
        write!(text, " purge=\"{}\"", purge_text(&group.purge))?;
    }
    for family in &group.families {
        if let Some(purge) = &family.purge {
            write!(text, " purge:{}=\"{}\"", escaped(&family.name), purge_text(purge))?;
        }
    }
    write!(text, " compression=\"{}\"", group.compression)?;
    if let Some(bytes) = group.block_bytes {
        write!(text, " blocksize=\"{bytes}\"")?;
    }
    writeln!(text, " in-memory=\"{}\"", group.in_memory)
}

/// Returns a name such that no byte of it has a special meaning.
fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for &byte in name {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=' | b'#' | b'*') {
            text.push(char::from(byte));
        } else {
            write!(text, "\\x{byte:02x}").expect("a string can always grow");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        Schema::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn tablets_1_9_8_a_text_gives_each_group_its_attributes() {
        let text = "\
            # The groups of the seed.\n\
            schema:   columns=\"*\"\n\
            schema:A  columns=\"X Y\" purge=\"max-age=5 and max-history=3\" purge:Y=\"never\"\n\
            \t\tcompression=\"zstd\" blocksize=\"65536\" in-memory=\"true\"\n\
            schema:\"b c\" columns=\"a\\x20b \\x2a\" # spaces and stars in names\n";
        let schema = Schema::parse(text).unwrap();
        let [rest, a, bc] = schema.groups() else { panic!("{schema:?}") };
        assert!(rest.wildcard && rest.families.is_empty() && rest.name.is_empty());
        let names =
            |group: &Group| group.families.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(a), [b"X", b"Y"]);
        assert_eq!(a.purge, Purge::All(vec![Purge::MaxAge(5), Purge::MaxVersions(3)]));
        assert_eq!(
            (a.families[0].purge.clone(), a.families[1].purge.clone()),
            (None, Some(Purge::Never))
        );
        assert_eq!(
            (a.compression, a.block_bytes, a.in_memory),
            (Compression::Zstd, Some(65536), true)
        );
        assert_eq!((bc.name.as_str(), names(bc)), ("b c", vec![b"a b".to_vec(), b"*".to_vec()]));
        assert_eq!(Schema::parse(&schema.text()).unwrap(), schema);
    }

    #[test]
    fn tablets_1_9_2_a_mistake_is_reported_with_its_line_and_column() {
        for (text, expected) in [
            ("", "line 1, column 1: the text has no group: begin with schema:NAME columns=\"...\""),
            ("columns=\"a\"", "line 1, column 1: expected schema:NAME before attributes"),
            (
                "schema:x",
                "line 1, column 1: group \"x\" has no columns: use columns=\"FAMILY ...\" or \"*\"",
            ),
            (
                "schema:x columns=\"a\"\nschema:y columns=\"b a\"",
                "line 2, column 21: family \"a\" is already in group \"x\"",
            ),
            (
                "schema:x columns=\"*\"\nschema:y columns=\"*\"",
                "line 2, column 19: group \"x\" already contains all other families",
            ),
            (
                "schema:x columns=\"a\"\nschema:x columns=\"b\"",
                "line 2, column 1: group \"x\" is given twice",
            ),
            (
                "schema:x columns=\"a\" columns=\"b\"",
                "line 1, column 22: columns of group \"x\" is given twice",
            ),
            (
                "schema:x columns=\"a\" color=\"red\"",
                "line 1, column 22: unknown attribute \"color\": use columns, purge, purge:FAMILY, compression, blocksize or in-memory",
            ),
            ("schema:x columns=\"a", "line 1, column 18: the closing quote is missing"),
            ("schema:x columns=a", "line 1, column 18: expected a value in double quotes"),
            (
                "schema:x columns=\"a\\z\"",
                "line 1, column 20: invalid escape: use \\\\, \\\" or \\xNN",
            ),
            (
                "schema:x columns=\"a\" in-memory=\"yes\"",
                "line 1, column 32: in-memory must be \"true\" or \"false\"",
            ),
            (
                "schema:x columns=\"a\" compression=\"gzip\"",
                "line 1, column 34: unknown compression \"gzip\": use none, lz4 or zstd",
            ),
            (
                "schema:x columns=\"a\" purge:b=\"never\"",
                "line 1, column 30: family \"b\" is not in the columns of the group",
            ),
            (
                "schema:x columns=\"a\" purge=\"max-age=1 und 2\"",
                "line 1, column 39: expected and, or, or the end, found \"und\"",
            ),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        assert!(error("schema:x columns=\"a\" blocksize=\"7\"").contains("invalid blocksize"));
    }

    fn purge() -> impl Strategy<Value = Purge> {
        let leaf = prop_oneof![
            Just(Purge::Never),
            (1u32..9).prop_map(Purge::MaxVersions),
            (0i64..1 << 50).prop_map(Purge::MaxAge),
            (-9i64..9).prop_map(Purge::Waterline),
        ];
        leaf.prop_recursive(3, 8, 3, |inner| {
            let terms = || prop::collection::vec(inner.clone(), 2..4);
            prop_oneof![terms().prop_map(Purge::All), terms().prop_map(Purge::Any)]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed_again(
            purges in prop::collection::vec((purge(), prop::option::of(purge())), 1..4),
            names in prop::collection::btree_set(prop::collection::vec(1u8..=255, 1..4), 4),
            wildcard in 0usize..5,
        ) {
            let names: Vec<Vec<u8>> = names.into_iter().collect();
            let group = |(at, (purge, own)): (usize, (Purge, Option<Purge>))| Group {
                wildcard: at == wildcard,
                purge,
                in_memory: at % 2 == 0,
                ..Group::new(format!("g{at}"), [Family { purge: own, ..Family::new(&names[at][..]) }])
            };
            let groups = purges.into_iter().enumerate().map(group).collect();
            // Some policies have two waterlines.
            if let Ok(schema) = Schema::new(groups) {
                prop_assert_eq!(Schema::parse(&schema.text()), Ok(schema));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(schema:|[ a-z\"=\\\\#*\n]|columns=\"|purge=\"|max-age=|[()0-9]){0,30}") {
            let _ = Schema::parse(&text);
        }
    }
}
