//! Validation of CreateTable requests.

use crate::error::{Error, Result};
use crate::name::{InstanceName, check_id, excerpt};
use crate::proto::admin::CreateTableRequest;
use crate::table::Definition;
use stele_engine::schema::Compression;
use tonic::metadata::MetadataMap;

pub use stele_bigtable_proto::COMPRESSION_HEADER;

/// Validates a request. Returns the name and the definition of the new table. The
/// instance need not exist.
pub fn validate(request: CreateTableRequest) -> Result<(String, Definition)> {
    let CreateTableRequest { parent, table_id, table, initial_splits } = request;
    let instance = InstanceName::parse(&parent)?;
    check_id("table_id", &table_id)?;
    let splits = initial_splits.into_iter().map(|split| split.key).collect();
    let definition = Definition::from_request(table.unwrap_or_default(), splits)?;
    Ok((format!("{instance}/tables/{table_id}"), definition))
}

/// Returns the compression that the headers select.
pub fn compression(headers: &MetadataMap) -> Result<Compression> {
    match headers.get(COMPRESSION_HEADER).map(|value| value.as_bytes()) {
        None => Ok(Compression::default()),
        Some(b"none") => Ok(Compression::None),
        Some(b"lz4") => Ok(Compression::Lz4),
        Some(b"zstd") => Ok(Compression::Zstd),
        Some(other) => Err(Error::Invalid(format!(
            "Error in header '{COMPRESSION_HEADER}' : invalid value '{}': use none, lz4 or zstd",
            excerpt(&other.escape_ascii().to_string())
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(parent: &str, table_id: &str) -> CreateTableRequest {
        CreateTableRequest {
            parent: parent.into(),
            table_id: table_id.into(),
            ..CreateTableRequest::default()
        }
    }

    #[test]
    fn a_table_is_named_by_parent_and_id() {
        let (name, definition) = validate(request("projects/p/instances/i", "t")).unwrap();
        assert_eq!(name, "projects/p/instances/i/tables/t");
        assert_eq!(definition, Definition::default());
    }

    #[test]
    fn a_header_tells_the_compression() {
        let selected = |value: &'static str| {
            let mut headers = MetadataMap::new();
            headers.insert(COMPRESSION_HEADER, value.parse().unwrap());
            compression(&headers)
        };
        assert_eq!(compression(&MetadataMap::new()).unwrap(), Compression::Lz4);
        assert_eq!(selected("zstd").unwrap(), Compression::Zstd);
        assert_eq!(selected("none").unwrap(), Compression::None);
        assert!(selected("brotli").unwrap_err().to_string().contains("brotli"));
    }

    #[test]
    fn malformed_parents_and_ids_are_rejected_with_the_expected_form() {
        let long = "t".repeat(51);
        for (parent, id) in [
            ("", "t"),
            ("projects/p", "t"),
            ("projects/p/instances/-", "t"),
            ("projects/p/instances/i/tables/t", "t"),
            ("projects/p/instances/i", ""),
            ("projects/p/instances/i", "-t"),
            ("projects/p/instances/i", "a/b"),
            ("projects/p/instances/i", &long),
        ] {
            let error = validate(request(parent, id)).unwrap_err();
            assert!(error.to_string().contains("expected in the form"), "{parent} {id}: {error}");
        }
    }
}
