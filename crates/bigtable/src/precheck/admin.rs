//! Prechecks of admin requests that carry lists. The codecs are referenced by the
//! services that `build.rs` generates.

use std::mem::size_of;

use stele_grpc::{CheckedCodec, Precheck};
use tonic::Status;

use super::shape::{Counter, Field, FieldKind, Shape, Survey, check_count};
use super::types::{STRUCT, TYPE};
use crate::proto::admin;
use crate::proto::admin::create_table_request::Split;
use crate::proto::admin::modify_column_families_request::Modification;

pub type CreateTableCodec<T, U> = CheckedCodec<T, U, CreateTable>;
pub type ModifyColumnFamiliesCodec<T, U> = CheckedCodec<T, U, ModifyColumnFamilies>;
pub type UpdateTableCodec<T, U> = CheckedCodec<T, U, UpdateTable>;

/// The maximum number of column families, or of changes to them, in one request.
const FAMILIES_MAX: usize = 10_000;
const SPLITS_MAX: usize = 100_000;

static GC_RULE: Shape = Shape {
    fields: &[
        Field::single(3, FieldKind::Message(&GC_RULES), 0),
        Field::single(4, FieldKind::Message(&GC_RULES), 0),
    ],
};

/// The rules of a union or an intersection.
static GC_RULES: Shape = Shape {
    fields: &[Field::list(
        1,
        FieldKind::Message(&GC_RULE),
        size_of::<admin::GcRule>(),
        Counter::Nested,
    )],
};

static COLUMN_FAMILY: Shape = Shape {
    fields: &[
        Field::single(1, FieldKind::Message(&GC_RULE), 0),
        Field::single(3, FieldKind::Message(&TYPE), 0),
    ],
};

/// An entry of the map of families.
static NAMED_FAMILY: Shape =
    Shape { fields: &[Field::text(1), Field::single(2, FieldKind::Message(&COLUMN_FAMILY), 0)] };

static TABLE: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::single(2, FieldKind::Opaque, 0),
        Field::list(
            3,
            FieldKind::Message(&NAMED_FAMILY),
            size_of::<(String, admin::ColumnFamily)>(),
            Counter::Main,
        ),
        Field::single(6, FieldKind::Opaque, 0),
        Field::single(8, FieldKind::Opaque, 0),
        Field::single(13, FieldKind::Opaque, 0),
        Field::single(14, FieldKind::Opaque, 0),
        Field::single(15, FieldKind::Message(&STRUCT), 0),
    ],
};

static SPLIT: Shape = Shape { fields: &[] };

static CREATE_TABLE: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::text(2),
        Field::single(3, FieldKind::Message(&TABLE), 0),
        Field::list(4, FieldKind::Message(&SPLIT), size_of::<Split>(), Counter::Second)
            .with_handling(size_of::<Vec<u8>>()),
    ],
};

/// The paths of a mask.
static FIELD_MASK: Shape =
    Shape { fields: &[Field::list(1, FieldKind::Text, size_of::<String>(), Counter::Nested)] };

static MODIFICATION: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::single(2, FieldKind::Message(&COLUMN_FAMILY), 0),
        Field::single(3, FieldKind::Message(&COLUMN_FAMILY), 0),
        Field::single(6, FieldKind::Message(&FIELD_MASK), 0),
    ],
};

static MODIFY_COLUMN_FAMILIES: Shape = Shape {
    fields: &[
        Field::text(1),
        Field::list(2, FieldKind::Message(&MODIFICATION), size_of::<Modification>(), Counter::Main),
    ],
};

static UPDATE_TABLE: Shape = Shape {
    fields: &[
        Field::single(1, FieldKind::Message(&TABLE), 0),
        Field::single(2, FieldKind::Message(&FIELD_MASK), 0),
    ],
};

fn check(shape: &Shape, message: &[u8], main: &str) -> Result<usize, Status> {
    let survey = Survey::scan(shape, message)?;
    check_count(main, survey.main, FAMILIES_MAX)?;
    check_count("initial splits", survey.second, SPLITS_MAX)?;
    Ok(survey.decoded_bytes)
}

/// Checks `CreateTableRequest`.
#[derive(Clone, Debug)]
pub struct CreateTable;

impl Precheck for CreateTable {
    fn check(message: &[u8]) -> Result<usize, Status> {
        check(&CREATE_TABLE, message, "column families")
    }
}

/// Checks `ModifyColumnFamiliesRequest`.
#[derive(Clone, Debug)]
pub struct ModifyColumnFamilies;

impl Precheck for ModifyColumnFamilies {
    fn check(message: &[u8]) -> Result<usize, Status> {
        check(&MODIFY_COLUMN_FAMILIES, message, "modifications")
    }
}

/// Checks `UpdateTableRequest`.
#[derive(Clone, Debug)]
pub struct UpdateTable;

impl Precheck for UpdateTable {
    fn check(message: &[u8]) -> Result<usize, Status> {
        check(&UPDATE_TABLE, message, "column families")
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tonic::Code;

    use super::*;

    #[track_caller]
    fn refused(outcome: Result<usize, Status>, text: &str) {
        let status = outcome.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(text), "{}", status.message());
    }

    #[test]
    fn modifications_families_and_splits_are_counted_on_the_wire() {
        let modify = |count| {
            let modifications = vec![Modification::default(); count];
            let request =
                admin::ModifyColumnFamiliesRequest { modifications, ..Default::default() };
            ModifyColumnFamilies::check(&request.encode_to_vec())
        };
        assert!(modify(FAMILIES_MAX).unwrap() > FAMILIES_MAX * size_of::<Modification>());
        refused(modify(FAMILIES_MAX + 1), "Too many modifications: 10001 provided; limit 10000");
        let table = |families| admin::Table {
            column_families: (0..families).map(|i| (format!("f{i}"), Default::default())).collect(),
            ..Default::default()
        };
        let create = |families, splits| {
            let request = admin::CreateTableRequest {
                table: Some(table(families)),
                initial_splits: vec![Split::default(); splits],
                ..Default::default()
            };
            CreateTable::check(&request.encode_to_vec())
        };
        create(FAMILIES_MAX, SPLITS_MAX).unwrap();
        refused(create(FAMILIES_MAX + 1, 0), "Too many column families");
        refused(create(0, SPLITS_MAX + 1), "Too many initial splits");
    }

    #[test]
    fn rules_and_masks_are_counted_and_what_is_not_served_stays_short() {
        let rules = vec![admin::GcRule::default(); 10_001];
        let union = admin::gc_rule::Rule::Union(admin::gc_rule::Union { rules });
        let gc_rule = Some(admin::GcRule { rule: Some(union) });
        let family = admin::ColumnFamily { gc_rule, ..Default::default() };
        let table = admin::Table {
            column_families: [("f".to_string(), family)].into(),
            ..Default::default()
        };
        let request = admin::CreateTableRequest { table: Some(table), ..Default::default() };
        refused(CreateTable::check(&request.encode_to_vec()), "nested values and types");

        let paths = vec![String::new(); 10_001];
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = admin::UpdateTableRequest { update_mask, ..Default::default() };
        refused(UpdateTable::check(&request.encode_to_vec()), "nested values and types");

        let states = (0..20_000).map(|i| (i.to_string(), Default::default()));
        let table = admin::Table { cluster_states: states.collect(), ..Default::default() };
        let request = admin::UpdateTableRequest { table: Some(table), ..Default::default() };
        refused(UpdateTable::check(&request.encode_to_vec()), "not supported");
    }
}
