//! JUnit reports. A test case becomes a trace with its suite, class and name; its
//! digest represents its outcome, and its duration is a number of the same trace.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::{Report, cut, tolerant};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Entry, Value};

/// The contents whose digests represent outcomes without a message.
const PASSED: &str = "passed";
const SKIPPED: &str = "skipped";
const FAILED: &str = "failed";

/// Returns the digests of outcomes that need no triage.
pub fn passing_digests() -> [Digest; 2] {
    [PASSED, SKIPPED].map(|name| Digest::of(name.as_bytes()))
}

/// Returns the digests of outcomes without a message, with their names.
pub fn named_digests() -> [(Digest, &'static str); 3] {
    [PASSED, SKIPPED, FAILED].map(|name| (Digest::of(name.as_bytes()), name))
}

/// The maximum nesting depth of elements.
const DEPTH_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const SHOWN_BYTES_MAX: usize = 300;

/// A test case that is being parsed.
struct Case {
    params: Params,
    file: String,
    line: String,
    seconds: Option<f64>,
    outcome: Outcome,
}

struct Outcome {
    status: &'static str,
    message: String,
}

struct Reading<'l> {
    labels: &'l Params,
    suites: Vec<String>,
    case: Option<Case>,
    /// Whether text belongs to the message of a failure.
    in_failure: bool,
    report: Report,
}

pub fn read(bytes: &[u8], labels: &Params) -> Result<Report> {
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(0, &error.to_string()))?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut reading = Reading {
        labels,
        suites: Vec::new(),
        case: None,
        in_failure: false,
        report: Report::default(),
    };
    let mut depth = 0;
    let mut root_seen = false;
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        match event.map_err(|error| wrong(at, &error.to_string()))? {
            Event::Start(start) => {
                root(&start, at, &mut root_seen)?;
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(wrong(at, "elements are nested too deeply"));
                }
                reading.open(&start, at)?;
            }
            Event::Empty(start) => {
                root(&start, at, &mut root_seen)?;
                reading.open(&start, at)?;
                reading.close(start.local_name().as_ref());
            }
            Event::End(end) => {
                depth -= 1;
                reading.close(end.local_name().as_ref());
            }
            Event::Text(text) => reading.text(&text.xml10_content()),
            Event::CData(text) => reading.text(&text.xml10_content()),
            // Entities become spaces: they do not affect the outcome.
            Event::GeneralRef(_) => reading.text(" "),
            Event::DocType(_) => return Err(wrong(at, "document types are not supported")),
            Event::Eof if depth > 0 => return Err(wrong(at, "the file ends inside an element")),
            Event::Eof if !root_seen => return Err(wrong(at, "no test suite found")),
            Event::Eof => return Ok(reading.report),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn wrong(at: u64, what: &str) -> Error {
    Error::invalid(format!("invalid JUnit report at byte {at}: {what}"))
}

fn root(start: &BytesStart, at: u64, seen: &mut bool) -> Result<()> {
    let local = start.local_name();
    if !*seen && !matches!(local.as_ref(), "testsuites" | "testsuite") {
        return Err(wrong(
            at,
            &format!("expected a test suite, found <{}>", cut(local.as_ref(), 40)),
        ));
    }
    *seen = true;
    Ok(())
}

impl Reading<'_> {
    fn open(&mut self, start: &BytesStart, at: u64) -> Result<()> {
        let attribute = |name: &str| -> Result<String> {
            let found = start.try_get_attribute(name).map_err(|it| wrong(at, &it.to_string()))?;
            let Some(found) = found else { return Ok(String::new()) };
            let value = found.normalized_value(XmlVersion::Implicit1_0);
            value.map(|value| value.into_owned()).map_err(|it| wrong(at, &it.to_string()))
        };
        match start.local_name().as_ref() {
            "testsuite" => self.suites.push(attribute("name")?),
            "testcase" => {
                if self.case.is_some() {
                    return Err(wrong(at, "nested test cases"));
                }
                let name = attribute("name")?;
                if name.trim().is_empty() {
                    return Err(wrong(at, "test case without a name"));
                }
                let suite = self.suites.last().map_or("", String::as_str);
                let class = attribute("classname")?;
                let own = tolerant([("name", &*name), ("class", &*class), ("suite", suite)])?;
                self.case = Some(Case {
                    params: self.labels.overlaid(&own)?,
                    file: attribute("file")?,
                    line: attribute("line")?,
                    seconds: seconds(&attribute("time")?),
                    outcome: Outcome { status: PASSED, message: String::new() },
                });
            }
            "failure" | "error" => self.outcome(FAILED, &attribute("message")?, true),
            "skipped" => self.outcome(SKIPPED, "", false),
            _ => {}
        }
        Ok(())
    }

    /// Sets the outcome of the test case; the first one counts.
    fn outcome(&mut self, status: &'static str, message: &str, with_text: bool) {
        let Some(case) = &mut self.case else { return };
        if case.outcome.status == PASSED {
            case.outcome = Outcome { status, message: message.to_string() };
            self.in_failure = with_text && message.trim().is_empty();
        }
    }

    fn text(&mut self, text: &str) {
        if let (true, Some(case)) = (self.in_failure, &mut self.case)
            && case.outcome.message.len() < MESSAGE_BYTES_MAX
        {
            case.outcome.message.push_str(cut(text, MESSAGE_BYTES_MAX));
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "testsuite" => drop(self.suites.pop()),
            "failure" | "error" => self.in_failure = false,
            "testcase" => {
                if let Some(case) = self.case.take() {
                    self.report.entries.extend(case.entries());
                }
            }
            _ => {}
        }
    }
}

