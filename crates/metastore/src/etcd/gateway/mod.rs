//! The API as JSON over HTTP: the body of a POST is a message in protobuf JSON,
//! and so is the response. A call is converted to wire format (`json`, and
//! `objects` for streams) and then handled like a gRPC call (`call`), so both
//! always give the same results. `paths` lists the methods.

mod call;
mod json;
mod objects;
mod paths;

pub use call::call;
pub use paths::method;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
