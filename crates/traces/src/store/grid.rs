//! Grids: traces over commits that may be in several tiles. The page shows grids and
//! analyses work on them. They are held in memory, so their size is limited.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use stele_grpc::Pending;

use super::Store;
use super::commits::COMMITS_MAX;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::memory::RequestMemory;
use crate::param_set::ParamSet;
use crate::params::Params;
use crate::query::Query;
use crate::row_name::Kind;
use crate::tile::{CommitIndex, Offset, Tile};

/// The maximum number of cells in one grid, whatever the available memory.
const CELLS_MAX: usize = 64 << 20;
/// The approximate memory of a trace without its cells.
const TRACE_BYTES: u64 = 256;
/// The approximate memory of a digest.
const DIGEST_BYTES: u64 = 64;

/// A selection of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All commits of a range, with or without data.
    Range { first: CommitIndex, last: CommitIndex },
    /// The newest commits with data, up to a commit or the newest of all.
    Dense { count: usize, last: Option<CommitIndex> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// In ascending order.
    pub columns: Vec<CommitIndex>,
    /// In the order of their params.
    pub traces: Vec<GridTrace>,
    /// The digests that cells refer to, counted from 1.
    pub digests: Vec<Digest>,
    /// Number of rows that could not be decoded.
    pub skipped: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GridTrace {
    pub params: Params,
    pub cells: Cells,
}

/// One cell for each column of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cells {
    /// 0 is missing; other numbers count the grid's digests from 1.
    Digests(Vec<u32>),
    /// NaN is missing.
    Numbers(Vec<f64>),
}

impl Cells {
    fn missing(kind: Kind, columns: usize) -> Cells {
        match kind {
            Kind::Digests => Cells::Digests(vec![0; columns]),
            Kind::Numbers => Cells::Numbers(vec![f64::NAN; columns]),
        }
    }

    pub fn is_missing(&self, column: usize) -> bool {
        match self {
            Cells::Digests(cells) => cells[column] == 0,
            Cells::Numbers(cells) => cells[column].is_nan(),
        }
    }
}

