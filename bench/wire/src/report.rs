//! The result of a run.

use std::fmt::Display;

use hdrhistogram::Histogram;

use crate::json::Json;

pub struct Report {
    pub ops: u64,
    pub items: u64,
    pub bytes: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub secs: f64,
    pub hist: Histogram<u64>,
    pub server_cpu: f64,
    pub server_rss: u64,
    pub client_cpu: f64,
}

impl Report {
    pub fn empty() -> Self {
        Report {
            ops: 0,
            items: 0,
            bytes: 0,
            errors: 0,
            first_error: None,
            secs: 0.0,
            hist: new_hist(),
            server_cpu: 0.0,
            server_rss: 0,
            client_cpu: 0.0,
        }
    }

    /// Prints the report as one JSON line, starting with the given fields.
    pub fn print(&self, head: &[(&str, &dyn Display)]) {
        let secs = self.secs.max(1e-9);
        let us = |q: f64| self.hist.value_at_quantile(q) as f64 / 1000.0;
        let mut line = Json::new(head);
        line.num("ops_s", self.ops as f64 / secs, 1);
        line.num("items_s", self.items as f64 / secs, 1);
        line.num("mb_s", self.bytes as f64 / secs / 1e6, 2);
        line.num("p50_us", us(0.5), 1);
        line.num("p99_us", us(0.99), 1);
        line.num("p999_us", us(0.999), 1);
        line.num("max_us", self.hist.max() as f64 / 1000.0, 1);
        line.num("secs", self.secs, 2);
        line.num("ops", self.ops as f64, 0);
        line.num("errors", self.errors as f64, 0);
        if self.server_rss > 0 {
            line.num("srv_cores", self.server_cpu / secs, 2);
            line.num("srv_cpu_us_op", self.server_cpu * 1e6 / self.ops.max(1) as f64, 1);
            line.num("srv_rss_mb", self.server_rss as f64 / 1e6, 1);
        }
        line.num("cli_cores", self.client_cpu / secs, 2);
        line.print();
        if let Some(e) = &self.first_error {
            eprintln!("first error: {e}");
        }
    }
}

pub fn new_hist() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds")
}
