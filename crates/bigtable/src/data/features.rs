//! The client's capabilities, from the header `bigtable-features`.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message;

use crate::proto::v2::FeatureFlags;

/// Padding is optional: clients differ.
const WEB_SAFE: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the client's feature flags; none if the header cannot be decoded.
pub fn flags(headers: &http::HeaderMap) -> FeatureFlags {
    let Some(header) = headers.get("bigtable-features") else { return FeatureFlags::default() };
    let decoded = WEB_SAFE.decode(header.as_bytes()).unwrap_or_default();
    FeatureFlags::decode(&decoded[..]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_padded_or_not_and_garbage_is_no_flags() {
        let flags = FeatureFlags { last_scanned_row_responses: true, ..Default::default() };
        let padded = base64::engine::general_purpose::URL_SAFE.encode(flags.encode_to_vec());
        for text in [padded.as_str(), padded.trim_end_matches('=')] {
            let headers = http::HeaderMap::from_iter([(
                http::HeaderName::from_static("bigtable-features"),
                http::HeaderValue::from_str(text).unwrap(),
            )]);
            assert!(super::flags(&headers).last_scanned_row_responses);
        }
        let mut headers = http::HeaderMap::new();
        headers.insert("bigtable-features", http::HeaderValue::from_static("***"));
        assert_eq!(super::flags(&headers), FeatureFlags::default());
    }
}
