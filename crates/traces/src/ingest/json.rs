//! Our own format: one JSON object for each commit, one after another.
//!
//! ```json
//! {"commit": "HASH", "time": 1560340800.5, "params": {"os": "Android"},
//!  "results": [
//!   {"params": {"name": "blur"}, "digest": "92eb5ffee6ae2fec3ad71c777531578f"},
//!   {"params": {"name": "log"}, "content": "the output itself"},
//!   {"params": {"name": "draw"}, "value": 12.5, "options": {"unit": "ms"}}]}
//! ```

use serde::{Deserialize, Deserializer};

use super::Report;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Entry, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    commit: Option<String>,
    time: Option<f64>,
    #[serde(default)]
    params: Params,
    results: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    #[serde(default)]
    params: Params,
    /// `null` takes back what was there; absent is another thing.
    #[serde(default, deserialize_with = "present")]
    digest: Option<Option<Digest>>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Option<f64>>,
    content: Option<String>,
    #[serde(default)]
    options: Params,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

pub fn read(bytes: &[u8], labels: &Params) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for file in serde_json::Deserializer::from_slice(bytes).into_iter::<File>() {
        let file = file.map_err(|error| Error::invalid(format!("the JSON: {error}")))?;
        reports.push(file.report(labels)?);
    }
    if reports.is_empty() {
        return Err(Error::invalid("the JSON is empty"));
    }
    Ok(reports)
}

impl File {
    fn report(self, labels: &Params) -> Result<Report> {
        let time_micros = match self.time {
            None => None,
            Some(time) if (0.0..253_402_300_800.0).contains(&time) => Some((time * 1e6) as i64),
            Some(time) => {
                return Err(Error::invalid(format!("{time} is no time in seconds since 1970")));
            }
        };
        let shared = labels.overlaid(&self.params)?;
        let entries = self.results.into_iter().map(|item| item.entry(&shared));
        let entries = entries.collect::<Result<_>>()?;
        Ok(Report { commit: self.commit, time_micros, entries, skipped: 0 })
    }
}

impl Item {
    fn entry(self, shared: &Params) -> Result<Entry> {
        let params =
            if self.params.is_empty() { shared.clone() } else { shared.overlaid(&self.params)? };
        let value = match (self.digest, self.value, self.content) {
            (Some(digest), None, None) => Value::Digest(digest),
            (None, Some(number), None) => Value::Number(number),
            (None, None, Some(content)) => Value::Digest(Some(Digest::of(content.as_bytes()))),
            _ => {
                return Err(Error::invalid(format!(
                    "{params} must have exactly one of digest, value and content"
                )));
            }
        };
        Ok(Entry { params, value, options: self.options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_contents_and_numbers_are_read() {
        let text = br#"{"commit": "abcdef1", "time": 1.5, "params": {"os": "a"}, "results": [
            {"params": {"name": "x"}, "digest": "92eb5ffee6ae2fec3ad71c777531578f"},
            {"params": {"name": "y"}, "content": "out"},
            {"params": {"name": "z", "os": "b"}, "value": 0, "options": {"unit": "ms"}},
            {"params": {"name": "w"}, "value": null}]}
            {"results": []}"#;
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
                ",ci=1,name=w,os=a,"
            ]
        );
        assert_eq!(reports[0].entries[1].value, Value::Digest(Some(Digest::of(b"out"))));
        assert_eq!(reports[0].entries[2].value, Value::Number(Some(0.0)));
        assert_eq!(reports[0].entries[3].value, Value::Number(None));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, says) in [
            ("", "empty"),
            ("[", "line 1"),
            (r#"{"results": [{"params": {"a": "b"}}]}"#, "exactly one"),
            (r#"{"results": [{"value": 1, "digest": null}]}"#, "exactly one"),
            (r#"{"results": [{"digest": "xyz"}]}"#, "32 hex"),
            (r#"{"results": [{"params": {"a": ""}, "value": 1}]}"#, "blank"),
            (r#"{"results": [], "time": -1}"#, "no time"),
            (r#"{"results": [], "tiem": 1}"#, "tiem"),
            (r#"{"results": [{"value": 1e999}]}"#, "number"),
        ] {
            let error = read(text.as_bytes(), &Params::default()).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