impl Case {
    fn entries(self) -> impl Iterator<Item = Entry> {
        let message = normalized(&self.outcome.message);
        let content = if message.is_empty() {
            self.outcome.status.to_string()
        } else {
            format!("{}\0{message}", self.outcome.status)
        };
        let options = tolerant([
            ("file", &*self.file),
            ("line", &*self.line),
            ("message", cut(self.outcome.message.trim(), SHOWN_BYTES_MAX)),
            ("status", self.outcome.status),
        ]);
        // The values are truncated to their limit, so only their total size can be too
        // large.
        let options = options.unwrap_or_default();
        let number = self.seconds.map(|seconds| Entry {
            params: self.params.clone(),
            value: Value::Number(Some(seconds)),
            options: Params::default(),
        });
        let value = Value::Digest(Some(Digest::of(content.as_bytes())));
        [Some(Entry { params: self.params, value, options }), number].into_iter().flatten()
    }
}

fn seconds(text: &str) -> Option<f64> {
    // Some test runners write thousands separators.
    let seconds: f64 = text.replace(',', "").trim().parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

/// Returns a message without parts that vary between runs: numbers, addresses and
/// whitespace.
fn normalized(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(MESSAGE_BYTES_MAX));
    for word in cut(message, MESSAGE_BYTES_MAX).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let mut rest = word;
        while let Some(at) = rest.find(|ch: char| ch.is_ascii_digit()) {
            out.push_str(&rest[..at]);
            out.push('#');
            let hex = rest[at..].starts_with("0x");
            let digits = &rest[at + if hex { 2 } else { 0 }..];
            let is_digit = |ch: char| ch.is_ascii_digit() || hex && ch.is_ascii_hexdigit();
            rest = digits.trim_start_matches(is_digit);
        }
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="all" tests="5">
  <testsuite name="pkg.io" tests="4" timestamp="2026-01-01T00:00:00">
    <properties><property name="x" value="y"/></properties>
    <testcase name="reads" classname="Io" time="0.125" file="io.rs" line="7"/>
    <testcase name="writes" classname="Io" time="1,000.5">
      <failure message="left: 5 &lt; right: 0x7ffe12" type="panic">at line 12</failure>
      <system-out>noise 99</system-out>
    </testcase>
    <testcase name="waits &amp; sees"><skipped/></testcase>
    <testcase name="panics"><error><![CDATA[boom at
       0xdeadbeef]]></error></testcase>
  </testsuite>
  <testsuite name="other"><testcase name="reads" classname="Io"></testcase></testsuite>
</testsuites>"#;

    #[test]
    fn cases_become_traces_of_suite_class_and_name() {
        let report = read(REPORT.as_bytes(), &Params::new([("os", "linux")]).unwrap()).unwrap();
        let of = |content: &str| Value::Digest(Some(Digest::of(content.as_bytes())));
        let found: Vec<_> =
            report.entries.iter().map(|entry| (entry.params.id(), entry.value)).collect();
        let expected = [
            (",class=Io,name=reads,os=linux,suite=pkg.io,", of("passed")),
            (",class=Io,name=reads,os=linux,suite=pkg.io,", Value::Number(Some(0.125))),
            (",class=Io,name=writes,os=linux,suite=pkg.io,", of("failed\0left: # < right: #")),
            (",class=Io,name=writes,os=linux,suite=pkg.io,", Value::Number(Some(1000.5))),
            (",name=waits & sees,os=linux,suite=pkg.io,", of("skipped")),
            (",name=panics,os=linux,suite=pkg.io,", of("failed\0boom at #")),
            (",class=Io,name=reads,os=linux,suite=other,", of("passed")),
        ];
        assert_eq!(found, expected.map(|(id, value)| (id.to_string(), value)));
        assert_eq!(report.entries[0].options.id(), ",file=io.rs,line=7,status=passed,");
    }

    #[test]
    fn invalid_reports_are_rejected() {
        for (text, expected) in [
            ("", "no test suite"),
            ("<html/>", "expected a test suite"),
            ("<testsuite><testcase name='a'>", "inside an element"),
            ("<testsuite><testcase/></testsuite>", "without a name"),
            ("<testsuite></testcase></testsuite>", "byte"),
            ("<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite/>", "document types"),
            ("<testsuite><testcase name='&unknown;'/></testsuite>", "byte"),
        ] {
            let error = read(text.as_bytes(), &Params::default()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = "<testsuite>".repeat(1000);
        assert!(read(deep.as_bytes(), &Params::default()).is_err());
        assert!(read(b"<testsuite name='\xff'/>", &Params::default()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_reports_never_panic(cut_at in 0..REPORT.len(), byte in any::<u8>()) {
            let mut bytes = REPORT.as_bytes().to_vec();
            bytes[cut_at] = byte;
            let _ = read(&bytes, &Params::default());
            let _ = read(&bytes[..cut_at], &Params::default());
        }
    }
}
