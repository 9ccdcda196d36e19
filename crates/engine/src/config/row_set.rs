//! The rows of one table that are stored elsewhere than in a manifest: what a mutation
//! does to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::manifest_rows::{applies, row};
use super::{
    Configs, Mutation, RowKey, TableConfig, TableState, TabletConfig, TabletConfigs, TabletId,
};
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::txn::Txn;

/// All rows of a table.
#[derive(Clone)]
pub struct RowSet {
    table: TableId,
    configs: Configs,
}

impl RowSet {
    /// Returns a set of rows, given in row order. Fails unless they cover the table
    /// without gaps, each with a chain per group of the schema.
    pub fn new(
        table: TableId,
        schema: Arc<Schema>,
        rows: Vec<Arc<TabletConfig>>,
    ) -> Result<RowSet> {
        let groups = schema.groups().len();
        let meets =
            |pair: &[Arc<TabletConfig>]| pair[0].rows.end.as_ref() == Some(&pair[1].rows.start);
        let first = rows.first().is_some_and(|row| row.rows.start.is_empty());
        let last = rows.last().is_some_and(|row| row.rows.end.is_none());
        if !first || !last || !rows.windows(2).all(meets) {
            let what = "its rows do not cover the table without gaps";
            return Err(Error::EditRefused { table: table.0, what });
        }
        if rows.iter().any(|row| row.chains.len() != groups || row.rows.is_empty()) {
            let what = "a row does not match the groups of the schema";
            return Err(Error::EditRefused { table: table.0, what });
        }
        let config = TableConfig {
            id: table,
            name: String::new(),
            schema,
            state: TableState::Active,
            flushed: vec![Txn::ZERO; groups],
            tablets: TabletConfigs::new(rows),
        };
        let tables = BTreeMap::from([(table, Arc::new(config))]);
        Ok(RowSet { table, configs: Configs { tables, ..Configs::default() } })
    }

    /// Returns a set of neighbouring rows, of which there is at least one, for mutations of
    /// these rows only. The other rows of the table are replaced by empty ones.
    pub fn part(
        table: TableId,
        schema: Arc<Schema>,
        mut rows: Vec<Arc<TabletConfig>>,
    ) -> Result<RowSet> {
        rows = filled(&rows, schema.groups().len(), Txn::ZERO);
        RowSet::new(table, schema, rows)
    }

    /// Returns the rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<TabletConfig>> {
        self.configs.tables[&self.table].tablets.iter()
    }

    pub fn get(&self, key: &RowKey) -> Option<&Arc<TabletConfig>> {
        row(&self.configs, key)
    }

    /// Applies a mutation if the rows are as it expects and its edits fit, and returns
    /// whether it did. `next` is the id of the tablet that a split creates.
    pub fn apply(&mut self, mutation: &Mutation, next: TabletId) -> bool {
        self.configs.incarnation = next.incarnation.into();
        self.configs.last_tablet = next.number.saturating_sub(1);
        applies(&mut self.configs, mutation)
    }
}

