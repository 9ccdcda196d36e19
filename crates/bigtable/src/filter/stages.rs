//! A filter with conditions, as stages that process a whole row. Between two
//! stages the row is a list of items: kept cells and the changes made to them.
//! Parts without conditions are programs.

use stele_engine::Flow;

use super::node::Node;
use super::program::{Builder, Change, Program, ProgramOutput};
use super::program_state::ProgramState;
use super::row_buffer::RowBuffer;

/// The row is too large to be held.
pub struct RowTooLarge;

/// A copy of a kept cell.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub cell: u32,
    /// Its index in the input of the innermost interleave.
    slot: u32,
    pub change: Change,
}

impl Item {
    pub fn new(cell: u32, change: Change) -> Item {
        Item { cell, slot: 0, change }
    }
}

#[derive(Debug)]
pub struct Stages {
    /// What can be evaluated before the row is complete.
    pub first: Program,
    rest: Vec<Stage>,
}

#[derive(Debug)]
enum Stage {
    Run(Program),
    Interleave(Vec<Vec<Stage>>),
    Condition { predicate: Vec<Stage>, then: Vec<Stage>, otherwise: Vec<Stage> },
}

impl Stages {
    pub fn new(node: &Node, builder: &mut Builder) -> Stages {
        let stages = node.stages();
        let first = stages.iter().position(Node::has_condition).unwrap_or(stages.len());
        let (first, rest) = stages.split_at(first);
        Stages { first: builder.program(first), rest: chain(rest, builder) }
    }

    /// Runs a row through the stages. Returns the result in row order.
    pub fn apply(
        &self,
        row: &RowBuffer,
        state: &mut ProgramState,
        items: &[Item],
        sunk: &mut Vec<Item>,
    ) -> Result<Vec<Item>, RowTooLarge> {
        Run { row, state, sunk }.chain(&self.rest, items)
    }
}

/// Merges adjacent stages without conditions into one program.
fn chain(nodes: &[Node], builder: &mut Builder) -> Vec<Stage> {
    let parts = nodes.chunk_by(|a, b| !a.has_condition() && !b.has_condition());
    let stages = parts.map(|part| match part {
        [Node::Interleave(branches)] if part[0].has_condition() => {
            Stage::Interleave(branches.iter().map(|node| chain(node.stages(), builder)).collect())
        }
        [Node::Condition(condition)] => Stage::Condition {
            predicate: chain(condition.predicate.stages(), builder),
            then: chain(condition.then.stages(), builder),
            otherwise: chain(condition.otherwise.stages(), builder),
        },
        plain => Stage::Run(builder.program(plain)),
    });
    stages.collect()
}

struct Run<'r> {
    row: &'r RowBuffer,
    state: &'r mut ProgramState,
    sunk: &'r mut Vec<Item>,
}

impl Run<'_> {
    fn chain(&mut self, stages: &[Stage], items: &[Item]) -> Result<Vec<Item>, RowTooLarge> {
        let Some((first, rest)) = stages.split_first() else { return Ok(items.to_vec()) };
        let mut items = self.stage(first, items)?;
        for stage in rest {
            items = self.stage(stage, &items)?;
        }
        Ok(items)
    }

    fn stage(&mut self, stage: &Stage, items: &[Item]) -> Result<Vec<Item>, RowTooLarge> {
        match stage {
            Stage::Run(program) => self.run(program, items, usize::MAX),
            Stage::Interleave(branches) => self.interleave(branches, items),
            Stage::Condition { predicate, then, otherwise } => {
                let branch = if self.any(predicate, items)? { then } else { otherwise };
                self.chain(branch, items)
            }
        }
    }

    /// Runs a program until `most` items have come out.
    fn run(
        &mut self,
        program: &Program,
        items: &[Item],
        most: usize,
    ) -> Result<Vec<Item>, RowTooLarge> {
        let mut passed = Vec::new();
        for item in items {
            self.state.column = self.row.column(item.cell);
            let cell = self.row.get(item.cell);
            let mut output = Collect { item: *item, passed: &mut passed, sunk: self.sunk };
            let flow = program.run(self.state, &cell, item.change, &mut output);
            self.check()?;
            if flow >= Flow::NextRow || passed.len() >= most {
                break;
            }
        }
        Ok(passed)
    }

    /// Returns whether any item passes.
    fn any(&mut self, stages: &[Stage], items: &[Item]) -> Result<bool, RowTooLarge> {
        Ok(match stages {
            [] => !items.is_empty(),
            [Stage::Run(program)] => !self.run(program, items, 1)?.is_empty(),
            stages => !self.chain(stages, items)?.is_empty(),
        })
    }

    fn interleave(
        &mut self,
        branches: &[Vec<Stage>],
        items: &[Item],
    ) -> Result<Vec<Item>, RowTooLarge> {
        let before = self.state.row_bytes;
        self.hold(items.len())?;
        let numbered = items.iter().zip(0..);
        let input: Vec<_> = numbered.map(|(item, slot)| Item { slot, ..*item }).collect();
        let mut pool = Vec::new();
        for branch in branches {
            let passed = self.chain(branch, &input)?;
            self.hold(passed.len())?;
            pool.extend(passed);
        }
        pool.sort_by_key(|item| item.slot);
        for item in &mut pool {
            item.slot = items[item.slot as usize].slot;
        }
        // Of the held items, only the additional copies remain.
        self.state.row_bytes = before;
        self.hold(pool.len().saturating_sub(items.len()))?;
        Ok(pool)
    }

    /// Charges a list of items to the size of the row.
    fn hold(&mut self, items: usize) -> Result<(), RowTooLarge> {
        self.state.row_bytes += (items * size_of::<Item>()) as u64;
        self.check()
    }

    fn check(&self) -> Result<(), RowTooLarge> {
        if self.state.is_too_large() { Err(RowTooLarge) } else { Ok(()) }
    }
}

/// Collects the copies of one item.
struct Collect<'c> {
    item: Item,
    passed: &'c mut Vec<Item>,
    sunk: &'c mut Vec<Item>,
}

impl ProgramOutput for Collect<'_> {
    fn pass(&mut self, change: Change) {
        self.passed.push(Item { change, ..self.item });
    }

    fn sink(&mut self, change: Change) {
        self.sunk.push(Item { change, ..self.item });
    }
}
