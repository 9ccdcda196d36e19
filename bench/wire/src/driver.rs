//! A closed loop of workers.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::report::Report;
use crate::usage::proc_usage;

/// A finished operation: how many items and payload bytes it moved.
pub enum Step {
    Done {
        items: u64,
        bytes: u64,
    },
    /// An operation that is not reported.
    Uncounted,
    /// The worker has no more work.
    End,
}

pub type StepResult = Result<Step, String>;

pub struct Plan {
    pub concurrency: usize,
    /// Stop issuing operations after this long; `None` runs until every worker ends.
    pub seconds: Option<f64>,
    /// Operations that finish before this time are not counted.
    pub warmup: f64,
    pub server_pids: Vec<u32>,
}

/// Runs `concurrency` workers, each of which issues its next step as soon as the
/// previous one has finished. `make(worker)` builds a worker's step function.
pub async fn drive<M, F, Fut>(plan: &Plan, mut make: M) -> Report
where
    M: FnMut(usize) -> F,
    F: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = StepResult> + Send + 'static,
{
    let begin = Instant::now();
    let start = begin + Duration::from_secs_f64(plan.warmup);
    let deadline = plan.seconds.map(|s| start + Duration::from_secs_f64(s));
    let mut workers = Vec::new();
    for w in 0..plan.concurrency {
        let mut step = make(w);
        workers.push(tokio::spawn(async move {
            let mut r = Report::empty();
            loop {
                let t = Instant::now();
                if deadline.is_some_and(|d| t >= d) {
                    break;
                }
                let result = step().await;
                let now = Instant::now();
                if now < start && !matches!(result, Ok(Step::End)) {
                    continue;
                }
                match result {
                    Ok(Step::End) => break,
                    Ok(Step::Uncounted) => {}
                    Ok(Step::Done { items, bytes }) => {
                        r.ops += 1;
                        r.items += items;
                        r.bytes += bytes;
                        r.hist.saturating_record((now - t).as_nanos() as u64);
                    }
                    Err(e) => {
                        r.errors += 1;
                        r.first_error.get_or_insert(e);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            (r, Instant::now())
        }));
    }
    tokio::time::sleep_until(start.into()).await;
    let me = [std::process::id()];
    let (server0, client0) = (proc_usage(&plan.server_pids).0, proc_usage(&me).0);
    let mut total = Report::empty();
    let mut end = start;
    for w in workers {
        let (r, finished) = w.await.expect("worker panicked");
        end = end.max(finished);
        total.ops += r.ops;
        total.items += r.items;
        total.bytes += r.bytes;
        total.errors += r.errors;
        total.hist.add(&r.hist).expect("same bounds");
        if total.first_error.is_none() {
            total.first_error = r.first_error;
        }
    }
    let (server1, rss) = proc_usage(&plan.server_pids);
    total.secs = (end - start).as_secs_f64();
    total.server_cpu = server1 - server0;
    total.server_rss = rss;
    total.client_cpu = proc_usage(&me).0 - client0;
    total
}
