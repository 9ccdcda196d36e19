//! Rows of a table: pages by cursor with filters, one value, and edits that apply only if
//! the cell is still as the page showed it.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};
use stele_bigtable_client::{Cell, Filter, Mutation, Query, Row, RowRange};

use crate::answer::{Answer, Failure, Json, put, take};
use crate::args::Args;
use crate::routes::{Console, body_json};
use crate::tables;

/// The default and the maximum number of rows of a page.
const LIMIT: i64 = 100;
const LIMIT_MAX: i64 = 1000;
/// A page ends when its cells have this many bytes.
const PAGE_BYTES: usize = 4 << 20;
/// Longer values are cut; the page asks for the rest when it is wanted.
const VALUE_BYTES: usize = 16 << 10;
/// The number of versions of a column that a page shows.
const VERSIONS: i64 = 10;
/// Longer values are compared by their timestamp only.
const COMPARED_BYTES: usize = 8 << 10;

const PARAMETERS: [&str; 14] = [
    "table", "key", "prefix", "start", "end", "regex", "value", "columns", "versions", "since",
    "until", "limit", "after", "order",
];

/// Answers `GET rows`.
pub async fn page(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &PARAMETERS)?;
    let name = tables::named(&args)?;
    let limit = args.number("limit", LIMIT, 1, LIMIT_MAX)? as u64;
    let Some(query) = read_query(&args)? else {
        return Ok(Json(json!({"rows": [], "more": false})));
    };
    let query = query.limit(limit + 1);
    let _permit = console.heavy().await?;
    let mut rows = console.table(&name)?.read_rows(query);
    let mut listed: Vec<Value> = Vec::new();
    let (mut bytes, mut last, mut more) = (0, None, false);
    while let Some(row) = rows.next().await? {
        if listed.len() as u64 == limit || bytes >= PAGE_BYTES {
            more = true;
            break;
        }
        bytes += row.cells.iter().map(|cell| cell.value.len().min(VALUE_BYTES) + 64).sum::<usize>();
        listed.push(row_json(&row));
        last = Some(row.key);
    }
    let mut answer = Map::new();
    answer.insert("rows".into(), Value::Array(listed));
    answer.insert("more".into(), json!(more));
    if let Some(last) = last.filter(|_| more) {
        put(&mut answer, "after", &last);
    }
    Ok(Json(Value::Object(answer)))
}

/// Returns what to read; `None` if no row can match.
fn read_query(args: &Args) -> Result<Option<Query>, Failure> {
    let reversed = match args.text("order")?.as_deref() {
        None | Some("ascending") => false,
        Some("descending") => true,
        Some(other) => {
            return Err(Failure::invalid(format!(
                "invalid order {other:?}: ascending or descending"
            )));
        }
    };
    let mut range = match args.bytes("prefix") {
        Some(prefix) => RowRange::prefix(prefix),
        None => RowRange::all(),
    };
    if let Some(key) = args.bytes("key") {
        let mut end = key.to_vec();
        end.push(0);
        range = intersect(range, RowRange::new(key, end));
    }
    if let Some(start) = args.bytes("start") {
        range = intersect(range, RowRange::from(start));
    }
    if let Some(end) = args.bytes("end") {
        range = intersect(range, RowRange::until(end));
    }
    if let Some(after) = args.bytes("after") {
        let rest = match reversed {
            true => RowRange::until(after),
            false => {
                let mut next = after.to_vec();
                next.push(0);
                RowRange::from(next)
            }
        };
        range = intersect(range, rest);
    }
    let filter = Filter::chain(filters(args)?);
    if range.is_empty() {
        return Ok(None);
    }
    let query = Query::range(range).filter(filter);
    Ok(Some(if reversed { query.reversed() } else { query }))
}

fn intersect(a: RowRange, b: RowRange) -> RowRange {
    let end = match (a.end, b.end) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    RowRange { start: a.start.max(b.start), end }
}

