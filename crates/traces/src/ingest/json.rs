//! The native format: a sequence of JSON objects, one per commit.
//!
//! ```json
//! {"commit": "HASH", "time": 1560340800.5, "params": {"os": "Android"},
//!  "results": [
//!   {"params": {"name": "blur"}, "digest": "92eb5ffee6ae2fec3ad71c777531578f"},
//!   {"params": {"name": "log"}, "content": "the output itself"},
//!   {"params": {"name": "draw"}, "value": 12.5, "options": {"unit": "ms"}}]}
//! ```
//!
//! Files contain millions of results, so params are not copied while parsing: they are
//! looked up among those seen before.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::seen::{Own, Seen};
use super::{Report, time_micros};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Entry, Value};

/// One object of a file.
#[derive(Default)]
struct File {
    commit: Option<String>,
    time: Option<f64>,
    params: Params,
    results: Vec<Item>,
}

/// One result, with the number of its own params.
struct Item {
    own: Own,
    value: Value,
    options: Params,
}

/// Reads all objects of a file. `labels` are added to each result's params, which take
/// precedence.
pub fn read(bytes: &[u8], labels: &Params, seen: &mut Seen) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    let mut from = serde_json::Deserializer::from_slice(bytes);
    while !rest_is_blank(&mut from) {
        let file = FileSeed(seen).deserialize(&mut from);
        let file = file.map_err(|error| Error::invalid(format!("invalid JSON: {error}")))?;
        reports.push(file.report(labels, seen)?);
    }
    if reports.is_empty() {
        return Err(Error::invalid("the JSON is empty"));
    }
    Ok(reports)
}

/// Returns true at the end of the bytes. Any other rest is parsed as the next object.
fn rest_is_blank(from: &mut serde_json::Deserializer<serde_json::de::SliceRead<'_>>) -> bool {
    from.end().is_ok()
}

impl File {
    fn report(self, labels: &Params, seen: &mut Seen) -> Result<Report> {
        let time_micros = self.time.map(time_micros).transpose()?;
        let shared = labels.overlaid(&self.params)?;
        let mut whole = seen.over(&shared);
        let entries = self.results.into_iter().map(|item| {
            let params = whole.params(item.own)?;
            Ok(Entry { params, value: item.value, options: item.options })
        });
        let entries = entries.collect::<Result<_>>()?;
        Ok(Report { commit: self.commit, time_micros, entries, skipped: 0 })
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum FileField {
    Commit,
    Time,
    Params,
    Results,
}

struct FileSeed<'s>(&'s mut Seen);

impl<'de> DeserializeSeed<'de> for FileSeed<'_> {
    type Value = File;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<File, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FileSeed<'_> {
    type Value = File;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object with commit, time, params and results")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let mut file = File::default();
        let (mut timed, mut with_params, mut results) = (false, false, None);
        while let Some(field) = map.next_key()? {
            match field {
                FileField::Commit if file.commit.is_some() => return Err(twice("commit")),
                FileField::Commit => file.commit = map.next_value()?,
                FileField::Time if timed => return Err(twice("time")),
                FileField::Time => (file.time, timed) = (map.next_value()?, true),
                FileField::Params if with_params => return Err(twice("params")),
                FileField::Params => (file.params, with_params) = (map.next_value()?, true),
                FileField::Results if results.is_some() => return Err(twice("results")),
                FileField::Results => results = Some(map.next_value_seed(ItemsSeed(self.0))?),
            }
        }
        file.results = results.ok_or_else(|| A::Error::missing_field("results"))?;
        Ok(file)
    }
}

fn twice<E: serde::de::Error>(field: &'static str) -> E {
    E::duplicate_field(field)
}

struct ItemsSeed<'s>(&'s mut Seen);

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = Vec<Item>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<Item>, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = Vec<Item>;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a list of results")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Item>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(ItemSeed(self.0))? {
            items.push(item);
        }
        Ok(items)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum ItemField {
    Params,
    Digest,
    Value,
    Content,
    Options,
}

struct ItemSeed<'s>(&'s mut Seen);

