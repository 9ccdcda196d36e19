//! An S3 server for tests: s3s-fs with what it lacks for them. Conditional writes are
//! atomic, because one lock is held around every PUT; latency, errors, lost responses, a
//! size limit and downtime can be injected at any time.
//!
//! It runs on threads of its own and may be started from any thread, also within a
//! runtime.
#![allow(dead_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

pub const ACCESS_KEY: &str = "stele-access";
pub const SECRET_KEY: &str = "stele-hidden";

/// A running server.
pub struct S3d {
    address: SocketAddr,
    root: PathBuf,
    pub faults: Arc<Faults>,
    runtime: Option<Runtime>,
}

/// What goes wrong. All may be changed while the server runs.
#[derive(Default)]
pub struct Faults {
    /// Added to every request.
    pub latency_ms: AtomicU64,
    /// The number of requests to refuse with 503 from now on.
    pub errors: AtomicU64,
    /// The number of conditional writes to refuse with 409, as S3 does for concurrent
    /// ones.
    pub conflicts: AtomicU64,
    /// The number of writes that are applied, but whose connection is closed without a
    /// response.
    pub resets: AtomicU64,
    /// The number of reads whose connection is closed without a response.
    pub lost_reads: AtomicU64,
    /// Writes beyond this many bytes get 507; 0 for no limit.
    pub capacity_bytes: AtomicU64,
    /// All requests get 503.
    pub down: AtomicBool,
    /// Conditional writes are not serialised, as in bare s3s-fs.
    pub racy: AtomicBool,
    /// Conditions are ignored, as some stores do.
    pub unconditional: AtomicBool,
    /// Requests so far, and those of GET with a range.
    pub requests: AtomicU64,
    pub ranged_reads: AtomicU64,
    /// Requests that completed an upload in parts.
    pub completed_uploads: AtomicU64,
}

struct Server {
    root: PathBuf,
    s3: S3Service,
    writes: Mutex<()>,
    stored: AtomicU64,
    faults: Arc<Faults>,
}

impl S3d {
    /// Starts a server with an empty bucket of the given name, on a free port.
    pub fn start(root: &Path, bucket: &str) -> S3d {
        S3d::start_at(root, bucket, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
    }

    pub fn start_at(root: &Path, bucket: &str, address: SocketAddr) -> io::Result<S3d> {
        std::fs::create_dir_all(root.join(bucket))?;
        let files = s3s_fs::FileSystem::new(root)
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let faults: Arc<Faults> = Arc::default();
        let server = Arc::new(Server {
            root: root.to_path_buf(),
            s3: service.build(),
            writes: Mutex::default(),
            stored: AtomicU64::new(0),
            faults: faults.clone(),
        });
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        runtime.spawn(accept(listener, server));
        Ok(S3d { address, root: root.to_path_buf(), faults, runtime: Some(runtime) })
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the variables that a client needs.
    pub fn variables(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT", self.endpoint().as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .to_vec()
    }

    /// Returns the folder with the objects of a bucket.
    pub fn folder(&self, bucket: &str) -> PathBuf {
        self.root.join(bucket)
    }
}

impl Drop for S3d {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, server.clone()));
    }
}

async fn serve(stream: TcpStream, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { server.handle(request).await }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error of a handler closes the connection without a response.
    let _ = connection.await;
}

/// Ends a connection without a response.
type Reset = io::Error;

impl Server {
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Body>, Reset> {
        let faults = &self.faults;
        faults.requests.fetch_add(1, SeqCst);
        let latency = faults.latency_ms.load(SeqCst);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        let writes = matches!(*request.method(), Method::PUT | Method::POST);
        if faults.down.load(SeqCst) || take_one(&faults.errors) {
            return refuse(request, StatusCode::SERVICE_UNAVAILABLE, "SlowDown").await;
        }
        let object = self.root.join(request.uri().path().trim_start_matches('/'));
        let bucket = request.uri().path().split('/').nth(1).unwrap_or_default();
        if !self.root.join(bucket).is_dir() {
            return refuse(request, StatusCode::NOT_FOUND, "NoSuchBucket").await;
        }
        if writes && !self.reserve(&request) {
            return refuse(request, StatusCode::INSUFFICIENT_STORAGE, "StorageFull").await;
        }
        let conditional = request.headers().contains_key(header::IF_NONE_MATCH);
        if conditional && take_one(&faults.conflicts) {
            return refuse(request, StatusCode::CONFLICT, "ConditionalRequestConflict").await;
        }
        if faults.unconditional.load(SeqCst)
            && request.headers().contains_key(header::IF_NONE_MATCH)
        {
            // The condition is signed, so it is made true instead of removed.
            let _ = std::fs::remove_file(&object);
        }
        if *request.method() == Method::GET && request.headers().contains_key(header::RANGE) {
            faults.ranged_reads.fetch_add(1, SeqCst);
        }
        let completes = *request.method() == Method::POST
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        let response = match writes && !faults.racy.load(SeqCst) {
            true => {
                let _held = self.writes.lock().await;
                Service::call(&self.s3, request).await
            }
            false => Service::call(&self.s3, request).await,
        };
        let response = response.map_err(|error| io::Error::other(format!("{error:?}")))?;
        if completes && response.status().is_success() {
            faults.completed_uploads.fetch_add(1, SeqCst);
        }
        let lost = if writes { take_one(&faults.resets) } else { take_one(&faults.lost_reads) };
        match lost {
            true => Err(io::Error::other("injected")),
            false => Ok(response),
        }
    }

    /// Counts the bytes of a write. False if they exceed the capacity.
    fn reserve(&self, request: &Request<Incoming>) -> bool {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let bytes = length.and_then(|text| text.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
        let capacity = self.faults.capacity_bytes.load(SeqCst);
        let stored = self.stored.load(SeqCst);
        if capacity > 0 && bytes > 0 && stored + bytes > capacity {
            return false;
        }
        self.stored.fetch_add(bytes, SeqCst);
        true
    }
}

fn take_one(count: &AtomicU64) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

/// Reads a request and refuses it.
async fn refuse(
    request: Request<Incoming>,
    status: StatusCode,
    code: &str,
) -> Result<Response<Body>, Reset> {
    request.into_body().collect().await.map_err(io::Error::other)?;
    let text = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    Ok(response)
}
