//! Changes of the groups of a table: families move between groups, and only references
//! to files change. A file with families of several groups is referred to in each of
//! their chains, restricted to the families of that group.
//!
//! The chain of a new group is a merge of those that its families come from. Each of them
//! keeps its order, so for every family older files stay before newer ones. Deletes of
//! rows are in the files of all groups, so every chain has those that concern its
//! families. Runs of different chains whose txns overlap get a common unit and are
//! compacted together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit::refused;
use super::{
    ChainConfig, Configs, FileName, Reference, TableConfig, TabletConfig, TabletConfigs, TabletId,
};
use crate::cell::commit::TableId;
use crate::error::Result;
use crate::schema::Schema;
use crate::txn::Txn;

/// New groups of a table, with new chains of all its tablets. Refused unless these are the
/// tablets of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regroup {
    pub table: TableId,
    pub schema: Arc<Schema>,
    /// Commits up to this txn are in files, in all groups and tablets.
    pub flushed: Txn,
    /// In row order.
    pub tablets: Vec<RegroupedTablet>,
}

/// A tablet and its references, for each new group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegroupedTablet {
    pub tablet: TabletId,
    pub load: u64,
    pub chains: Vec<Vec<Reference>>,
}

/// What decides to which groups a file belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContents {
    pub families: Vec<Vec<u8>>,
    /// Whether it may delete rows.
    pub deletes: bool,
}

impl Configs {
    pub(super) fn regroup(&mut self, regroup: &Regroup) -> Result<()> {
        let refused = |what| refused(regroup.table, what);
        let table = self.table_mut(regroup.table)?;
        table.schema.check_regroup(&regroup.schema)?;
        if table.tablets.len() != regroup.tablets.len() {
            return Err(refused("it has other tablets"));
        }
        let mut tablets = Vec::with_capacity(regroup.tablets.len());
        for (old, new) in table.tablets.iter().zip(&regroup.tablets) {
            if (old.id, old.load) != (new.tablet, new.load) {
                return Err(refused("a tablet has changed"));
            }
            let known: BTreeSet<FileName> = old.files().map(|file| file.name).collect();
            if new.chains.iter().flatten().any(|file| !known.contains(&file.name)) {
                return Err(refused("a change of groups names a new file"));
            }
            let chain = |files: &Vec<Reference>| ChainConfig {
                flushed: regroup.flushed,
                files: files.clone(),
            };
            let tablet = TabletConfig {
                load: old.load.saturating_add(1),
                rev: old.rev.saturating_add(1),
                chains: new.chains.iter().map(chain).collect(),
                ..(**old).clone()
            };
            if tablet.chains.len() != regroup.schema.groups().len() || !tablet.is_valid() {
                return Err(refused("a chain is missing or invalid"));
            }
            tablets.push(Arc::new(tablet));
        }
        table.flushed = vec![regroup.flushed; regroup.schema.groups().len()];
        table.schema = regroup.schema.clone();
        table.tablets = TabletConfigs::new(tablets);
        Ok(())
    }
}

/// Returns the edit that gives a table the groups of `schema`. All its commits up to
/// `flushed` are in files. `contents` has every file of the table; `mint_unit` returns
/// numbers for runs that must be compacted together.
pub fn regroup(
    table: &TableConfig,
    schema: &Arc<Schema>,
    flushed: Txn,
    contents: &BTreeMap<FileName, FileContents>,
    mint_unit: &dyn Fn() -> u64,
) -> Regroup {
    let moves = Moves { old: &table.schema, new: schema, contents, mint_unit };
    let tablet = |tablet: &Arc<TabletConfig>| RegroupedTablet {
        tablet: tablet.id,
        load: tablet.load,
        chains: (0..schema.groups().len())
            .map(|group| moves.chain(&tablet.chains, group))
            .collect(),
    };
    let tablets = table.tablets.iter().map(tablet).collect();
    Regroup { table: table.id, schema: schema.clone(), flushed, tablets }
}

struct Moves<'a> {
    old: &'a Schema,
    new: &'a Schema,
    contents: &'a BTreeMap<FileName, FileContents>,
    mint_unit: &'a dyn Fn() -> u64,
}

