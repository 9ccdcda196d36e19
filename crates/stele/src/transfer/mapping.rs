//! Which field of a record becomes the key, and which the cell of which column.

use std::str::FromStr;

use bytes::Bytes;
use stele_bigtable_client::RowEntry;

use super::CELL_COLUMNS;
use super::value::FieldType;
use crate::rows::Column;
use crate::timestamp::Timestamp;

/// `key=FIELD[@TYPE]` or `FAMILY:QUALIFIER=FIELD[@TYPE]`, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// `None` is the key.
    pub column: Option<(String, Bytes)>,
    pub field: String,
    pub kind: FieldType,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(typed: &str) -> Result<Assignment, String> {
        let invalid =
            || format!("invalid mapping {typed:?}: expected key=FIELD or FAMILY:QUALIFIER=FIELD");
        let (target, field) = typed.split_once('=').ok_or_else(invalid)?;
        let (field, kind) = match field.rsplit_once('@') {
            Some((field, kind)) => (field, kind.parse()?),
            None => (field, FieldType::Text),
        };
        if field.is_empty() {
            return Err(invalid());
        }
        let column = match target {
            "key" => None,
            column => {
                let Column { family, qualifier: Some(qualifier) } = column.parse()? else {
                    return Err(invalid());
                };
                Some((family, qualifier))
            }
        };
        Ok(Assignment { column, field: field.into(), kind })
    }
}

/// The fields of one record, by the positions of [`Layout::fields`].
pub trait Fields {
    fn get(&self, field: usize) -> Option<&[u8]>;
}

/// How the records of a file become rows.
#[derive(Debug, PartialEq, Eq)]
pub enum Layout {
    /// A record is a row.
    Rows { key: (usize, FieldType), cells: Vec<MappedCell>, timestamp: Option<usize> },
    /// A record is a cell, with the fields of `CELL_COLUMNS`.
    Cells([usize; 5]),
}

/// A column that a field is mapped to.
#[derive(Debug, PartialEq, Eq)]
pub struct MappedCell {
    field: usize,
    kind: FieldType,
    family: String,
    qualifier: Bytes,
}

impl Layout {
    /// Returns the layout for a file with these fields. Without assignments, the field
    /// `key` is the key, and others are named after their columns.
    pub fn new(
        fields: &[String],
        assignments: &[Assignment],
        timestamp: Option<&str>,
    ) -> Result<Layout, String> {
        let find = |name: &str| {
            fields.iter().position(|field| field == name).ok_or_else(|| {
                format!("there is no field {name:?}: the file has {}", fields.join(", "))
            })
        };
        if assignments.is_empty() && timestamp.is_none() && is_cells(fields) {
            let mut at = [0; 5];
            for (at, name) in at.iter_mut().zip(CELL_COLUMNS) {
                *at = find(name)?;
            }
            return Ok(Layout::Cells(at));
        }
        let timestamp = timestamp.map(find).transpose()?;
        let (mut key, mut cells) = (None, Vec::new());
        let named: Vec<Assignment>;
        let assignments = if assignments.is_empty() {
            let used = |at: &usize| Some(*at) != timestamp;
            let by_name = fields.iter().enumerate().filter(|(at, _)| used(at)).map(|(_, name)| {
                let column = match name.parse::<Column>() {
                    _ if name == "key" => None,
                    Ok(Column { family, qualifier: Some(qualifier) }) => Some((family, qualifier)),
                    _ => {
                        return Err(format!(
                            "the field {name:?} does not name a column: select fields with --map, \
                             for instance --map key=id --map profile:city=city"
                        ));
                    }
                };
                Ok(Assignment { column, field: name.clone(), kind: FieldType::Text })
            });
            named = by_name.collect::<Result<_, _>>()?;
            &named[..]
        } else {
            assignments
        };
        for Assignment { column, field, kind } in assignments {
            let at = find(field)?;
            match column {
                Some((family, qualifier)) => cells.push(MappedCell {
                    field: at,
                    kind: *kind,
                    family: family.clone(),
                    qualifier: qualifier.clone(),
                }),
                None if key.is_some() => return Err("the key is mapped twice".into()),
                None => key = Some((at, *kind)),
            }
        }
        let key = key.ok_or("no field is mapped to the key: use --map key=FIELD")?;
        if cells.is_empty() {
            return Err("no field is mapped to a column: use --map FAMILY:QUALIFIER=FIELD".into());
        }
        Ok(Layout::Rows { key, cells, timestamp })
    }

    /// Returns the families that the layout names.
    pub fn families(&self) -> Vec<&str> {
        match self {
            Layout::Rows { cells, .. } => cells.iter().map(|cell| &*cell.family).collect(),
            Layout::Cells(_) => Vec::new(),
        }
    }