impl Store {
    /// Returns the traces that match `query` over the commits of a window.
    pub fn grid<'a>(
        &'a self,
        kind: Kind,
        window: Window,
        query: &'a Query,
    ) -> Pending<'a, Result<Grid>> {
        Box::pin(async move {
            self.grid_within(kind, window, query, &mut RequestMemory::uncounted()).await
        })
    }

    /// Does the same as [`Store::grid`] and charges `held` while the grid grows.
    pub async fn grid_within(
        &self,
        kind: Kind,
        window: Window,
        query: &Query,
        held: &mut RequestMemory,
    ) -> Result<Grid> {
        let grid = self.read_grid(kind, window, query, held).await?;
        held.shrink_to(grid.bytes());
        Ok(grid)
    }

    async fn read_grid(
        &self,
        kind: Kind,
        window: Window,
        query: &Query,
        held: &mut RequestMemory,
    ) -> Result<Grid> {
        match window {
            Window::Range { first, last } => {
                if last < first {
                    return Err(Error::invalid(format!(
                        "the range ends at @{}, before its start @{}",
                        last.0, first.0
                    )));
                }
                let count = (last.0 - first.0) as usize + 1;
                if count > COMMITS_MAX {
                    return Err(Error::TooLarge(format!(
                        "too many commits: {count}, the limit is {COMMITS_MAX}"
                    )));
                }
                let columns = (first.0..=last.0).map(CommitIndex).collect();
                let mut charged = Charged { before: 0, held };
                self.fill(kind, columns, query, &mut charged).await
            }
            Window::Dense { count, last } => self.dense(kind, count, last, query, held).await,
        }
    }

    /// Returns the newest commits at which any of the traces has data. Marks list
    /// commits that may have data; those without data are removed and older ones are
    /// read, until there are enough or no more.
    async fn dense(
        &self,
        kind: Kind,
        count: usize,
        last: Option<CommitIndex>,
        query: &Query,
        held: &mut RequestMemory,
    ) -> Result<Grid> {
        if count == 0 || count > COMMITS_MAX {
            return Err(Error::invalid(format!(
                "invalid number of commits {count}: use 1 to {COMMITS_MAX}"
            )));
        }
        let mut last = last.unwrap_or(CommitIndex(u32::MAX));
        let mut requested = count;
        let mut found = Grid::empty();
        loop {
            let mut columns = self.marked(last, requested).await?;
            let Some(oldest) = columns.last().copied() else { return Ok(found) };
            columns.reverse();
            let mut charged = Charged { before: found.bytes(), held };
            let grid = self.fill(kind, columns, query, &mut charged).await?.with_data();
            found = grid.followed_by(found, kind);
            if found.columns.len() >= count {
                return Ok(found.newest(count));
            }
            let Some(before) = oldest.0.checked_sub(1) else { return Ok(found) };
            last = CommitIndex(before);
            // Where data is sparse, take fewer and larger steps.
            requested = (requested * 2).min(COMMITS_MAX);
        }
    }

    /// Reads the cells of these commits, which are in ascending order.
    async fn fill(
        &self,
        kind: Kind,
        columns: Vec<CommitIndex>,
        query: &Query,
        charged: &mut Charged<'_>,
    ) -> Result<Grid> {
        let mut tiles: BTreeMap<Tile, Vec<(Offset, usize)>> = BTreeMap::new();
        for (at, index) in columns.iter().enumerate() {
            let (tile, offset) = self.tile_of(*index);
            tiles.entry(tile).or_default().push((offset, at));
        }
        let mut filling = Filling::new(kind, columns.len());
        for (tile, wanted) in &tiles {
            let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { continue };
            let mut positions = vec![None; usize::from(self.settings().tile)];
            wanted.iter().for_each(|(offset, at)| positions[usize::from(*offset)] = Some(*at));
            let mut scan = self.scan(kind, *tile, (first.0, last.0), query).await?;
            while let Some(trace) = scan.next().await? {
                let cells = trace
                    .cells
                    .into_iter()
                    .filter_map(|(offset, value)| Some((positions[usize::from(offset)]?, value)));
                filling.add(trace.params, cells, tiles.len() > 1)?;
                charged.cover(filling.bytes()).await?;
            }
            filling.skipped += scan.skipped;
        }
        // Only now, because a mapping is written before any cell that uses it.
        let digests = self.digests(&filling.ids).await?;
        filling.finish(columns, &digests)
    }

    /// Returns the keys and values that occur in a range of commits.
    pub fn param_set(
        &self,
        first: CommitIndex,
        last: CommitIndex,
    ) -> Pending<'_, Result<ParamSet>> {
        Box::pin(async move {
            let ((oldest, _), (newest, _)) = (self.tile_of(first), self.tile_of(last));
            let mut all = ParamSet::default();
            for (tile, bytes) in self.read_all_sets().await? {
                if (oldest..=newest).contains(&tile) {
                    let set = crate::ordered::OrderedParamSet::from_bytes(&bytes)
                        .map_err(|what| Error::Damaged { row: "a param set".into(), what })?;
                    all.add_all(&set.param_set());
                }
            }
            Ok(all)
        })
    }
}

/// The reservation that a growing grid is charged to, in addition to newer columns that
/// are already held.
struct Charged<'h> {
    before: u64,
    held: &'h mut RequestMemory,
}

impl Charged<'_> {
    async fn cover(&mut self, bytes: u64) -> Result<()> {
        self.held.cover(self.before + bytes).await
    }
}

/// A grid that is being filled, tile by tile.
struct Filling {
    kind: Kind,
    columns: usize,
    traces: Vec<GridTrace>,
    positions: HashMap<Params, usize>,
    /// Digest ids in the order of their numbers in the grid.
    ids: Vec<u64>,
    numbers: HashMap<u64, u32>,
    skipped: usize,
}

impl Filling {
    fn new(kind: Kind, columns: usize) -> Filling {
        Filling {
            kind,
            columns,
            traces: Vec::new(),
            positions: HashMap::new(),
            ids: Vec::new(),
            numbers: HashMap::new(),
            skipped: 0,
        }
    }

