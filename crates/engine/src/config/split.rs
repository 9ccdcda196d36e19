//! Splits and joins of tablets: edits of references, no data is rewritten.

use std::sync::Arc;

use super::edit::refused;
use super::{ChainConfig, Configs, Reference, TableConfig, TabletConfig, TabletId};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::Result;
use crate::txn::Txn;

/// The division of a tablet before a row. The part from the row on keeps the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub table: TableId,
    pub tablet: TabletId,
    pub load: u64,
    pub row: Vec<u8>,
    /// For each reference of the tablet, in order of the chains: the part of its
    /// share before the row.
    pub shares: Vec<u64>,
}

/// The union of the two tablets that meet at a row. It keeps the id of the upper
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    pub table: TableId,
    pub row: Vec<u8>,
    /// The ids and loads of the tablets.
    pub lower: (TabletId, u64),
    pub upper: (TabletId, u64),
}

impl Configs {
    pub(super) fn split(&mut self, split: &Split) -> Result<()> {
        let refused = |what| refused(split.table, what);
        let id = self.mint_tablet()?;
        let table = self.table_mut(split.table)?;
        if !table.schema.is_splittable() {
            return Err(refused("the table is never split"));
        }
        let tablet = table.tablets.of(&split.row).clone();
        if (tablet.id, tablet.load) != (split.tablet, split.load) {
            return Err(refused("the tablet has changed"));
        }
        if split.row <= tablet.rows.start || !tablet.rows.contains(&split.row) {
            return Err(refused("the row is not inside the tablet"));
        }
        if split.shares.len() != tablet.files().count() {
            return Err(refused("the files of the tablet have changed"));
        }
        let halves = halves(&tablet, id, split);
        table.tablets.splice(&tablet.rows, halves.map(Arc::new).to_vec());
        Ok(())
    }

    pub(super) fn join(&mut self, join: &Join) -> Result<()> {
        let refused = |what| refused(join.table, what);
        let table = self.table_mut(join.table)?;
        let upper = table.tablets.of(&join.row).clone();
        let lower = table.tablets.before(Some(&join.row)).clone();
        let ids = [(&lower, join.lower), (&upper, join.upper)];
        if ids.iter().any(|(tablet, id)| (tablet.id, tablet.load) != *id) {
            return Err(refused("the tablets have changed"));
        }
        if upper.rows.start != join.row || lower.rows.end.as_ref() != Some(&join.row) {
            return Err(refused("no two tablets meet at the row"));
        }
        if lower.loaded != upper.loaded {
            return Err(refused("one of the tablets is loaded and the other is not"));
        }
        let joined = joined(table, &lower, &upper);
        if !joined.is_valid() {
            let what = "a reference is invalid, or the files of a run are not in row order";
            return Err(refused(what));
        }
        table.tablets.splice(&joined.rows.clone(), vec![Arc::new(joined)]);
        Ok(())
    }
}

/// Returns the lower and the upper half of a tablet. References without rows in a
/// half are left out of it.
fn halves(tablet: &TabletConfig, id: TabletId, split: &Split) -> [TabletConfig; 2] {
    let TabletConfig { rows, load, rev, loaded, .. } = tablet;
    let lower = RowRange { start: rows.start.clone(), end: Some(split.row.clone()) };
    let upper = RowRange { start: split.row.clone(), end: rows.end.clone() };
    let chains = |half: &RowRange, share: &dyn Fn(&Reference, u64) -> u64| {
        let mut shares = split.shares.iter();
        let of_chain = |chain: &ChainConfig| {
            let mut files = Vec::new();
            for run in chain.runs() {
                let mut joins = false;
                for (file, &lower_share) in run.iter().zip(&mut shares) {
                    if !file.live_rows(half).is_empty() {
                        let share = share(file, lower_share);
                        files.push(Reference { share, joins, ..file.clone() });
                        joins = true;
                    }
                }
            }
            ChainConfig { flushed: chain.flushed, files }
        };
        tablet.chains.iter().map(of_chain).collect()
    };
    [
        TabletConfig {
            id,
            load: 1,
            rev: 1,
            loaded: *loaded,
            chains: chains(&lower, &|_, lower_share| lower_share),
            rows: lower,
        },
        TabletConfig {
            id: tablet.id,
            load: load.saturating_add(1),
            rev: rev.saturating_add(1),
            loaded: *loaded,
            chains: chains(&upper, &|file, lower_share| file.share.saturating_sub(lower_share)),
            rows: upper,
        },
    ]
}

