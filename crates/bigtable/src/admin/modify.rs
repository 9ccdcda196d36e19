//! ModifyColumnFamilies: a list of changes to a table's families, applied in
//! order and atomically.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use prost_types::FieldMask;

use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::ColumnFamily;
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::table::{Definition, Family, Successor, check_family_name};

const GC_RULE: &str = "gc_rule";
const VALUE_TYPE: &str = "value_type";

/// Returns the definition of `table` after the changes. A later change sees the
/// earlier ones.
pub fn successor(
    table: &str,
    old: &Definition,
    modifications: Vec<Modification>,
) -> Result<Successor> {
    if modifications.is_empty() {
        return Err(Error::invalid("Error in field 'modifications' : No modifications provided"));
    }
    let mut next = Successor { definition: old.clone(), emptied: BTreeSet::new() };
    for (at, modification) in modifications.into_iter().enumerate() {
        let element = format!("Error in field 'modifications' : Error in element #{at}");
        apply(table, old, &mut next, modification).map_err(|error| error.within(&element))?;
    }
    Ok(next)
}

fn apply(
    table: &str,
    old: &Definition,
    next: &mut Successor,
    modification: Modification,
) -> Result<()> {
    let Modification { id, update_mask, r#mod } = modification;
    check_family_name(&id)?;
    let missing = || Error::NotFound(format!("Column family not found: {id} in {table}"));
    let families = &mut next.definition.families;
    match r#mod {
        None => Err(Error::invalid("one of create, update and drop must be set")),
        Some(Mod::Create(message)) => {
            let Entry::Vacant(entry) = families.entry(id.clone()) else {
                return Err(Error::Exists(format!(
                    "Column family already exists: {id} in {table}"
                )));
            };
            entry.insert(Family::from_request(message)?);
            if old.families.contains_key(&id) {
                next.emptied.insert(id);
            }
            Ok(())
        }
        Some(Mod::Update(message)) => {
            let family = families.get_mut(&id).ok_or_else(missing)?;
            update(family, message, update_mask.unwrap_or_default())
        }
        Some(Mod::Drop(false)) => Err(Error::invalid("drop must be true")),
        Some(Mod::Drop(true)) => {
            if old.deletion_protection {
                return Err(Error::Precondition(format!(
                    "Column family {id} cannot be dropped: table {table} has deletion protection"
                )));
            }
            families.remove(&id).ok_or_else(missing)?;
            next.emptied.remove(&id);
            Ok(())
        }
    }
}

/// Changes the fields in the mask. Without a mask, changes only the rule, even if
/// the message has other fields.
fn update(family: &mut Family, mut message: ColumnFamily, mask: FieldMask) -> Result<()> {
    let known = |path: &&String| matches!(path.as_str(), GC_RULE | VALUE_TYPE);
    if let Some(path) = mask.paths.iter().find(|path| !known(path)) {
        return Err(Error::Invalid(format!(
            "Error in field 'update_mask' : '{}' cannot be updated: use {GC_RULE} or {VALUE_TYPE}",
            excerpt(path)
        )));
    }
    let masked = |field: &str| mask.paths.iter().any(|path| path == field);
    let (rule, value_type) = (masked(GC_RULE) || mask.paths.is_empty(), masked(VALUE_TYPE));
    if !rule {
        message.gc_rule = None;
    }
    if !value_type {
        message.value_type = None;
    }
    let declared = Family::from_request(message)?;
    if value_type {
        retype(family, &declared)?;
    }
    if rule {
        family.gc_rule = declared.gc_rule;
    }
    Ok(())
}

