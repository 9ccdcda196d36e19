//! The type of a family's values. An aggregate type determines how cells are
//! written, so only those that the engine can fold are accepted; other types are
//! stored and returned unchanged.

use prost::Message;
use stele_engine::FoldId;

use crate::error::{Error, Result};
use crate::proto::admin::Type;
use crate::proto::admin::r#type::aggregate::Aggregator;
use crate::proto::admin::r#type::int64::encoding::Encoding;
use crate::proto::admin::r#type::{Aggregate, Kind};

/// The maximum encoded length of a type, in bytes.
const TYPE_BYTES_MAX: usize = 16 << 10;
/// The maximum nesting depth of types: far below the limit for decoding a
/// message.
const TYPE_DEPTH_MAX: usize = 16;

/// Rejects a declared type that is invalid or not supported.
pub fn check(value_type: &Type) -> Result<()> {
    let bytes = value_type.encoded_len();
    if bytes > TYPE_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "value_type of {bytes} bytes exceeds the limit of {TYPE_BYTES_MAX}"
        )));
    }
    match &value_type.kind {
        Some(Kind::AggregateType(aggregate)) => check_aggregate(aggregate),
        _ => check_nested(value_type, 1),
    }
}

/// Returns the fold that combines the values of an aggregate.
pub fn fold(value_type: &Type) -> Option<FoldId> {
    let Some(Kind::AggregateType(aggregate)) = &value_type.kind else { return None };
    match aggregate.aggregator.as_ref()? {
        Aggregator::Sum(_) => Some(FoldId::SUM),
        Aggregator::Max(_) => Some(FoldId::MAX),
        Aggregator::Min(_) => Some(FoldId::MIN),
        Aggregator::HllppUniqueCount(_) => None,
    }
}

fn check_aggregate(aggregate: &Aggregate) -> Result<()> {
    match &aggregate.aggregator {
        None => {
            let what = "value_type.aggregate_type needs an aggregator: sum, min or max";
            return Err(Error::invalid(what));
        }
        Some(Aggregator::HllppUniqueCount(_)) => {
            let field = "value_type.aggregate_type.hllpp_unique_count";
            return Err(Error::Unimplemented(format!("'{field}' is not supported")));
        }
        Some(Aggregator::Sum(_) | Aggregator::Min(_) | Aggregator::Max(_)) => {}
    }
    if !aggregate.input_type.as_deref().is_some_and(is_big_endian_integer) {
        return Err(Error::invalid(
            "value_type.aggregate_type.input_type must be Int64 in big-endian bytes",
        ));
    }
    // The server chooses the state type; a client may send back what it read.
    if !aggregate.state_type.as_deref().is_none_or(is_big_endian_integer) {
        return Err(Error::invalid(
            "value_type.aggregate_type.state_type can only be Int64 in big-endian bytes",
        ));
    }
    Ok(())
}

/// Returns whether this is an integer in big-endian encoding, which is the
/// default.
fn is_big_endian_integer(value_type: &Type) -> bool {
    let Some(Kind::Int64Type(integer)) = &value_type.kind else { return false };
    let encoding = integer.encoding.as_ref().and_then(|encoding| encoding.encoding.as_ref());
    matches!(encoding, None | Some(Encoding::BigEndianBytes(_)))
}

