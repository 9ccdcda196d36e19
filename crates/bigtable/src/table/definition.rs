//! The declared definition of a table: families, granularity, splits, protection.
//! Stored as the annotation of the engine's schema.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use stele_engine::schema::{Compression, Family as EngineFamily, Schema};

use super::family::{self, Family};
use super::gc;
use super::groups::{FamilyGroup, GroupRecord};
use super::row_key::check_row_key;
use super::token_family::{keeps_tokens, token_group};
use crate::error::{Error, Result};
use crate::proto::admin;

/// The maximum size of a definition in bytes: it is kept in memory and rewritten
/// with every change.
const DEFINITION_BYTES_MAX: usize = 1 << 20;

/// The unit of a table's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    #[default]
    Millis,
    Micros,
}

impl Granularity {
    pub fn micros(self) -> i64 {
        match self {
            Granularity::Millis => 1000,
            Granularity::Micros => 1,
        }
    }

    /// Rounds `micros` down to a multiple of the unit.
    pub fn truncate(self, micros: i64) -> i64 {
        micros - micros.rem_euclid(self.micros())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    pub families: BTreeMap<String, Family>,
    pub granularity: Granularity,
    /// The requested split points, ascending.
    pub splits: Vec<Vec<u8>>,
    pub deletion_protection: bool,
    /// How the table's files are compressed.
    pub compression: Compression,
    /// The locality groups; none if all families are stored together.
    pub groups: Vec<FamilyGroup>,
    /// Whether the table has the hidden family of idempotency tokens. Never declared by
    /// a client; part of the schema, not of the annotation.
    pub keeps_tokens: bool,
}

/// The encoded form of an annotation.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(message, optional, tag = "1")]
    table: Option<admin::Table>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    splits: Vec<Vec<u8>>,
    /// The engine's number of the compression; absent for the default.
    #[prost(uint32, optional, tag = "3")]
    compression: Option<u32>,
    #[prost(message, repeated, tag = "4")]
    groups: Vec<GroupRecord>,
}

impl Definition {
    /// Returns the definition that a CreateTable request declares. Unsupported
    /// fields are rejected by name, never ignored.
    pub fn from_request(table: admin::Table, splits: Vec<Bytes>) -> Result<Definition> {
        let admin::Table {
            name,
            cluster_states,
            column_families,
            granularity,
            restore_info,
            change_stream_config,
            deletion_protection,
            tiered_storage_config,
            row_key_schema,
            automated_backup_config,
        } = table;
        for (given, field) in [
            (restore_info.is_some(), "restore_info"),
            (change_stream_config.is_some(), "change_stream_config"),
            (tiered_storage_config.is_some(), "tiered_storage_config"),
            (row_key_schema.is_some(), "row_key_schema"),
            (automated_backup_config.is_some(), "automated_backup_policy"),
        ] {
            if given {
                return Err(Error::Unimplemented(format!("'table.{field}' is not supported")));
            }
        }
        if !name.is_empty() {
            return Err(Error::invalid(
                "Error in field 'table.name' : must be empty: parent and table_id name the table",
            ));
        }
        if !cluster_states.is_empty() {
            return Err(Error::invalid("Error in field 'table.cluster_states' : cannot be set"));
        }
        Ok(Definition {
            families: parse_families(column_families)?,
            granularity: parse_granularity(granularity)?,
            splits: parse_splits(splits)?,
            deletion_protection,
            compression: Compression::default(),
            groups: Vec::new(),
            keeps_tokens: false,
        })
    }

    /// Returns the engine's schema for this table: one group with all families, and
    /// possibly the group of tokens.
    pub fn schema(&self) -> Result<Schema> {
        let families = self.families.iter().map(|(name, family)| {
            let purge = gc::purge(family.gc_rule.as_ref())?;
            Ok(EngineFamily::with_purge(name.as_bytes(), purge))
        });
        let families = families.collect::<Result<Vec<_>>>()?;
        let compression = (self.compression != Compression::default())
            .then(|| u32::from(self.compression.to_byte()));
        let table = Some(self.message(""));
        let groups = self.groups.iter().map(FamilyGroup::record).collect();
        let record = Record { table, splits: self.splits.clone(), compression, groups };
        let bytes = record.encoded_len();
        if bytes > DEFINITION_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "the table's definition of {bytes} bytes exceeds the limit of {DEFINITION_BYTES_MAX}"
            )));
        }
        let tokens = self.keeps_tokens.then(token_group);
        let groups = self.engine_groups(families).into_iter().chain(tokens).collect();
        Ok(Schema::new(groups)?.annotated(record.encode_to_vec()))
    }

    /// Decodes the definition stored by [`Definition::schema`].
    pub fn from_schema(name: &str, schema: &Schema) -> Result<Definition> {
        let damaged = |what: String| {
            Error::Engine(stele_engine::Error::InvalidSchema(format!("{name}: {what}")))
        };
        let record = Record::decode(schema.annotation()).map_err(|e| damaged(e.to_string()))?;
        let table = record.table.ok_or_else(|| damaged("the definition is missing".into()))?;
        let families = table.column_families.into_iter().map(|(name, family)| {
            (name, Family { gc_rule: family.gc_rule, value_type: family.value_type })
        });
        let compression = match record.compression {
            None => Compression::default(),
            Some(number) => u8::try_from(number)
                .ok()
                .and_then(Compression::from_byte)
                .ok_or_else(|| damaged(format!("unknown compression {number}")))?,
        };
        let groups = record.groups.into_iter().map(FamilyGroup::from_record);
        let groups = groups.collect::<Result<_, String>>().map_err(&damaged)?;
        Ok(Definition {
            groups,
            families: families.collect(),
            granularity: parse_granularity(table.granularity)
                .map_err(|error| damaged(error.to_string()))?,
            splits: record.splits,
            deletion_protection: table.deletion_protection,
            compression,
            keeps_tokens: keeps_tokens(schema),
        })
    }

    /// Returns the definition as a message of the admin API.
    pub fn message(&self, name: &str) -> admin::Table {
        let families = self.families.iter().map(|(name, family)| (name.clone(), family.message()));
        admin::Table {
            name: name.into(),
            column_families: families.collect(),
            granularity: match self.granularity {
                Granularity::Millis => MILLIS,
                Granularity::Micros => MICROS,
            },
            deletion_protection: self.deletion_protection,
            ..Default::default()
        }
    }
}

