//! The encoding of changes of groups as protobuf messages.

use super::encoding::{
    Decoded, chain_from_message, files_to_message, id_from_message, id_to_message, txn_from_raw,
};
use super::messages::{RegroupMessage, RegroupedMessage, TableMessage};
use super::schema_encoding::{schema_from_message, schema_to_message};
use super::{Regroup, RegroupedTablet};
use crate::cell::commit::TableId;
use crate::txn::Txn;

pub(super) fn regroup_to_message(regroup: &Regroup) -> RegroupMessage {
    let tablet = |tablet: &RegroupedTablet| RegroupedMessage {
        tablet: Some(id_to_message(tablet.tablet)),
        load: tablet.load,
        chains: tablet.chains.iter().map(|files| files_to_message(Txn::ZERO, files)).collect(),
    };
    RegroupMessage {
        table: Some(TableMessage {
            id: regroup.table.0,
            schema: Some(schema_to_message(&regroup.schema)),
            ..TableMessage::default()
        }),
        flushed: regroup.flushed.raw(),
        tablets: regroup.tablets.iter().map(tablet).collect(),
    }
}

pub(super) fn regroup_from_message(message: RegroupMessage) -> Decoded<Regroup> {
    let table = message.table.ok_or("the table of a change of groups is missing")?;
    let tablet = |tablet: RegroupedMessage| {
        let chains = tablet.chains.into_iter().map(|chain| Ok(chain_from_message(chain)?.files));
        Ok(RegroupedTablet {
            tablet: id_from_message(tablet.tablet),
            load: tablet.load,
            chains: chains.collect::<Decoded<_>>()?,
        })
    };
    Ok(Regroup {
        table: TableId(table.id),
        schema: schema_from_message(table.schema)?,
        flushed: txn_from_raw(message.flushed)?,
        tablets: message.tablets.into_iter().map(tablet).collect::<Decoded<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::encoding::{decode_batch, encode_batch};
    use super::super::{ConfigEdit, FileFacts, FileName, Reference, Splice, TabletId};
    use super::*;
    use crate::cell::rows::RowRange;
    use crate::schema::{Family, Group, Schema};

    fn file(families: Option<&[&str]>) -> Reference {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        Reference {
            name: FileName { incarnation: 1, number: 2 },
            bytes: 10,
            cells: 2,
            txn_min: Txn::base(1),
            txn_max: Txn::base(2),
            rows: Some(RowRange::new("a", "b")),
            families: families.map(names),
            facts: Some(FileFacts {
                meta_bytes: 4,
                dead_bytes: 1,
                held: RowRange::new("a", "c"),
                has_spans: false,
                timestamp_max: None,
            }),
            share: 7,
            unit: 3,
            joins: false,
        }
    }

    #[test]
    fn tablets_1_10_1_restricted_references_and_groups_come_back() {
        let mut rest = Group { wildcard: true, in_memory: true, ..Group::new("rest", []) };
        rest.since = Txn::base(5);
        let schema = Schema::new(vec![Group::new("x", [Family::new("a")]), rest]).unwrap();
        let chains = vec![vec![file(Some(&["a", "b"])), file(None)], vec![file(Some(&[]))]];
        let tablet = TabletId { incarnation: 1, number: 9 };
        let edits = vec![
            ConfigEdit::Regroup(Regroup {
                table: TableId(4),
                schema: Arc::new(schema),
                flushed: Txn::base(7),
                tablets: vec![RegroupedTablet { tablet, load: 6, chains: chains.clone() }],
            }),
            ConfigEdit::Splice(Splice {
                table: TableId(4),
                tablet,
                load: 7,
                start: Vec::new(),
                group: 1,
                remove: chains.iter().flatten().map(Reference::key).collect(),
                add: Vec::new(),
                flushed: None,
            }),
        ];
        assert_eq!(decode_batch(&encode_batch(8, &edits)), Ok((8, edits)));
    }
}
