//! The servers of these tests, and clients of their catalogues.

use std::path::Path;

use stele_catalogue::Fid;
use stele_catalogue::client::Client;

use crate::support::Server;

/// Starts a server without HTTP.
pub fn start(args: &[&str]) -> Server {
    Server::start(&[&["--http-port", "off", "--log", "warn"], args].concat())
}

/// Starts a server on the data in `dir`, with little memory, so that much of it is being
/// flushed when the server is killed.
pub fn with_data(dir: &Path) -> Server {
    start(&["--data", dir.to_str().unwrap(), "--memory", "64MiB"])
}

pub async fn connect(server: &Server) -> Client {
    Client::connect(&server.address("grpc"), &Default::default()).await.unwrap()
}

pub fn fid(id: u128) -> Fid {
    Fid::of_id(1000 + id).unwrap()
}
