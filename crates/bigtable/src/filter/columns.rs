//! Sets of columns of one table: a set of qualifiers for each family.

use stele_engine::{Columns, FamilyColumns};

use super::node::ColumnRange;
use super::ranges::Ranges;
use stele_re2::Pattern;

/// The families of a table.
pub struct Families<'f> {
    names: Vec<&'f str>,
}

/// A set of columns: `None` is every column; otherwise the qualifiers of each
/// family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSet {
    by_family: Option<Vec<Ranges>>,
}

impl<'f> Families<'f> {
    pub fn new(names: impl IntoIterator<Item = &'f str>) -> Families<'f> {
        Families { names: names.into_iter().collect() }
    }

    fn set(&self, qualifiers: impl Fn(&str) -> Ranges) -> ColumnSet {
        ColumnSet { by_family: Some(self.names.iter().map(|name| qualifiers(name)).collect()) }
    }

    /// Returns the columns of the families that match.
    pub fn matching(&self, pattern: &Pattern) -> ColumnSet {
        self.set(
            |name| {
                if pattern.matches(name.as_bytes()) { Ranges::all() } else { Ranges::none() }
            },
        )
    }

    /// Returns these qualifiers in every family.
    pub fn qualifiers(&self, qualifiers: Ranges) -> ColumnSet {
        self.set(|_| qualifiers.clone())
    }

    pub fn range(&self, range: &ColumnRange) -> ColumnSet {
        self.set(|name| {
            if range.family == name.as_bytes() {
                Ranges::from_unsorted(vec![range.qualifiers.clone()])
            } else {
                Ranges::none()
            }
        })
    }

    /// Converts from the engine's form.
    pub fn selected(&self, columns: &Columns) -> ColumnSet {
        let Columns::Families(list) = columns else { return ColumnSet::all() };
        self.set(|name| {
            let of_family = list.iter().filter(|columns| columns.family == name.as_bytes());
            of_family.fold(Ranges::none(), |set, columns| {
                set.union(match &columns.qualifiers {
                    None => Ranges::all(),
                    Some(ranges) => Ranges::from_unsorted(ranges.clone()),
                })
            })
        })
    }

    /// Converts the set to the engine's form.
    pub fn columns(&self, set: ColumnSet) -> Columns {
        let Some(by_family) = set.by_family else { return Columns::All };
        let families = self.names.iter().zip(by_family).filter(|(_, set)| !set.is_empty());
        let families = families.map(|(name, set)| FamilyColumns {
            family: name.as_bytes().to_vec(),
            qualifiers: if set.is_all() { None } else { Some(set.into_list()) },
        });
        Columns::Families(families.collect())
    }
}

impl ColumnSet {
    pub fn all() -> ColumnSet {
        ColumnSet { by_family: None }
    }

    pub fn none(families: &Families<'_>) -> ColumnSet {
        families.set(|_| Ranges::none())
    }

    pub fn is_all(&self) -> bool {
        self.by_family.as_ref().is_none_or(|sets| sets.iter().all(Ranges::is_all))
    }

    pub fn is_empty(&self) -> bool {
        self.by_family.as_ref().is_some_and(|sets| sets.iter().all(Ranges::is_empty))
    }

    pub fn union(self, other: ColumnSet) -> ColumnSet {
        let both = self.by_family.zip(other.by_family);
        let union = both.map(|(a, b)| a.into_iter().zip(b).map(|(a, b)| a.union(b)).collect());
        ColumnSet { by_family: union }
    }

    pub fn intersection(self, other: ColumnSet) -> ColumnSet {
        match (self.by_family, other.by_family) {
            (Some(a), Some(b)) => {
                let both = a.iter().zip(&b).map(|(a, b)| a.intersection(b));
                ColumnSet { by_family: Some(both.collect()) }
            }
            (some, none) => ColumnSet { by_family: some.or(none) },
        }
    }

    /// Returns whether `other` is a subset of this set.
    pub fn covers(&self, other: &ColumnSet) -> bool {
        match (&self.by_family, &other.by_family) {
            (None, _) => true,
            (Some(_), None) => self.is_all(),
            (Some(a), Some(b)) => a.iter().zip(b).all(|(a, b)| a.covers(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use stele_engine::RowRange;

    use super::*;

    #[test]
    fn columns_are_sets_of_qualifiers_in_each_family() {
        let families = Families::new(["a", "b", "c"]);
        let in_a = families
            .range(&ColumnRange { family: "a".into(), qualifiers: RowRange::new("k", "p") });
        let not_c = families.matching(&Pattern::new(b"[ab]").unwrap());
        let point = families.qualifiers(Ranges::points(&[b"m".to_vec()]));

        assert!(not_c.covers(&in_a) && !in_a.covers(&not_c));
        assert!(ColumnSet::all().covers(&point) && !point.covers(&ColumnSet::all()));
        let both = in_a.clone().intersection(point.clone());
        let only =
            FamilyColumns { family: b"a".to_vec(), qualifiers: Some(vec![RowRange::row(b"m")]) };
        assert_eq!(families.columns(both), Columns::Families(vec![only]));
        let either = in_a.union(not_c.clone());
        assert_eq!(either, not_c);
        let expected = [FamilyColumns::all("a"), FamilyColumns::all("b")].to_vec();
        assert_eq!(families.columns(either), Columns::Families(expected));
        assert_eq!(families.columns(point.union(ColumnSet::all())), Columns::All);
    }

    #[test]
    fn the_columns_wanted_already_come_back_as_they_were() {
        let families = Families::new(["a", "b"]);
        let selected = Columns::Families(vec![FamilyColumns::all("b")]);
        assert_eq!(families.columns(families.selected(&selected)), selected);
        assert!(families.selected(&Columns::All).is_all());
        assert!(families.selected(&Columns::Families(vec![])).is_empty());
    }
}