/// Returns the union of two neighbouring tablets.
fn joined(table: &TableConfig, lower: &TabletConfig, upper: &TabletConfig) -> TabletConfig {
    let pairs = lower.chains.iter().zip(&upper.chains).enumerate();
    let chains = pairs.map(|(group, (low, up))| {
        let flushed = table.flushed_of(lower, group).max(table.flushed_of(upper, group));
        joined_chain((low, &lower.rows), (up, &upper.rows), flushed)
    });
    TabletConfig {
        id: upper.id,
        load: lower.load.max(upper.load).saturating_add(1),
        rev: lower.rev.max(upper.rev).saturating_add(1),
        loaded: upper.loaded,
        rows: RowRange { start: lower.rows.start.clone(), end: upper.rows.end.clone() },
        chains: chains.collect(),
    }
}

/// Pairs the runs of two chains by age, the oldest with the oldest, so that the
/// joined chain is as long as the longer one. The chains have no row in common, so any
/// order between them is correct.
fn joined_chain(
    (lower, lower_rows): (&ChainConfig, &RowRange),
    (upper, upper_rows): (&ChainConfig, &RowRange),
    flushed: Txn,
) -> ChainConfig {
    let (mut lower_runs, mut upper_runs) = (lower.runs(), upper.runs());
    let mut files: Vec<Reference> = Vec::new();
    loop {
        let (low, up) = (lower_runs.next(), upper_runs.next());
        if low.is_none() && up.is_none() {
            return ChainConfig { flushed, files };
        }
        let low = low.unwrap_or_default().iter().map(|file| (file, bounded(file, lower_rows)));
        let up = up.unwrap_or_default().iter().map(|file| (file, bounded(file, upper_rows)));
        let begun = files.len();
        let mut last: Option<&Reference> = None;
        for (original, file) in low.chain(up) {
            if let (Some(previous), Some(end)) = (last, files.last_mut())
                && let Some(rows) = reunited(previous, end, original, &file)
            {
                end.rows = rows;
                end.share = end.share.saturating_add(file.share);
            } else {
                files.push(Reference { joins: files.len() > begun, ..file });
            }
            last = Some(original);
        }
    }
}

/// Returns the reference with explicit rows if it would otherwise get more rows in
/// a larger tablet.
fn bounded(file: &Reference, tablet: &RowRange) -> Reference {
    let live = file.live_rows(tablet);
    let rows = match (&file.rows, &file.facts) {
        (None, Some(facts)) if live == facts.held => None,
        (Some(rows), _) if rows.intersection(tablet) == *rows => Some(rows.clone()),
        _ => Some(live),
    };
    Reference { rows, ..file.clone() }
}

