//! Records for a name: A and AAAA for servers with IP addresses, SRV for all servers,
//! TXT with the properties of the mounts. Their TTL ends with the first mount that
//! expires. Nodes that are not public are treated as missing.

use std::net::IpAddr;

use hickory_server::proto::op::ResponseCode;
use hickory_server::proto::rr::rdata::{A, AAAA, HINFO, NS, SOA, SRV, TXT};
use hickory_server::proto::rr::{Name, RData, Record, RecordType};

use super::zone::{Meaning, Zone};
use crate::address::Endpoint;
use crate::blessing::Caller;
use crate::error::Error;
use crate::node::Server;
use crate::node_name::NodeName;
use crate::tree::{Call, Mounttable};

/// The maximum TTL, however long the mount lasts.
const TTL_MAX_SECONDS: i64 = 24 * 3600;
/// The TTL of negative responses.
const NEGATIVE_SECONDS: u32 = 5;
const ADDRESS_SECONDS: u32 = 3600;
const TEXT_BYTES_MAX: usize = 255;

#[derive(Debug)]
pub struct Answer {
    pub code: ResponseCode,
    /// Whether the name is in the zone.
    pub is_ours: bool,
    pub records: Vec<Record>,
    /// The zone's SOA record, if there are no other records.
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

impl Answer {
    pub fn code(code: ResponseCode) -> Answer {
        let (records, authority, additional) = (Vec::new(), Vec::new(), Vec::new());
        Answer { code, is_ours: false, records, authority, additional }
    }

    /// Returns a response with these records; without records it contains the SOA for
    /// negative caching.
    fn of(zone: &Zone, code: ResponseCode, records: Vec<Record>) -> Answer {
        let authority = if records.is_empty() { vec![soa(zone)] } else { Vec::new() };
        Answer { code, is_ours: true, records, authority, additional: Vec::new() }
    }
}

/// How a question for ANY is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Any {
    /// With everything: over TCP, where the sender is who it claims to be.
    Full,
    /// With one small record (RFC 8482): over UDP a forged question would make
    /// this server send a large answer to somebody else.
    Minimal,
}

pub async fn answer(
    table: &Mounttable,
    zone: &Zone,
    queried: &Name,
    kind: RecordType,
    any: Any,
) -> Answer {
    let node = match zone.meaning(queried) {
        None => return Answer::code(ResponseCode::Refused),
        Some(Meaning::Nothing) => return Answer::of(zone, ResponseCode::NXDomain, vec![]),
        Some(Meaning::Address(address)) => {
            let record = address_record(queried, address, ADDRESS_SECONDS);
            let records = if wanted(kind, record.record_type()) { vec![record] } else { vec![] };
            return Answer::of(zone, ResponseCode::NoError, records);
        }
        Some(Meaning::Node(node)) => node,
    };
    let servers = match servers(table, &node).await {
        Ok(Some(servers)) => servers,
        // The zone itself is there, whatever is below its root.
        Ok(None) if node.is_root() => Vec::new(),
        Ok(None) => return Answer::of(zone, ResponseCode::NXDomain, vec![]),
        Err(error) => {
            tracing::warn!(%error, "DNS query failed");
            return Answer::code(ResponseCode::ServFail);
        }
    };
    if kind == RecordType::ANY && any == Any::Minimal {
        return Answer::of(zone, ResponseCode::NoError, vec![minimal(queried)]);
    }
    let ttl = ttl(&servers, table.now());
    let mut answer =
        Answer::of(zone, ResponseCode::NoError, records(zone, queried, kind, &servers, ttl));
    if node.is_root() && matches!(kind, RecordType::SOA | RecordType::NS | RecordType::ANY) {
        answer.records.extend(apex(zone).filter(|record| wanted(kind, record.record_type())));
        if !answer.records.is_empty() {
            answer.authority.clear();
        }
        let host = zone.name_server().and_then(|(name, address)| Some((name, address?)));
        answer.additional.extend(
            host.filter(|_| kind != RecordType::SOA)
                .map(|(name, address)| address_record(&name, address, ADDRESS_SECONDS)),
        );
    }
    if answer.records.iter().any(|record| record.record_type() == RecordType::SRV) {
        answer.additional.extend(hosts(zone, &servers, ttl));
    }
    answer
}

