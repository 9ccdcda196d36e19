//! Catalogues: their list with records and bytes, and the records of one by cursor.

use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};
use stele_catalogue::Fid;
use stele_catalogue::proto::catalogues_client::CataloguesClient;
use stele_catalogue::proto::{self as api, Flag};
use stele_grpc::Transport;

use crate::answer::{Answer, Failure, Json, put};
use crate::args::Args;
use crate::routes::Console;
use crate::rows::put_value;

const LIMIT: i64 = 100;
const LIMIT_MAX: i64 = 1000;

fn client(console: &Console) -> CataloguesClient<Transport> {
    CataloguesClient::new(Transport::InProcess(console.services.clone()))
        .max_decoding_message_size(64 << 20)
}

/// Answers `GET catalogues`.
pub async fn list(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["after", "limit"])?;
    let count = args.number("limit", LIMIT, 1, LIMIT_MAX)? as u32;
    let start = args.bytes("after").map(|after| parse_fid(&after)).transpose()?;
    let flags = match start {
        Some(_) => Flag::Slant as u32 | Flag::ExcludeStart as u32,
        None => 0,
    };
    let mut client = client(&console);
    let request = api::ListRequest { start: start.unwrap_or_default().into(), count, flags };
    let page = client.list(request).await?.into_inner();
    let fids: Vec<_> = page.catalogues.iter().map(|listed| listed.fid.clone()).collect();
    let stats = match fids.is_empty() {
        true => Vec::new(),
        false => client.stat(api::StatRequest { fids: fids.clone() }).await?.into_inner().stats,
    };
    let listed = page.catalogues.iter().zip(&stats).map(|(listed, stat)| {
        json!({
            "fid": format_fid(&listed.fid),
            "records": stat.records,
            "bytes": stat.bytes,
            "created_micros": listed.created_micros,
        })
    });
    let more = page.code == api::Code::Ok as i32 && page.catalogues.len() == count as usize;
    let after = page.catalogues.last().filter(|_| more).map(|last| format_fid(&last.fid));
    Ok(Json(json!({"catalogues": listed.collect::<Vec<_>>(), "more": more, "after": after})))
}

/// Answers `GET catalogue`: records of one catalogue in key order.
pub async fn records(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["fid", "start", "after", "limit"])?;
    let given = args.required("fid")?;
    let fid = parse_fid(given.as_bytes())?;
    let limit = args.number("limit", LIMIT, 1, LIMIT_MAX)? as u32;
    let (key, skip) = match (args.bytes("after"), args.bytes("start")) {
        (Some(after), _) => (Some(after), Flag::ExcludeStart as u32),
        (None, start) => (start, 0),
    };
    let _permit = console.heavy().await?;
    let request = api::NextRequest {
        catalogue: Some(api::Target { fid: fid.into(), ..Default::default() }),
        starts: vec![api::Start {
            edge: key.is_none(),
            key: key.unwrap_or_default(),
            count: limit + 1,
            ..Default::default()
        }],
        flags: Flag::Slant as u32 | Flag::NoCookies as u32 | skip,
        ..Default::default()
    };
    let mut replies = client(&console).next(request).await?.into_inner();
    let mut items = Vec::new();
    while let Some(reply) = replies.message().await? {
        for group in reply.groups {
            items.extend(group.records);
        }
    }
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let mut answer = Map::new();
    if let Some(last) = items.last().filter(|_| more) {
        put(&mut answer, "after", &last.key);
    }
    let records = items.iter().map(|item| {
        let mut object = Map::new();
        put(&mut object, "key", &item.key);
        put_value(&mut object, &item.value);
        Value::Object(object)
    });
    answer.insert("records".into(), records.collect());
    answer.insert("more".into(), json!(more));
    answer.insert("fid".into(), json!(given));
    Ok(Json(Value::Object(answer)))
}

/// Formats an id as the command line does.
fn format_fid(fid: &[u8]) -> String {
    Fid::from_wire(fid).map(|fid| fid.to_string()).unwrap_or_default()
}

fn parse_fid(text: &[u8]) -> Result<Vec<u8>, Failure> {
    let fid = std::str::from_utf8(text).unwrap_or_default().parse::<Fid>();
    fid.map(|fid| fid.bytes().to_vec()).map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_in_both_forms_and_shown_in_one() {
        let fid = parse_fid(b"i|1:2").unwrap();
        assert_eq!((fid.len(), format_fid(&fid)), (16, "6900000000000001:2".into()));
        assert_eq!(parse_fid(b"6900000000000001:2").unwrap(), fid);
        assert!(parse_fid(b"x").is_err() && parse_fid(b"\xff").is_err());
    }
}
