//! `stele name stress`: benchmarks names against rows of the same size, in the same run
//! and on the same server.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use stele_bigtable_client::{
    Client, Filter, GcRule, Mutation, NewTable, Options as BigtableOptions, RowMutations, Table,
};
use stele_mounttable::proto::mounttable_client::MounttableClient;
use stele_mounttable::{NodeName, proto};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::rows::{INSTANCE, PROJECT};
use crate::Outcome;
use crate::connect::{NameServer, threads};
use crate::output::{count, json_line, table};
use crate::proc_stat::ProcStat;

/// The number of mounts per third-level node, and of third-level nodes per second-level
/// node.
const FAN_OUT: u64 = 100;
/// The table of rows that names are compared with.
const ROWS_TABLE: &str = "stress";
const ROWS_FAMILY: &str = "m";
/// The number of rows per write.
const ROWS_PER_WRITE: usize = 1000;

/// Measure names: resolves, refreshes and a glob, compared with the server's own reads
/// and writes of rows.
#[derive(Args)]
#[command(after_help = "\
Example:
  stele serve --ephemeral &
  stele name stress --mounts 100000 --seconds 10

Mounts are created below `stress` with names of four elements and are deleted at
the end unless --keep is given. The server's limits must allow for them. With
several --root servers, calls are distributed among them in turn.")]
pub struct Stress {
    #[arg(long, default_value_t = 10_000)]
    mounts: u64,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of concurrent calls.
    #[arg(long, default_value_t = 64)]
    concurrency: u64,
    /// Number of connections that the calls share.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Number of children of the node that is globbed.
    #[arg(long, default_value_t = 10_000)]
    glob_children: u64,
    /// Processes, such as the servers, whose CPU time per call is reported.
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    cpu_of: Vec<u32>,
    /// Bigtable to read and write rows in for comparison, if not the same server.
    #[arg(long, value_name = "HOST")]
    bigtable: Option<String>,
    /// Keep the mounts for the next run, which creates only missing ones.
    #[arg(long)]
    keep: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

/// The result of one measurement.
struct Measured {
    what: &'static str,
    calls: u64,
    seconds: f64,
    /// CPU time of the given processes.
    cpu: Option<Duration>,
    latencies_micros: Vec<u64>,
}

/// Mounts created for the measurements.
struct Filled {
    mounts: u64,
    per_second: f64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.calls as f64 / self.seconds
    }

    fn cpu_micros(&self) -> Option<f64> {
        Some(self.cpu?.as_secs_f64() * 1e6 / self.calls.max(1) as f64)
    }

    fn percentile(&self, share: f64) -> u64 {
        let at = (self.latencies_micros.len() as f64 * share) as usize;
        let last = self.latencies_micros.len().saturating_sub(1);
        self.latencies_micros.get(at.min(last)).copied().unwrap_or(0)
    }
}

impl Stress {
    pub fn run(self) -> anyhow::Result<Outcome> {
        threads(None)?.block_on(self.measure())?;
        Ok(Outcome::Sound)
    }

    async fn measure(self) -> anyhow::Result<()> {
        if self.mounts == 0 || self.concurrency == 0 || self.connections == 0 {
            bail!("--mounts, --concurrency and --connections must be at least 1");
        }
        let roots = self.name_server.roots()?;
        let mut channels = Vec::new();
        for root in roots.iter().cycle().take(self.connections.max(roots.len())) {
            let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{root}"))?;
            let channel = endpoint.tcp_nodelay(true).connect().await;
            channels.push(channel.with_context(|| format!("connecting to {root}"))?);
        }
        let host = self.bigtable.as_ref().or(roots.first()).map(String::as_str).unwrap_or_default();
        let mut options = BigtableOptions::new(host, PROJECT, INSTANCE);
        options.channels = self.connections;
        let rows = Client::connect(options).await?;
        let nodes = self.compared_rows(&rows).await?;
        let filled = self.fill(&channels).await?;

        let channels = Arc::new(channels);
        let table = nodes.clone();
        let reads = self.pace("row read", move |number| {
            let (nodes, key) = (table.clone(), row_key(&name(number)));
            async move {
                let row = nodes.read_row(key, Some(Filter::latest())).await?;
                row.map(drop).context("a row is missing")
            }
        });
        let reads = reads.await?;
        let shared = channels.clone();
        let resolves = self.pace("resolve", move |number| {
            let mut client = client(&shared, number);
            let request = proto::ResolveRequest { name: name(number) };
            async move { Ok(client.resolve_step(request).await.map(drop)?) }
        });
        let resolves = resolves.await?;
        let writes = self.pace("row write", move |number| {
            let (nodes, key) = (nodes.clone(), format!("~stress{number}"));
            let mutation = Mutation::set_at(ROWS_FAMILY, "x", 1000, "0123456789abcdef");
            async move { Ok(nodes.mutate_row(key, [mutation]).await?) }
        });
        let writes = writes.await?;
        let shared = channels.clone();
        let mounts = self.pace("mount refresh", move |number| {
            let mut client = client(&shared, number);
            async move { Ok(client.mount(mount(number)).await.map(drop)?) }
        });
        let mounts = mounts.await?;
        rows.drop_table(ROWS_TABLE).await?;
        let (found, first, whole) = self.glob(&channels[0]).await?;
        if !self.keep {
            self.clean(&channels[0]).await?;
        }
        self.print(filled, &[reads, resolves, writes, mounts], found, first, whole)
    }

