//! Changes of app profiles.

use super::service::Context;
use crate::admin::operations::{any, finished};
use crate::error::{Error, Result};
use crate::instance::{DEFAULT_APP_PROFILE, check_profile, mask_paths, updated_profile};
use crate::name::{AppProfileName, InstanceName, check_id};
use crate::proto::admin::{
    AppProfile, CreateAppProfileRequest, DeleteAppProfileRequest, UpdateAppProfileMetadata,
    UpdateAppProfileRequest,
};
use crate::proto::longrunning::Operation;
use crate::records::Change;

pub fn create(context: &Context, request: CreateAppProfileRequest) -> Result<AppProfile> {
    let tables = &context.tables;
    // Nothing of a new profile is risky.
    let CreateAppProfileRequest { parent, app_profile_id, app_profile, ignore_warnings: _ } =
        request;
    let instance = InstanceName::parse(&parent)?;
    check_id("app_profile_id", &app_profile_id)?;
    let name = format!("{instance}/appProfiles/{app_profile_id}");
    let given = app_profile.unwrap_or_default();
    if !given.name.is_empty() && given.name != name {
        let what = "must be empty: parent and app_profile_id name the app profile";
        return Err(Error::Invalid(format!("Error in field 'app_profile.name' : {what}")));
    }
    tables.records().change(|| {
        let clusters = tables.instances().cluster_ids(instance)?;
        if app_profile_id == DEFAULT_APP_PROFILE || tables.records().contains(&name) {
            return Err(Error::Exists(format!("App profile already exists: {name}")));
        }
        let created = check_profile(&clusters, AppProfile { name: name.clone(), ..given })?;
        Ok((vec![Change::put(name.clone(), &created)], ()))
    })?;
    tables.instances().app_profile(AppProfileName { instance, app_profile: &app_profile_id })
}

pub fn update(context: &Context, request: UpdateAppProfileRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let UpdateAppProfileRequest { app_profile, update_mask, ignore_warnings } = request;
    let given = app_profile.unwrap_or_default();
    let name = AppProfileName::parse(&given.name)?;
    let paths = mask_paths(update_mask)?;
    let records = tables.records();
    records.change(|| {
        let old = tables.instances().app_profile(name)?;
        if !given.etag.is_empty() && given.etag != old.etag {
            let what = "it has changed since its etag was read";
            return Err(Error::Aborted(format!("App profile {}: {what}", given.name)));
        }
        let clusters = tables.instances().cluster_ids(name.instance)?;
        let updated = updated_profile(&clusters, old, &given, &paths, ignore_warnings)?;
        let shown = crate::instance::with_etag(updated.clone());
        let metadata = any("UpdateAppProfileMetadata", &UpdateAppProfileMetadata {});
        let response = any("AppProfile", &shown);
        let (mut changes, operation) =
            finished(records, *now_micros, &updated.name, metadata, response);
        changes.push(Change::put(updated.name.clone(), &updated));
        Ok((changes, operation))
    })
}

pub fn delete(context: &Context, request: DeleteAppProfileRequest) -> Result<()> {
    let tables = &context.tables;
    // Which profiles clients use is not recorded, so there are no warnings.
    let DeleteAppProfileRequest { name: full, ignore_warnings: _ } = request;
    let name = AppProfileName::parse(&full)?;
    tables.records().change(|| {
        tables.instances().app_profile(name)?;
        if name.app_profile == DEFAULT_APP_PROFILE {
            let what = "every instance has it";
            return Err(Error::Precondition(format!("{full} cannot be deleted: {what}")));
        }
        Ok((vec![Change::delete(full.clone())], ()))
    })
}
