//! gRPC services in the test's own process, for tests of commands.

use std::path::Path;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;

/// Services that listen on a free port until this is dropped.
pub struct Hosted {
    pub address: String,
    _runtime: Runtime,
    _dir: tempfile::TempDir,
}

impl Hosted {
    /// Serves the routes that `open` returns for a new directory.
    pub fn new(open: impl AsyncFnOnce(&Path) -> Routes) -> Hosted {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let routes = runtime.block_on(open(dir.path()));
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_routes(routes)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Hosted { address, _runtime: runtime, _dir: dir }
    }
}