/// Returns the live servers of exactly this node; `None` if it is not public.
async fn servers(table: &Mounttable, node: &NodeName) -> Result<Option<Vec<Server>>, Error> {
    if !table.is_in_use().await? {
        return Ok(None);
    }
    let call = Call::by(Caller::anonymous());
    match table.public_servers(&call, node).await {
        Ok(servers) => Ok(servers),
        Err(Error::NoSuchName { .. } | Error::NoPermissions { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn wanted(queried: RecordType, kind: RecordType) -> bool {
    queried == kind || queried == RecordType::ANY
}

/// Returns the seconds until the first of these servers expires.
fn ttl(servers: &[Server], now_micros: i64) -> u32 {
    let left = servers.iter().map(|server| (server.deadline_micros - now_micros) / 1_000_000);
    let least = left.min().unwrap_or(0).clamp(0, TTL_MAX_SECONDS);
    u32::try_from(least).unwrap_or(0)
}

fn records(
    zone: &Zone,
    queried: &Name,
    kind: RecordType,
    servers: &[Server],
    ttl: u32,
) -> Vec<Record> {
    let mut records = Vec::new();
    for server in servers {
        let endpoint = Endpoint::of_server(&server.address);
        let place = endpoint.as_ref().and_then(Endpoint::host_port);
        if let Some((host, port)) = place {
            let address: Option<IpAddr> = host.parse().ok();
            records.extend(address.map(|address| address_record(queried, address, ttl)));
            records.extend(target(zone, host, address).map(|target| {
                Record::from_rdata(queried.clone(), ttl, RData::SRV(SRV::new(0, 1, port, target)))
            }));
        }
        let text = RData::TXT(TXT::new(text(server)));
        records.push(Record::from_rdata(queried.clone(), ttl, text));
    }
    records.retain(|record| wanted(kind, record.record_type()));
    // Two ports of one host give one address record.
    let mut seen: Vec<RData> = Vec::new();
    records.retain(|record| {
        let is_new = !seen.contains(&record.data);
        seen.push(record.data.clone());
        is_new
    });
    records
}

/// Returns the host of an SRV record: the server's own name, or one for its address.
fn target(zone: &Zone, host: &str, address: Option<IpAddr>) -> Option<Name> {
    match address {
        Some(address) => zone.host(address),
        None => {
            let mut name = Name::from_utf8(host).ok().filter(|name| !name.is_root())?;
            name.set_fqdn(true);
            Some(name)
        }
    }
}

/// Returns address records for the targets of SRV records.
fn hosts(zone: &Zone, servers: &[Server], ttl: u32) -> Vec<Record> {
    let address = |server: &Server| -> Option<IpAddr> {
        Endpoint::of_server(&server.address)?.host_port()?.0.parse().ok()
    };
    let mut addresses: Vec<_> = servers.iter().filter_map(address).collect();
    addresses.sort();
    addresses.dedup();
    let record = |address| Some(address_record(&zone.host(address)?, address, ttl));
    addresses.into_iter().filter_map(record).collect()
}

fn address_record(name: &Name, address: IpAddr, ttl: u32) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), ttl, data)
}

fn text(server: &Server) -> Vec<String> {
    let mut address = format!("server={}", server.address);
    while address.len() > TEXT_BYTES_MAX {
        address.pop();
    }
    let flags = [(server.flags.mt, "mt=true"), (server.flags.leaf, "leaf=true")];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into());
    [address].into_iter().chain(flags).collect()
}

fn soa(zone: &Zone) -> Record {
    let origin = zone.origin();
    let mail = Name::from_utf8("names").and_then(|name| name.append_domain(origin));
    let mail = mail.unwrap_or_else(|_| origin.clone());
    let server = zone.name_server().map_or_else(|| origin.clone(), |(name, _)| name);
    let soa = SOA::new(server, mail, 1, 3600, 600, 86_400, NEGATIVE_SECONDS);
    Record::from_rdata(origin.clone(), NEGATIVE_SECONDS, RData::SOA(soa))
}

/// What the zone says of itself.
fn apex(zone: &Zone) -> impl Iterator<Item = Record> {
    let ns = zone.name_server().map(|(server, _)| {
        Record::from_rdata(zone.origin().clone(), ADDRESS_SECONDS, RData::NS(NS(server)))
    });
    [soa(zone)].into_iter().chain(ns)
}

/// The answer to ANY that RFC 8482 recommends.
fn minimal(queried: &Name) -> Record {
    let data = HINFO::new("RFC8482".into(), String::new());
    Record::from_rdata(queried.clone(), ADDRESS_SECONDS, RData::HINFO(data))
}
