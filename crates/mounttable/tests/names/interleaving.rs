//! Operations of several servers, interleaved call by call: one storage call at a time
//! continues, in an order determined by a seed. In any order, all rows are consistent
//! in the end, and no mount is lost that was not removed.

use std::collections::BTreeMap;

use stele_bigtable_client::{Client, Mutation};
use stele_mounttable::access::Permissions;
use stele_mounttable::node::{CHILDREN, PRESENT, reference_column};
use stele_mounttable::{Error, Mount, Mounttable, NodeName, fsck};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::world::{Grace, Rows, World, client_of, root};

const NAMES: [&str; 3] = ["p/c", "p/c/d", "p/e"];
const TOPS: [&str; 3] = ["p", "p/c", "p/c/d"];
/// A reference left by a crashed process.
const STALE_ID: &str = "deadbeef";

#[derive(Clone, Copy, Debug)]
enum Operation {
    Mount(&'static str),
    Unmount(&'static str),
    Delete(&'static str),
    DeleteSubtree(&'static str),
    SetPermissions(&'static str),
}

/// A seeded random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// Returns an operation that creates or deletes one row, where the order matters
    /// most.
    fn close_operation(&mut self) -> Operation {
        match self.below(3) {
            0 => Operation::DeleteSubtree("p"),
            _ => Operation::Mount("p/c"),
        }
    }

    fn operation(&mut self) -> Operation {
        let name = NAMES[self.below(NAMES.len())];
        match self.below(8) {
            0..4 => Operation::Mount(name),
            4 => Operation::Unmount(name),
            5 => Operation::Delete(name),
            6 => Operation::DeleteSubtree(TOPS[self.below(TOPS.len())]),
            _ => Operation::SetPermissions(name),
        }
    }
}

fn server(operation: usize) -> String {
    format!("/h:{operation}")
}

async fn carry_out(table: &Mounttable, operation: Operation, number: usize) {
    let call = root().call();
    let done = match operation {
        Operation::Mount(name) => {
            table.mount(&call, name, &Mount::new(server(number), 0)).await.map(drop)
        }
        Operation::Unmount(name) => table.unmount(&call, name, "").await,
        Operation::Delete(name) => match table.delete(&call, name, false).await {
            Err(Error::NotEmpty { .. }) => Ok(()),
            done => done,
        },
        Operation::DeleteSubtree(name) => table.delete(&call, name, true).await,
        Operation::SetPermissions(name) => {
            table.set_permissions(&call, name, &Permissions::open(), "").await.map(drop)
        }
    };
    done.unwrap_or_else(|error| panic!("{operation:?}: {error}"));
}

/// An event of the operations for the scheduler.
enum Event {
    /// The next storage call is waiting for a permission to continue.
    Waits(usize, oneshot::Sender<()>),
    Done,
}

/// A client on which every call waits for its turn.
fn gated(rows: &Rows, operation: usize, events: mpsc::UnboundedSender<Event>) -> Client {
    let gate = move |request: axum::extract::Request, next: axum::middleware::Next| {
        let (go, went) = oneshot::channel();
        let sent = events.send(Event::Waits(operation, go));
        async move {
            sent.expect("the scheduler outlives the operations");
            went.await.expect("the scheduler lets every call go on");
            next.run(request).await
        }
    };
    client_of(rows.router().layer(axum::middleware::from_fn(gate)))
}

/// Runs operations so that one call at a time continues.
async fn interleave(world: &World, operations: &[Operation], dice: &mut Dice) {
    let (events_sender, mut events) = mpsc::unbounded_channel();
    let mut running = JoinSet::new();
    for (number, operation) in operations.iter().copied().enumerate() {
        let client = gated(&world.rows, number, events_sender.clone());
        let table = world.rows.server_with(&client, world.options());
        let events_sender = events_sender.clone();
        running.spawn(async move {
            carry_out(&table, operation, number).await;
            events_sender.send(Event::Done).expect("the scheduler outlives the operations");
        });
    }
    let mut waiting = BTreeMap::new();
    let (mut open, mut last) = (operations.len(), 0);
    while open > 0 {
        while waiting.len() < open {
            tokio::select! {
                biased;
                event = events.recv() => match event.expect("operations are running") {
                    Event::Waits(number, go) => drop(waiting.insert(number, go)),
                    Event::Done => open -= 1,
                },
                Some(ended) = running.join_next() => ended.unwrap(),
            }
        }
        if open == 0 {
            break;
        }
        // Most operations continue for a few calls before another has its turn.
        if !waiting.contains_key(&last) || dice.below(3) == 0 {
            let at = dice.below(waiting.len());
            last = *waiting.keys().nth(at).expect("an operation is waiting");
        }
        let go = waiting.remove(&last).expect("the operation is waiting");
        go.send(()).expect("the waiting call exists");
        world.clock.advance(std::time::Duration::from_millis(50));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Returns whether this operation could have removed the servers of a name.
fn takes(operation: &Operation, name: &str) -> bool {
    match operation {
        Operation::Unmount(gone) | Operation::Delete(gone) => name == *gone,
        Operation::DeleteSubtree(top) => name == *top || name.starts_with(&format!("{top}/")),
        _ => false,
    }
}

async fn check(world: &World, operations: &[Operation], seed: u64) {
    let report = fsck::check(world.table.rows()).await.unwrap();
    let is_old = |problem: &fsck::Problem| matches!(problem, fsck::Problem::Dangling { id, .. } if id == STALE_ID);
    let new: Vec<_> = report.problems.iter().filter(|problem| !is_old(problem)).collect();
    assert!(new.is_empty(), "seed {seed} {operations:?}: {new:?}");
    for (number, operation) in operations.iter().enumerate() {
        let Operation::Mount(name) = operation else { continue };
        if operations.iter().any(|other| takes(other, name)) {
            continue;
        }
        let found = world.table.rows().get_now(&NodeName::parse(name).unwrap()).await.unwrap();
        let node = found.unwrap_or_else(|| panic!("seed {seed} {operations:?}: no {name}"));
        let is_there = node.servers.iter().any(|there| there.address == server(number));
        assert!(is_there, "seed {seed} {operations:?}: {node:?}");
    }
}

async fn leave_stale_reference(world: &World) {
    let rows = world.rows.client.table(&world.rows.table).unwrap();
    let key = NodeName::parse("p").unwrap().row_key();
    let stale = Mutation::set(CHILDREN, reference_column(STALE_ID, "c"), PRESENT);
    rows.mutate_row(key, [stale]).await.unwrap();
}

#[tokio::test]
async fn every_row_has_a_reference_whatever_the_order_of_calls() {
    let seeds = if std::env::var_os("STELE_LONG").is_some() { 20_000 } else { 150 };
    let world = World::in_process(Grace::None).await;
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let operations = match dice.below(2) {
            0 => prepare_close(&world, &mut dice).await,
            _ => prepare(&world, &mut dice).await,
        };
        interleave(&world, &operations, &mut dice).await;
        world.clock.advance(std::time::Duration::from_secs(2));
        check(&world, &operations, seed).await;
        world.delete(&root(), "p", true).await.unwrap();
        assert_eq!(world.nodes().await, 1, "seed {seed}");
    }
}

/// Creates a parent without children, and a few operations that meet there.
async fn prepare_close(world: &World, dice: &mut Dice) -> Vec<Operation> {
    let open = Permissions::open();
    world.table.set_permissions(&root().call(), "p", &open, "").await.unwrap();
    let many = 2 + dice.below(2);
    (0..many).map(|_| dice.close_operation()).collect()
}

/// Creates some of the names, perhaps with leftovers of a crashed server, and random
/// operations.
async fn prepare(world: &World, dice: &mut Dice) -> Vec<Operation> {
    for (number, name) in NAMES.iter().enumerate() {
        if dice.below(3) == 0 {
            world.mount(&root(), name, &server(90 + number), 0).await.unwrap();
        }
    }
    if world.resolve(&root(), "p/e").await.is_ok() && dice.below(2) == 0 {
        leave_stale_reference(world).await;
    }
    let many = 3 + dice.below(3);
    (0..many).map(|_| dice.operation()).collect()
}