fn check_nested(value_type: &Type, depth: usize) -> Result<()> {
    if depth > TYPE_DEPTH_MAX {
        return Err(Error::Invalid(format!(
            "value_type nests deeper than {TYPE_DEPTH_MAX} levels"
        )));
    }
    let inner = |inner: Option<&Type>| inner.map_or(Ok(()), |inner| check_nested(inner, depth + 1));
    match &value_type.kind {
        Some(Kind::AggregateType(_)) => {
            Err(Error::invalid("value_type: an aggregate cannot be nested in another type"))
        }
        Some(Kind::ProtoType(_)) => {
            Err(Error::Unimplemented("'value_type.proto_type' is not supported".into()))
        }
        Some(Kind::EnumType(_)) => {
            Err(Error::Unimplemented("'value_type.enum_type' is not supported".into()))
        }
        Some(Kind::StructType(fields)) => {
            fields.fields.iter().try_for_each(|field| inner(field.r#type.as_ref()))
        }
        Some(Kind::ArrayType(array)) => inner(array.element_type.as_deref()),
        Some(Kind::MapType(map)) => {
            inner(map.key_type.as_deref())?;
            inner(map.value_type.as_deref())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::proto::admin::r#type::{
        Array, Int64, Map, Proto, String as StringType, Struct, aggregate, int64, r#struct,
    };

    fn typed(kind: Kind) -> Type {
        Type { kind: Some(kind) }
    }

    fn integer(encoding: Option<Encoding>) -> Type {
        let encoding = encoding.map(|encoding| int64::Encoding { encoding: Some(encoding) });
        typed(Kind::Int64Type(Int64 { encoding }))
    }

    fn aggregate_of(input: Type, aggregator: Option<Aggregator>) -> Type {
        let input_type = Some(Box::new(input));
        typed(Kind::AggregateType(Box::new(Aggregate { input_type, state_type: None, aggregator })))
    }

    #[test]
    fn sum_min_and_max_of_big_endian_integers_are_folded() {
        let big_endian = Encoding::BigEndianBytes(int64::encoding::BigEndianBytes::default());
        for (aggregator, id) in [
            (Aggregator::Sum(aggregate::Sum {}), FoldId::SUM),
            (Aggregator::Min(aggregate::Min {}), FoldId::MIN),
            (Aggregator::Max(aggregate::Max {}), FoldId::MAX),
        ] {
            for encoding in [None, Some(big_endian)] {
                let declared = aggregate_of(integer(encoding), Some(aggregator));
                check(&declared).unwrap();
                assert_eq!(fold(&declared), Some(id));
            }
        }
        assert_eq!(fold(&integer(None)), None);
    }

    #[test]
    fn aggregates_that_the_engine_cannot_fold_are_refused() {
        let sum = Some(Aggregator::Sum(aggregate::Sum {}));
        let hll = Aggregator::HllppUniqueCount(aggregate::HyperLogLogPlusPlusUniqueCount {});
        let ordered = Encoding::OrderedCodeBytes(int64::encoding::OrderedCodeBytes {});
        let mut other_state = Aggregate { aggregator: sum, ..Aggregate::default() };
        other_state.input_type = Some(Box::new(integer(None)));
        other_state.state_type = Some(Box::new(typed(Kind::StringType(StringType::default()))));
        for (declared, code) in [
            (aggregate_of(integer(None), None), Code::InvalidArgument),
            (aggregate_of(integer(None), Some(hll)), Code::Unimplemented),
            (aggregate_of(integer(Some(ordered)), sum), Code::InvalidArgument),
            (
                aggregate_of(typed(Kind::StringType(StringType::default())), sum),
                Code::InvalidArgument,
            ),
            (aggregate_of(Type::default(), sum), Code::InvalidArgument),
            (typed(Kind::AggregateType(Box::new(other_state))), Code::InvalidArgument),
        ] {
            let error = check(&declared).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains("value_type.aggregate_type"), "{error}");
        }
    }

    #[test]
    fn other_types_are_kept_unless_they_need_what_is_not_there() {
        let array =
            |inner| typed(Kind::ArrayType(Box::new(Array { element_type: Some(Box::new(inner)) })));
        check(&Type::default()).unwrap();
        check(&array(integer(None))).unwrap();
        let field = |inner| r#struct::Field { field_name: "f".into(), r#type: Some(inner) };
        let proto = typed(Kind::ProtoType(Proto::default()));
        let fields = vec![field(integer(None)), field(proto.clone())];
        let holding = typed(Kind::StructType(Struct { fields, encoding: None }));
        assert_eq!(check(&holding).unwrap_err().code(), Code::Unimplemented);
        let map =
            Map { key_type: Some(Box::new(integer(None))), value_type: Some(Box::new(proto)) };
        assert_eq!(
            check(&typed(Kind::MapType(Box::new(map)))).unwrap_err().code(),
            Code::Unimplemented
        );
        let sum = aggregate_of(integer(None), Some(Aggregator::Sum(aggregate::Sum {})));
        assert_eq!(check(&array(sum)).unwrap_err().code(), Code::InvalidArgument);
        let deep = (0..TYPE_DEPTH_MAX).fold(integer(None), |inner, _| array(inner));
        assert_eq!(check(&deep).unwrap_err().code(), Code::InvalidArgument);
    }
}
