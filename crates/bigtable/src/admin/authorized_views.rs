//! Administration of authorized views.

use super::instances::Context;
use super::operations::{any, finished, timestamp};
use super::paging::{PAGE_ITEMS_MAX, Page, page_size};
use crate::authorized::{View, not_found};
use crate::error::{Error, Result};
use crate::instance::mask_paths;
use crate::name::{AuthorizedViewName, TableName, check_id, excerpt};
use crate::proto::admin::authorized_view::{AuthorizedView as Kind, ResponseView, SubsetView};
use crate::proto::admin::{
    AuthorizedView, CreateAuthorizedViewMetadata, CreateAuthorizedViewRequest,
    DeleteAuthorizedViewRequest, GetAuthorizedViewRequest, ListAuthorizedViewsRequest,
    ListAuthorizedViewsResponse, UpdateAuthorizedViewMetadata, UpdateAuthorizedViewRequest,
};
use crate::proto::longrunning::Operation;
use crate::records::Change;
use crate::table::Tables;

pub fn create(context: &Context, request: CreateAuthorizedViewRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let CreateAuthorizedViewRequest { parent, authorized_view_id, authorized_view } =
        request.clone();
    TableName::parse(&parent)?;
    check_id("authorized_view_id", &authorized_view_id)?;
    let name = format!("{parent}/authorizedViews/{authorized_view_id}");
    let given = authorized_view.unwrap_or_default();
    if !given.name.is_empty() && given.name != name {
        let what = "must be empty: parent and authorized_view_id name the view";
        return Err(Error::Invalid(format!("Error in field 'authorized_view.name' : {what}")));
    }
    let records = tables.records();
    let operation = records.change(|| {
        let table = tables.get(&parent)?;
        if tables.views().get(&name).is_ok_and(|view| view.table == table.id) {
            return Err(Error::Exists(format!("Authorized view already exists: {name}")));
        }
        let view = View::new(name.clone(), table.id, given)?;
        let metadata = CreateAuthorizedViewMetadata {
            original_request: Some(request),
            request_time: Some(timestamp(*now_micros)),
            finish_time: Some(timestamp(*now_micros)),
        };
        let metadata = any("CreateAuthorizedViewMetadata", &metadata);
        let response = any("AuthorizedView", view.message());
        let (mut changes, operation) = finished(records, *now_micros, &name, metadata, response);
        changes.push(view.put());
        Ok((changes, operation))
    })?;
    tables.views().reload(records)?;
    Ok(operation)
}

pub fn list(
    tables: &Tables,
    request: &ListAuthorizedViewsRequest,
) -> Result<ListAuthorizedViewsResponse> {
    let ListAuthorizedViewsRequest { parent, page_size: size, page_token, view } = request;
    let shown = response_view(*view, ResponseView::NameOnly)?;
    let size = page_size(*size, PAGE_ITEMS_MAX)?;
    let mut all = Vec::new();
    // All tables of an instance, or one.
    let prefix = match parent.strip_suffix("/tables/-") {
        Some(instance) => {
            let instance = crate::name::InstanceName::parse(instance)?;
            let prefix = format!("{instance}/tables/");
            for table in tables.all().iter().filter(|table| table.name.starts_with(&prefix)) {
                all.extend(tables.views().of(table));
            }
            prefix
        }
        None => {
            all.extend(tables.views().of(&*tables.get(parent)?));
            format!("{parent}/")
        }
    };
    let all = all.into_iter().map(|view| (view.name.clone(), render(&view, shown)));
    let page = Page::of(all, size, page_token, &prefix)?;
    Ok(ListAuthorizedViewsResponse {
        authorized_views: page.items,
        next_page_token: page.next_token,
    })
}

pub fn get(tables: &Tables, request: &GetAuthorizedViewRequest) -> Result<AuthorizedView> {
    let shown = response_view(request.view, ResponseView::Basic)?;
    Ok(render(&*find(tables, &request.name)?, shown))
}

