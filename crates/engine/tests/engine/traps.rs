//! Traps of the engine's design and defects of its predecessors: one test each, named
//! after the trap (T), the defect (D) or the rule that it checks.

mod compaction;
mod durability;
mod fixture;
mod limits;
mod memory;
mod order;