/// Returns the rows of one reference in place of two to the same file for
/// neighbouring rows, if one will do.
fn reunited(
    previous: &Reference,
    lower: &Reference,
    original: &Reference,
    upper: &Reference,
) -> Option<Option<RowRange>> {
    if (lower.name, lower.unit) != (upper.name, upper.unit) || lower.families != upper.families {
        return None;
    }
    if previous.rows.is_none() && original.rows.is_none() {
        return Some(None);
    }
    let (low, up) = (lower.rows.as_ref()?, upper.rows.as_ref()?);
    let meet = low.end.as_ref() == Some(&up.start);
    meet.then(|| Some(RowRange { start: low.start.clone(), end: up.end.clone() }))
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigEdit, FileFacts, FileName, Splice};
    use super::*;
    use crate::error::Error;
    use crate::schema::{Family, Schema};

    const TABLE: TableId = TableId(1);

    fn configs(splits: &[&str]) -> Configs {
        let schema = Arc::new(Schema::with_families([Family::new("f")]).unwrap());
        let splits = splits.iter().map(|row| row.as_bytes().to_vec()).collect();
        let create = ConfigEdit::CreateTable { name: "t".into(), schema, splits };
        edited(&Configs::default(), ConfigEdit::TakeIncarnation)
            .and_then(|configs| edited(&configs, create))
            .unwrap()
    }

    fn edited(configs: &Configs, edit: ConfigEdit) -> Result<Configs> {
        configs.edited(configs.revision, &[edit])
    }

    fn file(number: u64, start: &str, end: &str) -> Reference {
        Reference {
            name: FileName { incarnation: 1, number },
            bytes: 100,
            cells: 1,
            txn_min: Txn::ZERO,
            txn_max: Txn::ZERO,
            rows: None,
            families: None,
            facts: Some(FileFacts {
                meta_bytes: 0,
                dead_bytes: 0,
                held: RowRange::new(start, end),
                has_spans: false,
                timestamp_max: None,
            }),
            share: 100,
            unit: 0,
            joins: false,
        }
    }

    fn splice(tablet: &TabletConfig, remove: &[Reference], add: &[Reference]) -> Splice {
        Splice {
            table: TABLE,
            tablet: tablet.id,
            load: tablet.load,
            start: tablet.rows.start.clone(),
            group: 0,
            remove: remove.iter().map(Reference::key).collect(),
            add: add.to_vec(),
            flushed: None,
        }
    }

    fn tablet(configs: &Configs, row: &str) -> Arc<TabletConfig> {
        configs.tables[&TABLE].tablets.of(row.as_bytes()).clone()
    }

    fn add(configs: &Configs, row: &str, files: &[Reference]) -> Configs {
        edited(configs, ConfigEdit::Splice(splice(&tablet(configs, row), &[], files))).unwrap()
    }

    fn split(configs: &Configs, row: &str) -> Configs {
        let tablet = tablet(configs, row);
        let shares = tablet.files().map(|_| 40).collect();
        let (id, load, row) = (tablet.id, tablet.load, row.as_bytes().to_vec());
        let split = Split { table: TABLE, tablet: id, load, row, shares };
        edited(configs, ConfigEdit::Split(split)).unwrap()
    }

    fn join(configs: &Configs, row: &str) -> Configs {
        let lower = configs.tables[&TABLE].tablets.before(Some(row.as_bytes())).clone();
        let upper = tablet(configs, row);
        let (lower, upper) = ((lower.id, lower.load), (upper.id, upper.load));
        let join = Join { table: TABLE, row: row.as_bytes().to_vec(), lower, upper };
        edited(configs, ConfigEdit::Join(join)).unwrap()
    }

    /// Returns the files of a tablet: number, explicit rows, whether it joins.
    fn files(configs: &Configs, row: &str) -> Vec<(u64, Option<RowRange>, bool)> {
        let tablet = tablet(configs, row);
        tablet.files().map(|f| (f.name.number, f.rows.clone(), f.joins)).collect()
    }

    #[test]
    fn scale_2_7_a_splice_names_its_tablet_load_and_exact_references() {
        let whole = add(&configs(&[]), "", &[file(1, "a", "z"), file(2, "a", "z")]);
        let current = tablet(&whole, "");
        let exact = splice(&current, &[file(1, "a", "z"), file(2, "a", "z")], &[file(3, "a", "z")]);
        let refused = |configs: &Configs, splice: Splice| {
            let outcome = edited(configs, ConfigEdit::Splice(splice));
            assert!(matches!(outcome, Err(Error::EditRefused { .. })), "{outcome:?}");
        };
        let part = Reference { rows: Some(RowRange::new("a", "m")), ..file(1, "a", "z") };
        for wrong in [&[file(2, "a", "z"), file(1, "a", "z")][..], &[file(9, "a", "z")], &[part]] {
            refused(&whole, splice(&current, wrong, &[]));
        }
        refused(&whole, Splice { group: 1, ..exact.clone() });
        refused(&whole, Splice { load: exact.load + 1, ..exact.clone() });
        // A tablet that was split or joined meanwhile is another one.
        let halves = split(&whole, "m");
        refused(&halves, exact.clone());
        refused(&join(&halves, "m"), exact.clone());
        let done = edited(&whole, ConfigEdit::Splice(exact)).unwrap();
        assert_eq!(files(&done, ""), [(3, None, false)]);
        assert_eq!(tablet(&done, "").rev, current.rev + 1);
    }

    fn set_loaded(configs: &Configs, row: &str, loaded: bool) -> Result<Configs> {
        let tablet = tablet(configs, row);
        let tablets = vec![(tablet.id, tablet.rows.start.clone())];
        edited(configs, ConfigEdit::SetLoaded { table: TABLE, tablets, loaded })
    }

    #[test]
    fn scale_7_6_a_tablet_is_loaded_with_a_new_load_and_unloaded_with_the_old() {
        let before = configs(&["m"]);
        let numbers = |configs: &Configs| {
            let tablet = tablet(configs, "m");
            (tablet.load, tablet.rev, tablet.loaded)
        };
        assert_eq!(numbers(&before), (1, 1, true));
        let unloaded = set_loaded(&before, "m", false).unwrap();
        assert_eq!(numbers(&unloaded), (1, 2, false));
        assert!(tablet(&unloaded, "a").loaded);
        let again = set_loaded(&unloaded, "m", false).unwrap();
        assert_eq!(numbers(&again), (1, 3, false), "it was unloaded already");
        assert_eq!(numbers(&set_loaded(&again, "m", true).unwrap()), (2, 4, true));
        // Halves are as the whole; only tablets of one state can be joined.
        let halves = split(&unloaded, "q");
        assert!(!tablet(&halves, "m").loaded && !tablet(&halves, "q").loaded);
        assert!(!tablet(&join(&halves, "q"), "m").loaded);
        let [lower, upper] = ["a", "m"].map(|row| (tablet(&unloaded, row).id, 1));
        let join = Join { table: TABLE, row: b"m".to_vec(), lower, upper };
        assert!(edited(&unloaded, ConfigEdit::Join(join)).is_err());
        // The id and the first row must be those of one tablet.
        let stale = vec![(tablet(&before, "m").id, b"n".to_vec())];
        let edit = ConfigEdit::SetLoaded { table: TABLE, tablets: stale, loaded: false };
        assert!(matches!(edited(&before, edit), Err(Error::EditRefused { .. })));
    }

    #[test]
    fn scale_8_8_a_table_that_is_never_split_has_one_tablet() {
        let schema = Schema::with_families([Family::new("f")]).unwrap().splittable(false);
        let create = |splits: Vec<Vec<u8>>| {
            let (name, schema) = ("t".to_string(), Arc::new(schema.clone()));
            edited(&Configs::default(), ConfigEdit::CreateTable { name, schema, splits })
        };
        assert!(matches!(create(vec![b"m".to_vec()]), Err(Error::InvalidSplit(_))));
        let whole = create(Vec::new()).unwrap();
        let (tablet, load, row) = (tablet(&whole, "").id, 1, b"m".to_vec());
        let split = Split { table: TABLE, tablet, load, row, shares: Vec::new() };
        let refused = edited(&whole, ConfigEdit::Split(split));
        assert!(matches!(refused, Err(Error::EditRefused { .. })), "{refused:?}");
    }

    #[test]
    fn scale_2_8_the_families_of_a_reference_are_distinct_names_in_order() {
        let of = |names: &[&str]| {
            let families = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            let file = Reference { families: Some(families), ..file(1, "a", "z") };
            let whole = configs(&[]);
            edited(&whole, ConfigEdit::Splice(splice(&tablet(&whole, ""), &[], &[file])))
        };
        let whole = of(&["f", "g"]).unwrap();
        assert!(of(&[]).is_ok(), "only deletes of rows are in use");
        for names in [&["g", "f"][..], &["f", "f"], &["f", ""]] {
            assert!(matches!(of(names), Err(Error::EditRefused { .. })), "{names:?}");
        }
        let families = |configs: &Configs, row| {
            tablet(configs, row).files().map(|f| f.families.clone()).collect::<Vec<_>>()
        };
        let halves = split(&whole, "m");
        assert_eq!(families(&halves, "a"), families(&whole, "a"));
        assert_eq!(families(&halves, "m"), families(&whole, "a"));
        assert_eq!(families(&join(&halves, "m"), "a"), families(&whole, "a"));
    }

    #[test]
    fn scale_2_8_a_split_copies_references_and_leaves_out_those_without_rows() {
        let runs = [file(1, "a", "f"), Reference { joins: true, ..file(2, "f", "z") }];
        let whole = add(&configs(&[]), "", &[&runs[..], &[file(3, "p", "q")]].concat());
        let halves = split(&whole, "m");
        assert_eq!(files(&halves, "a"), [(1, None, false), (2, None, true)]);
        assert_eq!(files(&halves, "m"), [(2, None, false), (3, None, false)]);
        let shares = |row| tablet(&halves, row).files().map(|f| f.share).collect::<Vec<_>>();
        assert_eq!((shares("a"), shares("m")), (vec![40, 40], vec![60, 60]));
        assert!(tablet(&halves, "a").id.number > tablet(&halves, "m").id.number);
    }

    #[test]
    fn scale_6_3_a_join_pairs_runs_by_age_and_bounds_what_would_grow() {
        let halves = split(&add(&configs(&[]), "", &[file(1, "a", "z")]), "m");
        assert_eq!(files(&join(&halves, "m"), "a"), [(1, None, false)], "as before the split");
        // The upper half is rewritten: the old file must not get its rows back.
        let upper = tablet(&halves, "m");
        let rewrite = splice(&upper, &[file(1, "a", "z")], &[file(2, "m", "z")]);
        let halves = edited(&halves, ConfigEdit::Splice(rewrite)).unwrap();
        let halves = add(&halves, "m", &[file(3, "n", "o")]);
        let joined = join(&halves, "m");
        let bounded = Some(RowRange::new("a", "m"));
        assert_eq!(
            files(&joined, "a"),
            [(1, bounded.clone(), false), (2, None, true), (3, None, false)]
        );
        // Explicit rows meet again, too.
        let again = join(&split(&joined, "c"), "c");
        assert_eq!(files(&again, "a"), files(&joined, "a"));
        let clipped = Some(RowRange::new("a", "b"));
        let lower = splice(
            &tablet(&again, "a"),
            &[Reference { rows: bounded, ..file(1, "a", "z") }],
            &[Reference { rows: clipped.clone(), ..file(1, "a", "z") }],
        );
        let again = edited(&again, ConfigEdit::Splice(lower)).unwrap();
        assert_eq!(files(&join(&split(&again, "h"), "h"), "a")[0], (1, clipped, false));
    }

    #[test]
    fn scale_2_1_an_edit_shares_all_tablets_that_it_does_not_touch() {
        let rows: Vec<String> = (1..1000).map(|number| format!("row{number:04}")).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let before = configs(&rows);
        let after = split(&add(&before, "row0500", &[file(1, "row0500", "row0501")]), "row0700a");
        let before = &before.tables[&TABLE].tablets;
        let shared = after.tables[&TABLE].tablets.iter().filter(|tablet| {
            let known = before.of(&tablet.rows.start);
            Arc::ptr_eq(known, tablet)
        });
        assert_eq!(shared.count(), 998);
    }
}