    /// Returns the row of a record, with cells of this time unless the record has one. An
    /// empty field sets no cell.
    pub fn row(&self, record: &impl Fields, at_micros: i64) -> Result<RowEntry, String> {
        match self {
            Layout::Rows { key, cells, timestamp } => {
                let key = field(record, key.0, "key").and_then(|bytes| key.1.convert(bytes))?;
                check_key(&key)?;
                let at_micros = match timestamp {
                    Some(at) => parse_time(field(record, *at, "timestamp")?)?,
                    None => at_micros,
                };
                let mut row = RowEntry::new(key);
                for MappedCell { field, kind, family, qualifier } in cells {
                    let Some(bytes) = record.get(*field).filter(|bytes| !bytes.is_empty()) else {
                        continue;
                    };
                    let value = kind
                        .convert(bytes)
                        .map_err(|why| format!("{family}:{}: {why}", qualifier.escape_ascii()))?;
                    row.set_at(family, qualifier, at_micros, &value);
                }
                if row.is_empty() { Err("all of its fields are empty".into()) } else { Ok(row) }
            }
            Layout::Cells([key, family, qualifier, timestamp, value]) => {
                let key = field(record, *key, "key")?;
                check_key(key)?;
                let family = field(record, *family, "family")?;
                let family = std::str::from_utf8(family).map_err(|_| "family: it is not UTF-8")?;
                let at_micros = parse_time(field(record, *timestamp, "timestamp")?)?;
                let qualifier = record.get(*qualifier).ok_or("qualifier: it is missing")?;
                let value = record.get(*value).ok_or("value: it is missing")?;
                let mut row = RowEntry::new(key.to_vec());
                row.set_at(family, qualifier, at_micros, value);
                Ok(row)
            }
        }
    }
}

fn is_cells(fields: &[String]) -> bool {
    CELL_COLUMNS.iter().all(|name| fields.iter().any(|field| field == name))
}

fn field<'r>(record: &'r impl Fields, at: usize, name: &str) -> Result<&'r [u8], String> {
    match record.get(at) {
        Some(bytes) if !bytes.is_empty() => Ok(bytes),
        Some(_) => Err(format!("{name}: it is empty")),
        None => Err(format!("{name}: it is missing")),
    }
}

fn check_key(key: &[u8]) -> Result<(), String> {
    const KEY_BYTES_MAX: usize = 4096;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(format!("key: {} bytes: use 1 to {KEY_BYTES_MAX}", key.len()));
    }
    Ok(())
}

pub fn parse_time(text: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(text).map_err(|_| "timestamp: it is not UTF-8")?;
    // An age would depend on when the record is read.
    let Timestamp(micros) = match text.ends_with(|last: char| last.is_ascii_lowercase()) {
        true => Err(format!("{text:?} is not a time")),
        false => text.parse::<Timestamp>(),
    }
    .map_err(|why| format!("timestamp: {why}"))?;
    if micros < 0 { Err("timestamp: it is before 1970".into()) } else { Ok(micros) }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Fields for Vec<&[u8]> {
        fn get(&self, field: usize) -> Option<&[u8]> {
            <[&[u8]]>::get(self, field).copied()
        }
    }

    fn fields(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn layout(names: &[&str], typed: &[&str]) -> Result<Layout, String> {
        let assignments: Vec<_> = typed.iter().map(|typed| typed.parse().unwrap()).collect();
        Layout::new(&fields(names), &assignments, None)
    }

    #[test]
    fn fields_are_mapped_by_name_or_as_typed() {
        let mapped =
            layout(&["id", "city", "n"], &["key=id", "p:city=city", "s:n=n@int64"]).unwrap();
        let record = vec![&b"a"[..], b"", b"7"];
        let row = mapped.row(&record, 5).unwrap();
        assert_eq!((&row.key()[..], row.mutations()), (&b"a"[..], 1), "an empty field is no cell");
        assert_eq!(mapped.families(), ["p", "s"]);
        layout(&["p:x", "key"], &[]).unwrap();
        for (names, typed, text) in [
            (&["id"][..], &["key=id"][..], "mapped to a column"),
            (&["id", "x"], &["f:x=x"], "mapped to the key"),
            (&["id"], &["key=none"], "there is no field"),
            (&["id", "city"], &[], "does not name a column"),
        ] {
            let error = layout(names, typed).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        for typed in ["", "key", "key=", "f=x", "f:q=x@bogus"] {
            assert!(typed.parse::<Assignment>().is_err(), "{typed}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_a_row_says_why() {
        let mapped = layout(&["id", "n"], &["key=id", "f:n=n@int64"]).unwrap();
        for (record, text) in [
            (vec![&b""[..], b"1"], "key: it is empty"),
            (vec![&b"a"[..], b"x"], "f:n: \"x\" is not a 64-bit integer"),
            (vec![&b"a"[..], b""], "empty"),
            (vec![], "key: it is missing"),
            (vec![&[b'k'; 5000][..], b"1"], "5000 bytes"),
        ] {
            let error = mapped.row(&record, 0).err().unwrap();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn cells_have_their_own_times() {
        let cells = layout(&["key", "family", "qualifier", "timestamp", "value"], &[]).unwrap();
        let record = vec![&b"k"[..], b"f", b"", b"2026-01-31T00:00:00Z", b""];
        assert_eq!(cells.row(&record, 0).unwrap().mutations(), 1);
        let record = vec![&b"k"[..], b"f", b"q", b"7d", b"v"];
        assert!(cells.row(&record, 0).is_err());
    }
}
