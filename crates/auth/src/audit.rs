//! The audit log: one line of JSON per decision that is recorded. It never contains row
//! keys, values or secrets.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use time::OffsetDateTime;

/// The most records that wait to be written.
const WAITING_MAX: usize = 8192;
/// The most equal records that are written each second; others are only counted.
const EQUAL_MAX: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of a text that a client chooses.
const TEXT_BYTES_MAX: usize = 512;

/// One recorded decision.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// The version of the format.
    pub v: u8,
    pub time: String,
    pub port: &'static str,
    pub peer: String,
    pub principal: String,
    /// The kind of credential.
    pub auth: &'static str,
    /// The id of a token, or a short hash of another credential.
    pub credential: String,
    /// The gRPC method, or the HTTP method and path.
    pub rpc: String,
    pub permission: String,
    pub resource: String,
    pub decision: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The status of the call, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    pub policy: u64,
    /// How many equal records were not written.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeated: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What makes records equal.
type Kind = (String, String, String, &'static str);

impl Record {
    fn kind(&self) -> Kind {
        let Record { principal, rpc, resource, decision, .. } = self;
        (principal.clone(), rpc.clone(), resource.clone(), decision)
    }

    fn line(&self) -> Vec<u8> {
        let mut record = self.clone();
        record.v = 1;
        let texts = [
            &mut record.principal,
            &mut record.rpc,
            &mut record.resource,
            &mut record.reason,
            &mut record.peer,
        ];
        for text in texts {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        // JSON escapes control characters, so a text cannot end the line.
        let mut line =
            serde_json::to_vec(&record).expect("text and numbers can be written as JSON");
        line.push(b'\n');
        line
    }
}

/// Returns a time as records show it.
pub fn timestamp(unix_micros: i64) -> String {
    let nanos = i128::from(unix_micros) * 1000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos);
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, micros) = (time.date(), time.microsecond());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stderr,
    File(PathBuf),
}

impl Target {
    /// Parses `off`, `stderr` or the path of a file.
    pub fn parse(text: &str) -> Option<Target> {
        match text {
            "off" => None,
            "stderr" => Some(Target::Stderr),
            path => Some(Target::File(path.into())),
        }
    }
}

/// Writes records on a thread of its own. Dropping it writes what is waiting.
pub struct Log {
    records: Option<SyncSender<Record>>,
    lost: Arc<AtomicU64>,
    writing: Option<JoinHandle<()>>,
}

impl Log {
    pub fn start(target: &Target) -> io::Result<Log> {
        let mut writer = Writer::open(target)?;
        let (records, waiting) = sync_channel(WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let writing = std::thread::Builder::new()
            .name("stele-audit".into())
            .spawn(move || writer.run(&waiting, &counted))?;
        Ok(Log { records: Some(records), lost, writing: Some(writing) })
    }

    /// Queues a record. Never waits: a record that finds the queue full is counted as lost.
    pub fn record(&self, record: Record) {
        let queued = self.records.as_ref().is_some_and(|queue| queue.try_send(record).is_ok());
        if !queued {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many records could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.records = None;
        if let Some(writing) = self.writing.take() {
            // The thread ends once it has written what was queued.
            let _ = writing.join();
        }
    }
}

struct Writer {
    path: Option<PathBuf>,
    file: Option<File>,
    /// How often each kind of record occurred in this interval, with its last one.
    counts: HashMap<Kind, (u64, Record)>,
}

impl Writer {
    fn open(target: &Target) -> io::Result<Writer> {
        let (path, file) = match target {
            Target::Stderr => (None, None),
            Target::File(path) => (Some(path.clone()), Some(open(path)?)),
        };
        Ok(Writer { path, file, counts: HashMap::new() })
    }

    fn run(&mut self, waiting: &Receiver<Record>, lost: &AtomicU64) {
        let mut ends = Instant::now() + INTERVAL;
        loop {
            let next = waiting.recv_timeout(ends.saturating_duration_since(Instant::now()));
            let written = match next {
                Ok(record) => self.add(record),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.end_interval();
                    return;
                }
            };
            let written = match Instant::now() >= ends {
                true => {
                    ends = Instant::now() + INTERVAL;
                    written.and(self.end_interval())
                }
                false => written,
            };
            if written.is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn add(&mut self, record: Record) -> io::Result<()> {
        let (count, last) =
            self.counts.entry(record.kind()).or_insert_with(|| (0, Record::default()));
        *count += 1;
        if *count > EQUAL_MAX {
            *last = record;
            return Ok(());
        }
        self.write(&record.line())
    }

    /// Writes how many equal records were left out, and opens the file again if it was
    /// moved away.
    fn end_interval(&mut self) -> io::Result<()> {
        for (_, (count, mut last)) in std::mem::take(&mut self.counts) {
            if count > EQUAL_MAX {
                last.repeated = count - EQUAL_MAX;
                self.write(&last.line())?;
            }
        }
        if let (Some(path), Some(file)) = (&self.path, &self.file) {
            let is_same = match (std::fs::metadata(path), file.metadata()) {
                (Ok(now), Ok(open)) => (now.dev(), now.ino()) == (open.dev(), open.ino()),
                _ => false,
            };
            if !is_same {
                self.file = Some(open(path)?);
            }
        }
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(line),
            None => io::stderr().lock().write_all(line),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(principal: &str) -> Record {
        Record {
            time: timestamp(1_763_494_936_000_001),
            port: "grpc",
            principal: principal.into(),
            auth: "token",
            rpc: "/a.B/C".into(),
            resource: "projects/p\n{\"v\":2}".into(),
            decision: "denied",
            policy: 3,
            ..Record::default()
        }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_record_is_one_line_that_only_the_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = Log::start(&Target::File(path.clone())).unwrap();
        log.record(record("user:ada"));
        drop(log);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"v\":1,\"time\":\"2025-11-18T19:42:16.000001Z\",\"port\":\"grpc\",\"peer\":\"\",\
             \"principal\":\"user:ada\",\"auth\":\"token\",\"credential\":\"\",\"rpc\":\"/a.B/C\",\
             \"permission\":\"\",\"resource\":\"projects/p\\n{\\\"v\\\":2}\",\
             \"decision\":\"denied\",\"policy\":3}\n"
        );
    }

    #[test]
    fn equal_records_are_counted_instead_of_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = Log::start(&Target::File(path.clone())).unwrap();
        for _ in 0..500 {
            log.record(record("user:ada"));
        }
        log.record(record("user:bob"));
        drop(log);
        let lines = lines(&path);
        let of_ada = lines.iter().filter(|line| line["principal"] == "user:ada");
        let seen: u64 = of_ada.map(|line| line["repeated"].as_u64().unwrap_or(1)).sum();
        assert_eq!(seen, 500);
        assert!(lines.len() < 100, "{}", lines.len());
        assert!(lines.iter().any(|line| line["principal"] == "user:bob"));
    }

    #[test]
    fn long_texts_are_truncated() {
        let line = record(&"é".repeat(1000)).line();
        assert!(line.len() < 1000, "{}", line.len());
    }
}
