//! Calls of operators: feature level, quotas, backups, hashes.

use super::Native;
use super::proto::*;
use crate::auth::Access;
use crate::backup::{self, Kind};
use crate::command::{self, Alarm, Command};
use crate::error::{Error, Result};

impl Native {
    pub(super) async fn raise_level(
        &self,
        request: RaiseLevelRequest,
    ) -> Result<RaiseLevelResponse> {
        self.member().permit(Access::Root)?;
        let level = match request.level {
            0 => self.node.level_spoken(),
            level => level,
        };
        self.node.raise_level_of_group(level).await?;
        Ok(RaiseLevelResponse { level: self.node.level() })
    }

    pub(super) async fn set_quota(&self, request: SetQuotaRequest) -> Result<SetQuotaResponse> {
        let SetQuotaRequest { prefix, remove, keys_max, bytes_max } = request;
        let quota = (!remove).then_some(command::Quota { keys_max, bytes_max });
        let set = self.member().propose(Command::SetQuota { prefix: prefix.clone(), quota }).await;
        match set {
            Err(Error::KeyNotFound) => Err(Error::QuotaNotFound { prefix }),
            set => set.map(|_| SetQuotaResponse {}),
        }
    }

    pub(super) async fn list_quotas(&self) -> Result<ListQuotasResponse> {
        self.member().permit(Access::AnyUser)?;
        self.node.barrier().await?;
        let quotas = self.node.quotas();
        let quota = |(prefix, used): (&bytes::Bytes, &crate::state::PrefixQuota)| Quota {
            prefix: prefix.clone(),
            keys_max: used.quota.keys_max,
            bytes_max: used.quota.bytes_max,
            keys: used.keys,
            bytes: used.bytes,
        };
        Ok(ListQuotasResponse { quotas: quotas.iter().map(quota).collect() })
    }

    pub(super) async fn create_backup(
        &self,
        request: CreateBackupRequest,
    ) -> Result<CreateBackupResponse> {
        self.member().permit(Access::Root)?;
        let Some(settings) = &self.node.settings().backup else {
            return Err(Error::Config(
                "the server has no location for backups: start it with --metastore-backup DIR"
                    .into(),
            ));
        };
        let location = (self.node.settings().open_location)(&settings.location)?;
        let place = location.describe();
        let created = backup::create(&self.node, location, request.full, settings.keep).await?;
        let backup::Created { name, kind, revision, keys, changes, bytes } = created;
        let kind = match kind {
            Kind::Full => "full",
            Kind::Delta => "delta",
            Kind::Unchanged => "unchanged",
        };
        let (location, kind) = (place, kind.to_string());
        Ok(CreateBackupResponse { name, location, kind, revision, keys, changes, bytes })
    }

    pub(super) async fn cluster_status(&self) -> Result<ClusterStatusResponse> {
        self.member().permit(Access::AnyUser)?;
        Ok(ClusterStatusResponse {
            cluster_id: self.node.status().cluster_id,
            members: self.node.cluster_status().await,
            alarms: self.alarms(),
        })
    }

    pub(super) async fn move_leader(
        &self,
        request: MoveLeaderRequest,
    ) -> Result<MoveLeaderResponse> {
        self.member().permit(Access::Root)?;
        let to = Some(request.member_id).filter(|member| *member != 0);
        self.node.move_leader(to).await?;
        Ok(MoveLeaderResponse { leader_id: self.node.status().leader_id })
    }

    /// Describes the active alarms.
    pub(super) fn alarms(&self) -> Vec<String> {
        let describe = |(member, alarm): (u64, Alarm)| match alarm {
            Alarm::NoSpace => format!("NOSPACE on member {member:x}"),
            Alarm::Corrupt => format!("CORRUPT on member {member:x}"),
        };
        self.node.alarms().into_iter().map(describe).collect()
    }

    pub(super) fn get_hashes(&self, request: &GetHashesRequest) -> Result<GetHashesResponse> {
        self.member().permit(Access::AnyUser)?;
        let hashes = self.node.bucket_hashes(request.index);
        Ok(hashes.map(GetHashesResponse::from).unwrap_or_default())
    }
}