    /// Creates a table with one row per mount, of the same size as a node's row.
    async fn compared_rows(&self, rows: &Client) -> anyhow::Result<Table> {
        if rows.list_tables().await?.iter().any(|id| id == ROWS_TABLE) {
            rows.drop_table(ROWS_TABLE).await?;
        }
        let one = NewTable::new(ROWS_TABLE).family(ROWS_FAMILY, GcRule::MaxVersions(1));
        rows.create_table(one).await?;
        let table = rows.table(ROWS_TABLE)?;
        let numbers: Vec<u64> = (0..self.mounts).collect();
        for batch in numbers.chunks(ROWS_PER_WRITE) {
            let row = |number: &u64| RowMutations::new(row_key(&name(*number)), node_cells());
            for written in table.mutate_rows(batch.iter().map(row)).await {
                written.context("writing rows to compare with")?;
            }
        }
        Ok(table)
    }

    /// Creates the missing mounts.
    async fn fill(&self, channels: &[Channel]) -> anyhow::Result<Filled> {
        let all: Vec<_> =
            (0..self.mounts).map(mount).chain((0..self.glob_children).map(child)).collect();
        let missing = if self.keep { missing(channels, all).await? } else { all };
        let (started, count) = (Instant::now(), missing.len() as u64);
        let missing = Arc::new(parking_lot::Mutex::new(missing.into_iter()));
        let mut workers = JoinSet::new();
        for worker in 0..self.concurrency {
            let missing = missing.clone();
            let mut client = client(channels, worker);
            workers.spawn(async move {
                loop {
                    let Some(request) = missing.lock().next() else { return anyhow::Ok(()) };
                    client.mount(request).await.context("creating mounts")?;
                }
            });
        }
        while let Some(done) = workers.join_next().await {
            done??;
        }
        Ok(Filled { mounts: count, per_second: count as f64 / started.elapsed().as_secs_f64() })
    }

    /// Repeats one operation from many tasks for the given time.
    async fn pace<F>(
        &self,
        what: &'static str,
        call: impl Fn(u64) -> F + Send + Sync + 'static,
    ) -> anyhow::Result<Measured>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let cpu_before = self.cpu()?;
        let started = Instant::now();
        let end = started + Duration::from_secs(self.seconds);
        let call = Arc::new(call);
        let mut workers = JoinSet::new();
        for worker in 0..self.concurrency {
            let (call, mounts) = (call.clone(), self.mounts);
            workers.spawn(async move {
                let mut latencies = Vec::new();
                // Visits the mounts in pseudo-random order.
                let mut number = (worker + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                while Instant::now() < end {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let begun = Instant::now();
                    call((number >> 33) % mounts).await?;
                    latencies.push(begun.elapsed().as_micros() as u64);
                }
                anyhow::Ok(latencies)
            });
        }
        let mut all = Vec::new();
        while let Some(latencies) = workers.join_next().await {
            all.extend(latencies??);
        }
        all.sort_unstable();
        let seconds = started.elapsed().as_secs_f64();
        let cpu = self.cpu()?.zip(cpu_before).map(|(after, before)| after - before);
        Ok(Measured { what, calls: all.len() as u64, seconds, cpu, latencies_micros: all })
    }

    /// Returns the CPU time that the given processes have used so far.
    fn cpu(&self) -> anyhow::Result<Option<Duration>> {
        if self.cpu_of.is_empty() {
            return Ok(None);
        }
        let mut seconds = 0.0;
        for &pid in &self.cpu_of {
            seconds += ProcStat::of(pid)?.cpu_seconds();
        }
        Ok(Some(Duration::from_secs_f64(seconds)))
    }

    /// Returns the number of entries found, and the microseconds to the first and the
    /// last.
    async fn glob(&self, channel: &Channel) -> anyhow::Result<(u64, u64, u64)> {
        let mut client = MounttableClient::new(channel.clone());
        let started = Instant::now();
        let request = proto::GlobRequest { name: "stress-glob".into(), pattern: "*".into() };
        let mut replies = client.glob(request).await?.into_inner();
        let (mut found, mut first) = (0, 0);
        while replies.message().await?.is_some() {
            if found == 0 {
                first = started.elapsed().as_micros() as u64;
            }
            found += 1;
        }
        Ok((found, first, started.elapsed().as_micros() as u64))
    }

