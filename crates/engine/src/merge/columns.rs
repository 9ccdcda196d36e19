//! The columns that a reader selects, and how to find the next and the last of them.

use crate::cell::rows::RowRange;

/// The columns that a reader selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    #[default]
    All,
    Families(Vec<FamilyColumns>),
}

/// The selected columns of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyColumns {
    pub family: Vec<u8>,
    /// `None` selects every qualifier; otherwise those in any of the ranges.
    pub qualifiers: Option<Vec<RowRange>>,
}

impl FamilyColumns {
    pub fn all(family: impl Into<Vec<u8>>) -> FamilyColumns {
        FamilyColumns { family: family.into(), qualifiers: None }
    }
}

impl Columns {
    pub fn wants_family(&self, family: &[u8]) -> bool {
        match self {
            Columns::All => true,
            Columns::Families(list) => list.iter().any(|wanted| wanted.family == family),
        }
    }

    /// Returns the start of the first selected qualifier range after an unselected
    /// qualifier.
    pub(super) fn next_wanted(&self, family: &[u8], qualifier: &[u8]) -> Option<&[u8]> {
        let Columns::Families(list) = self else { return None };
        let ranges = list
            .iter()
            .filter(|wanted| wanted.family == family)
            .flat_map(|wanted| wanted.qualifiers.as_deref().unwrap_or_default());
        ranges.map(|range| range.start.as_slice()).filter(|start| *start > qualifier).min()
    }

    /// Returns the last selected family and the exclusive upper bound of its selected
    /// qualifiers, if bounded.
    pub fn last_wanted(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let Columns::Families(list) = self else { return None };
        let family = list.iter().map(|wanted| wanted.family.as_slice()).max()?;
        let mut last = Some(&[][..]);
        for wanted in list.iter().filter(|wanted| wanted.family == family) {
            let ends = wanted.qualifiers.as_ref().map(|ranges| {
                let ends = ranges.iter().map(|range| range.end.as_deref());
                ends.reduce(later).unwrap_or(Some(&[]))
            });
            last = later(last, ends.flatten());
        }
        Some((family, last))
    }

    pub(super) fn wants_column(&self, family: &[u8], qualifier: &[u8]) -> bool {
        let Columns::Families(list) = self else { return true };
        list.iter().filter(|wanted| wanted.family == family).any(|wanted| {
            let Some(ranges) = &wanted.qualifiers else { return true };
            ranges.iter().any(|range| range.contains(qualifier))
        })
    }
}

/// Returns the later of two ends; `None` is unbounded.
fn later<'a>(a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    a.zip(b).map(|(a, b)| a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(list: &[(&str, Option<&[RowRange]>)]) -> Columns {
        let one = |&(family, ranges): &(&str, Option<&[RowRange]>)| FamilyColumns {
            family: family.into(),
            qualifiers: ranges.map(<[RowRange]>::to_vec),
        };
        Columns::Families(list.iter().map(one).collect())
    }

    #[test]
    fn the_last_wanted_column_ends_the_latest_range_of_the_last_family() {
        let last = |list: &[(&str, Option<&[RowRange]>)]| {
            let columns = columns(list);
            let (family, end) = columns.last_wanted()?;
            Some((family.to_vec(), end.map(<[u8]>::to_vec)))
        };
        let end = |family: &str, qualifier: Option<&str>| {
            Some((family.as_bytes().to_vec(), qualifier.map(|end| end.as_bytes().to_vec())))
        };
        let (wide, narrow) = ([RowRange::new("a", "c")], [RowRange::new("b", "bb")]);
        let (both, open) = ([wide[0].clone(), narrow[0].clone()], [RowRange::from("b")]);
        assert_eq!(Columns::All.last_wanted(), None);
        assert_eq!(last(&[]), None);
        assert_eq!(last(&[("g", Some(&both)), ("f", None)]), end("g", Some("c")));
        assert_eq!(last(&[("f", Some(&narrow)), ("f", Some(&wide))]), end("f", Some("c")));
        assert_eq!(last(&[("f", Some(&both)), ("f", None)]), end("f", None));
        assert_eq!(last(&[("f", Some(&open))]), end("f", None));
        assert_eq!(last(&[("f", Some(&[]))]), end("f", Some("")));
    }
}
