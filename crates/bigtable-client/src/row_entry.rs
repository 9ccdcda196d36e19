//! One encoded row of a bulk write. It is encoded once, however often it is sent,
//! and cells can be written into it directly.

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Response, Status, Streaming};

use crate::Client;
use crate::call::Repeat;
use crate::mutation::RowMutations;
use crate::write::{messages, repeat};
use stele_bigtable_proto::MESSAGE_BYTES_MAX;
use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::mutate_rows_request::Entry;

/// The fields of `Entry`, `Mutation` and `SetCell` that are written here.
mod field {
    pub const ROW_KEY: u32 = 1;
    pub const MUTATIONS: u32 = 2;
    pub const SET_CELL: u32 = 1;
    pub const FAMILY: u32 = 1;
    pub const QUALIFIER: u32 = 2;
    pub const TIMESTAMP: u32 = 3;
    pub const VALUE: u32 = 4;
}

/// The size of a field's key and of a length below 128, in bytes.
const SHORT_FIELD_BYTES: usize = 2;

/// All mutations of one row in a bulk write, encoded.
#[derive(Clone, Debug)]
pub struct RowEntry {
    key: Bytes,
    /// An `Entry` of `MutateRowsRequest`.
    entry: Vec<u8>,
    mutations: usize,
    repeat: Repeat,
}

/// `MutateRowsRequest` with already encoded entries: on the wire a nested message
/// is just its bytes.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedRequest {
    #[prost(string, tag = "1")]
    pub table_name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub entries: Vec<Bytes>,
    #[prost(string, tag = "3")]
    pub app_profile_id: String,
}

impl RowEntry {
    /// Creates a row without mutations.
    pub fn new(key: impl Into<Bytes>) -> RowEntry {
        let key = key.into();
        let mut entry = Vec::with_capacity(SHORT_FIELD_BYTES + key.len() + 64);
        put_bytes(&mut entry, field::ROW_KEY, &key);
        RowEntry { key, entry, mutations: 0, repeat: Repeat::Allowed }
    }

    /// Sets the cell with this timestamp, which must not be negative.
    pub fn set_at(&mut self, family: &str, qualifier: &[u8], timestamp_micros: i64, value: &[u8]) {
        assert!(timestamp_micros >= 0, "a server timestamp needs a mutation: RowMutations");
        let timestamp = timestamp_micros as u64;
        let cell = bytes_len(family.as_bytes())
            + bytes_len(qualifier)
            + 1
            + encoded_len_varint(timestamp)
            + bytes_len(value);
        let mutation = 1 + encoded_len_varint(cell as u64) + cell;
        let out = &mut self.entry;
        encode_key(field::MUTATIONS, WireType::LengthDelimited, out);
        encode_varint(mutation as u64, out);
        encode_key(field::SET_CELL, WireType::LengthDelimited, out);
        encode_varint(cell as u64, out);
        put_bytes(out, field::FAMILY, family.as_bytes());
        put_bytes(out, field::QUALIFIER, qualifier);
        encode_key(field::TIMESTAMP, WireType::Varint, out);
        encode_varint(timestamp, out);
        put_bytes(out, field::VALUE, value);
        self.mutations += 1;
    }

    /// Returns the row key.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// Returns the number of mutations.
    pub fn mutations(&self) -> usize {
        self.mutations
    }

    /// Returns the approximate size on the wire.
    pub fn len(&self) -> usize {
        self.entry.len()
    }

    /// Returns whether the row has no mutations.
    pub fn is_empty(&self) -> bool {
        self.mutations == 0
    }

    /// Returns the encoded bytes, which are shared rather than copied.
    pub(crate) fn into_encoded(self) -> (Bytes, Repeat) {
        (self.entry.into(), self.repeat)
    }
}

impl From<RowMutations> for RowEntry {
    fn from(row: RowMutations) -> RowEntry {
        let (repeat, mutations) = (repeat(&row.mutations), row.mutations.len());
        let entry = Entry {
            row_key: row.key.clone(),
            mutations: messages(row.mutations),
            idempotency: None,
        };
        RowEntry { key: row.key, entry: entry.encode_to_vec(), mutations, repeat }
    }
}

fn bytes_len(bytes: &[u8]) -> usize {
    1 + encoded_len_varint(bytes.len() as u64) + bytes.len()
}

fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

impl Client {
    /// Sends a bulk write and returns the stream of its outcomes.
    pub(crate) async fn send_encoded(
        &self,
        request: Request<EncodedRequest>,
    ) -> Result<Response<Streaming<v2::MutateRowsResponse>>, Status> {
        let mut grpc = Grpc::new(self.data_transport())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/google.bigtable.v2.Bigtable/MutateRows");
        let codec = tonic_prost::ProstCodec::default();
        grpc.server_streaming(request, path, codec).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mutation;

    #[test]
    fn cells_encoded_directly_equal_encoded_mutations() {
        let long = "x".repeat(300);
        let cells: [(&str, &str, i64, &[u8]); 4] = [
            ("f", "q", 0, b"v"),
            ("family", "", 1000, b""),
            ("f", long.as_str(), 253_402_300_799_000_000, long.as_bytes()),
            ("f", "\0\u{ff}", 127_000, &[0xff, 0x00]),
        ];
        let mut row = RowEntry::new("key");
        let mut mutations = Vec::new();
        for (family, qualifier, at, value) in cells {
            row.set_at(family, qualifier.as_bytes(), at, value);
            mutations.push(Mutation::set_at(family, qualifier.to_string(), at, value.to_vec()));
        }
        let entry = Entry::decode(&row.entry[..]).unwrap();
        let other = RowEntry::from(RowMutations::new("key", mutations));
        assert_eq!(entry, Entry::decode(&other.entry[..]).unwrap());
        assert_eq!((row.mutations(), row.repeat), (4, other.repeat));
        assert_eq!(row.key(), "key");
    }

    #[test]
    fn an_encoded_request_decodes_as_a_request() {
        let row = RowEntry::from(RowMutations::new("k", [Mutation::delete_row()]));
        let request = EncodedRequest {
            table_name: "t".into(),
            entries: vec![row.entry.clone().into()],
            app_profile_id: "a".into(),
        };
        let read = v2::MutateRowsRequest::decode(&request.encode_to_vec()[..]).unwrap();
        assert_eq!((read.table_name.as_str(), read.app_profile_id.as_str()), ("t", "a"));
        assert_eq!(read.entries[0].row_key, "k");
    }
}