fn filters(args: &Args) -> Result<Vec<Filter>, Failure> {
    let mut filters = Vec::new();
    if let Some(pattern) = args.bytes("regex") {
        filters.push(Filter::row_regex(pattern));
    }
    if let Some(columns) = args.bytes("columns") {
        let one = |column: &[u8]| -> Result<Filter, Failure> {
            let (family, qualifier) = match column.iter().position(|byte| *byte == b':') {
                Some(at) => (&column[..at], Some(&column[at + 1..])),
                None => (column, None),
            };
            let family = std::str::from_utf8(family).ok().filter(|family| !family.is_empty());
            let family = family.ok_or_else(|| {
                Failure::invalid("invalid columns: expected FAMILY or FAMILY:QUALIFIER")
            })?;
            Ok(match qualifier.filter(|qualifier| !qualifier.is_empty()) {
                Some(qualifier) => Filter::column(family, qualifier),
                None => Filter::family(family),
            })
        };
        let columns: Result<Vec<_>, _> = columns.split(|byte| *byte == b',').map(one).collect();
        filters.push(Filter::interleave(columns?));
    }
    let (since, until) = (time(args, "since")?, time(args, "until")?);
    if since.is_some() || until.is_some() {
        filters.push(Filter::timestamps(since.unwrap_or(0), until));
    }
    let versions = args.number("versions", VERSIONS, 1, 1000)?;
    filters.push(Filter::versions(versions as i32));
    if let Some(pattern) = args.bytes("value") {
        filters.push(Filter::value_regex(pattern));
    }
    Ok(filters)
}

/// Returns a time in microseconds, given so or as an age such as `7d`.
fn time(args: &Args, name: &str) -> Result<Option<i64>, Failure> {
    let Some(text) = args.text(name)? else { return Ok(None) };
    if let Ok(micros) = text.parse::<i64>() {
        return Ok(Some(micros));
    }
    let units = [
        ("ms", 1_000),
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
    ];
    let age = units.iter().find_map(|(unit, micros)| {
        text.strip_suffix(unit)?.parse::<i64>().ok()?.checked_mul(*micros)
    });
    let age = age.ok_or_else(|| {
        Failure::invalid(format!(
            "invalid {name} {text:?}: expected microseconds or an age such as 7d"
        ))
    })?;
    // The granularity of most tables is a millisecond.
    Ok(Some((now_micros() - age) / 1000 * 1000))
}

fn now_micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

fn row_json(row: &Row) -> Value {
    let mut object = Map::new();
    put(&mut object, "key", &row.key);
    object.insert("cells".into(), row.cells.iter().map(cell_json).collect());
    Value::Object(object)
}

fn cell_json(cell: &Cell) -> Value {
    let mut object = Map::new();
    object.insert("family".into(), json!(&*cell.family));
    put(&mut object, "qualifier", &cell.qualifier);
    object.insert("timestamp_micros".into(), json!(cell.timestamp_micros));
    put_value(&mut object, &cell.value);
    Value::Object(object)
}

/// Stores the beginning of a value, and its size if that is not all.
pub fn put_value(object: &mut Map<String, Value>, value: &[u8]) {
    let mut shown = &value[..value.len().min(VALUE_BYTES)];
    if shown.len() < value.len() {
        // Text stays text if it is not cut within a letter.
        if let Err(error) = std::str::from_utf8(shown)
            && error.error_len().is_none()
        {
            shown = &shown[..error.valid_up_to()];
        }
        object.insert("value_bytes".into(), json!(value.len()));
    }
    put(object, "value", shown);
}

/// Answers `GET value`: one whole cell.
pub async fn value(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let known = ["table", "key", "family", "qualifier", "timestamp"];
    let args = Args::parse(query.as_deref(), &known)?;
    let name = tables::named(&args)?;
    let key = args.bytes("key").ok_or_else(|| Failure::invalid("parameter \"key\" is missing"))?;
    let (family, qualifier) =
        (args.required("family")?, args.bytes("qualifier").unwrap_or_default());
    let time = args.number("timestamp", 0, i64::MIN, i64::MAX)?;
    let filter = Filter::chain([
        Filter::column(&family, &qualifier),
        Filter::timestamps(time, time.checked_add(1)),
    ]);
    let _permit = console.heavy().await?;
    let row = console.table(&name)?.read_row(key, Some(filter)).await?;
    let cell = row.and_then(|row| row.cells.into_iter().next());
    let cell = cell.ok_or_else(|| Failure::not_found("the cell was deleted since"))?;
    let mut object = Map::new();
    put(&mut object, "value", &cell.value);
    Ok(Json(Value::Object(object)))
}

