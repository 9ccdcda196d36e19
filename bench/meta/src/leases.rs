//! Lease renewals: one lease per worker as fast as possible, or many leases at
//! intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stele_bench_wire::{Plan, Report, Step, StepResult, drive};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client::{Client, pb, text};
use crate::{Context, done, until_done};

/// A keep-alive stream.
struct Renewals {
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
}

impl Renewals {
    async fn open(mut client: Client, first: i64) -> Result<Renewals, String> {
        let (requests, sent) = mpsc::channel(16);
        // Some servers send nothing before the first request.
        let first = pb::LeaseKeepAliveRequest { id: first };
        requests.send(first).await.map_err(|error| error.to_string())?;
        let answers = client.lease.lease_keep_alive(ReceiverStream::new(sent)).await;
        let mut answers = answers.map_err(text)?.into_inner();
        answers.message().await.map_err(text)?;
        Ok(Renewals { requests, answers })
    }

    async fn renew(&mut self, id: i64) -> StepResult {
        let request = pb::LeaseKeepAliveRequest { id };
        self.requests.send(request).await.map_err(|error| error.to_string())?;
        let answer = self.answers.message().await.map_err(text)?;
        match answer.ok_or("the stream ended")?.ttl {
            1.. => done(1, 0),
            _ => Err("the lease has expired".into()),
        }
    }
}

async fn grant(client: &mut Client, ttl: i64) -> Result<i64, String> {
    let request = pb::LeaseGrantRequest { ttl, id: 0 };
    let granted = client.lease.lease_grant(request).await.map_err(text)?;
    Ok(granted.into_inner().id)
}

pub async fn keep_alive(plan: &Plan, cx: &Context) -> Report {
    let mut streams = Vec::new();
    for worker in 0..plan.concurrency {
        let mut client = cx.client(worker);
        let id = grant(&mut client, 60).await.expect("a lease");
        let stream = Renewals::open(client, id).await.expect("a stream of renewals");
        streams.push((id, Arc::new(Mutex::new(stream))));
    }
    let report = drive(plan, |worker| {
        let (id, stream) = streams[worker].clone();
        move || {
            let stream = stream.clone();
            async move { stream.lock().await.renew(id).await }
        }
    })
    .await;
    for (worker, (id, _)) in streams.iter().enumerate() {
        let request = pb::LeaseRevokeRequest { id: *id };
        let _ = cx.client(worker).lease.lease_revoke(request).await;
    }
    report
}

/// Grants `--leases` leases and renews each of them every ten seconds for `--seconds`.
/// An expired lease is an error.
pub async fn hold(plan: &Plan, cx: &Context) -> Report {
    const EVERY: Duration = Duration::from_secs(10);
    let next = Arc::new(AtomicU64::new(0));
    let granted = Arc::new(Mutex::new(Vec::new()));
    drive(&until_done(plan), |worker| {
        let (next, granted) = (next.clone(), granted.clone());
        let (client, leases) = (cx.client(worker), cx.leases);
        move || {
            let (granted, mut client) = (granted.clone(), client.clone());
            let more = next.fetch_add(1, Ordering::Relaxed) < leases;
            async move {
                if !more {
                    return Ok(Step::End);
                }
                let id = grant(&mut client, 30).await?;
                granted.lock().await.push(id);
                done(1, 0)
            }
        }
    })
    .await;
    let granted: Arc<Vec<i64>> = Arc::new(std::mem::take(&mut *granted.lock().await));
    let mut streams = Vec::new();
    for worker in 0..plan.concurrency {
        let stream = Renewals::open(cx.client(worker), granted[worker]).await;
        streams.push(Arc::new(Mutex::new(stream.expect("a stream of renewals"))));
    }
    let started = tokio::time::Instant::now();
    let workers = plan.concurrency;
    drive(plan, |worker| {
        let (stream, granted) = (streams[worker].clone(), granted.clone());
        let turns = Arc::new(AtomicU64::new(0));
        move || {
            let (stream, granted, turns) = (stream.clone(), granted.clone(), turns.clone());
            async move {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                // Each worker renews all its leases once in ten seconds.
                let share = (granted.len() / workers).max(1) as u64;
                let due = started + EVERY.mul_f64(turn as f64 / share as f64);
                tokio::time::sleep_until(due).await;
                let at = worker + (turn % share) as usize * workers;
                stream.lock().await.renew(granted[at.min(granted.len() - 1)]).await
            }
        }
    })
    .await
}
