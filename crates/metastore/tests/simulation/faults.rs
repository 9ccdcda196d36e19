//! Random faults: one at a time, at random moments.

use std::time::Duration;

use stele_metastore::Node;
use stele_metastore::command::LEVEL_MAX;
use tokio::time::timeout;

use super::run::Run;

/// How long they go on. Long runs are few, because many short ones find more.
const DISTURBED: Duration = Duration::from_secs(6);
const DISTURBED_LONG: Duration = Duration::from_secs(14);
/// How long a change of the members may take.
const CHANGE_MAX: Duration = Duration::from_secs(3);

impl Run {
    /// Does random things to the cluster.
    pub async fn disturb_at_random(&mut self) -> Result<(), String> {
        let long = self.seed.is_multiple_of(10);
        let disturbed = if long { DISTURBED_LONG } else { DISTURBED };
        // The members have started by now, which takes several seconds.
        let end = self.elapsed() + disturbed;
        while self.elapsed() < end {
            self.pause(100..1600).await;
            self.disturb().await?;
        }
        Ok(())
    }

    /// Does one random thing to the cluster.
    async fn disturb(&mut self) -> Result<(), String> {
        let member = self.choose_member();
        let leader = self.cluster.leader().unwrap_or(member);
        self.note(format_args!("leader {leader}"));
        match self.choose(22) {
            0 => self.crash(member),
            1 => self.crash(leader),
            // The whole cluster loses power.
            2 => self.cluster.members().into_iter().for_each(|member| self.crash(member)),
            3 => self.isolate(leader),
            4 => self.isolate(member),
            5 => self.silence(leader),
            6 => self.bridge(leader),
            7 => {
                let lost = self.choose(20);
                let (doubled, delay) = (self.choose(20), 1000 + self.choose(60_000));
                self.note(format_args!("degrade {lost} {doubled} {delay}"));
                self.cluster.network.degrade(lost, doubled, delay);
            }
            8 => self.transfer(leader).await,
            // What was applied is on disk, what was not synced is lost.
            9 => {
                self.flush(member)?;
                self.crash(member);
            }
            10 => {
                let stall = Duration::from_millis(500 + self.choose(3500));
                self.note(format_args!("the disk of {member} stalls for {stall:?}"));
                self.cluster.set_sync_times(member, stall..stall * 2);
            }
            11 => {
                self.note(format_args!("the disk of {member} is full"));
                self.cluster.fill_disk(member);
                self.full.insert(member);
            }
            12 => self.step_clock(member),
            13 => {
                self.note(format_args!("reset {leader}"));
                self.cluster.network.reset(leader);
            }
            14 => {
                for member in self.cluster.alive() {
                    self.flush(member)?;
                }
            }
            15..=17 => self.change_members().await?,
            _ => self.recover().await?,
        }
        Ok(())
    }

    /// Adds, promotes or removes a member, or upgrades the members. The outcome of a
    /// change may remain unknown.
    async fn change_members(&mut self) -> Result<(), String> {
        let alive = self.cluster.alive();
        let Some(at) = self.choose(alive.len() as u64 + 1).checked_sub(1) else { return Ok(()) };
        let node = self.cluster.node(alive[at as usize]).expect("it runs");
        let (members, size) = (self.cluster.members(), self.cluster.size);
        let joined = members.iter().copied().find(|member| *member > size);
        match (self.choose(4), joined) {
            (0, _) if self.mixed => self.upgrade(&node).await,
            (0 | 1, None) => {
                let url = format!("sim://new{}", self.choose(1 << 20));
                let added = timeout(CHANGE_MAX, node.add_member(vec![url], true)).await;
                self.note(format_args!("added {added:?}"));
                let Ok(Ok(id)) = added else { return Ok(()) };
                self.cluster.add(id);
                self.start_member(id).await
            }
            (_, Some(joined)) if is_learner(&node, joined) => {
                let promoted = timeout(CHANGE_MAX, node.promote_member(joined)).await;
                self.note(format_args!("promoted {joined}: {promoted:?}"));
                Ok(())
            }
            (_, Some(_)) => {
                let member = self.choose_member();
                let removed = timeout(CHANGE_MAX, node.remove_member(member)).await;
                self.note(format_args!("removed {member}: {removed:?}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Restarts the members of the former version with the newest, and raises the level.
    async fn upgrade(&mut self, node: &Node) -> Result<(), String> {
        self.note(format_args!("upgrade"));
        for member in self.cluster.members() {
            if self.cluster.upgrade(member) && self.cluster.node(member).is_some() {
                self.crash(member);
                self.start_member(member).await?;
            }
        }
        let raised = timeout(CHANGE_MAX, node.raise_level_of_group(LEVEL_MAX)).await;
        self.note(format_args!("raised {raised:?}"));
        Ok(())
    }

    /// Sets the wall clock of a member, up to a day ahead or behind.
    fn step_clock(&mut self, member: u64) {
        let hours = self.choose(49) as i64 - 24;
        self.note(format_args!("the clock of {member} is {hours} h ahead"));
        self.cluster.step_clock(member, hours * 3_600_000_000);
    }

    pub async fn transfer(&mut self, leader: u64) {
        self.note(format_args!("transfer from {leader}"));
        if let Some(node) = self.cluster.node(leader) {
            let _ = node.transfer_leader(None).await;
        }
    }

    /// Cuts the links from a member to the others, but not those to it.
    fn silence(&mut self, member: u64) {
        self.note(format_args!("one way from {member}"));
        let others = self.others(member).into_iter();
        others.for_each(|other| self.cluster.network.cut(member, other));
    }

    /// Cuts the members into two halves that only one member connects.
    fn bridge(&mut self, bridge: u64) {
        self.note(format_args!("bridge {bridge}"));
        let others = self.others(bridge);
        let (left, right) = others.split_at(others.len() / 2);
        for from in left {
            for to in right {
                self.cluster.network.cut(*from, *to);
                self.cluster.network.cut(*to, *from);
            }
        }
    }
}

fn is_learner(node: &Node, member: u64) -> bool {
    let members = node.members().unwrap_or_default();
    members.iter().any(|other| other.id == member && other.learner)
}
