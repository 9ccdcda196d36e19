//! `stele export`: the cells of a table, one per record.

use std::io::{self, Write};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use stele_bigtable_client::{Filter, Query, Row};

use super::records::encoded;
use super::{CELL_COLUMNS, Format};
use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::escape::unescape;
use crate::new_file::NewFile;
use crate::output::things;
use crate::progress::Progress;

/// Export the cells of a table as CSV or as lines of JSON.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele export users users.csv
  stele export users users.jsonl --prefix de: --versions 1
  stele export users - --format jsonl | head

Each cell is a record with key, family, qualifier, timestamp (microseconds since 1970) and
value. CSV has bytes as they are; in JSON, bytes that are not text are in key_base64,
qualifier_base64 and value_base64. `stele import` reads both. The rows are not of one
moment: writes during the export may or may not be in it.")]
pub struct Export {
    table: String,
    /// Output file, which is replaced when the export is complete; - for standard output.
    file: PathBuf,
    /// Format of the file [default: by its extension].
    #[arg(long)]
    format: Option<Format>,
    /// Only rows whose keys begin with this.
    #[arg(long, value_name = "KEY", value_parser = unescape)]
    prefix: Option<Bytes>,
    /// Only the newest N versions of each column.
    #[arg(long, value_name = "N")]
    versions: Option<i32>,
    #[command(flatten)]
    server: BigtableServer,
}

impl Export {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let format = Format::of(self.format, &self.file)?;
        let (rows, cells) = if self.file.as_os_str() == "-" {
            self.write(format, &mut io::BufWriter::new(io::stdout().lock()))?
        } else {
            let mut file = NewFile::create(&self.file)?;
            let counts = self.write(format, &mut file.out)?;
            file.finish()?;
            counts
        };
        let (rows, cells) = (things(rows, "row"), things(cells, "cell"));
        eprintln!("exported {rows} with {cells} of table {}", self.table);
        Ok(Outcome::Sound)
    }

    /// Writes all records. Returns the numbers of rows and cells.
    fn write(&self, format: Format, out: &mut dyn Write) -> anyhow::Result<(u64, u64)> {
        let mut query = match &self.prefix {
            Some(prefix) => Query::prefix(prefix.clone()),
            None => Query::all(),
        };
        if let Some(versions) = self.versions {
            query = query.filter(Filter::versions(versions));
        }
        self.server.run(async |client| {
            let table = client.table(&self.table).map_err(with_hint)?;
            let mut rows = table.read_rows(query);
            let mut writer = Writer::new(format, out)?;
            let mut progress = Progress::without_total();
            let (mut row_count, mut cells) = (0, 0);
            while let Some(row) = rows.next().await.map_err(with_hint)? {
                writer.row(&row)?;
                row_count += 1;
                cells += row.cells.len() as u64;
                progress.show(0.0, row_count, "rows");
            }
            writer.finish()?;
            progress.clear();
            Ok((row_count, cells))
        })
    }
}

enum Writer<'o> {
    Csv(Box<csv::Writer<&'o mut dyn Write>>),
    Json(&'o mut dyn Write),
}

impl<'o> Writer<'o> {
    fn new(format: Format, out: &'o mut dyn Write) -> anyhow::Result<Writer<'o>> {
        Ok(match format {
            Format::Jsonl => Writer::Json(out),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                writer.write_record(CELL_COLUMNS)?;
                Writer::Csv(Box::new(writer))
            }
        })
    }

    fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        for cell in &row.cells {
            let time = cell.timestamp_micros.to_string();
            match self {
                Writer::Csv(writer) => writer.write_record([
                    &row.key[..],
                    cell.family.as_bytes(),
                    &cell.qualifier,
                    time.as_bytes(),
                    &cell.value,
                ])?,
                Writer::Json(out) => {
                    let mut object = Map::new();
                    put(&mut object, "key", &row.key);
                    object.insert("family".into(), json!(&*cell.family));
                    put(&mut object, "qualifier", &cell.qualifier);
                    object.insert("timestamp".into(), json!(cell.timestamp_micros));
                    put(&mut object, "value", &cell.value);
                    serde_json::to_writer(&mut *out, &Value::Object(object))?;
                    out.write_all(b"\n")?;
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Writer::Csv(mut writer) => writer.flush(),
            Writer::Json(out) => out.flush(),
        }
    }
}

/// Adds bytes as text, or else in base64 under another name.
fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), json!(text)),
        Err(_) => object.insert(encoded(name), json!(STANDARD.encode(bytes))),
    };
}
