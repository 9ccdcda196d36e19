//! What a table was declared to be: families with their collection rules and
//! types, granularity, splits. Kept as the annotation of the engine's schema.

use std::collections::BTreeMap;

use prost::Message;
use stele_engine::FoldId;
use stele_engine::schema::{Family as EngineFamily, Schema};

use super::gc;
use crate::error::{Error, Result};
use crate::proto::admin;
use crate::proto::admin::r#type::aggregate::Aggregator;

/// The unit that a table's timestamps are multiples of.
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

    /// The newest multiple at or before `micros`.
    pub fn truncate(self, micros: i64) -> i64 {
        micros - micros.rem_euclid(self.micros())
    }
}

/// A column family as it was declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub gc_rule: Option<admin::GcRule>,
    pub value_type: Option<admin::Type>,
}

impl Family {
    /// How the family's cells are folded together; `None` when cells are set.
    pub fn aggregate(&self) -> Option<FoldId> {
        use admin::r#type::Kind;
        let Some(Kind::AggregateType(aggregate)) = self.value_type.as_ref()?.kind.as_ref() else {
            return None;
        };
        match aggregate.aggregator.as_ref()? {
            Aggregator::Sum(_) => Some(FoldId::SUM),
            Aggregator::Max(_) => Some(FoldId::MAX),
            Aggregator::Min(_) => Some(FoldId::MIN),
            Aggregator::HllppUniqueCount(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    pub families: BTreeMap<String, Family>,
    pub granularity: Granularity,
    /// Where the table was asked to be split, ascending.
    pub splits: Vec<Vec<u8>>,
    pub deletion_protection: bool,
}

/// The bytes of an annotation.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(message, optional, tag = "1")]
    table: Option<admin::Table>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    splits: Vec<Vec<u8>>,
}

impl Definition {
    /// The engine's schema for this table: one group with all families.
    pub fn schema(&self) -> Result<Schema> {
        let families = self.families.iter().map(|(name, family)| {
            let purge = gc::purge(family.gc_rule.as_ref())?;
            Ok(EngineFamily::with_purge(name.as_bytes(), purge))
        });
        let families = families.collect::<Result<Vec<_>>>()?;
        let record = Record { table: Some(self.message("")), splits: self.splits.clone() };
        Ok(Schema::with_families(families)?.annotated(record.encode_to_vec()))
    }

    /// Reads back what [`Definition::schema`] noted.
    pub fn from_schema(name: &str, schema: &Schema) -> Result<Definition> {
        let damaged = |what: String| {
            Error::Engine(stele_engine::Error::InvalidSchema(format!("{name}: {what}")))
        };
        let record = Record::decode(schema.annotation()).map_err(|e| damaged(e.to_string()))?;
        let table = record.table.ok_or_else(|| damaged("the definition is missing".into()))?;
        let families = table.column_families.into_iter().map(|(name, family)| {
            (name, Family { gc_rule: family.gc_rule, value_type: family.value_type })
        });
        Ok(Definition {
            families: families.collect(),
            granularity: if table.granularity == MICROS {
                Granularity::Micros
            } else {
                Granularity::Millis
            },
            splits: record.splits,
            deletion_protection: table.deletion_protection,
        })
    }

    /// The definition as the admin API shows it.
    pub fn message(&self, name: &str) -> admin::Table {
        let families = self.families.iter().map(|(name, family)| {
            let family = admin::ColumnFamily {
                gc_rule: family.gc_rule.clone(),
                value_type: family.value_type.clone(),
                ..Default::default()
            };
            (name.clone(), family)
        });
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

/// `TimestampGranularity` on the wire.
pub const MILLIS: i32 = 1;
pub const MICROS: i32 = 2;

#[cfg(test)]
mod tests {
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
        };
        let schema = definition.schema().unwrap();
        assert_eq!(Definition::from_schema("t", &schema).unwrap(), definition);
    }
}
