//! An S3 server for tests and benchmarks, on a directory:
//!
//! ```text
//! cargo run -p stele-objects --example s3d -- DIR [--listen ADDRESS] [--bucket NAME]
//!     [--latency-ms N] [--errors N] [--resets N] [--capacity BYTES] [--racy]
//! ```
//!
//! It prints the variables for a client, then serves until it is killed.

#[path = "../tests/support/s3d.rs"]
mod s3d;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use s3d::S3d;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("s3d: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: s3d DIR [--listen ADDRESS] ...")?);
    let mut listen = "127.0.0.1:9000".to_string();
    let mut bucket = "stele".to_string();
    let mut numbers = Vec::new();
    let mut racy = false;
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--listen" => listen = value()?,
            "--bucket" => bucket = value()?,
            "--racy" => racy = true,
            "--latency-ms" | "--errors" | "--resets" | "--capacity" => {
                let value = value()?;
                let number =
                    value.parse::<u64>().map_err(|_| format!("invalid {flag} {value:?}"))?;
                numbers.push((flag, number));
            }
            _ => return Err(format!("unknown flag {flag}")),
        }
    }
    let address: SocketAddr = listen.parse().map_err(|_| format!("invalid address {listen:?}"))?;
    let server = S3d::start_at(&dir, &bucket, address).map_err(|error| error.to_string())?;
    for (flag, number) in numbers {
        let fault: &AtomicU64 = match flag.as_str() {
            "--latency-ms" => &server.faults.latency_ms,
            "--errors" => &server.faults.errors,
            "--resets" => &server.faults.resets,
            _ => &server.faults.capacity_bytes,
        };
        fault.store(number, SeqCst);
    }
    server.faults.racy.store(racy, SeqCst);
    for (name, value) in server.variables() {
        println!("export {name}={value}");
    }
    println!("# stele serve --store s3://{bucket}/prefix");
    loop {
        std::thread::park();
    }
}
