//! Output formats: tables and sizes for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The number of bytes of a value that are printed.
const PREVIEW_BYTES: usize = 48;

/// Creates a table whose columns after the first `text_columns` hold numbers.
pub fn table(header: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints one line on standard output.
pub fn print_line(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

/// Writes one JSON object on a line of its own.
pub fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Escapes bytes: letters and other visible characters of UTF-8 unchanged, the rest as
/// `\xNN`. Reversible.
pub fn text(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_visible(&mut shown, character);
        }
        push_escaped(&mut shown, chunk.invalid());
    }
    shown
}

/// Escapes bytes: printable ASCII unchanged, the rest as `\xNN`. Reversible.
pub fn ascii(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn push_visible(shown: &mut String, character: char) {
    let visible = match character {
        ' '..='[' | ']'..='~' => true,
        '\0'..='\x7f' => false,
        // What the standard library prints as it is within a string: no controls, no
        // characters that change the direction of text.
        other => ['a', other].iter().collect::<String>().escape_debug().count() == 2,
    };
    match visible {
        true => shown.push(character),
        false => push_escaped(shown, character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn push_escaped(shown: &mut String, bytes: &[u8]) {
    bytes.escape_ascii().for_each(|byte| shown.push(char::from(byte)));
}

/// Formats the beginning of a value.
pub fn preview(value: &[u8]) -> String {
    let mut start = &value[..value.len().min(PREVIEW_BYTES)];
    // Does not cut within a character.
    if let Some(last) = start.utf8_chunks().last()
        && value.len() > PREVIEW_BYTES
        && last.invalid().len() < 4
        && !last.valid().is_empty()
    {
        start = &start[..start.len() - last.invalid().len()];
    }
    let start = text(start);
    if value.len() > PREVIEW_BYTES { format!("{start}...") } else { start }
}

/// Formats a number with thousands separators.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a count with its noun, in the plural unless the count is 1.
pub fn things(number: u64, name: &str) -> String {
    format!("{} {name}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a number of bytes in a suitable unit.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_shown_for_people() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!([bytes(1023), bytes(1536), bytes(3 << 30)], ["1023 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([things(1, "row"), things(2_000, "row")], ["1 row", "2,000 rows"]);
        assert_eq!(text(b"a\0\\"), "a\\x00\\\\");
        assert_eq!(text("gr\u{fc}n \u{1f600}{\"a\":1}".as_bytes()), "gr\u{fc}n \u{1f600}{\"a\":1}");
        assert_eq!(
            text("\u{202e}x\u{939}\u{93f}\u{7f}".as_bytes()),
            "\\xe2\\x80\\xaex\u{939}\u{93f}\\x7f"
        );
        assert_eq!(text(b"\xc3(\xff\n"), "\\xc3(\\xff\\n");
        assert_eq!(ascii("\u{fc}\"".as_bytes()), "\\xc3\\xbc\\\"");
        assert_eq!(preview(&[b'x'; 60]), format!("{}...", "x".repeat(48)));
    }
}