impl<'de> DeserializeSeed<'de> for ItemSeed<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Item, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_> {
    type Value = Item;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a result with params and one of digest, value and content")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let (mut own, mut options, mut value) = (None, None, None);
        while let Some(field) = map.next_key()? {
            let given = match field {
                ItemField::Params if own.is_some() => return Err(twice("params")),
                ItemField::Params => {
                    own = Some(map.next_value_seed(&mut *self.0)?);
                    continue;
                }
                ItemField::Options if options.is_some() => return Err(twice("options")),
                ItemField::Options => {
                    options = Some(map.next_value()?);
                    continue;
                }
                // Null deletes the stored result.
                ItemField::Digest => Value::Digest(map.next_value()?),
                ItemField::Value => Value::Number(map.next_value()?),
                ItemField::Content => {
                    let content: String = map.next_value()?;
                    Value::Digest(Some(Digest::of(content.as_bytes())))
                }
            };
            if value.replace(given).is_some() {
                return Err(A::Error::custom(ONE_OF));
            }
        }
        let value = value.ok_or_else(|| A::Error::custom(ONE_OF))?;
        Ok(Item { own: own.unwrap_or_default(), value, options: options.unwrap_or_default() })
    }
}

const ONE_OF: &str = "a result must have exactly one of digest, value and content";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], labels: &Params) -> Result<Vec<Report>> {
        super::read(text, labels, &mut Seen::default())
    }

    #[test]
    fn digests_contents_and_numbers_are_read() {
        let text = br#"{"commit": "abcdef1", "time": 1.5, "results": [
            {"params": {"name": "x"}, "digest": "92eb5ffee6ae2fec3ad71c777531578f"},
            {"params": {"name": "y"}, "content": "out"},
            {"params": {"name": "z", "os": "b"}, "value": 0, "options": {"unit": "ms"}},
            {"params": {"name": "w"}, "value": null}, {"value": 1}], "params": {"os": "a"}}
            {"results": []}
            "#;
        let labels = Params::new([("ci", "1")]).unwrap();
        let reports = read(text, &labels).unwrap();
        assert_eq!(reports.len(), 2);
        assert_eq!(reports[0].commit.as_deref(), Some("abcdef1"));
        assert_eq!(reports[0].time_micros, Some(1_500_000));
        let ids: Vec<_> = reports[0].entries.iter().map(|entry| entry.params.id()).collect();
        assert_eq!(
            ids,
            [
                ",ci=1,name=x,os=a,",
                ",ci=1,name=y,os=a,",
                ",ci=1,name=z,os=b,",
                ",ci=1,name=w,os=a,",
                ",ci=1,os=a,",
            ]
        );
        assert_eq!(reports[0].entries[1].value, Value::Digest(Some(Digest::of(b"out"))));
        assert_eq!(reports[0].entries[2].value, Value::Number(Some(0.0)));
        assert_eq!(reports[0].entries[3].value, Value::Number(None));
    }

    #[test]
    fn escaped_params_are_the_same_params() {
        let text = br#"{"results": [{"params": {"name": "a\u0062\n"}, "value": 1},
            {"params": {"n\u0061me": "ab\n"}, "value": 2}]}"#;
        let entries = &read(text, &Params::default()).unwrap()[0].entries;
        assert_eq!(entries[0].params, entries[1].params);
        assert_eq!(entries[0].params.get("name"), Some("ab\n"));
    }

    #[test]
    fn errors_name_the_mistake() {
        let long = format!(r#"{{"results": [{{"params": {{"a": "{}"}}}}]}}"#, "x".repeat(5000));
        for (text, expected) in [
            ("", "empty"),
            ("[", "line 1"),
            ("{", "line 1"),
            (r#"{"results": []} x"#, "line 1"),
            ("{}", "results"),
            (r#"{"results": [{"params": {"a": "b"}}]}"#, "exactly one"),
            (r#"{"results": [{"value": 1, "digest": null}]}"#, "exactly one"),
            (r#"{"results": [{"digest": "xyz"}]}"#, "32 hex"),
            (r#"{"results": [{"params": {"a": ""}, "value": 1}]}"#, "blank"),
            (r#"{"results": [{"params": {"a": "b", "a": "c"}, "value": 1}]}"#, "duplicate"),
            (r#"{"results": [{"params": {"a": 1}, "value": 1}]}"#, "a string"),
            (r#"{"results": [{"value": 1, "vaule": 2}]}"#, "vaule"),
            (r#"{"results": [], "results": []}"#, "duplicate"),
            (r#"{"results": [], "time": -1}"#, "invalid time"),
            (r#"{"results": [], "tiem": 1}"#, "tiem"),
            (r#"{"results": [{"value": 1e999}]}"#, "number"),
            (&long, "1024"),
        ] {
            let error = read(text.as_bytes(), &Params::default()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