    async fn clean(&self, channel: &Channel) -> anyhow::Result<()> {
        let mut client = MounttableClient::new(channel.clone());
        for name in ["stress", "stress-glob"] {
            let mut request = tonic::Request::new(proto::DeleteRequest {
                name: name.into(),
                delete_subtree: true,
            });
            request.set_timeout(Duration::from_secs(3600));
            client.delete(request).await.context("removing the mounts")?;
        }
        Ok(())
    }

    fn print(
        &self,
        filled: Filled,
        measured: &[Measured; 4],
        found: u64,
        first: u64,
        whole: u64,
    ) -> anyhow::Result<()> {
        let [reads, resolves, writes, mounts] = measured;
        let (resolve_share, mount_share) =
            (resolves.rate() / reads.rate(), mounts.rate() / writes.rate());
        let mut out = io::stdout().lock();
        if self.json {
            let one = |measured: &Measured| {
                json!({
                    "per_second": measured.rate(),
                    "p50_micros": measured.percentile(0.5),
                    "p99_micros": measured.percentile(0.99),
                    "cpu_micros": measured.cpu_micros(),
                })
            };
            let line = json!({
                "mounts": self.mounts,
                "new_mounts": filled.mounts,
                "new_mounts_per_second": filled.per_second,
                "row_read": one(reads),
                "resolve": one(resolves),
                "row_write": one(writes),
                "mount_refresh": one(mounts),
                "resolve_to_row_read": resolve_share,
                "mount_refresh_to_row_write": mount_share,
                "glob": {"entries": found, "first_micros": first, "whole_micros": whole},
            });
            return Ok(json_line(&mut out, &line)?);
        }
        let mut rows = table(&["", "per second", "p50 us", "p99 us", "CPU us"], 1);
        for measured in measured {
            rows.add_row([
                measured.what.to_string(),
                count(measured.rate() as u64),
                count(measured.percentile(0.5)),
                count(measured.percentile(0.99)),
                measured.cpu_micros().map_or("-".into(), |micros| format!("{micros:.1}")),
            ]);
        }
        writeln!(out, "{rows}")?;
        let (created, rate) = (count(filled.mounts), count(filled.per_second as u64));
        writeln!(out, "{created} mounts created, {rate} per second")?;
        writeln!(
            out,
            "resolve / row read {resolve_share:.2}, refresh / row write {mount_share:.2}"
        )?;
        writeln!(
            out,
            "glob: first of {} after {:.1} ms, last after {:.1} ms",
            count(found),
            first as f64 / 1000.0,
            whole as f64 / 1000.0
        )?;
        Ok(())
    }
}

fn client(channels: &[Channel], number: u64) -> MounttableClient<Channel> {
    MounttableClient::new(channels[number as usize % channels.len()].clone())
}

/// Returns a name of four elements.
fn name(number: u64) -> String {
    let (leaf, middle, top) =
        (number % FAN_OUT, number / FAN_OUT % FAN_OUT, number / FAN_OUT / FAN_OUT);
    format!("stress/{top}/{middle}/{leaf}")
}

fn row_key(name: &str) -> String {
    NodeName::parse(name).expect("four short elements are a valid name").row_key()
}

fn mount(number: u64) -> proto::MountRequest {
    let server = format!("127.0.0.1:{}", 1 + number % 65_000);
    proto::MountRequest { name: name(number), server, ttl_seconds: 3600, flags: 0 }
}

/// Returns a mount of a child of the globbed node.
fn child(number: u64) -> proto::MountRequest {
    proto::MountRequest { name: format!("stress-glob/{number}"), ..mount(number) }
}

/// Returns the cells of a node with one server.
fn node_cells() -> [Mutation; 4] {
    let set = |column: &'static str, value: &'static str| {
        Mutation::set_at(ROWS_FAMILY, column, 1000, value)
    };
    [
        set("c", "self:?:Unauthenticated"),
        set("p", r#"{"Admin":{"In":["..."]},"Read":{"In":["..."]},"Resolve":{"In":["..."]}}"#),
        set("v", "0123456789abcdef"),
        set("127.0.0.1:65000", "0123456789abcdef"),
    ]
}

/// Returns the mounts that do not exist yet.
async fn missing(
    channels: &[Channel],
    all: Vec<proto::MountRequest>,
) -> anyhow::Result<Vec<proto::MountRequest>> {
    let mut client = client(channels, 0);
    let mut missing = Vec::new();
    for request in all {
        let wanted = proto::ResolveRequest { name: request.name.clone() };
        match client.resolve_step(wanted).await {
            Ok(_) => {}
            Err(status) if status.code() == tonic::Code::NotFound => missing.push(request),
            Err(status) => return Err(status).context("looking for mounts"),
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_have_four_elements_and_none_comes_twice() {
        let names: HashSet<_> = (0..20_500).map(name).collect();
        assert_eq!(names.len(), 20_500);
        assert!(names.iter().all(|name| name.split('/').count() == 4));
    }
}
