//! Random faults: one at a time, at random moments.

use std::time::Duration;

use super::run::Run;

/// How long they go on.
const DISTURBED: Duration = Duration::from_secs(20);

impl Run {
    /// Does random things to the cluster.
    pub async fn disturb_at_random(&mut self) -> Result<(), String> {
        while self.elapsed() < DISTURBED {
            self.pause(100..1600).await;
            self.disturb().await?;
        }
        Ok(())
    }

    /// Does one random thing to the cluster.
    async fn disturb(&mut self) -> Result<(), String> {
        let size = self.cluster.size;
        let member = 1 + self.choose(size);
        let leader = self.cluster.leader().unwrap_or(member);
        self.note(format_args!("leader {leader}"));
        match self.choose(16) {
            0 => self.crash(member),
            1 => self.crash(leader),
            // The whole cluster loses power.
            2 => (1..=size).for_each(|member| self.crash(member)),
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
            }
            12 => self.step_clock(member),
            _ => self.recover().await?,
        }
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
        let others = (1..=self.cluster.size).filter(|other| *other != member);
        others.for_each(|other| self.cluster.network.cut(member, other));
    }

    /// Cuts the members into two halves that only one member connects.
    fn bridge(&mut self, bridge: u64) {
        self.note(format_args!("bridge {bridge}"));
        let others: Vec<u64> = (1..=self.cluster.size).filter(|other| *other != bridge).collect();
        let (left, right) = others.split_at(others.len() / 2);
        for from in left {
            for to in right {
                self.cluster.network.cut(*from, *to);
                self.cluster.network.cut(*to, *from);
            }
        }
    }
}
