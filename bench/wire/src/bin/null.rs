//! A tonic server that does no work: a unary echo, and Bigtable data calls with
//! constant responses. It is an upper bound for any tonic server on this machine.

use bytes::Bytes;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use std::pin::Pin;
use tokio_stream::{Iter, Stream};
use tonic::{Request, Response, Status, async_trait, transport::Server};

include!(concat!(env!("OUT_DIR"), "/floor.Echo.rs"));
mod data {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.v2.Bigtable.rs"));
}
mod table_admin {
    include!(concat!(env!("OUT_DIR"), "/google.bigtable.admin.v2.BigtableTableAdmin.rs"));
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Ping {
    #[prost(bytes = "bytes", tag = "1")]
    pub payload: Bytes,
}

struct Null {
    value: Bytes,
}

#[async_trait]
impl echo_server::Echo for Null {
    async fn echo(&self, request: Request<Ping>) -> Result<Response<Ping>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Rows per ReadRowsResponse of a range.
const ROWS_PER_MESSAGE: usize = 64;

fn number(key: &[u8]) -> usize {
    let digits = key.iter().filter(|b| b.is_ascii_digit());
    digits.fold(0, |n, b| n * 10 + (b - b'0') as usize)
}

impl Null {
    fn rows(&self, count: usize) -> Vec<bt::ReadRowsResponse> {
        use bt::read_rows_response::{CellChunk, cell_chunk::RowStatus};
        let chunk = |_| CellChunk {
            row_key: Bytes::from_static(b"g00000000#00"),
            family_name: Some("cf".into()),
            qualifier: Some(b"q".to_vec()),
            timestamp_micros: 1000,
            value: self.value.clone(),
            row_status: Some(RowStatus::CommitRow(true)),
            ..Default::default()
        };
        let sizes = (0..count).step_by(ROWS_PER_MESSAGE).map(|i| ROWS_PER_MESSAGE.min(count - i));
        let message =
            |n| bt::ReadRowsResponse { chunks: (0..n).map(chunk).collect(), ..Default::default() };
        sizes.map(message).collect()
    }
}

fn iter<T>(items: Vec<T>) -> Iter<std::vec::IntoIter<Result<T, Status>>> {
    let items: Vec<_> = items.into_iter().map(Ok).collect();
    tokio_stream::iter(items)
}

#[async_trait]
impl data::bigtable_server::Bigtable for Null {
    type MutateRowsStream = Boxed<bt::MutateRowsResponse>;
    type ReadRowsStream = Boxed<bt::ReadRowsResponse>;

    async fn mutate_row(
        &self,
        _: Request<bt::MutateRowRequest>,
    ) -> Result<Response<bt::MutateRowResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn mutate_rows(
        &self,
        request: Request<bt::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let entry =
            |index| bt::mutate_rows_response::Entry { index, status: Some(Default::default()) };
        let entries = (0..request.into_inner().entries.len() as i64).map(entry).collect();
        let response = bt::MutateRowsResponse { entries, ..Default::default() };
        Ok(Response::new(Box::pin(iter(vec![response]))))
    }

    async fn read_rows(
        &self,
        request: Request<bt::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        use bt::row_range::{EndKey, StartKey};
        let rows = request.into_inner().rows.unwrap_or_default();
        let mut count = rows.row_keys.len();
        for range in &rows.row_ranges {
            if let (Some(StartKey::StartKeyClosed(a)), Some(EndKey::EndKeyOpen(b))) =
                (&range.start_key, &range.end_key)
            {
                count += number(b) - number(a);
            }
        }
        Ok(Response::new(Box::pin(iter(self.rows(count)))))
    }

    async fn check_and_mutate_row(
        &self,
        _: Request<bt::CheckAndMutateRowRequest>,
    ) -> Result<Response<bt::CheckAndMutateRowResponse>, Status> {
        Ok(Response::new(bt::CheckAndMutateRowResponse { predicate_matched: true }))
    }

    async fn read_modify_write_row(
        &self,
        _: Request<bt::ReadModifyWriteRowRequest>,
    ) -> Result<Response<bt::ReadModifyWriteRowResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

#[async_trait]
impl table_admin::bigtable_table_admin_server::BigtableTableAdmin for Null {
    async fn create_table(
        &self,
        _: Request<admin::CreateTableRequest>,
    ) -> Result<Response<admin::Table>, Status> {
        Ok(Response::new(Default::default()))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let flags = stele_bench_wire::Flags::parse(&["listen", "value-size"]);
    let address = flags.text("listen", "127.0.0.1:9100");
    let value = Bytes::from(stele_bench_wire::Rng::new(1).value(flags.get("value-size", 1024)));
    let null = || Null { value: value.clone() };
    println!("listening on {address}");
    Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .add_service(echo_server::EchoServer::new(null()))
        .add_service(data::bigtable_server::BigtableServer::new(null()))
        .add_service(
            table_admin::bigtable_table_admin_server::BigtableTableAdminServer::new(null()),
        )
        .serve(address.parse().expect("--listen ip:port"))
        .await
        .expect("serve");
}
