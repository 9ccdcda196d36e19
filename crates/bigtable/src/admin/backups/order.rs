//! The order of a list of backups: fields separated by commas, each possibly descending.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::Backup;

const ORDER_BYTES_MAX: usize = 1024;

/// A field of a backup by which lists are filtered and ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Name,
    SourceTable,
    State,
    StartTime,
    EndTime,
    ExpireTime,
    SizeBytes,
}

impl Field {
    pub fn parse(name: &str) -> Option<Field> {
        Some(match name {
            "name" => Field::Name,
            "source_table" => Field::SourceTable,
            "state" => Field::State,
            "start_time" => Field::StartTime,
            "end_time" => Field::EndTime,
            "expire_time" => Field::ExpireTime,
            "size_bytes" => Field::SizeBytes,
            _ => return None,
        })
    }

    /// Compares two backups by this field.
    fn compare(self, a: &Backup, b: &Backup) -> Ordering {
        let time = |time: &Option<prost_types::Timestamp>| {
            time.as_ref().map(|time| (time.seconds, time.nanos))
        };
        match self {
            Field::Name => a.name.cmp(&b.name),
            Field::SourceTable => a.source_table.cmp(&b.source_table),
            Field::State => a.state.cmp(&b.state),
            Field::StartTime => time(&a.start_time).cmp(&time(&b.start_time)),
            Field::EndTime => time(&a.end_time).cmp(&time(&b.end_time)),
            Field::ExpireTime => time(&a.expire_time).cmp(&time(&b.expire_time)),
            Field::SizeBytes => a.size_bytes.cmp(&b.size_bytes),
        }
    }
}

/// The order of a list.
pub struct Order(Vec<(Field, bool)>);

impl Order {
    /// Parses an order; without one, the newest backups come first.
    pub fn parse(text: &str) -> Result<Order> {
        let invalid = |what: &str| {
            let text = excerpt(text);
            Error::Invalid(format!("Error in field 'order_by' : '{text}': {what}"))
        };
        if text.len() > ORDER_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        if text.trim().is_empty() {
            return Ok(Order(vec![(Field::StartTime, true)]));
        }
        let mut fields = Vec::new();
        for part in text.split(',') {
            let mut words = part.split_whitespace();
            let field = words.next().and_then(Field::parse).ok_or_else(|| {
                invalid(
                    "use name, source_table, state, start_time, end_time, expire_time or \
                     size_bytes",
                )
            })?;
            let descending = match words.next() {
                None | Some("asc") => false,
                Some("desc") => true,
                Some(_) => return Err(invalid("a field can be followed by desc")),
            };
            if words.next().is_some() {
                return Err(invalid("separate fields by commas"));
            }
            fields.push((field, descending));
        }
        Ok(Order(fields))
    }

    pub fn sort(&self, backups: &mut [Backup]) {
        backups.sort_by(|a, b| {
            let by_fields = self.0.iter().map(|(field, descending)| match descending {
                true => field.compare(b, a),
                false => field.compare(a, b),
            });
            by_fields.fold(Ordering::Equal, Ordering::then).then_with(|| a.name.cmp(&b.name))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(name: &str, size_bytes: i64) -> Backup {
        Backup { name: name.into(), size_bytes, ..Backup::default() }
    }

    fn sorted(order: &str) -> Vec<String> {
        let mut backups = vec![backup("b", 1), backup("c", 2), backup("a", 1)];
        Order::parse(order).unwrap().sort(&mut backups);
        backups.into_iter().map(|backup| backup.name).collect()
    }

    #[test]
    fn fields_order_in_turn_and_names_break_ties() {
        assert_eq!(sorted("name"), ["a", "b", "c"]);
        assert_eq!(sorted(" size_bytes   desc , name desc"), ["c", "b", "a"]);
        assert_eq!(sorted("size_bytes"), ["a", "b", "c"]);
        assert_eq!(sorted(""), ["a", "b", "c"]);
        for wrong in ["bogus", "name up", "name desc x", "name,", ","] {
            assert!(Order::parse(wrong).is_err(), "{wrong}");
        }
    }
}
