//! The encoding of schemas as protobuf messages.

use std::sync::Arc;

use prost::Message;

use super::encoding::{Decoded, txn_from_raw};
use super::messages::{
    FamilyMessage, GroupMessage, PurgeListMessage, PurgeMessage, PurgeRule, SchemaMessage,
};
use crate::error::{Error, Result};
use crate::schema::{Compression, Family, Group, PURGE_DEPTH_MAX, Purge, Schema};

impl Schema {
    /// Encodes the schema, to be stored elsewhere than in a manifest.
    pub fn encode(&self) -> Vec<u8> {
        schema_to_message(self).encode_to_vec()
    }

    /// Decodes the output of `encode`.
    pub fn decode(bytes: &[u8]) -> Result<Arc<Schema>> {
        let message = SchemaMessage::decode(bytes).map_err(|error| error.to_string());
        let schema = message.and_then(|message| schema_from_message(Some(message)));
        schema.map_err(|what| Error::InvalidPackedFormat { at: 0, what })
    }
}

pub(super) fn schema_to_message(schema: &Schema) -> SchemaMessage {
    let groups = schema
        .groups()
        .iter()
        .map(|group| GroupMessage {
            name: group.name.clone(),
            families: group
                .families
                .iter()
                .map(|family| FamilyMessage {
                    name: family.name.clone(),
                    purge: family.purge.as_ref().map(purge_to_message),
                    since: family.since.raw(),
                    hidden: family.hidden,
                })
                .collect(),
            wildcard: group.wildcard,
            purge: Some(purge_to_message(&group.purge)),
            compression: u32::from(group.compression.to_byte()),
            block_bytes: group.block_bytes,
            in_memory: group.in_memory,
            since: group.since.raw(),
        })
        .collect();
    SchemaMessage {
        groups,
        annotation: schema.annotation().to_vec(),
        splittable: (!schema.is_splittable()).then_some(false),
    }
}

pub(super) fn schema_from_message(message: Option<SchemaMessage>) -> Decoded<Arc<Schema>> {
    let message = message.ok_or("a schema is missing")?;
    let groups = message.groups.into_iter().map(group_from_message).collect::<Decoded<_>>()?;
    let schema = Schema::new(groups).map_err(|error| error.to_string())?;
    let schema = schema.annotated(message.annotation);
    Ok(Arc::new(schema.splittable(message.splittable.unwrap_or(true))))
}

fn group_from_message(message: GroupMessage) -> Decoded<Group> {
    let families = message
        .families
        .into_iter()
        .map(|family| {
            let purge = family.purge.map(|purge| purge_from_message(purge, 0)).transpose()?;
            let since = txn_from_raw(family.since)?;
            Ok(Family { name: family.name, purge, since, hidden: family.hidden })
        })
        .collect::<Decoded<_>>()?;
    Ok(Group {
        name: message.name,
        families,
        wildcard: message.wildcard,
        purge: message.purge.map_or(Ok(Purge::Never), |purge| purge_from_message(purge, 0))?,
        compression: u8::try_from(message.compression)
            .ok()
            .and_then(Compression::from_byte)
            .ok_or_else(|| format!("unknown compression {}", message.compression))?,
        block_bytes: message.block_bytes,
        in_memory: message.in_memory,
        since: txn_from_raw(message.since)?,
    })
}

fn purge_to_message(purge: &Purge) -> PurgeMessage {
    let list =
        |terms: &[Purge]| PurgeListMessage { terms: terms.iter().map(purge_to_message).collect() };
    let rule = match purge {
        Purge::Never => None,
        Purge::MaxVersions(kept) => Some(PurgeRule::MaxVersions(*kept)),
        Purge::MaxAge(age) => Some(PurgeRule::MaxAge(*age)),
        Purge::Waterline(line) => Some(PurgeRule::Waterline(*line)),
        Purge::All(terms) => Some(PurgeRule::All(list(terms))),
        Purge::Any(terms) => Some(PurgeRule::Any(list(terms))),
    };
    PurgeMessage { rule }
}

fn purge_from_message(message: PurgeMessage, depth: usize) -> Decoded<Purge> {
    if depth > PURGE_DEPTH_MAX {
        return Err("a purge policy is nested too deeply".into());
    }
    let list = |list: PurgeListMessage| {
        list.terms
            .into_iter()
            .map(|term| purge_from_message(term, depth + 1))
            .collect::<Decoded<_>>()
    };
    Ok(match message.rule {
        None => Purge::Never,
        Some(PurgeRule::MaxVersions(kept)) => Purge::MaxVersions(kept),
        Some(PurgeRule::MaxAge(age)) => Purge::MaxAge(age),
        Some(PurgeRule::Waterline(line)) => Purge::Waterline(line),
        Some(PurgeRule::All(terms)) => Purge::All(list(terms)?),
        Some(PurgeRule::Any(terms)) => Purge::Any(list(terms)?),
    })
}
