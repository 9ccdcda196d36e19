//! Responses of the KV service, written directly from the stored bytes.

use bytes::{Bytes, BytesMut};
use stele_grpc::frame;

use super::header::Header;
use crate::command::{DeleteAnswer, Kv, OpAnswer, PutAnswer, RangeAnswer, TxnAnswer};
use crate::wire::Fields;

/// Field numbers of `RangeResponse`.
pub mod range_field {
    pub const KVS: u8 = 2;
    pub const MORE: u8 = 3;
    pub const COUNT: u8 = 4;
}

pub fn put(header: Header, answer: &PutAnswer) -> Bytes {
    let mut out = frame::begin(64);
    write_put(&mut out, header, answer);
    frame::finish(out)
}

pub fn delete_range(header: Header, answer: &DeleteAnswer) -> Bytes {
    let mut out = frame::begin(64);
    write_delete_range(&mut out, header, answer);
    frame::finish(out)
}

pub fn txn(header: Header, answer: &TxnAnswer) -> Bytes {
    let mut out = frame::begin(128);
    write_txn(&mut out, header, answer);
    frame::finish(out)
}

/// Returns a response that has only a header.
pub fn header_only(header: Header) -> Bytes {
    let mut out = frame::begin(64);
    header.write(&mut out);
    frame::finish(out)
}

fn write_put(out: &mut BytesMut, header: Header, answer: &PutAnswer) {
    header.write(out);
    if let Some(Kv { key, tail }) = &answer.prev {
        out.key_value(2, key, tail);
    }
}

fn write_delete_range(out: &mut BytesMut, header: Header, answer: &DeleteAnswer) {
    header.write(out);
    out.int(2, answer.deleted);
    for Kv { key, tail } in &answer.prev {
        out.key_value(3, key, tail);
    }
}

fn write_range(out: &mut BytesMut, header: Header, answer: &RangeAnswer) {
    header.write(out);
    for Kv { key, tail } in &answer.kvs {
        out.key_value(range_field::KVS, key, tail);
    }
    out.flag(range_field::MORE, answer.more);
    out.int(range_field::COUNT, answer.count);
}

fn write_txn(out: &mut BytesMut, header: Header, answer: &TxnAnswer) {
    header.write(out);
    out.flag(2, answer.succeeded);
    for op in &answer.ops {
        out.nested(3, |out| match op {
            OpAnswer::Range(answer) => {
                out.nested(1, |out| write_range(out, Header::within(answer.revision), answer));
            }
            OpAnswer::Put(answer) => {
                out.nested(2, |out| write_put(out, Header::within(answer.revision), answer));
            }
            OpAnswer::Delete(answer) => {
                let header = Header::within(answer.revision);
                out.nested(3, |out| write_delete_range(out, header, answer));
            }
            OpAnswer::Txn(answer) => {
                out.nested(4, |out| write_txn(out, Header::default(), answer));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::etcd::proto;

    #[test]
    fn a_transaction_is_answered_as_prost_would() {
        let tail: Bytes =
            proto::KeyValue { value: vec![9; 300].into(), version: 1, ..Default::default() }
                .encode_to_vec()
                .into();
        let kv = Kv { key: "k".into(), tail };
        let range = RangeAnswer { revision: 4, kvs: vec![kv.clone()], more: true, count: 9 };
        let inner = TxnAnswer {
            succeeded: false,
            ops: vec![OpAnswer::Put(PutAnswer { revision: 5, prev: Some(kv.clone()) })],
        };
        let deleted = DeleteAnswer { revision: 5, deleted: 2, prev: vec![kv.clone(), kv] };
        let answer = TxnAnswer {
            succeeded: true,
            ops: vec![OpAnswer::Range(range), OpAnswer::Txn(inner), OpAnswer::Delete(deleted)],
        };
        let header = Header { cluster_id: 1, member_id: 2, revision: 5, raft_term: 3 };
        let framed = txn(header, &answer);
        let read = proto::TxnResponse::decode(&framed[frame::PREFIX_BYTES..]).unwrap();
        assert_eq!(frame::encode(&read), framed);
        assert_eq!(read.responses.len(), 3);
        assert_eq!(read.header.unwrap().revision, 5);
        let Some(proto::response_op::Response::ResponseTxn(inner)) = &read.responses[1].response
        else {
            panic!("{read:?}")
        };
        assert_eq!(inner.header, Some(proto::ResponseHeader::default()));
    }
}