    /// Returns the approximate memory it uses.
    fn bytes(&self) -> u64 {
        grid_bytes(self.kind, self.traces.len(), self.columns, self.ids.len())
    }

    fn add(
        &mut self,
        params: Params,
        cells: impl Iterator<Item = (usize, u64)>,
        may_come_again: bool,
    ) -> Result<()> {
        let mut cells = cells.peekable();
        if cells.peek().is_none() {
            return Ok(());
        }
        let known = if may_come_again { self.positions.get(&params).copied() } else { None };
        let at = match known {
            Some(at) => at,
            None => {
                if (self.traces.len() + 1) * self.columns > CELLS_MAX {
                    return Err(Error::TooLarge(format!(
                        "the result has more than {CELLS_MAX} cells: narrow the query or the window"
                    )));
                }
                if may_come_again {
                    self.positions.insert(params.clone(), self.traces.len());
                }
                let missing = Cells::missing(self.kind, self.columns);
                self.traces.push(GridTrace { params, cells: missing });
                self.traces.len() - 1
            }
        };
        match &mut self.traces[at].cells {
            Cells::Numbers(row) => cells.for_each(|(at, bits)| row[at] = f64::from_bits(bits)),
            Cells::Digests(row) => {
                // Adjacent cells are mostly equal.
                let mut last = (0, 0);
                for (at, id) in cells {
                    if id != last.0 {
                        let next = self.ids.len() as u32 + 1;
                        let number = *self.numbers.entry(id).or_insert(next);
                        if number == next {
                            self.ids.push(id);
                        }
                        last = (id, number);
                    }
                    row[at] = last.1;
                }
            }
        }
        Ok(())
    }

    fn finish(self, columns: Vec<CommitIndex>, digests: &HashMap<u64, Digest>) -> Result<Grid> {
        let digest = |id: &u64| {
            digests.get(id).copied().ok_or_else(|| Error::Damaged {
                row: "the digest map".into(),
                what: format!("id {id} has no digest"),
            })
        };
        let digests = self.ids.iter().map(digest).collect::<Result<_>>()?;
        let mut traces = self.traces;
        traces.sort_unstable_by(|one, other| one.params.cmp(&other.params));
        Ok(Grid { columns, traces, digests, skipped: self.skipped })
    }
}

/// Returns the approximate memory of a grid with this many traces, columns and digests.
fn grid_bytes(kind: Kind, traces: usize, columns: usize, digests: usize) -> u64 {
    let cell = match kind {
        Kind::Digests => size_of::<u32>(),
        Kind::Numbers => size_of::<f64>(),
    };
    traces as u64 * (TRACE_BYTES + (columns * cell) as u64) + digests as u64 * DIGEST_BYTES
}

impl Grid {
    /// Returns the approximate memory it uses.
    fn bytes(&self) -> u64 {
        let kind = match self.traces.first().map(|trace| &trace.cells) {
            Some(Cells::Numbers(_)) => Kind::Numbers,
            _ => Kind::Digests,
        };
        grid_bytes(kind, self.traces.len(), self.columns.len(), self.digests.len())
    }

    fn empty() -> Grid {
        Grid { columns: vec![], traces: vec![], digests: vec![], skipped: 0 }
    }

    /// Keeps only the columns where any trace has data.
    fn with_data(self) -> Grid {
        let has_data =
            |column: &usize| self.traces.iter().any(|trace| !trace.cells.is_missing(*column));
        let kept: Vec<usize> = (0..self.columns.len()).filter(has_data).collect();
        self.project(&kept)
    }

    /// Keeps only the newest columns.
    fn newest(self, count: usize) -> Grid {
        let kept: Vec<usize> =
            (self.columns.len().saturating_sub(count)..self.columns.len()).collect();
        self.project(&kept)
    }

    /// Keeps only some columns, and only traces that have data in them.
    fn project(self, kept: &[usize]) -> Grid {
        if kept.len() == self.columns.len() {
            return self;
        }
        let columns = kept.iter().map(|at| self.columns[*at]).collect();
        let traces = self.traces.into_iter().filter_map(|trace| {
            if kept.iter().all(|at| trace.cells.is_missing(*at)) {
                return None;
            }
            let cells = match trace.cells {
                Cells::Digests(cells) => Cells::Digests(kept.iter().map(|at| cells[*at]).collect()),
                Cells::Numbers(cells) => Cells::Numbers(kept.iter().map(|at| cells[*at]).collect()),
            };
            Some(GridTrace { params: trace.params, cells })
        });
        Grid { columns, traces: traces.collect(), ..self }
    }