/// Changes the type of a family. Stored aggregates cannot be read as another
/// type, so the type of an aggregate cannot change.
fn retype(family: &mut Family, declared: &Family) -> Result<()> {
    let (old, new) = (family.aggregate(), declared.aggregate());
    if old != new {
        return Err(Error::invalid(
            "Immutable fields 'value_type.aggregate_type' cannot be updated",
        ));
    }
    if old.is_none() {
        family.value_type = declared.value_type.clone();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::proto::admin::gc_rule::Rule;
    use crate::proto::admin::r#type::{Aggregate, Bytes, Int64, Kind, aggregate};
    use crate::proto::admin::{GcRule, Type};

    fn versions(versions: i32) -> ColumnFamily {
        let gc_rule = Some(GcRule { rule: Some(Rule::MaxNumVersions(versions)) });
        ColumnFamily { gc_rule, ..ColumnFamily::default() }
    }

    fn typed(kind: Kind) -> ColumnFamily {
        ColumnFamily { value_type: Some(Type { kind: Some(kind) }), ..ColumnFamily::default() }
    }

    fn aggregate(aggregator: aggregate::Aggregator) -> ColumnFamily {
        let input = Type { kind: Some(Kind::Int64Type(Int64::default())) };
        typed(Kind::AggregateType(Box::new(Aggregate {
            input_type: Some(Box::new(input)),
            state_type: None,
            aggregator: Some(aggregator),
        })))
    }

    fn change(id: &str, mask: &[&str], r#mod: Mod) -> Modification {
        let paths = mask.iter().map(|path| path.to_string()).collect();
        Modification { id: id.into(), update_mask: Some(FieldMask { paths }), r#mod: Some(r#mod) }
    }

    fn run(old: &Definition, changes: Vec<Modification>) -> Result<Successor> {
        successor("t", old, changes)
    }

    fn with(id: &str, family: ColumnFamily) -> Definition {
        let changes = vec![change(id, &[], Mod::Create(family))];
        run(&Definition::default(), changes).unwrap().definition
    }

    #[test]
    fn changes_are_made_in_order_and_see_each_other() {
        let old = with("a", versions(1));
        let next = run(
            &old,
            vec![
                change("b", &[], Mod::Create(ColumnFamily::default())),
                change("b", &[], Mod::Update(versions(7))),
                change("a", &[], Mod::Drop(true)),
                change("c", &[], Mod::Create(versions(2))),
                change("c", &[], Mod::Drop(true)),
            ],
        )
        .unwrap();
        let names: Vec<_> = next.definition.families.keys().collect();
        assert_eq!(names, ["b"]);
        assert_eq!(next.definition.families["b"].gc_rule, versions(7).gc_rule);
        assert!(next.emptied.is_empty());
    }

    #[test]
    fn a_family_dropped_and_made_again_in_one_call_is_emptied() {
        let old = with("a", versions(1));
        let again =
            || vec![change("a", &[], Mod::Drop(true)), change("a", &[], Mod::Create(versions(3)))];
        let next = run(&old, again()).unwrap();
        assert_eq!(next.emptied, BTreeSet::from(["a".to_string()]));
        let mut gone = again();
        gone.push(change("a", &[], Mod::Drop(true)));
        assert!(run(&old, gone).unwrap().emptied.is_empty());
    }

    #[test]
    fn each_mistake_has_its_code_and_names_the_element() {
        let old = with("a", versions(1));
        let drop = |id| change(id, &[], Mod::Drop(true));
        for (wrong, code) in [
            (change("a", &[], Mod::Create(versions(1))), Code::AlreadyExists),
            (change("b", &[], Mod::Update(versions(1))), Code::NotFound),
            (drop("b"), Code::NotFound),
            (change("a", &[], Mod::Drop(false)), Code::InvalidArgument),
            (change("a b", &[], Mod::Create(versions(1))), Code::InvalidArgument),
            (change("b", &[], Mod::Create(versions(0))), Code::InvalidArgument),
            (change("a", &["name"], Mod::Update(versions(1))), Code::InvalidArgument),
            (change("a", &["*"], Mod::Update(versions(1))), Code::InvalidArgument),
            (Modification { id: "a".into(), ..Modification::default() }, Code::InvalidArgument),
        ] {
            let changes = vec![change("z", &[], Mod::Create(versions(1))), wrong.clone()];
            let error = run(&old, changes).unwrap_err();
            assert_eq!(error.code(), code, "{wrong:?}: {error}");
            assert!(error.to_string().contains("element #1"), "{error}");
        }
        assert_eq!(run(&old, vec![]).unwrap_err().code(), Code::InvalidArgument);
        let protected = Definition { deletion_protection: true, ..old };
        let error = run(&protected, vec![drop("a")]).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
    }

    #[test]
    fn a_mask_says_what_is_updated_and_none_means_the_rule() {
        let old = with("a", versions(1));
        let bytes = || typed(Kind::BytesType(Bytes::default()));
        let both = ColumnFamily { value_type: bytes().value_type, ..versions(9) };
        let after = |mask: &[&str], message: ColumnFamily| {
            run(&old, vec![change("a", mask, Mod::Update(message))])
                .map(|next| next.definition.families["a"].message())
        };
        assert_eq!(after(&[], versions(9)).unwrap(), versions(9));
        assert_eq!(after(&["gc_rule"], both.clone()).unwrap(), versions(9));
        let retyped = ColumnFamily { value_type: bytes().value_type, ..versions(1) };
        assert_eq!(after(&["value_type"], both.clone()).unwrap(), retyped);
        assert_eq!(after(&["value_type", "gc_rule"], both.clone()).unwrap(), both);
        assert_eq!(after(&["gc_rule"], ColumnFamily::default()).unwrap(), ColumnFamily::default());
        assert_eq!(after(&[], both).unwrap(), versions(9));
        let unsupported = typed(Kind::ProtoType(Default::default()));
        assert_eq!(after(&[], unsupported).unwrap(), ColumnFamily::default());
    }

    #[test]
    fn an_aggregate_stays_what_it_is() {
        let sum = || aggregate(aggregate::Aggregator::Sum(aggregate::Sum {}));
        let max = aggregate(aggregate::Aggregator::Max(aggregate::Max {}));
        let bytes = || typed(Kind::BytesType(Bytes::default()));
        for (old, new) in
            [(sum(), max), (sum(), bytes()), (sum(), ColumnFamily::default()), (bytes(), sum())]
        {
            let changes = vec![change("a", &["value_type"], Mod::Update(new))];
            let error = run(&with("a", old), changes).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            let text = error.to_string();
            assert!(text.contains("Immutable fields 'value_type.aggregate_type"), "{text}");
        }
        let same = ColumnFamily { value_type: sum().value_type, ..versions(4) };
        let other = ColumnFamily { value_type: bytes().value_type, ..versions(4) };
        for (mask, update) in [(&[][..], &same), (&["gc_rule", "value_type"], &same), (&[], &other)]
        {
            let changes = vec![change("a", mask, Mod::Update(update.clone()))];
            let next = run(&with("a", sum()), changes).unwrap();
            assert_eq!(next.definition.families["a"].message(), same);
        }
    }
}
