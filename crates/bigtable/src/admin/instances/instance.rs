//! Changes of instances.

use super::service::Context;
use crate::admin::backups::backups_in;
use crate::admin::operations::{any, finished, timestamp};
use crate::error::{Error, Result};
use crate::instance::{
    check_clusters, check_instance, default_profile, deleted_name, mask_paths, updated_instance,
};
use crate::name::{InstanceName, ProjectName, excerpt};
use crate::proto::admin::{
    CreateInstanceMetadata, CreateInstanceRequest, DeleteInstanceRequest, Instance,
    PartialUpdateInstanceRequest, UpdateInstanceMetadata, instance,
};
use crate::proto::longrunning::Operation;
use crate::records::Change;

pub fn create(context: &Context, request: CreateInstanceRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let CreateInstanceRequest { parent, instance_id, instance: given, clusters } = request.clone();
    ProjectName::parse(&parent)?;
    let given = given.unwrap_or_default();
    let name = format!("{parent}/instances/{}", excerpt(&instance_id));
    if !given.name.is_empty() && given.name != name {
        let what = "must be empty: parent and instance_id name the instance";
        return Err(Error::Invalid(format!("Error in field 'instance.name' : {what}")));
    }
    let created = Instance { name: name.clone(), ..check_instance(Some(&instance_id), given)? };
    let created = Instance { create_time: Some(timestamp(*now_micros)), ..created };
    let parsed = InstanceName::parse(&name)?;
    let clusters = check_clusters(&name, created.r#type(), clusters)?;
    let records = tables.records();
    records.change(|| {
        if tables.instances().is_created(parsed) {
            return Err(Error::Exists(format!("Instance already exists: {name}")));
        }
        let ids: Vec<String> = clusters.keys().cloned().collect();
        let profile = default_profile(parsed, &ids);
        let metadata = CreateInstanceMetadata {
            original_request: Some(request),
            request_time: Some(timestamp(*now_micros)),
            finish_time: Some(timestamp(*now_micros)),
        };
        let metadata = any("CreateInstanceMetadata", &metadata);
        let response = any("Instance", &created);
        let (mut changes, operation) = finished(records, *now_micros, &name, metadata, response);
        changes.push(Change::put(name.clone(), &created));
        changes.push(Change::put(profile.name.clone(), &profile));
        changes.push(Change::delete(deleted_name(parsed)));
        changes.extend(clusters.values().map(|cluster| Change::put(cluster.name.clone(), cluster)));
        Ok((changes, operation))
    })
}

/// Replaces the display name and the type.
pub fn update(context: &Context, given: Instance) -> Result<Instance> {
    let records = context.tables.records();
    let name = given.name.clone();
    let name = InstanceName::parse(&name)?;
    records.change(|| {
        let mut changes = context.tables.instances().made_explicit(name)?;
        let old = context.tables.instances().find(name)?;
        let mut paths = vec!["display_name".to_string()];
        if given.r#type() != instance::Type::Unspecified {
            paths.push("type".into());
        }
        let updated = updated_instance(old, &given, &paths)?;
        changes.push(Change::put(name.to_string(), &updated));
        Ok((changes, updated))
    })
}

pub fn partial_update(
    context: &Context,
    request: PartialUpdateInstanceRequest,
) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let PartialUpdateInstanceRequest { instance: given, update_mask } = request.clone();
    let given = given.unwrap_or_default();
    let name = InstanceName::parse(&given.name)?;
    let paths = mask_paths(update_mask)?;
    let records = tables.records();
    records.change(|| {
        let mut changes = tables.instances().made_explicit(name)?;
        let old = tables.instances().find(name)?;
        let updated = updated_instance(old, &given, &paths)?;
        let metadata = UpdateInstanceMetadata {
            original_request: Some(request),
            request_time: Some(timestamp(*now_micros)),
            finish_time: Some(timestamp(*now_micros)),
        };
        let metadata = any("UpdateInstanceMetadata", &metadata);
        let response = any("Instance", &updated);
        let (recorded, operation) =
            finished(records, *now_micros, &name.to_string(), metadata, response);
        changes.push(Change::put(name.to_string(), &updated));
        changes.extend(recorded);
        Ok((changes, operation))
    })
}

/// Deletes an instance with its clusters, app profiles and tables. Protected tables and
/// backups prevent it. A deletion that is interrupted can be repeated.
pub fn delete(context: &Context, request: DeleteInstanceRequest) -> Result<()> {
    let tables = &context.tables;
    let name = InstanceName::parse(&request.name)?;
    let records = tables.records();
    records.change(|| {
        tables.instances().check(name)?;
        let prefix = format!("{name}/tables/");
        let own: Vec<_> =
            tables.all().into_iter().filter(|table| table.name.starts_with(&prefix)).collect();
        for table in &own {
            tables.check_deletable(table)?;
        }
        let kept = backups_in(tables, name, None)?;
        if let Some(backup) = kept.first() {
            let what = format!("it has backups, such as {}: delete them first", backup.name);
            return Err(Error::Precondition(format!("Instance {name} cannot be deleted: {what}")));
        }
        for table in &own {
            match tables.drop_table(&table.name) {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let below = ["clusters", "appProfiles"].map(|kind| format!("{name}/{kind}/"));
        let names = below.iter().flat_map(|prefix| records.names(prefix));
        let mut changes: Vec<Change> = names.map(Change::delete).collect();
        changes.push(Change::delete(name.to_string()));
        // Otherwise its name would imply it again.
        changes.push(Change::put(deleted_name(name), &()));
        Ok((changes, ()))
    })
}