/// The values of `TimestampGranularity`.
const UNSPECIFIED: i32 = 0;
const MILLIS: i32 = 1;
const MICROS: i32 = 2;

fn parse_granularity(wire: i32) -> Result<Granularity> {
    match wire {
        UNSPECIFIED | MILLIS => Ok(Granularity::Millis),
        MICROS => Ok(Granularity::Micros),
        other => Err(Error::Invalid(format!(
            "Error in field 'table.granularity' : unknown granularity {other}"
        ))),
    }
}

fn parse_families(
    families: BTreeMap<String, admin::ColumnFamily>,
) -> Result<BTreeMap<String, Family>> {
    let families = families.into_iter().map(|(name, family)| {
        let field = "Error in field 'table.column_families'";
        family::check_name(&name).map_err(|error| error.within(field))?;
        let family = Family::from_request(family)
            .map_err(|error| error.within(&format!("{field} : column family '{name}'")))?;
        Ok((name, family))
    });
    families.collect()
}

/// Returns the splits sorted and without duplicates.
fn parse_splits(splits: Vec<Bytes>) -> Result<Vec<Vec<u8>>> {
    for (at, split) in splits.iter().enumerate() {
        check_row_key(split).map_err(|error| {
            error.within(&format!("Error in field 'initial_splits' : Error in element #{at}"))
        })?;
    }
    let mut splits: Vec<Vec<u8>> = splits.into_iter().map(Vec::from).collect();
    splits.sort_unstable();
    splits.dedup();
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::super::row_key::ROW_KEY_BYTES_MAX;
    use super::*;

    #[test]
    fn a_definition_comes_back_from_its_schema() {
        let rule = admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(3)) };
        let definition = Definition {
            families: BTreeMap::from([
                ("a".into(), Family { gc_rule: Some(rule), value_type: None }),
                ("b".into(), Family::default()),
            ]),
            granularity: Granularity::Micros,
            splits: vec![b"m".to_vec(), b"\xff\0".to_vec()],
            deletion_protection: true,
            compression: Compression::Zstd,
            groups: Vec::new(),
            keeps_tokens: true,
        };
        let schema = definition.schema().unwrap();
        assert_eq!(schema.groups()[0].compression, Compression::Zstd);
        assert_eq!(Definition::from_schema("t", &schema).unwrap(), definition);
        let (compression, keeps_tokens) = (Compression::Lz4, false);
        let plain = Definition { compression, keeps_tokens, ..definition };
        let schema = plain.schema().unwrap();
        assert_eq!(Definition::from_schema("t", &schema).unwrap(), plain);
    }

    #[test]
    fn splits_come_sorted_and_each_once() {
        let splits = ["m", "a", "m"].map(Bytes::from).to_vec();
        let definition = Definition::from_request(admin::Table::default(), splits).unwrap();
        assert_eq!(definition.splits, [b"a", b"m"]);
        for bad in [Bytes::new(), Bytes::from(vec![b'x'; ROW_KEY_BYTES_MAX + 1])] {
            let error = Definition::from_request(admin::Table::default(), vec![bad]).unwrap_err();
            assert!(error.to_string().contains("element #0"), "{error}");
        }
    }

    #[test]
    fn a_definition_that_would_not_stay_small_is_refused() {
        let split = |n: u32| [&n.to_be_bytes()[..], &[b'x'; 4000]].concat();
        let splits = (0..300).map(split).collect();
        let definition = Definition { splits, ..Definition::default() };
        assert!(matches!(definition.schema(), Err(Error::Invalid(_))));
    }

    #[test]
    fn granularity_is_millis_unless_micros_are_requested() {
        let declared = |granularity| {
            Definition::from_request(admin::Table { granularity, ..Default::default() }, vec![])
        };
        assert_eq!(declared(0).unwrap().granularity, Granularity::Millis);
        assert_eq!(declared(1).unwrap().granularity, Granularity::Millis);
        assert_eq!(declared(2).unwrap().granularity, Granularity::Micros);
        assert!(declared(3).is_err());
    }
}
