//! Serves what nobody serves. There is no master yet: each server looks at all tablets once
//! a second. A tablet without an owner, and the log of a dead server, has one preferred
//! server, which all compute alike; others take it over if it stays undone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use stele_engine::{RowRange, TableId};
use stele_grpc::backoff;
use stele_tables::Survey;
use stele_tables::recover::Recovered;
use stele_tables::rows::Holder;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;

use super::super::shutdown::Phases;
use super::Member;

const INTERVAL: Duration = Duration::from_secs(1);
/// After this many rounds anybody does it.
const ROUNDS_PREFERRED: u32 = 3;

type Tablet = (TableId, Option<Vec<u8>>);

/// Looks after the tablets of the cluster until the server shuts down.
pub async fn run(member: Arc<Member>, phases: &'static Phases) {
    let mut rounds = Rounds::default();
    loop {
        let pause = match rounds.run(&member).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => INTERVAL / 2 + backoff::jitter(INTERVAL / 2),
            Err(error) => {
                tracing::warn!(%error, "the tablets of the cluster were not looked after");
                INTERVAL
            }
        };
        tokio::select! {
            () = phases.draining.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

/// How often something was seen undone.
#[derive(Default)]
struct Rounds {
    unowned: HashMap<Tablet, u32>,
    dead: HashMap<u64, u32>,
}

impl Rounds {
    /// Recovers and loads. Returns whether there is probably more to do.
    async fn run(&mut self, member: &Member) -> anyhow::Result<bool> {
        let survey = member.server().survey().await?;
        let recovered = self.recover(member, &survey).await;
        let loaded = self.load(member, &survey).await?;
        Ok(recovered || loaded)
    }

    /// Recovers the tablets of dead servers. Returns whether there were any.
    async fn recover(&mut self, member: &Member, survey: &Survey) -> bool {
        self.dead.retain(|epoch, _| survey.dead.iter().any(|dead| dead.epoch == *epoch));
        let mut recovered = false;
        for dead in &survey.dead {
            let seen = self.dead.entry(dead.epoch).or_insert(0);
            *seen += 1;
            if *seen <= ROUNDS_PREFERRED && !is_preferred(member, survey, &dead.epoch.to_be_bytes())
            {
                continue;
            }
            tracing::info!(
                server = dead.id,
                epoch = dead.epoch,
                "recovering the tablets of a server"
            );
            match member.server().recover(dead).await {
                Ok(Recovered::Alive) => {}
                Ok(_) => recovered = true,
                Err(error) => {
                    tracing::error!(%error, epoch = dead.epoch, "tablets are not recovered yet");
                }
            }
        }
        recovered
    }

    /// Loads tablets that nobody owns. Returns whether there were any.
    async fn load(&mut self, member: &Member, survey: &Survey) -> anyhow::Result<bool> {
        let tablet = |(table, rows): &(TableId, RowRange)| (*table, rows.end.clone());
        self.unowned.retain(|known, _| survey.unowned.iter().any(|it| tablet(it) == *known));
        let mut chosen: BTreeMap<TableId, Vec<Option<Vec<u8>>>> = BTreeMap::new();
        if survey.unowned.is_empty() {
            return Ok(false);
        }
        let moving = member.moving().await?;
        for (table, end) in survey.unowned.iter().map(tablet) {
            let seen = self.unowned.entry((table, end.clone())).or_insert(0);
            *seen += 1;
            let may_load = match moving.get(&(table, end.clone())) {
                // It is being moved: only there.
                Some(target) => *target == member.server().holder().id,
                None if *seen > ROUNDS_PREFERRED => true,
                None => {
                    let name = [&table.0.to_be_bytes()[..], end.as_deref().unwrap_or(b">")];
                    is_preferred(member, survey, &name.concat())
                }
            };
            // Its table may not be known here yet.
            if may_load && member.knows(table) {
                chosen.entry(table).or_default().push(end);
            }
        }
        let mut loaded = 0;
        for (table, ends) in chosen {
            match member.server().load(table, &ends).await {
                Ok(loads) => loaded += loads.loaded,
                Err(error) => tracing::warn!(%error, table = table.0, "tablets were not loaded"),
            }
        }
        if loaded > 0 {
            tracing::info!(tablets = loaded, "loaded tablets that nobody served");
        }
        Ok(loaded > 0)
    }
}

/// Whether this server is the first of the live ones to do something.
fn is_preferred(member: &Member, survey: &Survey, what: &[u8]) -> bool {
    preferred(survey.live.iter().map(|(holder, _)| holder), what)
        == Some(&member.server().holder().id)
}

/// Returns the server that does something, which does not change when others come and go.
fn preferred<'h>(live: impl Iterator<Item = &'h Holder>, what: &[u8]) -> Option<&'h String> {
    let weight = |holder: &&Holder| xxh3_64(&[holder.id.as_bytes(), what].concat());
    live.max_by_key(weight).map(|holder| &holder.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_are_shared_out_and_stay_when_another_server_goes() {
        let holder = |id: &str| Holder { id: id.into(), epoch: 1 };
        let all = [holder("a"), holder("b"), holder("c")];
        let mut counts = HashMap::new();
        for number in 0..300_u32 {
            let what = number.to_be_bytes();
            let chosen = preferred(all.iter(), &what).unwrap();
            *counts.entry(chosen).or_insert(0) += 1;
            let without_c = preferred(all[..2].iter(), &what).unwrap();
            assert!(chosen == "c" || chosen == without_c);
        }
        assert!(counts.len() == 3 && counts.values().all(|&count| count > 50), "{counts:?}");
        assert_eq!(preferred([].iter(), b"x"), None);
    }
}
