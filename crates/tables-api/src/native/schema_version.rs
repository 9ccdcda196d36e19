//! The fingerprint of a schema, by which clients notice that it has changed. It is
//! computed from the stored schema, so it survives a restart.

use stele_engine::schema::Schema;
use xxhash_rust::xxh3::xxh3_64;

/// Returns the fingerprint of a schema; never 0.
pub fn schema_version(schema: &Schema) -> u64 {
    let mut text = Vec::new();
    let mut push = |bytes: &[u8]| {
        text.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        text.extend_from_slice(bytes);
    };
    for group in schema.groups() {
        push(group.name.as_bytes());
        push(&[u8::from(group.wildcard)]);
        push(format!("{:?}", group.purge).as_bytes());
        for family in group.families.iter().filter(|family| !family.hidden) {
            push(&family.name);
            push(&family.since.raw().to_le_bytes());
            push(format!("{:?}", family.purge).as_bytes());
        }
    }
    push(schema.annotation());
    xxh3_64(&text).max(1)
}

#[cfg(test)]
mod tests {
    use stele_engine::schema::{Family, Purge};

    use super::*;

    #[test]
    fn another_family_or_policy_is_another_version() {
        let version =
            |families: Vec<Family>| schema_version(&Schema::with_families(families).unwrap());
        let one = version(vec![Family::new("f")]);
        assert_eq!(one, version(vec![Family::new("f")]));
        assert_ne!(one, version(vec![Family::new("g")]));
        assert_ne!(one, version(vec![Family::new("f"), Family::new("g")]));
        assert_ne!(one, version(vec![Family::with_purge("f", Purge::MaxAge(1))]));
    }
}
