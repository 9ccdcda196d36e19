//! The response of MutateRows: the status of each entry, in messages small enough
//! for every client.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{encoded_len_varint, key_len};
use stele_grpc::frame;
use tonic::Status;

use crate::error::{Error, Result};
use crate::proto::v2;

/// The maximum size of a message. Clients accept 4 MiB by default.
const MESSAGE_BYTES_MAX: usize = (1 << 20) - 64;
/// The maximum length of the error message of one entry.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The field `entries` of the response.
const ENTRIES_TAG: u32 = 1;

/// Returns the framed messages that report these outcomes, in the order of the
/// entries.
pub fn messages(outcomes: Vec<Result<()>>) -> impl Iterator<Item = Bytes> + Send + Unpin {
    let mut entries = outcomes.into_iter().enumerate().map(entry).peekable();
    std::iter::from_fn(move || {
        let mut message = v2::MutateRowsResponse::default();
        let mut bytes = 0;
        while let Some(next) = entries.next_if(|next| {
            bytes += field_len(next);
            bytes <= MESSAGE_BYTES_MAX
        }) {
            message.entries.push(next);
        }
        (!message.entries.is_empty()).then(|| frame::encode(&message))
    })
}

fn entry((index, outcome): (usize, Result<()>)) -> v2::mutate_rows_response::Entry {
    let status = outcome.err().map(status).unwrap_or_default();
    v2::mutate_rows_response::Entry { index: index as i64, status: Some(status) }
}

/// Converts an error to a status with the details that a failed call would carry.
fn status(error: Error) -> tonic_types::Status {
    let status = Status::from(error);
    let mut message = status.message().to_string();
    message.truncate(message.floor_char_boundary(TEXT_BYTES_MAX));
    let details = tonic_types::Status::decode(status.details()).unwrap_or_default().details;
    tonic_types::Status { code: status.code() as i32, message, details }
}

/// Returns the encoded size of an entry within the response.
fn field_len(entry: &v2::mutate_rows_response::Entry) -> usize {
    let bytes = entry.encoded_len();
    key_len(ENTRIES_TAG) + encoded_len_varint(bytes as u64) + bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(frame: &Bytes) -> v2::MutateRowsResponse {
        v2::MutateRowsResponse::decode(&frame[5..]).unwrap()
    }

    #[test]
    fn every_entry_is_reported_once_in_messages_below_one_mebibyte() {
        let text = "x".repeat(TEXT_BYTES_MAX + 1000);
        let outcomes = |count: usize| {
            let outcome = |at| match at % 3 {
                0 => Ok(()),
                1 => Err(Error::NotFound("a family".into())),
                _ => Err(Error::Invalid(text.clone())),
            };
            (0..count).map(outcome).collect()
        };
        for (count, messages_min) in [(1, 1), (700, 1), (3000, 4)] {
            let frames: Vec<Bytes> = messages(outcomes(count)).collect();
            assert!(frames.len() >= messages_min, "{} messages", frames.len());
            assert!(frames.iter().all(|frame| frame.len() < 1 << 20));
            let entries = frames.iter().flat_map(|frame| decoded(frame).entries);
            let indexes: Vec<i64> = entries.map(|entry| entry.index).collect();
            assert_eq!(indexes, (0..count as i64).collect::<Vec<_>>());
        }
    }
}
