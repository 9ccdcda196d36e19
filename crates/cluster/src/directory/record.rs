//! The value of a table.

use bytes::Bytes;
use prost::Message;
use stele_engine::schema::Schema;
use stele_engine::{Error, Result, TableId};

use super::ListedTable;

#[derive(Clone, PartialEq, Message)]
struct TableMessage {
    #[prost(string, tag = "1")]
    name: String,
    /// Encoded by the engine.
    #[prost(bytes = "bytes", tag = "2")]
    schema: Bytes,
}

pub(super) fn encode(name: &str, schema: &Schema) -> Bytes {
    let message = TableMessage { name: name.into(), schema: schema.encode().into() };
    message.encode_to_vec().into()
}

/// Decodes a table. `id` is the rest of its key.
pub(super) fn decode(id: &[u8], value: &[u8]) -> Result<ListedTable> {
    let damaged = |what: String| Error::InvalidPackedFormat { at: 0, what };
    let id = std::str::from_utf8(id).ok().and_then(|id| u32::from_str_radix(id, 16).ok());
    let id = id.ok_or_else(|| damaged("the id of a table is not a number".into()))?;
    let message = TableMessage::decode(value).map_err(|error| damaged(error.to_string()))?;
    let schema = Schema::decode(&message.schema)?;
    Ok(ListedTable { id: TableId(id), name: message.name, schema })
}

#[cfg(test)]
mod tests {
    use stele_engine::schema::Family;

    use super::*;

    #[test]
    fn a_table_comes_back_from_its_record() {
        let schema = Schema::with_families([Family::new("f")]).unwrap().annotated(b"text");
        let decoded = decode(b"0000002a", &encode("t", &schema)).unwrap();
        assert_eq!((decoded.id, &*decoded.name, &*decoded.schema), (TableId(42), "t", &schema));
        for (id, value) in [(&b"x"[..], &b""[..]), (b"1", b"\xff\xff"), (b"1", b"\x12\x01\xff")] {
            assert!(decode(id, value).is_err());
        }
    }
}
