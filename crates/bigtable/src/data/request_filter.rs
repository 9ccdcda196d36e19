//! The filter of a read or of a condition: compiled without blocking the thread,
//! charged to the memory of the call, and used to narrow the scan.

use bytes::Bytes;
use stele_engine::ScanSpec;
use stele_grpc::offload::offload;

use super::response_memory::ResponseMemory;
use crate::error::Result;
use crate::filter::{Decoded, Filter, QUICK_FILTER_BYTES_MAX, ResidualFilter};
use crate::table::Table;

/// Compiled patterns up to this size are not charged.
const FILTER_BYTES_FREE: usize = 512 << 10;

/// Compiles the filter of a request from its bytes. Large patterns are compiled
/// on another thread, after their memory is charged.
pub async fn compile(filter: Option<&Bytes>, memory: &mut ResponseMemory) -> Result<Filter> {
    let Some(bytes) = filter else { return Filter::compile(None) };
    let decoded = match bytes.len() > QUICK_FILTER_BYTES_MAX {
        true => {
            let bytes = bytes.clone();
            offload(move || Filter::decode_or_defer(&bytes)).await?
        }
        false => Filter::decode_or_defer(bytes),
    };
    let filter = match decoded? {
        Decoded::Filter(filter) => filter,
        Decoded::Deferred(filter_bytes) => {
            memory.wait_for(filter_bytes).await?;
            let bytes = bytes.clone();
            offload(move || Filter::decode(&bytes)).await??
        }
    };
    memory.set(charged_bytes(&filter));
    Ok(filter)
}

/// Returns the bytes charged for a filter. Patterns of ordinary size are free.
pub fn charged_bytes(filter: &Filter) -> usize {
    match filter.memory_bytes() {
        ..=FILTER_BYTES_FREE => 0,
        bytes => bytes,
    }
}

/// Narrows the scan to skip what the filter drops. Returns what remains to be
/// evaluated.
pub fn narrow(filter: &Filter, table: &Table, spec: &mut ScanSpec) -> ResidualFilter {
    filter.narrow(table.definition.families.keys().map(String::as_str), spec)
}
