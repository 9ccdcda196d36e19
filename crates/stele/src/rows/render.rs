//! Prints rows: for people a key with its cells below it, for programs one JSON object
//! per line.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value, json};
use stele_bigtable_client::{Cell, Row};

use crate::escape::Notation;
use crate::output::json_line;
use crate::timestamp;

#[derive(Args, Clone, Copy, Debug)]
pub struct Form {
    /// Print one JSON object per row, each on its own line.
    #[arg(long)]
    pub json: bool,
    /// Print keys, qualifiers and values in hex.
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// Print bytes that are not ASCII as \xNN.
    #[arg(long, conflicts_with_all = ["json", "hex"])]
    pub ascii: bool,
}

impl Form {
    pub fn notation(self) -> Notation {
        match (self.hex, self.ascii) {
            (true, _) => Notation::Hex,
            (false, true) => Notation::Ascii,
            (false, false) => Notation::Text,
        }
    }
}

pub struct Printer<W> {
    out: W,
    form: Form,
}

impl<W: Write> Printer<W> {
    pub fn new(out: W, form: Form) -> Printer<W> {
        Printer { out, form }
    }

    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.form.json {
            return json_line(&mut self.out, &row_json(row));
        }
        let notation = self.form.notation();
        let name = |cell: &Cell| format!("{}:{}", cell.family, notation.bytes(&cell.qualifier));
        let names: Vec<_> = row.cells.iter().map(name).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        writeln!(self.out, "{}", notation.bytes(&row.key))?;
        for (name, cell) in names.iter().zip(&row.cells) {
            let time = timestamp::format(cell.timestamp_micros);
            let labels: String = cell.labels.iter().map(|label| format!("  #{label}")).collect();
            let line = format!("  {name:<width$}  {time}  {}{labels}", notation.bytes(&cell.value));
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    pub fn end(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn row_json(row: &Row) -> Value {
    let mut object = Map::new();
    put(&mut object, "row", &row.key);
    object.insert("cells".into(), row.cells.iter().map(cell_json).collect());
    Value::Object(object)
}

fn cell_json(cell: &Cell) -> Value {
    let mut object = Map::new();
    object.insert("family".into(), json!(&*cell.family));
    put(&mut object, "qualifier", &cell.qualifier);
    object.insert("timestamp_micros".into(), json!(cell.timestamp_micros));
    put(&mut object, "value", &cell.value);
    if !cell.labels.is_empty() {
        object.insert("labels".into(), json!(cell.labels));
    }
    Value::Object(object)
}

/// Stores printable UTF-8 under `name`, and other bytes under `name_base64`.
pub fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let printable = |text: &&str| !text.chars().any(char::is_control);
    match std::str::from_utf8(bytes).ok().filter(printable) {
        Some(text) => object.insert(name.into(), json!(text)),
        None => object.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let cell = |qualifier: &'static [u8], value: &'static [u8], labels: &[&str]| Cell {
            family: "f".into(),
            qualifier: qualifier.into(),
            timestamp_micros: 1_000_000,
            value: value.into(),
            labels: labels.iter().map(ToString::to_string).collect(),
        };
        let cells = vec![
            cell(b"name", "J\u{f6}rg".as_bytes(), &["new"]),
            cell(b"\0", &[0xff], &[]),
            cell(b"", b"", &[]),
        ];
        Row { key: "k\n".into(), cells }
    }

    fn printed(json: bool, hex: bool) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, Form { json, hex, ascii: false });
        printer.row(&row()).unwrap();
        printer.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_see_a_key_and_its_cells_below() {
        assert_eq!(
            printed(false, false),
            "k\\n\n  \
             f:name  1970-01-01T00:00:01.000000Z  J\u{f6}rg  #new\n  \
             f:\\x00  1970-01-01T00:00:01.000000Z  \\xff\n  \
             f:      1970-01-01T00:00:01.000000Z\n"
        );
        assert!(printed(false, true).starts_with("6b0a\n  f:6e616d65  "));
    }

    #[test]
    fn programs_get_every_byte() {
        let json: Value = serde_json::from_str(&printed(true, false)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "row_base64": "awo=",
                "cells": [
                    {"family": "f", "qualifier": "name", "timestamp_micros": 1_000_000,
                     "value": "J\u{f6}rg", "labels": ["new"]},
                    {"family": "f", "qualifier_base64": "AA==", "timestamp_micros": 1_000_000,
                     "value_base64": "/w=="},
                    {"family": "f", "qualifier": "", "timestamp_micros": 1_000_000, "value": ""},
                ],
            })
        );
    }
}
