//! The tables of patterns that match, do not match, or are rejected.

use super::super::Pattern;

const CASES: &str = include_str!("cases.txt");
const ERRORS: &str = include_str!("errors.txt");

fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Decodes a field of a table.
fn bytes(field: &str) -> Vec<u8> {
    if field == "\"\"" {
        return Vec::new();
    }
    let mut pieces = field.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("a table writes bytes as %XX"));
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    bytes
}

#[test]
fn every_case_of_the_table_matches_as_it_says() {
    let mut cases = 0;
    for row in rows(CASES) {
        let mut fields = row.split_whitespace();
        let source = bytes(fields.next().unwrap());
        let pattern = Pattern::new(&source).unwrap_or_else(|error| panic!("{row}\n{error}"));
        let mut expected = None;
        for field in fields {
            match field {
                "=" => expected = Some(true),
                "!" => expected = Some(false),
                text => {
                    let text = bytes(text);
                    assert_eq!(Some(pattern.matches(&text)), expected, "{field} in {row}");
                    assert!(expected == Some(false) || text.starts_with(pattern.prefix()));
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 1000, "{cases} cases: the table has not been read to its end");
}

#[test]
fn every_error_of_the_table_says_what_is_wrong_and_where() {
    let mut errors = 0;
    for row in rows(ERRORS) {
        let (source, rest) = row.split_once(' ').unwrap();
        let (offset, message) = rest.trim_start().split_once("  ").unwrap();
        let error = match Pattern::new(&bytes(source)) {
            Err(error) => error,
            Ok(_) => panic!("accepted: {row}"),
        };
        assert_eq!(
            (error.offset.to_string(), &error.message[..]),
            (offset.into(), message),
            "{row}"
        );
        errors += 1;
    }
    assert!(errors > 100, "{errors} errors: the table has not been read to its end");
}

#[test]
fn an_error_reads_as_one_sentence_with_its_place() {
    let error = Pattern::new(b"ab(?=c)").unwrap_err();
    assert_eq!(error.to_string(), "look-around is not supported (at byte 2 of the pattern)");
}