    /// Appends the columns of a newer grid.
    fn followed_by(mut self, newer: Grid, kind: Kind) -> Grid {
        if newer.columns.is_empty() {
            return self;
        }
        let mut numbers: HashMap<Digest, u32> =
            self.digests.iter().zip(1..).map(|(digest, number)| (*digest, number)).collect();
        let mut renumbered = vec![0];
        for digest in newer.digests {
            let next = self.digests.len() as u32 + 1;
            let number = *numbers.entry(digest).or_insert(next);
            if number == next {
                self.digests.push(digest);
            }
            renumbered.push(number);
        }
        let (left, right) = (self.columns.len(), newer.columns.len());
        self.columns.extend(newer.columns);
        self.skipped += newer.skipped;
        let mut traces: BTreeMap<Params, Cells> =
            self.traces.into_iter().map(|trace| (trace.params, trace.cells)).collect();
        for trace in newer.traces {
            let cells = traces.entry(trace.params).or_insert_with(|| Cells::missing(kind, left));
            match (cells, trace.cells) {
                (Cells::Digests(cells), Cells::Digests(more)) => {
                    cells.extend(more.iter().map(|number| renumbered[*number as usize]));
                }
                (Cells::Numbers(cells), Cells::Numbers(more)) => cells.extend(more),
                _ => unreachable!("both grids have the same kind"),
            }
        }
        for cells in traces.values_mut() {
            match cells {
                Cells::Digests(cells) => cells.resize(left + right, 0),
                Cells::Numbers(cells) => cells.resize(left + right, f64::NAN),
            }
        }
        let traces = traces.into_iter().map(|(params, cells)| GridTrace { params, cells });
        Grid { traces: traces.collect(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(columns: &[u32], traces: &[(&str, &[u32])], digests: u8) -> Grid {
        Grid {
            columns: columns.iter().copied().map(CommitIndex).collect(),
            traces: traces
                .iter()
                .map(|(id, cells)| GridTrace {
                    params: Params::parse(id).unwrap(),
                    cells: Cells::Digests(cells.to_vec()),
                })
                .collect(),
            digests: (1..=digests).map(|number| Digest([number; 16])).collect(),
            skipped: 0,
        }
    }

    #[test]
    fn columns_and_traces_without_data_are_removed() {
        let made = grid(&[1, 2, 3, 4], &[(",a=1,", &[1, 0, 0, 2]), (",a=2,", &[0, 0, 0, 1])], 2);
        let kept = made.clone().with_data();
        assert_eq!(kept, grid(&[1, 4], &[(",a=1,", &[1, 2]), (",a=2,", &[0, 1])], 2));
        assert_eq!(kept.newest(1), grid(&[4], &[(",a=1,", &[2]), (",a=2,", &[1])], 2));
        let first = made.project(&[0]);
        assert_eq!(first, grid(&[1], &[(",a=1,", &[1])], 2));
        assert_eq!(grid(&[1], &[(",a=1,", &[0])], 0).with_data().columns, []);
    }

    #[test]
    fn newer_columns_are_appended_to_older_ones() {
        let mut newer = grid(&[5, 6], &[(",a=1,", &[1, 2]), (",a=3,", &[2, 0])], 0);
        newer.digests = vec![Digest([2; 16]), Digest([9; 16])];
        let older = grid(&[3], &[(",a=1,", &[1]), (",a=2,", &[2])], 2);
        let both = older.followed_by(newer, Kind::Digests);
        let mut expected = grid(
            &[3, 5, 6],
            &[(",a=1,", &[1, 2, 3]), (",a=2,", &[2, 0, 0]), (",a=3,", &[0, 3, 0])],
            2,
        );
        expected.digests.push(Digest([9; 16]));
        assert_eq!(both, expected);
    }
}