/// Replaces the fields that the mask names; without a mask, those that are set.
pub fn update(context: &Context, request: UpdateAuthorizedViewRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    // There are no warnings, so there is nothing to ignore.
    let UpdateAuthorizedViewRequest { authorized_view, update_mask, ignore_warnings: _ } =
        request.clone();
    let given = authorized_view.unwrap_or_default();
    AuthorizedViewName::parse(&given.name)?;
    let paths = mask_paths(update_mask)?;
    let records = tables.records();
    let operation = records.change(|| {
        let old = find(tables, &given.name)?;
        check_etag(&old, &given.etag)?;
        let mut next = old.message().clone();
        for path in &paths {
            let fields = (subset_of(&given), subset_of(&next));
            match path.as_str() {
                "deletion_protection" => next.deletion_protection = given.deletion_protection,
                "subset_view" => next.authorized_view.clone_from(&given.authorized_view),
                "subset_view.row_prefixes" => {
                    let row_prefixes = fields.0.row_prefixes;
                    next.authorized_view =
                        Some(Kind::SubsetView(SubsetView { row_prefixes, ..fields.1 }));
                }
                "subset_view.family_subsets" => {
                    let family_subsets = fields.0.family_subsets;
                    next.authorized_view =
                        Some(Kind::SubsetView(SubsetView { family_subsets, ..fields.1 }));
                }
                "etag" => {}
                other => {
                    let what = format!(
                        "'{}' cannot be updated: use subset_view, deletion_protection",
                        excerpt(other)
                    );
                    return Err(Error::Invalid(format!("Error in field 'update_mask' : {what}")));
                }
            }
        }
        let view = View::new(old.name.clone(), old.table, next)?;
        let metadata = UpdateAuthorizedViewMetadata {
            original_request: Some(request),
            request_time: Some(timestamp(*now_micros)),
            finish_time: Some(timestamp(*now_micros)),
        };
        let metadata = any("UpdateAuthorizedViewMetadata", &metadata);
        let response = any("AuthorizedView", view.message());
        let (mut changes, operation) =
            finished(records, *now_micros, &view.name, metadata, response);
        changes.push(view.put());
        Ok((changes, operation))
    })?;
    tables.views().reload(records)?;
    Ok(operation)
}

pub fn delete(context: &Context, request: DeleteAuthorizedViewRequest) -> Result<()> {
    let tables = &context.tables;
    let records = tables.records();
    records.change(|| {
        let view = find(tables, &request.name)?;
        check_etag(&view, &request.etag)?;
        if view.deletion_protection {
            let what = "it has deletion protection";
            return Err(Error::Precondition(format!("{} cannot be deleted: {what}", view.name)));
        }
        Ok((vec![Change::delete(view.name.clone())], ()))
    })?;
    tables.views().reload(records)
}

/// Returns a view of the table that has the name now.
fn find(tables: &Tables, name: &str) -> Result<std::sync::Arc<View>> {
    let view = tables.views().get(name)?;
    let table = AuthorizedViewName::parse(name)?.table.to_string();
    if tables.get(&table)?.id != view.table {
        return Err(not_found(name));
    }
    Ok(view)
}

fn check_etag(view: &View, etag: &str) -> Result<()> {
    if etag.is_empty() || *etag == view.message().etag {
        return Ok(());
    }
    let what = "it has changed since its etag was read";
    Err(Error::Aborted(format!("Authorized view {}: {what}", view.name)))
}

fn subset_of(view: &AuthorizedView) -> SubsetView {
    match &view.authorized_view {
        Some(Kind::SubsetView(subset)) => subset.clone(),
        None => SubsetView::default(),
    }
}

fn response_view(wire: i32, default: ResponseView) -> Result<ResponseView> {
    match ResponseView::try_from(wire) {
        Ok(ResponseView::Unspecified) => Ok(default),
        Ok(known) => Ok(known),
        Err(_) => Err(Error::Invalid(format!("Error in field 'view' : unknown view {wire}"))),
    }
}

fn render(view: &View, shown: ResponseView) -> AuthorizedView {
    match shown {
        ResponseView::NameOnly => {
            AuthorizedView { name: view.name.clone(), ..AuthorizedView::default() }
        }
        _ => view.message().clone(),
    }
}
