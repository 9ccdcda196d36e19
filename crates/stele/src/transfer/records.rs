//! The records of a file, each with the position where the next one begins.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::mapping::{Assignment, Fields, Layout};
use super::{CELL_COLUMNS, Format};

/// The longest record, in bytes.
const RECORD_BYTES_MAX: usize = 128 << 20;

/// A record as it was read.
pub enum Record {
    Csv(csv::ByteRecord),
    /// The values of the layout's fields, and the line.
    Json {
        fields: Vec<Option<Vec<u8>>>,
        line: String,
    },
}

impl Fields for Record {
    fn get(&self, field: usize) -> Option<&[u8]> {
        match self {
            Record::Csv(record) => record.get(field),
            Record::Json { fields, .. } => fields.get(field)?.as_deref(),
        }
    }
}

impl Record {
    /// Returns the record for the file of rejected ones.
    pub fn shown(&self, names: &[String]) -> Value {
        match self {
            Record::Json { line, .. } => json!(line),
            Record::Csv(record) => {
                let fields = record.iter().enumerate().map(|(at, field)| {
                    let name = names.get(at).cloned().unwrap_or_else(|| format!("{at}"));
                    (name, json!(String::from_utf8_lossy(field)))
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

/// What was read: a record, or something that is not one.
pub enum Read {
    Record(Record),
    /// The reason, and what can be shown of it.
    Malformed {
        reason: String,
        shown: Value,
    },
    End,
}

/// Reads the records of a file.
pub enum Records {
    Csv { reader: csv::Reader<File>, names: Vec<String>, base: u64 },
    Json { reader: BufReader<File>, names: Vec<String>, offset: u64 },
}

impl Records {
    /// Opens a file. The names of its fields are those of the header, or of the first
    /// object, unless they are assigned.
    pub fn open(
        path: &Path,
        format: Format,
        delimiter: u8,
        assignments: &[Assignment],
        timestamp: Option<&str>,
    ) -> anyhow::Result<Records> {
        let file = File::open(path).with_context(|| format!("{}", path.display()))?;
        match format {
            Format::Csv => {
                let mut reader = csv_reader(file, delimiter);
                let mut header = csv::ByteRecord::new();
                if !reader.read_byte_record(&mut header)? {
                    bail!(
                        "{} is empty: a CSV file begins with the names of its fields",
                        path.display()
                    );
                }
                let names = header.iter().map(|name| {
                    let name = String::from_utf8_lossy(name);
                    name.trim_start_matches('\u{feff}').trim().to_string()
                });
                Ok(Records::Csv { names: names.collect(), reader, base: 0 })
            }
            Format::Jsonl => {
                let mut reader = BufReader::new(file);
                let names = if assignments.is_empty() {
                    let mut line = String::new();
                    reader.read_line(&mut line).with_context(|| format!("{}", path.display()))?;
                    reader.seek(SeekFrom::Start(0))?;
                    names_of(&line)?
                } else {
                    let fields = assignments.iter().map(|assignment| assignment.field.clone());
                    fields.chain(timestamp.map(str::to_string)).collect()
                };
                Ok(Records::Json { reader, names, offset: 0 })
            }
        }
    }

    pub fn names(&self) -> &[String] {
        let (Records::Csv { names, .. } | Records::Json { names, .. }) = self;
        names
    }

    /// Returns the position after the last record that was read.
    pub fn offset(&self) -> u64 {
        match self {
            Records::Csv { reader, base, .. } => base + reader.position().byte(),
            Records::Json { offset, .. } => *offset,
        }
    }

    /// Continues at the beginning of a record.
    pub fn seek(self, path: &Path, delimiter: u8, to: u64) -> anyhow::Result<Records> {
        let mut file = File::open(path).with_context(|| format!("{}", path.display()))?;
        file.seek(SeekFrom::Start(to))?;
        Ok(match self {
            Records::Csv { names, .. } => {
                Records::Csv { reader: csv_reader(file, delimiter), names, base: to }
            }
            Records::Json { names, .. } => {
                Records::Json { reader: BufReader::new(file), names, offset: to }
            }
        })
    }

    /// Reads the next record. Fails if the file cannot be read.
    pub fn next(&mut self, layout: &Layout) -> anyhow::Result<Read> {
        match self {
            Records::Csv { reader, names, .. } => {
                let mut record = csv::ByteRecord::new();
                if !reader.read_byte_record(&mut record)? {
                    return Ok(Read::End);
                }
                if record.len() != names.len() {
                    let (found, expected) = (record.len(), names.len());
                    let reason = format!("{found} fields instead of {expected}");
                    let shown = Record::Csv(record).shown(names);
                    return Ok(Read::Malformed { reason, shown });
                }
                Ok(Read::Record(Record::Csv(record)))
            }
            Records::Json { reader, names, offset } => loop {
                let mut line = Vec::new();
                let limit = RECORD_BYTES_MAX as u64;
                let bytes =
                    std::io::Read::take(&mut *reader, limit).read_until(b'\n', &mut line)?;
                if bytes == 0 {
                    return Ok(Read::End);
                }
                if line.len() >= RECORD_BYTES_MAX {
                    bail!("a line is longer than {RECORD_BYTES_MAX} bytes");
                }
                *offset += bytes as u64;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                return Ok(match object(&line) {
                    Ok(object) => {
                        let cells = matches!(layout, Layout::Cells(_));
                        let fields = names.iter().map(|name| json_field(&object, name, cells));
                        match fields.collect::<Result<_, _>>() {
                            Ok(fields) => Read::Record(Record::Json { fields, line }),
                            Err(reason) => Read::Malformed { reason, shown: json!(line) },
                        }
                    }
                    Err(reason) => Read::Malformed { reason, shown: json!(line) },
                });
            },
        }
    }
}

fn csv_reader(file: File, delimiter: u8) -> csv::Reader<File> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .buffer_capacity(256 << 10)
        .from_reader(file)
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is not a JSON object".into()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

/// Returns the names of the fields of the first line: those of cells, if it is one.
fn names_of(line: &str) -> anyhow::Result<Vec<String>> {
    if line.trim().is_empty() {
        return Ok(CELL_COLUMNS.map(str::to_string).to_vec());
    }
    let object = match object(line) {
        Ok(object) => object,
        Err(why) => bail!("the first line tells the fields, but {why}: select them with --map"),
    };
    let has = |name: &str| object.contains_key(name) || object.contains_key(&encoded(name));
    if CELL_COLUMNS.iter().all(|name| has(name)) {
        return Ok(CELL_COLUMNS.map(str::to_string).to_vec());
    }
    Ok(object.keys().cloned().collect())
}

/// The name of a field with bytes that are not text.
pub fn encoded(name: &str) -> String {
    format!("{name}_base64")
}

fn json_field(
    object: &Map<String, Value>,
    name: &str,
    cells: bool,
) -> Result<Option<Vec<u8>>, String> {
    if cells && let Some(Value::String(text)) = object.get(&encoded(name)) {
        let bytes = STANDARD.decode(text);
        return bytes.map(Some).map_err(|_| format!("{name}: it is not base64"));
    }
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone().into_bytes())),
        Some(other @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(other.to_string().into())),
        // What has structure stays JSON.
        Some(other) => Ok(Some(other.to_string().into())),
    }
}