/// Returns rows, given in row order, and empty ones in the gaps before, between and after
/// them, which are not loaded and have everything up to `flushed` in files.
pub(crate) fn filled(
    rows: &[Arc<TabletConfig>],
    groups: usize,
    flushed: Txn,
) -> Vec<Arc<TabletConfig>> {
    let gap = |start: Vec<u8>, end: Option<Vec<u8>>| {
        let mut config = TabletConfig::new(TabletId::default(), RowRange { start, end }, groups);
        (config.load, config.rev, config.loaded) = (0, 0, false);
        config.chains.iter_mut().for_each(|chain| chain.flushed = flushed);
        Arc::new(config)
    };
    let (mut all, mut start) = (Vec::new(), Some(Vec::new()));
    for row in rows {
        if let Some(start) = start.filter(|start| *start < row.rows.start) {
            all.push(gap(start, Some(row.rows.start.clone())));
        }
        all.push(row.clone());
        start = row.rows.end.clone();
    }
    all.extend(start.map(|start| gap(start, None)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OpId, RowEdit, Split};
    use crate::schema::Family;

    const TABLE: TableId = TableId(3);
    const NEXT: TabletId = TabletId { incarnation: 9, number: 4 };

    fn tablet(number: u32, rows: RowRange) -> Arc<TabletConfig> {
        Arc::new(TabletConfig::new(TabletId { incarnation: 1, number }, rows, 1))
    }

    fn set(rows: Vec<Arc<TabletConfig>>) -> Result<RowSet> {
        RowSet::new(TABLE, Arc::new(Schema::with_families([Family::new("f")]).unwrap()), rows)
    }

    #[test]
    fn rows_with_a_gap_are_no_table() {
        let whole = || tablet(1, RowRange::all());
        let upper = || tablet(2, RowRange { start: b"m".to_vec(), end: None });
        let lower = |end: &str| tablet(1, RowRange { start: vec![], end: Some(end.into()) });
        assert!(set(vec![whole()]).is_ok());
        assert!(set(vec![lower("m"), upper()]).is_ok());
        for rows in [vec![], vec![upper()], vec![lower("m")], vec![lower("l"), upper()]] {
            assert!(set(rows).is_err());
        }
        let two_groups = TabletConfig::new(NEXT, RowRange::all(), 2);
        assert!(set(vec![Arc::new(two_groups)]).is_err());
    }

    #[test]
    fn part_of_a_table_is_enough_for_a_mutation_of_its_rows() {
        let rows = RowRange { start: b"d".to_vec(), end: Some(b"m".to_vec()) };
        let schema = Arc::new(Schema::with_families([Family::new("f")]).unwrap());
        let mut part = RowSet::part(TABLE, schema, vec![tablet(7, rows.clone())]).unwrap();
        let all: Vec<RowRange> = part.rows().map(|row| row.rows.clone()).collect();
        let before = RowRange { start: Vec::new(), end: Some(b"d".to_vec()) };
        let after = RowRange { start: b"m".to_vec(), end: None };
        assert_eq!(all, [before, rows, after]);
        let key = RowKey { table: TABLE, end: Some(b"m".to_vec()) };
        let found = part.get(&key).unwrap().clone();
        let expected = super::super::Expected { id: found.id, load: found.load, rev: found.rev };
        let edits = vec![RowEdit::SetLoaded {
            table: TABLE,
            tablet: found.id,
            start: b"d".to_vec(),
            loaded: false,
            flushed: None,
        }];
        let op = OpId { incarnation: 9, number: 1 };
        let mutation = Mutation { key: key.clone(), expected, lower: None, edits, op };
        assert!(part.apply(&mutation, NEXT));
        assert!(!part.get(&key).unwrap().loaded);
    }

    #[test]
    fn a_mutation_is_applied_to_the_row_that_it_expects_and_a_split_gets_the_given_id() {
        let mut set = set(vec![tablet(1, RowRange::all())]).unwrap();
        let key = RowKey { table: TABLE, end: None };
        let found = set.get(&key).unwrap().clone();
        let expected = super::super::Expected { id: found.id, load: found.load, rev: found.rev };
        let split = Split {
            table: TABLE,
            tablet: found.id,
            load: found.load,
            row: b"m".to_vec(),
            shares: Vec::new(),
        };
        let op = OpId { incarnation: 9, number: 1 };
        let edits = vec![RowEdit::Split(split)];
        let mutation = Mutation { key: key.clone(), expected, lower: None, edits, op };
        assert!(set.apply(&mutation, NEXT));
        assert!(!set.apply(&mutation, NEXT), "the row has changed");
        let ids: Vec<TabletId> = set.rows().map(|row| row.id).collect();
        assert_eq!(ids, [NEXT, found.id]);
    }
}
