//! Concurrency tests over many schedules: each test runs a few threads thousands of
//! times, and each time the scheduler chooses the next thread before every lock, wait,
//! atomic and file operation. A lost wakeup is a deadlock, which the scheduler detects
//! at once.
//!
//! `STELE_LONG=1` runs twenty times as many schedules. A failure prints its schedule;
//! with one test named, `STELE_SCHEDULE=<schedule>` replays it.

mod budget;
mod chain;
mod disk;
mod files;
mod groups;
mod log;
mod machine;
mod memory;
mod rows;
#[path = "../support/unsure.rs"]
mod unsure;
mod workers;

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

/// The engine's debug builds need more than the default stack.
const STACK_BYTES: usize = 512 << 10;
/// The number of points at which a schedule departs from strict priorities: enough for
/// bugs of three threads, each of which must stop at the wrong point.
const DEPTH: usize = 4;
const SEED: u64 = 0x57E1E;

/// Runs `body` under many schedules: half of them random at every step, half of them
/// with priorities that change at a few points, which finds the bugs that require one
/// thread to be delayed for long.
fn explore(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    if let Ok(schedule) = std::env::var("STELE_SCHEDULE") {
        return run(ReplayScheduler::new_from_encoded(&schedule), &body);
    }
    let factor = if std::env::var_os("STELE_LONG").is_some() { 20 } else { 1 };
    let half = schedules / 2 * factor;
    run(RandomScheduler::new_from_seed(SEED, half), &body);
    run(PctScheduler::new_from_seed(SEED, DEPTH, half), &body);
}

fn run(scheduler: impl Scheduler + 'static, body: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let body = body.clone();
    Runner::new(scheduler, config).run(move || body());
}
