//! Finds backups and lists them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use stele_engine::BackupInfo;
use xxhash_rust::xxh3::xxh3_64;

use super::filter::Filter;
use super::order::Order;
use crate::admin::operations::timestamp;
use crate::admin::paging::{PAGE_BYTES, PAGE_ITEMS_MAX, invalid_page_token, page_size};
use crate::error::{Error, Result};
use crate::name::{BackupName, ClusterName, InstanceName, Instances, TableName, excerpt};
use crate::proto::admin::backup::{BackupType, State};
use crate::proto::admin::encryption_info::EncryptionType;
use crate::proto::admin::{Backup, EncryptionInfo, ListBackupsRequest, ListBackupsResponse};
use crate::table::Tables;

/// A backup with its name in the engine.
pub struct Found {
    pub stored_name: String,
    pub message: Backup,
}

/// Returns a backup as clients see it; `None` if it is not of a table of this API.
fn shown(tables: &Tables, info: BackupInfo) -> Result<Option<Found>> {
    let Ok(source) = TableName::parse(&info.source_name) else { return Ok(None) };
    let name = match info.name.starts_with("projects/") {
        true => info.name.clone(),
        false => {
            let clusters = tables.instances().cluster_ids(source.instance).unwrap_or_default();
            let Some(cluster) = clusters.first() else { return Ok(None) };
            format!("{}/clusters/{cluster}/backups/{}", source.instance, info.name)
        }
    };
    // What the engine does not know of a backup; missing for those of Stele's own API.
    let declared = tables.records().get::<Backup>(&info.name)?.unwrap_or_default();
    let created = timestamp(info.created_micros);
    let backup_type = match declared.backup_type() {
        BackupType::Unspecified => BackupType::Standard,
        known => known,
    };
    let message = Backup {
        name,
        source_table: info.source_name,
        expire_time: info.expires_micros.map(timestamp),
        start_time: Some(created),
        end_time: Some(declared.end_time.unwrap_or(created)),
        size_bytes: i64::try_from(info.disk_bytes).unwrap_or(i64::MAX),
        state: State::Ready.into(),
        encryption_info: Some(EncryptionInfo {
            encryption_type: EncryptionType::GoogleDefaultEncryption.into(),
            ..Default::default()
        }),
        source_backup: declared.source_backup,
        backup_type: backup_type.into(),
        hot_to_standard_time: declared.hot_to_standard_time,
    };
    Ok(Some(Found { stored_name: info.name, message }))
}

/// Returns a backup by its resource name.
pub fn find(tables: &Tables, name: &str) -> Result<Found> {
    let parsed = BackupName::parse(name)?;
    let served = tables.served();
    for stored_name in [name, parsed.backup] {
        if let Ok(info) = served.backup(stored_name)
            && let Some(found) = shown(tables, info)?
            && found.message.name == name
        {
            return Ok(found);
        }
    }
    Err(Error::NotFound(format!("Backup not found: {}", excerpt(name))))
}

/// Returns the backups of an instance, or of one of its clusters, by name.
pub fn backups_in(
    tables: &Tables,
    instance: InstanceName<'_>,
    cluster: Option<&str>,
) -> Result<Vec<Backup>> {
    let prefix = match cluster {
        Some(cluster) => format!("{instance}/clusters/{cluster}/"),
        None => format!("{instance}/clusters/"),
    };
    let mut found = Vec::new();
    for info in tables.served().backups()? {
        if let Some(backup) = shown(tables, info)?
            && backup.message.name.starts_with(&prefix)
        {
            found.push(backup.message);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns the requested page.
pub fn page(tables: &Tables, request: &ListBackupsRequest) -> Result<ListBackupsResponse> {
    let ListBackupsRequest { parent, filter, order_by, page_size: size, page_token } = request;
    let mut all = match parent.strip_suffix("/clusters/-") {
        Some(instances) => match Instances::parse(instances)? {
            Instances::One(instance) => {
                tables.instances().check(instance)?;
                backups_in(tables, instance, None)?
            }
            all @ Instances::All(_) => {
                let mut found = Vec::new();
                for instance in tables.instances().list(all)? {
                    found.extend(backups_in(tables, InstanceName::parse(&instance.name)?, None)?);
                }
                found
            }
        },
        None => {
            let cluster = ClusterName::parse(parent)?;
            tables.instances().cluster(cluster)?;
            backups_in(tables, cluster.instance, Some(cluster.cluster))?
        }
    };
    let size = page_size(*size, PAGE_ITEMS_MAX)?;
    let filter = Filter::parse(filter)?;
    let order = Order::parse(order_by)?;
    all.retain(|backup| filter.accepts(backup));
    order.sort(&mut all);
    let list = PageToken { list: list_id(request), offset: 0 };
    let start = list.open(page_token)?;
    let mut response = ListBackupsResponse::default();
    let mut bytes = 0;
    let total = all.len();
    for (at, backup) in all.into_iter().enumerate().skip(start) {
        bytes += backup.encoded_len();
        response.backups.push(backup);
        if (response.backups.len() >= size || bytes >= PAGE_BYTES) && at + 1 < total {
            response.next_page_token = PageToken { offset: at as u64 + 1, ..list }.seal();
            break;
        }
    }
    Ok(response)
}

/// Identifies a list: its tokens are not valid for others.
fn list_id(request: &ListBackupsRequest) -> u64 {
    let ListBackupsRequest { parent, filter, order_by, .. } = request;
    xxh3_64(format!("{parent}\0{filter}\0{order_by}").as_bytes())
}

/// The position at which the next page begins.
#[derive(Clone, Copy)]
struct PageToken {
    list: u64,
    offset: u64,
}

impl PageToken {
    fn seal(self) -> String {
        URL_SAFE_NO_PAD.encode([self.list.to_be_bytes(), self.offset.to_be_bytes()].concat())
    }

    /// Returns the position of a token of the same list; the beginning without a token.
    fn open(self, token: &str) -> Result<usize> {
        if token.is_empty() {
            return Ok(0);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() == 16);
        let bytes = bytes.ok_or_else(invalid_page_token)?;
        let offset = bytes[8..].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let is_own = bytes[..8] == self.list.to_be_bytes();
        let offset = usize::try_from(offset).ok().filter(|_| is_own);
        offset.ok_or_else(invalid_page_token)
    }
}
