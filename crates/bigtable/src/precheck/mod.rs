//! Checks of request messages before they are decoded. A message of many empty
//! parts takes hundreds of times its length when decoded, so its parts are
//! counted in the wire form first: a message with more than a request may have is
//! rejected, and the estimated decoded size is charged to the memory for
//! requests.
//!
//! `shape` scans the bytes of a message; `data` and `admin` describe the messages
//! of the two services that can have many parts.

mod admin;
mod data;
mod shape;
mod types;

pub use admin::{CreateTableCodec, ModifyColumnFamiliesCodec, UpdateTableCodec};
pub use data::{
    CheckAndMutateRow, MutateRow, MutateRows, ReadModifyWriteRow, ReadRows, SampleRowKeys,
};