/// Consecutive runs of a chain that are merged together.
struct Block {
    runs: Vec<Vec<Reference>>,
    txn_min: Txn,
    txn_max: Txn,
}

impl Moves<'_> {
    /// Returns the references of a new group.
    fn chain(&self, old: &[ChainConfig], group: usize) -> Vec<Reference> {
        let parts = old.iter().enumerate().filter(|(from, _)| self.takes_from(*from, group));
        let mut chains: Vec<Vec<Block>> = parts
            .map(|(from, chain)| self.blocks(from, chain, group))
            .filter(|blocks| !blocks.is_empty())
            .collect();
        let runs: Vec<Vec<Reference>> = match chains.len() {
            1 => chains.remove(0).into_iter().flat_map(|block| block.runs).collect(),
            _ => self.merged(chains),
        };
        let mut files = Vec::new();
        for run in runs {
            let joined = run.into_iter().enumerate();
            files.extend(joined.map(|(at, file)| Reference { joins: at > 0, ..file }));
        }
        files
    }

    /// Whether any family may be in one group before and in the other one after.
    fn takes_from(&self, from: usize, to: usize) -> bool {
        let moves = |name: &[u8]| {
            self.old.group_of(name) == Some(from) && self.new.group_of(name) == Some(to)
        };
        let named = self.old.groups().iter().chain(self.new.groups());
        let mut named = named.flat_map(|group| &group.families);
        let both_wildcards = self.old.groups()[from].wildcard && self.new.groups()[to].wildcard;
        both_wildcards || named.any(|family| moves(&family.name))
    }

    /// Returns what a new group takes from an old chain, oldest first.
    fn blocks(&self, from: usize, chain: &ChainConfig, to: usize) -> Vec<Block> {
        let runs: Vec<&[Reference]> = chain.runs().collect();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, run) in runs.iter().enumerate() {
            last.extend(run.iter().filter(|file| file.unit != 0).map(|file| (file.unit, at)));
        }
        let mut blocks: Vec<Block> = Vec::new();
        let (mut open, mut end) = (false, 0);
        for (at, run) in runs.iter().enumerate() {
            open &= at < end;
            end = run.iter().filter_map(|file| last.get(&file.unit)).fold(end, |a, b| a.max(b + 1));
            let files = run.iter().filter_map(|file| self.restricted(file, from, to));
            let files: Vec<Reference> = files.collect();
            let Some(txn_min) = files.iter().map(|file| file.txn_min).min() else { continue };
            let txn_max = files.iter().map(|file| file.txn_max).fold(txn_min, Txn::max);
            match blocks.last_mut().filter(|_| open) {
                Some(block) => {
                    block.runs.push(files);
                    block.txn_min = block.txn_min.min(txn_min);
                    block.txn_max = block.txn_max.max(txn_max);
                }
                None => blocks.push(Block { runs: vec![files], txn_min, txn_max }),
            }
            open = true;
        }
        blocks
    }

    /// Returns a reference for the families that move from one group to another; `None` if
    /// the file has nothing of them.
    fn restricted(&self, file: &Reference, from: usize, to: usize) -> Option<Reference> {
        let contents = self.contents.get(&file.name).expect("all files of the table are known");
        let in_use = |name: &&Vec<u8>| {
            self.old.group_of(name) == Some(from)
                && file.families.as_ref().is_none_or(|families| families.contains(name))
        };
        let before: BTreeSet<&Vec<u8>> = contents.families.iter().filter(in_use).collect();
        let moves = |name: &&Vec<u8>| self.new.group_of(name) == Some(to);
        let after: Vec<Vec<u8>> = before.iter().copied().filter(moves).cloned().collect();
        if after.is_empty() && !contents.deletes {
            return None;
        }
        let stays = after.len() == before.len() && !after.is_empty();
        let families = if stays { file.families.clone() } else { Some(after.clone()) };
        let part = file.share.saturating_mul(after.len() as u64) / (before.len() as u64).max(1);
        let share = if stays { file.share } else { part.min(file.share) };
        Some(Reference { families, share, ..file.clone() })
    }

    /// Merges chains by txn. Each keeps its order.
    fn merged(&self, chains: Vec<Vec<Block>>) -> Vec<Vec<Reference>> {
        let mut left: Vec<_> =
            chains.into_iter().map(|blocks| blocks.into_iter().peekable()).collect();
        let mut runs = Vec::new();
        // Blocks whose txns overlap, and the chains that they are from.
        let mut pending: Vec<Block> = Vec::new();
        let (mut sources, mut newest) = (BTreeSet::new(), Txn::ZERO);
        loop {
            let heads = left.iter_mut().enumerate().filter_map(|(at, blocks)| {
                blocks.peek().map(|block| (block.txn_min, block.txn_max, at))
            });
            let next = heads.min();
            if next.is_none_or(|(txn_min, ..)| txn_min > newest) {
                runs.extend(self.united(std::mem::take(&mut pending), sources.len()));
                sources.clear();
            }
            let Some((_, txn_max, at)) = next else { return runs };
            newest = newest.max(txn_max);
            sources.insert(at);
            pending.extend(left[at].next());
        }
    }

    /// Returns the runs of blocks whose txns overlap, with a common unit if they are from
    /// several chains.
    fn united(&self, blocks: Vec<Block>, chains: usize) -> Vec<Vec<Reference>> {
        let all = blocks.into_iter().flat_map(|block| block.runs);
        if chains < 2 {
            return all.collect();
        }
        let mut runs: Vec<Vec<Reference>> = Vec::new();
        for run in all {
            match runs.last_mut().filter(|last| are_same_files(last, &run)) {
                Some(last) => {
                    last.iter_mut().zip(run).for_each(|(file, other)| reunite(file, other))
                }
                None => runs.push(run),
            }
        }
        let unit = if runs.len() > 1 { (self.mint_unit)() } else { 0 };
        runs.iter_mut().flatten().for_each(|file| file.unit = unit);
        runs
    }
}

