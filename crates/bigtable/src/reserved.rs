//! The project reserved for the server itself: its services keep their tables
//! there, and only calls made within the process can access it.

use stele_grpc::InProcess;
use tonic::Status;

use crate::data::request;
use crate::instance::Access;
use crate::proto::v2;

/// The reserved project.
pub const PROJECT: &str = "stele-system";
const PREFIX: &str = "projects/stele-system";

/// Refuses a resource of the reserved project unless the call was made within the
/// process. Existing and missing resources get the same error.
pub fn check(extensions: &http::Extensions, name: &str) -> Result<(), Status> {
    if !is_reserved(name) || InProcess::is_set(extensions) {
        return Ok(());
    }
    Err(Status::permission_denied(format!(
        "project {PROJECT} is reserved for this server's services"
    )))
}

/// Returns whether a name is of the reserved project.
pub fn is_reserved(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A request of the data API that lists the resources it names.
pub trait Named {
    /// What the request does, as far as app profiles care.
    const ACCESS: Access;

    fn resources(&self) -> [&str; 3];

    fn app_profile(&self) -> &str;
}

macro_rules! named {
    ($($request:ty, $access:ident: $first:ident $(, $other:ident)*;)*) => {$(
        impl Named for $request {
            const ACCESS: Access = Access::$access;

            fn app_profile(&self) -> &str {
                &self.app_profile_id
            }

            fn resources(&self) -> [&str; 3] {
                let mut resources = [&*self.$first, "", ""];
                let others: &[&str] = &[$(&self.$other),*];
                resources[1..=others.len()].copy_from_slice(others);
                resources
            }
        }
    )*};
}

named! {
    request::ReadRows, Read: table_name, authorized_view_name, materialized_view_name;
    request::CheckAndMutateRow, Transaction: table_name, authorized_view_name;
    v2::MutateRowRequest, Write: table_name, authorized_view_name;
    v2::MutateRowsRequest, Write: table_name, authorized_view_name;
    v2::ReadModifyWriteRowRequest, Transaction: table_name, authorized_view_name;
    v2::SampleRowKeysRequest, Read: table_name, authorized_view_name, materialized_view_name;
    v2::PingAndWarmRequest, Read: name;
    v2::GetClientConfigurationRequest, Read: instance_name;
}

/// Refuses a request of the data API that names a resource of the reserved project.
pub fn check_request(extensions: &http::Extensions, request: &impl Named) -> Result<(), Status> {
    request.resources().iter().try_for_each(|name| check(extensions, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_reserved_project_are_reserved() {
        for name in
            ["projects/stele-system", "projects/stele-system/instances/-", "projects/stele-system/"]
        {
            let refused = check(&http::Extensions::new(), name).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{name}");
        }
        for name in [
            "",
            "projects/p",
            "projects/stele-systems/instances/i",
            "projects/stele/instances/stele-system",
        ] {
            check(&http::Extensions::new(), name).unwrap();
        }
    }
}