/// Answers `POST row`: sets or deletes one column, or deletes a row. With `seen` the
/// change applies only if the newest cell of the column is still that one, or, if it is
/// null, if there is still none.
pub async fn change(State(console): State<Console>, body: axum::body::Body) -> Answer {
    let body = body_json(body).await?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let args = Args::parse(Some(&format!("table={}", text("table"))), &["table"])?;
    let name = tables::named(&args)?;
    let key = take(&body, "key")?.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Failure::invalid("key is missing"))?;
    let table = console.table(&name)?;
    if body.get("delete_row") == Some(&Value::Bool(true)) {
        table.mutate_row(key.clone(), [Mutation::delete_row()]).await?;
        console.audit("delete row", &name.full(), &key);
        return Ok(Json(json!({"changed": true})));
    }
    let family = text("family");
    let qualifier = take(&body, "qualifier")?.unwrap_or_default();
    let mutation = match take(&body, "value")? {
        // A version that is newer than the one seen, also if the clock was set back.
        Some(value) => Mutation::set_at(family, qualifier.clone(), new_time(&body), value),
        None => Mutation::delete_column(family, qualifier.clone()),
    };
    let seen = body.get("seen").unwrap_or(&Value::Null);
    let newest = [Filter::column(family, &qualifier), Filter::versions(1)];
    let changed = if seen.is_null() {
        let any = Filter::chain(newest);
        !table.check_and_mutate(key.clone(), Some(any), [], [mutation]).await?
    } else {
        let time = seen.get("timestamp_micros").and_then(Value::as_i64);
        let time = time.ok_or_else(|| Failure::invalid("seen has no timestamp_micros"))?;
        let mut same = newest.to_vec();
        same.push(Filter::timestamps(time, time.checked_add(1)));
        if let Some(value) = take(seen, "value")?.filter(|value| value.len() <= COMPARED_BYTES) {
            same.push(Filter::value(&value));
        }
        table.check_and_mutate(key.clone(), Some(Filter::chain(same)), [mutation], []).await?
    };
    if !changed {
        return Err(Failure::conflict(
            "somebody changed this cell since it was read; look at it again before saving",
        ));
    }
    console.audit("change cell", &name.full(), &key);
    Ok(Json(json!({"changed": true})))
}

/// Returns the timestamp of a new version: now, in whole milliseconds, and after the
/// version that was seen.
fn new_time(body: &Value) -> i64 {
    let seen = body.pointer("/seen/timestamp_micros").and_then(Value::as_i64);
    let now = now_micros() / 1000 * 1000;
    seen.map_or(now, |seen| now.max((seen / 1000 + 1).saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_between_letters() {
        let value = "\u{fc}".repeat(VALUE_BYTES);
        let mut object = Map::new();
        put_value(&mut object, &value.as_bytes()[1..]);
        assert!(object.contains_key("value_base64"), "it begins within a letter");
        let mut object = Map::new();
        put_value(&mut object, format!("a{value}").as_bytes());
        assert_eq!(object["value"].as_str().unwrap().len(), VALUE_BYTES - 1);
        assert_eq!(object["value_bytes"], json!(2 * VALUE_BYTES + 1));
    }

    #[test]
    fn ranges_narrow_each_other() {
        let range = |query: &str| {
            let args = Args::parse(Some(query), &PARAMETERS).unwrap();
            read_query(&args).map(|query| format!("{query:?}"))
        };
        let narrowed = range("prefix=a&start=ab&end=ac&after=ab5").unwrap();
        assert!(narrowed.contains("ab5\\0") && narrowed.contains("ac"), "{narrowed}");
        assert_eq!(range("start=b&end=a").unwrap(), "None");
        assert!(range("order=sideways").is_err());
        assert!(range("columns=:q").is_err());
        assert!(range("since=yesterday").is_err());
        assert!(range("since=7d&until=100").is_ok());
    }

    #[test]
    fn a_new_version_is_newer_than_the_one_seen() {
        let future = 4_000_000_000_000_000i64;
        let body = json!({"seen": {"timestamp_micros": future}});
        assert_eq!(new_time(&body), future + 1000);
        assert!(new_time(&json!({})) % 1000 == 0);
    }
}