/// Whether two runs have the same rows of the same files.
fn are_same_files(a: &[Reference], b: &[Reference]) -> bool {
    let same = |(a, b): (&Reference, &Reference)| a.name == b.name && a.rows == b.rows;
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Adds the families of another reference to the same rows of a file.
fn reunite(file: &mut Reference, other: Reference) {
    file.share = file.share.saturating_add(other.share).min(file.bytes);
    file.families = file.families.take().zip(other.families).map(|(mut all, more)| {
        all.extend(more);
        all.sort_unstable();
        all.dedup();
        all
    });
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigEdit, FileFacts, Splice};
    use super::*;
    use crate::cell::rows::RowRange;
    use crate::error::Error;
    use crate::schema::{Family, Group};

    const TABLE: TableId = TableId(1);

    /// Returns a schema of groups such as "x:a b", or "w:*".
    fn schema(groups: &[&str]) -> Arc<Schema> {
        let group = |text: &&str| {
            let (name, families) = text.split_once(':').unwrap();
            let listed = families.split_whitespace().filter(|name| *name != "*").map(Family::new);
            Group {
                wildcard: families.contains('*'),
                ..Group::new(name, listed.collect::<Vec<_>>())
            }
        };
        Arc::new(Schema::new(groups.iter().map(group).collect()).unwrap())
    }

    /// A table whose files are known, as compaction and flush would leave them.
    struct Fixture {
        configs: Configs,
        contents: BTreeMap<FileName, FileContents>,
    }

    impl Fixture {
        fn new(groups: &[&str]) -> Fixture {
            let create = ConfigEdit::CreateTable {
                name: "t".into(),
                schema: schema(groups),
                splits: Vec::new(),
            };
            let configs = Configs::default().edited(0, &[ConfigEdit::TakeIncarnation, create]);
            Fixture { configs: configs.unwrap(), contents: BTreeMap::new() }
        }

        fn edit(&mut self, edit: ConfigEdit) -> Result<()> {
            self.configs = self.configs.edited(self.configs.revision, &[edit])?;
            Ok(())
        }

        fn tablet(&self) -> Arc<TabletConfig> {
            self.configs.tables[&TABLE].tablets.first().clone()
        }

        /// Adds a file, or replaces all files of a chain with it. `families` that start
        /// with a minus are only deleted, and "-" deletes rows.
        fn file(&mut self, group: usize, number: u64, txns: (u64, u64), families: &str, all: bool) {
            let name = FileName { incarnation: 1, number };
            let names = families.split_whitespace().filter(|name| *name != "-");
            let names = names.map(|name| name.trim_start_matches('-').as_bytes().to_vec());
            let contents =
                FileContents { families: names.collect(), deletes: families.contains('-') };
            self.contents.insert(name, contents);
            let tablet = self.tablet();
            let remove = tablet.chains[group].files.iter().filter(|_| all);
            let file = Reference {
                name,
                bytes: 100,
                cells: 1,
                txn_min: Txn::from_raw(txns.0).unwrap(),
                txn_max: Txn::from_raw(txns.1).unwrap(),
                rows: None,
                families: None,
                facts: Some(FileFacts {
                    meta_bytes: 0,
                    dead_bytes: 0,
                    held: RowRange::new("a", "z"),
                    has_spans: false,
                    timestamp_max: None,
                }),
                share: 100,
                unit: 0,
                joins: false,
            };
            let splice = Splice {
                table: TABLE,
                tablet: tablet.id,
                load: tablet.load,
                start: Vec::new(),
                group,
                remove: remove.map(Reference::key).collect(),
                add: vec![file],
                flushed: None,
            };
            self.edit(ConfigEdit::Splice(splice)).unwrap();
        }

        fn regroup(&mut self, groups: &[&str]) {
            let table = self.configs.tables[&TABLE].clone();
            let flushed = Txn::from_raw(100).unwrap();
            let next = schema(groups);
            let edit = regroup(&table, &next, flushed, &self.contents, &|| 7);
            self.edit(ConfigEdit::Regroup(edit)).unwrap();
        }

        /// Returns the chain of a group, such as "1 2[a b] 3*": file numbers, the families
        /// in use if they are restricted, and a star for those with a unit.
        fn chain(&self, group: usize) -> String {
            let shown = |file: &Reference| {
                let names = file.families.as_ref().map(|families| {
                    let names = families.iter().map(|name| String::from_utf8_lossy(name));
                    format!("[{}]", names.collect::<Vec<_>>().join(" "))
                });
                let unit = if file.unit != 0 { "*" } else { "" };
                format!("{}{}{unit}", file.name.number, names.unwrap_or_default())
            };
            self.tablet().chains[group].files.iter().map(shown).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn tablets_1_10_2_a_compacted_family_does_not_return_from_a_file_of_another_group() {
        // The first failing example of the seed: file 3 must not come back with c.
        let mut table = Fixture::new(&["x:a b", "y:c d"]);
        table.file(0, 1, (1, 1), "a", false);
        table.file(1, 11, (1, 1), "c", false);
        table.file(0, 2, (2, 2), "a b", false);
        table.file(1, 3, (3, 3), "c d", false);
        table.regroup(&["x:a b c", "y:d"]);
        assert_eq!(table.chain(0), "1* 11* 2 3[c]");
        assert_eq!(table.chain(1), "3[d]");
        table.file(0, 4, (1, 3), "a b c", true);
        table.regroup(&["x:a", "y:b c d"]);
        assert_eq!(table.chain(0), "4[a]");
        assert_eq!(table.chain(1), "4[b c]* 3[d]*");
    }

    #[test]
    fn tablets_1_10_2_an_erased_cell_does_not_return_after_a_rooted_compaction() {
        // The second failing example of the seed: 5 has no c, because 4 erased it.
        let mut table = Fixture::new(&["x:a b", "y:c d"]);
        table.file(0, 1, (1, 1), "a", false);
        table.file(1, 11, (1, 1), "c", false);
        table.file(0, 2, (2, 2), "a b", false);
        table.file(1, 3, (3, 3), "c d", false);
        table.file(1, 4, (4, 4), "-c", false);
        table.regroup(&["x:a b c", "y:d"]);
        assert_eq!(table.chain(0), "1* 11* 2 3[c] 4");
        // File 4 may delete rows as far as is known.
        assert_eq!(table.chain(1), "3[d] 4[]");
        table.file(0, 5, (1, 4), "a b", true);
        table.regroup(&["x:a", "y:b c d"]);
        assert_eq!(table.chain(0), "5[a]");
        assert_eq!(table.chain(1), "5[b]* 3[d]* 4[]*");
    }

    #[test]
    fn tablets_1_10_3_moving_families_away_and_back_gives_the_files_of_before() {
        let mut table = Fixture::new(&["x:a b", "y:c"]);
        table.file(0, 1, (1, 5), "a b -", false);
        table.file(0, 2, (6, 9), "b", false);
        table.file(1, 3, (1, 9), "c", false);
        table.regroup(&["x:a", "y:b c"]);
        assert_eq!(table.chain(0), "1[a]");
        assert_eq!(table.chain(1), "1[b]* 3* 2*");
        table.regroup(&["x:a b", "y:c"]);
        assert_eq!(table.chain(0), "1[a b]* 2*");
        assert_eq!(table.chain(1), "1[]* 3*", "its deletes are those of y, too");
    }

    #[test]
    fn a_family_that_a_wildcard_group_held_is_taken_along_when_it_is_named() {
        let mut table = Fixture::new(&["x:f", "rest:*"]);
        table.file(1, 1, (1, 5), "u v", false);
        table.file(1, 2, (6, 9), "v", false);
        table.regroup(&["x:f v", "rest:*"]);
        assert_eq!((table.chain(0), table.chain(1)), ("1[v] 2".into(), "1[u]".into()));
        table.regroup(&["all:*"]);
        assert_eq!(table.chain(0), "1[u v] 2");
    }

    #[test]
    fn runs_of_an_unfinished_compaction_stay_together() {
        let mut table = Fixture::new(&["x:a", "y:b"]);
        table.file(0, 1, (1, 2), "a", false);
        table.file(0, 2, (3, 9), "a", false);
        table.file(1, 3, (5, 6), "b", false);
        table.file(1, 4, (7, 8), "b", false);
        table.regroup(&["z:a b"]);
        assert_eq!(table.chain(0), "1 2* 3* 4*");
        table.file(0, 5, (10, 11), "a b", false);
        table.regroup(&["z:a", "w:b"]);
        assert_eq!((table.chain(0), table.chain(1)), ("1 2* 5[a]".into(), "3* 4* 5[b]".into()));
    }

    #[test]
    fn a_change_of_groups_names_the_tablets_and_only_their_files() {
        let mut table = Fixture::new(&["x:a", "y:b"]);
        table.file(0, 1, (1, 2), "a", false);
        let config = table.configs.tables[&TABLE].clone();
        let (next, flushed) = (schema(&["z:a b"]), Txn::from_raw(9).unwrap());
        let edit = regroup(&config, &next, flushed, &table.contents, &|| 7);
        let mut changed = |change: &dyn Fn(&mut Regroup)| {
            let mut edit = edit.clone();
            change(&mut edit);
            table.edit(ConfigEdit::Regroup(edit))
        };
        let wrong: [&dyn Fn(&mut Regroup); 4] = [
            &|edit| edit.tablets[0].load += 1,
            &|edit| drop(edit.tablets.pop()),
            &|edit| drop(edit.tablets[0].chains.pop()),
            &|edit| edit.tablets[0].chains[0][0].name.number = 9,
        ];
        for wrong in wrong {
            let outcome = changed(wrong);
            assert!(matches!(outcome, Err(Error::EditRefused { .. })), "{outcome:?}");
        }
        changed(&|_| ()).unwrap();
        assert!(changed(&|_| ()).is_err(), "the tablet has another load now");
        let tablet = table.tablet();
        assert_eq!((tablet.load, tablet.rev, tablet.chains[0].flushed), (2, 3, flushed));
    }
}
