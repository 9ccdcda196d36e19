//! Formats catalogues and records for display.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use stele_catalogue::fid::{DEATHROW, META, RETIRED};
use stele_catalogue::proto::{CatalogueStat, CataloguesReply, Code, ListReply};
use stele_catalogue::{Condemned, Fid};

use super::command::Form;
use crate::output::{bytes, count, json_line, table, text};
use crate::rows::put_bytes;
use crate::timestamp;

/// Returns the name of a code, for JSON output.
pub fn code_name(code: Code) -> &'static str {
    code.as_str_name()
}

/// Writes the result of each catalogue.
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
            Code::Exists => "already exists",
            Code::Retired => "was dropped before: its id can only be used again with --reuse",
            _ => "not found",
        };
        writeln!(out, "catalogue {fid} {what}")?;
    }
    Ok(())
}

/// Returns what a catalogue reserved by the service is for.
fn purpose(fid: Fid) -> &'static str {
    match fid {
        META => "  catalogues",
        RETIRED => "  ids of dropped catalogues",
        DEATHROW => "  dropped catalogues that still have records",
        _ => "",
    }
}

/// Writes a list of at most `limit` catalogues; the text output explains how to list more.
pub fn listed(out: &mut dyn Write, reply: &ListReply, limit: u32, form: Form) -> io::Result<()> {
    let mut last = None;
    for listed in &reply.catalogues {
        let Ok(fid) = Fid::from_wire(&listed.fid) else { continue };
        last = Some(fid);
        if form.json {
            let micros = listed.created_micros;
            json_line(out, &json!({"fid": fid.to_string(), "created_micros": micros}))?;
        } else {
            let since = timestamp::format(listed.created_micros);
            writeln!(out, "{fid}  {since}{}", purpose(fid))?;
        }
    }
    match last {
        Some(fid) if !form.json && reply.catalogues.len() == limit as usize => {
            writeln!(out, "there may be more: continue with --start {fid}")
        }
        _ => Ok(()),
    }
}

/// Writes the progress of removing dropped catalogues.
pub fn deathrow(out: &mut dyn Write, dropped: &[Condemned], form: Form) -> io::Result<()> {
    for Condemned { fid, records, removed, .. } in dropped {
        if form.json {
            let fid = fid.to_string();
            let object =
                json!({"fid": fid, "dropped": true, "records": records, "removed": removed});
            json_line(out, &object)?;
        } else {
            let (removed, records) = (count(*removed), count(*records));
            writeln!(out, "{fid} dropped: {removed} of {records} records removed")?;
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
    let mut rows = table(&["catalogue", "records", "bytes"], 1);
    for (fid, stat) in stats {
        let row = match stat.code() {
            Code::Ok => [fid.to_string(), count(stat.records), bytes(stat.bytes)],
            _ => [fid.to_string(), "not found".into(), String::new()],
        };
        rows.add_row(row);
    }
    writeln!(out, "{rows}")
}

/// Returns a record as JSON: printable UTF-8 as text, other bytes in base64.
pub fn record_json(key: &[u8], value: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "key", key);
    if let Some(value) = value {
        put_bytes(&mut object, "value", value);
    }
    object
}

/// Writes a record on one line.
pub fn record(out: &mut dyn Write, key: &[u8], value: Option<&[u8]>, form: Form) -> io::Result<()> {
    match (form.json, value) {
        (true, _) => json_line(out, &record_json(key, value)),
        (false, Some(value)) => writeln!(out, "{} = {}", text(key), text(value)),
        (false, None) => writeln!(out, "{}", text(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(show: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        show(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_removal_tells_how_far_it_has_come() {
        let fid = Fid::of_id(300).unwrap();
        let one = [Condemned { fid, since_micros: 0, records: 200_000, bytes: 9, removed: 65_536 }];
        let text = printed(|out| deathrow(out, &one, Form { json: false }));
        assert_eq!(text, format!("{fid} dropped: 65,536 of 200,000 records removed\n"));
        let json = printed(|out| deathrow(out, &one, Form { json: true }));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["removed"], &json["dropped"]), (&json!(65_536), &json!(true)));
    }

    #[test]
    fn a_list_that_was_cut_off_says_where_it_goes_on() {
        use stele_catalogue::proto::Listed;
        let fid = Fid::of_id(300).unwrap();
        let listed_one = Listed { fid: fid.bytes().to_vec().into(), ..Default::default() };
        let reply = ListReply { catalogues: vec![listed_one], ..Default::default() };
        let cut = printed(|out| listed(out, &reply, 1, Form { json: false }));
        assert!(
            cut.ends_with(&format!("there may be more: continue with --start {fid}\n")),
            "{cut}"
        );
        let all = printed(|out| listed(out, &reply, 9, Form { json: false }));
        assert_eq!(all.lines().count(), 1, "{all}");
    }
}
