//! Schemas as messages, and what defines the tables of a server.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine as engine;
use stele_engine::schema::{Compression, Family, Group, Purge, Schema};
use stele_tables::Tables;
use tonic::Status;

use crate::error::{Error, Result};
use crate::proto;

/// Defines the tables of a server: those of the Bigtable API have definitions that must
/// change together with their schemas. Calls may block.
pub trait Definitions: Send + Sync {
    /// Returns the visible groups of a table.
    fn schema(&self, table: &str) -> Result<Schema, Status>;

    /// Reads the schema of a table again, before its tablets are loaded. Fails if it is
    /// invalid.
    fn check(&self, table: &str) -> Result<(), Status>;

    fn create(&self, table: &str, schema: Schema, splits: Vec<Vec<u8>>) -> Result<(), Status>;

    /// Replaces the groups of a table. Families may be dropped only if `drops` is set.
    fn alter(&self, table: &str, schema: Schema, drops: bool) -> Result<(), Status>;
}

/// Tables without definitions of their own.
impl Definitions for Tables {
    fn schema(&self, table: &str) -> Result<Schema, Status> {
        let schema = found(self, table)?.1;
        let visible = schema.groups()[..schema.visible_groups()].to_vec();
        Ok(Schema::new(visible).map_err(Error::from)?)
    }

    fn check(&self, table: &str) -> Result<(), Status> {
        Definitions::schema(self, table).map(drop)
    }

    fn create(&self, table: &str, schema: Schema, splits: Vec<Vec<u8>>) -> Result<(), Status> {
        Ok(self.create_with_splits(table, schema, splits).map(drop).map_err(Error::from)?)
    }

    fn alter(&self, table: &str, schema: Schema, drops: bool) -> Result<(), Status> {
        let (id, old) = found(self, table)?;
        let lost = old.lost_in(&schema);
        if !lost.is_empty() && !drops {
            return Err(Error::DropsFamilies { table: table.into(), families: lost }.into());
        }
        let schema = schema.with_hidden_of(&old).map_err(Error::from)?;
        Ok(Tables::alter(self, id, schema, &[]).map_err(Error::from)?)
    }
}

fn found(tables: &Tables, name: &str) -> Result<(engine::TableId, Arc<Schema>)> {
    let id = tables.table(name).ok_or_else(|| Error::UnknownTable(name.into()))?;
    Ok((id, tables.schema(id)?))
}

impl From<&Schema> for proto::Schema {
    fn from(schema: &Schema) -> proto::Schema {
        let family = |family: &Family| proto::Family {
            name: Bytes::copy_from_slice(&family.name),
            purge: family.purge.as_ref().map(Purge::text),
        };
        let group = |group: &Group| proto::Group {
            name: group.name.clone(),
            families: group.families.iter().map(family).collect(),
            wildcard: group.wildcard,
            purge: group.purge.text(),
            compression: group.compression.to_string(),
            block_bytes: group.block_bytes,
            in_memory: group.in_memory,
        };
        let visible = &schema.groups()[..schema.visible_groups()];
        proto::Schema { groups: visible.iter().map(group).collect() }
    }
}

impl TryFrom<proto::Schema> for Schema {
    type Error = Error;

    fn try_from(message: proto::Schema) -> Result<Schema> {
        let groups = message.groups.into_iter().map(group).collect::<Result<Vec<_>>>()?;
        Ok(Schema::new(groups)?)
    }
}

fn group(message: proto::Group) -> Result<Group> {
    let name = message.name;
    let families = message.families.into_iter().map(|family| {
        let purge = family.purge.map(|text| purge(&name, &text)).transpose()?;
        Ok(Family { purge, ..Family::new(family.name) })
    });
    let families = families.collect::<Result<Vec<_>>>()?;
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let compression = match message.compression.as_str() {
        "" => Compression::default(),
        word => all.into_iter().find(|known| known.to_string() == word).ok_or_else(|| {
            invalid(format!("group {name:?}: unknown compression {word:?}: use none, lz4 or zstd"))
        })?,
    };
    Ok(Group {
        purge: purge(&name, &message.purge)?,
        wildcard: message.wildcard,
        compression,
        block_bytes: message.block_bytes,
        in_memory: message.in_memory,
        ..Group::new(name, families)
    })
}

fn purge(group: &str, text: &str) -> Result<Purge> {
    if text.is_empty() {
        return Ok(Purge::Never);
    }
    Purge::parse(text)
        .map_err(|error| invalid(format!("group {group:?}: purge policy {text:?}: {error}")))
}

fn invalid(what: String) -> Error {
    Error::Engine(engine::Error::InvalidSchema(what))
}
