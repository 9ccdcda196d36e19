//! Traps of the engine's design and defects of its predecessors: one test each, named
//! after the trap (T), the defect (D) or the rule that it checks.

#[path = "traps/compaction.rs"]
mod compaction;
#[path = "traps/durability.rs"]
mod durability;
#[path = "traps/fixture.rs"]
mod fixture;
#[path = "traps/limits.rs"]
mod limits;
#[path = "traps/memory.rs"]
mod memory;
#[path = "traps/order.rs"]
mod order;
#[path = "support/power.rs"]
mod power;
