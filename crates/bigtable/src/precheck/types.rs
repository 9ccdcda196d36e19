//! The shape of value types, which nest. Both services use the same type.

use std::mem::size_of;

use super::shape::{Counter, Field, FieldKind, Shape};
use crate::proto::v2;

const TYPE_BYTES: usize = size_of::<v2::Type>();

/// A nested type.
const fn inner(tag: u32) -> Field {
    Field::single(tag, FieldKind::Message(&TYPE), TYPE_BYTES).counted(Counter::Nested)
}

const fn boxed(tag: u32, shape: &'static Shape) -> Field {
    Field::single(tag, FieldKind::Message(shape), TYPE_BYTES)
}

pub static TYPE: Shape = Shape {
    fields: &[
        // The encoding of strings holds one.
        Field::text(2),
        boxed(3, &ELEMENT),
        boxed(4, &PAIR),
        boxed(6, &PAIR),
        boxed(7, &STRUCT),
        // Names in schema bundles.
        Field::text(13),
        Field::text(14),
    ],
};

/// Arrays.
static ELEMENT: Shape = Shape { fields: &[inner(1)] };

/// Maps and aggregates.
static PAIR: Shape = Shape { fields: &[inner(1), inner(2)] };

pub static STRUCT: Shape =
    Shape { fields: &[Field::list(1, FieldKind::Message(&MEMBER), MEMBER_BYTES, Counter::Nested)] };

/// A member of a struct: its name and its type.
const MEMBER_BYTES: usize = size_of::<String>() + TYPE_BYTES;
static MEMBER: Shape = Shape { fields: &[Field::text(1), inner(2)] };
