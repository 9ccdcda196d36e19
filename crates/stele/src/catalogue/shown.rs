//! Catalogues and records as they are shown.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use stele_catalogue::Fid;
use stele_catalogue::proto::{CatalogueStat, CataloguesReply, Code, ListReply};

use super::Form;
use crate::output::{bytes, count, json_line, table, text};
use crate::rows::put_bytes;
use crate::timestamp;

/// A code as programs read it.
pub fn code_name(code: Code) -> &'static str {
    code.as_str_name()
}

/// What became of each catalogue.
pub fn catalogues(
    out: &mut dyn Write,
    fids: &[Fid],
    reply: &CataloguesReply,
    done: &str,
    form: Form,
) -> io::Result<()> {
    for (fid, code) in fids.iter().zip(reply.codes()) {
        if form.json {
            json_line(out, &json!({"fid": fid.to_string(), "code": code_name(code)}))?;
            continue;
        }
        let what = match code {
            Code::Ok => done,
            Code::Exists => "exists already",
            Code::Retired => "was dropped before; ids are not used again (--reuse does it)",
            _ => "is not there",
        };
        writeln!(out, "catalogue {fid} {what}")?;
    }
    Ok(())
}

pub fn listed(out: &mut dyn Write, reply: &ListReply, form: Form) -> io::Result<()> {
    for listed in &reply.catalogues {
        let fid = Fid::from_wire(&listed.fid).map(|fid| fid.to_string()).unwrap_or_default();
        if form.json {
            json_line(out, &json!({"fid": fid, "created_micros": listed.created_micros}))?;
        } else {
            writeln!(out, "{fid}  {}", timestamp::shown(listed.created_micros))?;
        }
    }
    Ok(())
}

pub fn stats(out: &mut dyn Write, stats: &[(Fid, CatalogueStat)], form: Form) -> io::Result<()> {
    if form.json {
        return stats.iter().try_for_each(|(fid, stat)| {
            let fid = fid.to_string();
            json_line(
                out,
                &json!({"fid": fid, "code": code_name(stat.code()), "records": stat.records,
                        "bytes": stat.bytes, "created_micros": stat.created_micros}),
            )
        });
    }
    let mut shown = table(&["catalogue", "records", "bytes"], 1);
    for (fid, stat) in stats {
        let row = match stat.code() {
            Code::Ok => [fid.to_string(), count(stat.records), bytes(stat.bytes)],
            _ => [fid.to_string(), "not there".into(), String::new()],
        };
        shown.add_row(row);
    }
    writeln!(out, "{shown}")
}

/// A record as JSON: printable UTF-8 as text, other bytes in base64.
pub fn record_json(key: &[u8], value: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "key", key);
    if let Some(value) = value {
        put_bytes(&mut object, "value", value);
    }
    object
}

/// A record on a line.
pub fn record(out: &mut dyn Write, key: &[u8], value: Option<&[u8]>, form: Form) -> io::Result<()> {
    match (form.json, value) {
        (true, _) => json_line(out, &record_json(key, value)),
        (false, Some(value)) => writeln!(out, "{} = {}", text(key), text(value)),
        (false, None) => writeln!(out, "{}", text(key)),
    }
}
