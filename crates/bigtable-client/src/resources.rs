//! Administration of instances, clusters, app profiles, backups and authorized views, in the
//! messages of the API.

use std::time::Duration;

use prost::Message;
use stele_bigtable_proto::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use stele_bigtable_proto::longrunning::operations_client::OperationsClient;
use stele_bigtable_proto::longrunning::{GetOperationRequest, Operation, operation};
use stele_bigtable_proto::{MESSAGE_BYTES_MAX, admin};
use stele_grpc::{Pending, Transport};
use tonic::Code;

use crate::Client;
use crate::call::{Call, Repeat, Target};
use crate::error::{Action, Error, Result};

/// How long to wait between two questions whether an operation is done.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($request:ty) -> $response:ty = $client:ident $call:literal $repeat:ident
            ($field:literal, |$message:ident| $resource:expr);
    )*) => {
        impl Client {$(
            $(#[$doc])*
            pub fn $name(&self, message: $request) -> Pending<'_, Result<$response>> {
                let send = move |request| {
                    let mut client = self.$client();
                    async move { client.$name(request).await }
                };
                Box::pin(async move {
                    let $message = &message;
                    let target = Target::new($field, $resource, None)?;
                    Call::new(self, &target, $call).run(message, Repeat::$repeat, send).await
                })
            }
        )*}
    };
}

calls! {
    /// Creates an instance with its clusters.
    create_instance(admin::CreateInstanceRequest) -> Operation
        = instance_admin "CreateInstance" Never ("parent", |m| &m.parent);
    /// Lists the instances of a project.
    list_instances(admin::ListInstancesRequest) -> admin::ListInstancesResponse
        = instance_admin "ListInstances" Allowed ("parent", |m| &m.parent);
    get_instance(admin::GetInstanceRequest) -> admin::Instance
        = instance_admin "GetInstance" Allowed ("name", |m| &m.name);
    /// Changes the fields of an instance that the mask names.
    partial_update_instance(admin::PartialUpdateInstanceRequest) -> Operation
        = instance_admin "PartialUpdateInstance" Never
            ("instance.name", |m| m.instance.as_ref().map_or("", |instance| &instance.name));
    /// Deletes an instance with all of its tables.
    delete_instance(admin::DeleteInstanceRequest) -> ()
        = instance_admin "DeleteInstance" Never ("name", |m| &m.name);
    create_cluster(admin::CreateClusterRequest) -> Operation
        = instance_admin "CreateCluster" Never ("parent", |m| &m.parent);
    list_clusters(admin::ListClustersRequest) -> admin::ListClustersResponse
        = instance_admin "ListClusters" Allowed ("parent", |m| &m.parent);
    /// Changes the fields of a cluster that the mask names.
    partial_update_cluster(admin::PartialUpdateClusterRequest) -> Operation
        = instance_admin "PartialUpdateCluster" Never
            ("cluster.name", |m| m.cluster.as_ref().map_or("", |cluster| &cluster.name));
    delete_cluster(admin::DeleteClusterRequest) -> ()
        = instance_admin "DeleteCluster" Never ("name", |m| &m.name);
    create_app_profile(admin::CreateAppProfileRequest) -> admin::AppProfile
        = instance_admin "CreateAppProfile" Never ("parent", |m| &m.parent);
    list_app_profiles(admin::ListAppProfilesRequest) -> admin::ListAppProfilesResponse
        = instance_admin "ListAppProfiles" Allowed ("parent", |m| &m.parent);
    delete_app_profile(admin::DeleteAppProfileRequest) -> ()
        = instance_admin "DeleteAppProfile" Never ("name", |m| &m.name);
    create_backup(admin::CreateBackupRequest) -> Operation
        = admin "CreateBackup" Never ("parent", |m| &m.parent);
    get_backup(admin::GetBackupRequest) -> admin::Backup
        = admin "GetBackup" Allowed ("name", |m| &m.name);
    list_backups(admin::ListBackupsRequest) -> admin::ListBackupsResponse
        = admin "ListBackups" Allowed ("parent", |m| &m.parent);
    /// Changes when a backup expires.
    update_backup(admin::UpdateBackupRequest) -> admin::Backup
        = admin "UpdateBackup" Never
            ("backup.name", |m| m.backup.as_ref().map_or("", |backup| &backup.name));
    copy_backup(admin::CopyBackupRequest) -> Operation
        = admin "CopyBackup" Never ("parent", |m| &m.parent);
    delete_backup(admin::DeleteBackupRequest) -> ()
        = admin "DeleteBackup" Never ("name", |m| &m.name);
    /// Creates a table from a backup.
    restore_table(admin::RestoreTableRequest) -> Operation
        = admin "RestoreTable" Never ("parent", |m| &m.parent);
    /// Brings back a deleted table.
    undelete_table(admin::UndeleteTableRequest) -> Operation
        = admin "UndeleteTable" Never ("name", |m| &m.name);
    create_authorized_view(admin::CreateAuthorizedViewRequest) -> Operation
        = admin "CreateAuthorizedView" Never ("parent", |m| &m.parent);
    list_authorized_views(admin::ListAuthorizedViewsRequest) -> admin::ListAuthorizedViewsResponse
        = admin "ListAuthorizedViews" Allowed ("parent", |m| &m.parent);
    delete_authorized_view(admin::DeleteAuthorizedViewRequest) -> ()
        = admin "DeleteAuthorizedView" Never ("name", |m| &m.name);
    get_operation(GetOperationRequest) -> Operation
        = operations "GetOperation" Allowed ("name", |m| &m.name);
}

impl Client {
    fn instance_admin(&self) -> BigtableInstanceAdminClient<Transport> {
        BigtableInstanceAdminClient::new(self.shared.admin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn operations(&self) -> OperationsClient<Transport> {
        OperationsClient::new(self.shared.admin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Waits until an operation is done, and returns its response.
    pub fn finished<M: Message + Default>(
        &self,
        mut operation: Operation,
    ) -> Pending<'_, Result<M>> {
        Box::pin(async move {
            while !operation.done {
                tokio::time::sleep(POLL_INTERVAL).await;
                let name = operation.name.clone();
                operation = self.get_operation(GetOperationRequest { name }).await?;
            }
            let action = Action { call: "GetOperation", target: operation.name.as_str().into() };
            let failed = |code: Code, message: String| {
                let (action, retry_after) = (action.clone(), None);
                Error::Refused { action, code, message, retry_after }
            };
            match operation.result {
                Some(operation::Result::Response(response)) => M::decode(&response.value[..])
                    .map_err(|error| failed(Code::Internal, format!("unreadable: {error}"))),
                Some(operation::Result::Error(status)) => {
                    Err(failed(Code::from_i32(status.code), status.message))
                }
                None => Err(failed(Code::Internal, "it is done without a result".into())),
            }
        })
    }
}
