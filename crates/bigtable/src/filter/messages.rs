//! Constructors of filter messages for the tests of this folder.

use crate::proto::v2;
use crate::proto::v2::row_filter::{Chain, Condition, Filter as Kind, Interleave};

pub const PASS: Kind = Kind::PassAllFilter(true);
pub const BLOCK: Kind = Kind::BlockAllFilter(true);
pub const SINK: Kind = Kind::Sink(true);
pub const STRIP: Kind = Kind::StripValueTransformer(true);

pub fn row_filter(kind: Kind) -> v2::RowFilter {
    v2::RowFilter { filter: Some(kind) }
}

pub fn chain(filters: impl IntoIterator<Item = Kind>) -> Kind {
    Kind::Chain(Chain { filters: filters.into_iter().map(row_filter).collect() })
}

pub fn interleave(filters: impl IntoIterator<Item = Kind>) -> Kind {
    Kind::Interleave(Interleave { filters: filters.into_iter().map(row_filter).collect() })
}

pub fn condition(
    predicate: impl Into<Option<Kind>>,
    then: Option<Kind>,
    otherwise: Option<Kind>,
) -> Kind {
    let branch = |kind: Option<Kind>| kind.map(|kind| Box::new(row_filter(kind)));
    Kind::Condition(Box::new(Condition {
        predicate_filter: branch(predicate.into()),
        true_filter: branch(then),
        false_filter: branch(otherwise),
    }))
}

pub fn label(name: &str) -> Kind {
    Kind::ApplyLabelTransformer(name.into())
}
