//! Transcodes messages between wire format and protobuf JSON, by their
//! descriptors: field names as in the `.proto`, defaults omitted, bytes in
//! base64, 64-bit numbers as strings.

use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MethodDescriptor, SerializeOptions,
};
use tonic::Status;

use crate::etcd::methods::Method;
use crate::etcd::proto::DESCRIPTORS;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).expect("build.rs wrote the descriptors"));

/// Transcodes the messages of one method.
#[derive(Clone)]
pub struct Transcoder(MethodDescriptor);

impl Transcoder {
    pub fn new(method: Method) -> Transcoder {
        let (service, name) = method.names();
        let service = POOL.get_service_by_name(service).expect("methods are those of the .proto");
        let found = service.methods().find(|method| method.name() == name);
        Transcoder(found.expect("methods are those of the .proto"))
    }

    /// Converts a request to wire format. An empty body is the empty request.
    pub fn request(&self, text: &[u8]) -> Result<Bytes, Status> {
        if text.trim_ascii().is_empty() {
            return Ok(Bytes::new());
        }
        let mut reader = serde_json::Deserializer::from_slice(text);
        let message = self.read(&mut reader)?;
        reader.end().map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(message)
    }

    /// Converts the reader's next object to wire format.
    pub fn read<'a, R: serde_json::de::Read<'a>>(
        &self,
        reader: &mut serde_json::Deserializer<R>,
    ) -> Result<Bytes, Status> {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        DynamicMessage::deserialize_with_options(self.0.input(), reader, &options)
            .map(|message| message.encode_to_vec().into())
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// Converts a response from wire format to JSON.
    pub fn response(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        let broken = |error: String| Status::internal(error);
        let message = DynamicMessage::decode(self.0.output(), message)
            .map_err(|error| broken(error.to_string()))?;
        let options = SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(true)
            .skip_default_fields(true);
        let mut writer = serde_json::Serializer::new(Vec::new());
        message
            .serialize_with_options(&mut writer, &options)
            .map_err(|error| broken(error.to_string()))?;
        Ok(writer.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::proto::{
        KeyValue, LeaseGrantRequest, RangeRequest, RangeResponse, ResponseHeader, WatchRequest,
    };

    #[test]
    fn requests_are_read_by_either_name_and_number_or_text() {
        let read = |text: &str| {
            let bytes = Transcoder::new(Method::Range).request(text.as_bytes()).unwrap();
            RangeRequest::decode(bytes).unwrap()
        };
        let expected = RangeRequest {
            key: "foo".into(),
            range_end: "fop".into(),
            limit: 5,
            sort_order: 2,
            serializable: true,
            ..Default::default()
        };
        let snake = r#"{"key":"Zm9v","range_end":"Zm9w","limit":"5","sort_order":"DESCEND","serializable":true}"#;
        let camel = r#"{"key":"Zm9v","rangeEnd":"Zm9w","limit":5,"sortOrder":2,"serializable":true,"what":[1]}"#;
        assert_eq!(read(snake), expected);
        assert_eq!(read(camel), expected);
        assert_eq!(read(" "), RangeRequest::default());
        let wrong = Transcoder::new(Method::Range).request(b"{\"key\":\"*\"}").unwrap_err();
        assert_eq!(wrong.code(), tonic::Code::InvalidArgument);
        let grant = Transcoder::new(Method::LeaseGrant).request(br#"{"TTL":60,"ID":"7"}"#).unwrap();
        let expected = LeaseGrantRequest { ttl: 60, id: 7 };
        assert_eq!(LeaseGrantRequest::decode(grant).unwrap(), expected);
    }

    #[test]
    fn responses_leave_out_what_is_zero() {
        let kv = KeyValue {
            key: "k".into(),
            create_revision: 2,
            mod_revision: 3,
            version: 2,
            ..Default::default()
        };
        let header = ResponseHeader { cluster_id: u64::MAX, revision: 3, ..Default::default() };
        let response = RangeResponse { header: Some(header), kvs: vec![kv], more: false, count: 1 };
        let text = Transcoder::new(Method::Range).response(&response.encode_to_vec()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"header":{"cluster_id":"18446744073709551615","revision":"3"},"kvs":[{"key":"aw==","create_revision":"2","mod_revision":"3","version":"2"}],"count":"1"}"#
        );
    }

    #[test]
    fn an_empty_message_that_is_there_stays_there() {
        let text = br#"{"progress_request":{}}"#;
        let bytes = Transcoder::new(Method::Watch).request(text).unwrap();
        assert!(WatchRequest::decode(bytes).unwrap().request_union.is_some());
    }
}
