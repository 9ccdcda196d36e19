//! Clients with native transactions: each reads a range, and writes only if
//! nothing in it has changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::{Random, SeededRandom};
use stele_metastore::command::{Execute, KeyRange, RangeQuery, Write};
use stele_metastore::node::Attempt;
use stele_metastore::{Floor, Node};

use super::clients::{Clients, Outcome};
use super::history::{Done, What};

const ACCOUNTS: u64 = 4;

impl Clients {
    /// Runs a client with native transactions.
    pub async fn transact(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        let mut count = 0;
        while !self.ended() {
            tokio::time::sleep(self.pause(&random)).await;
            let Some((member, run, node)) = self.members.choose(&random) else { continue };
            count += 1;
            let key = name(random.next_u64() % ACCOUNTS);
            let value = Bytes::from(format!("{client}.{count}"));
            let began = self.now();
            let done = execute(&node, &random, &key, value).await;
            let ended = self.now();
            if let Ok((revision, what)) = done
                && self.members.counts(member, run)
            {
                let done = Done { began, ended, revision, key, what };
                self.history.lock().done.push(done);
            }
        }
    }
}

fn name(account: u64) -> Bytes {
    Bytes::from(format!("account{account}"))
}

async fn execute(node: &Node, random: &SeededRandom, key: &Bytes, wrote: Bytes) -> Outcome {
    let range = KeyRange::prefix("account");
    let mut read: BTreeMap<Bytes, Option<Bytes>> =
        (0..ACCOUNTS).map(|account| (name(account), None)).collect();
    // A read that is out of date conflicts.
    let query = RangeQuery::new(range.clone());
    let summary = node.reader(Floor::Retained).range(&query, &mut |view| {
        let value = Bytes::copy_from_slice(view.value());
        read.insert(Bytes::copy_from_slice(view.key), Some(value));
    })?;
    let write = Write { key: key.clone(), value: Some(wrote.clone()), lease: 0 };
    let execute = Execute {
        read_revision: summary.revision,
        reads: vec![range],
        writes: vec![write],
        locks: Vec::new(),
    };
    let attempt = Attempt { id: random.next_u64(), age: Duration::ZERO };
    let answer = node.execute(execute, attempt).await?;
    Ok((answer.revision, What::Executed { read, wrote }))
}
