//! Faults at the moment at which they hurt most, while clients work. Each
//! scenario detects one or more of the breakages of `consensus::Rules`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_metastore::Node;
use stele_metastore::command::{Command, Put, Reply};

use super::run::Run;

/// What happens to the cluster during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Random faults.
    Random,
    /// All members lose power during syncs; a majority starts again first.
    PowerLoss,
    /// A member whose log is synced late loses power right after it flushed its
    /// state.
    LateSync,
    /// The leader is cut off, more than once.
    Partitions,
    /// The leader is cut off while it expires leases and its queue is full.
    QueuedExpiry,
    /// One leader after the other fails or hands over.
    Failovers,
    /// The leader is cut off, and asked to renew a lease that the next one has revoked.
    LateRenewal,
    /// A member that had to remove entries is needed after a loss of power.
    OldCut,
}

/// How often a scenario repeats its faults.
const ROUNDS: u64 = 4;
const MILLISECOND: Duration = Duration::from_millis(1);

impl Run {
    pub async fn play(&mut self, scenario: Scenario) -> Result<(), String> {
        match scenario {
            Scenario::Random => return self.disturb_at_random().await,
            Scenario::QueuedExpiry => return self.queue_expiry().await,
            Scenario::OldCut => return self.replay_cut().await,
            _ => {}
        }
        for _ in 0..ROUNDS {
            match scenario {
                Scenario::PowerLoss => self.lose_power().await?,
                Scenario::LateSync => self.sync_late().await?,
                Scenario::Failovers => self.fail_over().await?,
                Scenario::LateRenewal => self.renew_late().await?,
                _ => self.depose().await?,
            }
        }
        Ok(())
    }

    /// Clients have answers that a member has synced and others are syncing. The
    /// others must have them too when that member stays away.
    async fn lose_power(&mut self) -> Result<(), String> {
        let size = self.cluster.size;
        self.await_leader().await?;
        for member in 1..=size {
            self.cluster.set_sync_times(member, Duration::ZERO..60 * MILLISECOND);
        }
        self.pause(200..600).await;
        (1..=size).for_each(|member| self.crash(member));
        let away = 1 + self.choose(size);
        self.note(format_args!("without {away}"));
        for member in (1..=size).filter(|member| *member != away) {
            self.start_member(member).await?;
        }
        self.await_leader().await?;
        self.pause(100..300).await;
        self.recover().await
    }

    /// A majority commits entries that a slow member has not synced.
    async fn sync_late(&mut self) -> Result<(), String> {
        self.await_leader().await?;
        let slow = 1 + self.choose(self.cluster.size);
        self.note(format_args!("slow disk of {slow}"));
        self.cluster.set_sync_times(slow, 300 * MILLISECOND..800 * MILLISECOND);
        self.pause(500..900).await;
        self.flush(slow)?;
        self.crash(slow);
        self.pause(0..500).await;
        self.recover().await
    }

    /// The others elect a leader while the old one does not know it.
    async fn depose(&mut self) -> Result<(), String> {
        let leader = self.await_leader().await?;
        self.isolate(leader);
        self.pause(1500..3500).await;
        self.recover().await?;
        self.pause(300..600).await;
        Ok(())
    }

    /// The TTL is so long that the deadline in the log allows renewals without an entry.
    async fn renew_late(&mut self) -> Result<(), String> {
        const TTL_SECONDS: i64 = 60;
        let old = self.await_leader().await?;
        let node = self.cluster.node(old).ok_or("the leader is down")?;
        let Ok(answer) = node.lease_grant(0, TTL_SECONDS).await else { return Ok(()) };
        let Reply::LeaseGrant { id, .. } = answer.reply else { return Ok(()) };
        let _ = node.keep_alive(id).await;
        self.isolate(old);
        let Some(others) = self.await_other_leader(old).await else {
            return self.recover().await;
        };
        let revoked = others.propose(Command::LeaseRevoke { id }).await.is_ok();
        if revoked {
            let renewal = tokio::time::timeout(1000 * MILLISECOND, node.keep_alive(id)).await;
            if let Ok(Ok(Some(_))) = renewal {
                return Err(format!("stale: {old} renewed a lease that had been revoked"));
            }
        }
        self.recover().await?;
        self.pause(300..600).await;
        Ok(())
    }

    /// Waits until a member that reaches the others leads, and returns it.
    async fn await_other_leader(&mut self, old: u64) -> Option<Arc<Node>> {
        let deadline = self.elapsed() + Duration::from_secs(5);
        while self.elapsed() < deadline {
            for member in self.others(old) {
                let Some(node) = self.cluster.node(member) else { continue };
                if node.status().leader_id == member {
                    self.note(format_args!("{member} leads beside {old}"));
                    return Some(node);
                }
            }
            tokio::time::sleep(10 * MILLISECOND).await;
        }
        None
    }

    async fn fail_over(&mut self) -> Result<(), String> {
        let leader = self.await_leader().await?;
        self.pause(1500..2500).await;
        match self.choose(3) {
            0 => self.isolate(leader),
            1 => self.crash(leader),
            _ => self.transfer(leader).await,
        }
        self.pause(2500..3500).await;
        self.recover().await
    }

    /// So many proposals of the old leader wait that the expiry of its leases is
    /// queued, until the members reach each other and the leases were renewed.
    async fn queue_expiry(&mut self) -> Result<(), String> {
        let leader = self.await_leader().await?;
        self.pause(1000..2000).await;
        self.isolate(leader);
        let node = self.cluster.node(leader).ok_or("the leader is down")?;
        for count in 0..100 {
            tokio::time::sleep(5 * MILLISECOND).await;
            let node = node.clone();
            let put = Put::new(Bytes::from(format!("flood{count}")), "");
            tokio::spawn(async move { node.propose(Command::Put(put)).await });
        }
        // Soon, because clients of the old leader do not renew their leases.
        self.await_other_leader(leader).await;
        self.pause(300..800).await;
        self.recover().await?;
        tokio::time::sleep(Duration::from_secs(7)).await;
        Ok(())
    }

    /// The old leader has removed entries, and then helped to commit others. It is
    /// one of the majority that starts again.
    async fn replay_cut(&mut self) -> Result<(), String> {
        let old = self.await_leader().await?;
        self.pause(300..600).await;
        self.isolate(old);
        self.pause(3000..4000).await;
        self.recover().await?;
        self.await_leader().await?;
        self.pause(500..1000).await;
        let size = self.cluster.size;
        let others: Vec<u64> = (1..=size).filter(|member| *member != old).collect();
        let (behind, ahead) = others.split_at(others.len() / 2);
        behind.iter().for_each(|member| self.crash(*member));
        self.await_leader().await?;
        self.pause(500..1000).await;
        self.crash(old);
        ahead.iter().for_each(|member| self.crash(*member));
        // All but one that had everything.
        for member in behind.iter().chain(&ahead[1..]).chain([&old]) {
            self.start_member(*member).await?;
        }
        self.await_leader().await?;
        self.pause(300..600).await;
        self.recover().await
    }
}
