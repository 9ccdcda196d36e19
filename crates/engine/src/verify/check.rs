//! Checks a whole store: manifest, chains and fragments, log, and the files that belong
//! to none of them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::report::{Garbage, Problem, Report, TornWrite};
use super::{chains, commits};
use crate::config::{Configs, FileName, MANIFEST_FILE, Manifest};
use crate::error::{Error, Result};
use crate::log::LogSurvey;
use crate::store::{LOCK_FILE, LOG_DIR, lock_dir};
use crate::tablet::FRAGMENTS_DIR;
use crate::world::{Files, FragmentStore, remote_path, wait_for};

/// Checks the store in a directory completely.
///
/// Damage is part of the report. An error means that the check was not possible: there
/// is no store, another process has it open, or its format is newer than this program.
pub fn check(files: &Arc<dyn Files>, dir: &Path) -> Result<Report> {
    check_with(files, dir, None)
}

/// Like `check`, for a store whose fragments are outside the directory if `remote` is
/// given. Waits for the files.
pub fn check_with(
    files: &Arc<dyn Files>,
    dir: &Path,
    remote: Option<&Arc<dyn FragmentStore>>,
) -> Result<Report> {
    let path = dir.join(MANIFEST_FILE);
    let exists = files.exists(&path).map_err(|error| Error::io("opening", &path, error))?;
    let mut report = Report::default();
    if !exists {
        if !holds_data(&**files, dir) {
            return Err(Error::io("opening", &path, io::ErrorKind::NotFound.into()));
        }
        report.problems.push(Problem::new(&path, 0, "the manifest is missing"));
        return Ok(report);
    }
    let _lock = lock_dir(&**files, dir)?;
    let loaded = match Manifest::inspect(&**files, dir) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return Err(Error::io("opening", &path, io::ErrorKind::NotFound.into())),
        // Without the manifest it is unknown which files are in use.
        Err(error) => {
            report.problems.push(Problem::of(damage_or_fail(error)?, &path));
            return Ok(report);
        }
    };
    let configs = loaded.configs;
    report.store_id = configs.store_id;
    report.revision = configs.revision;
    report.epoch = configs.incarnation;
    report.manifest_bytes = loaded.bytes;
    report.manifest_torn = loaded.torn_at.map(|offset| TornWrite { path, offset });
    for named in chains::check(dir, &configs, &mut report) {
        let fragment = named.check(files, dir, remote, &mut report.problems)?;
        report.fragments.push(fragment);
    }
    find_garbage(&**files, dir, &configs, &mut report)?;
    if let Some(remote) = remote {
        find_remote_garbage(&**remote, &configs, &mut report)?;
    }
    if configs.flushed_index.is_none() {
        check_log(&**files, &dir.join(LOG_DIR), &configs, &mut report)?;
    }
    Ok(report)
}

/// Returns an error that describes damage. Other errors end the check: a newer format
/// cannot be checked, and a file without read permission is not damage.
pub(super) fn damage_or_fail(error: Error) -> Result<Error> {
    match error {
        Error::DataLoss { .. } => Ok(error),
        Error::Io { error: ref cause, .. } if cause.kind() != io::ErrorKind::PermissionDenied => {
            Ok(error)
        }
        other => Err(other),
    }
}

fn holds_data(files: &dyn Files, dir: &Path) -> bool {
    let holds = |part| files.list(&dir.join(part)).is_ok_and(|names| !names.is_empty());
    holds(LOG_DIR) || holds(FRAGMENTS_DIR)
}

/// Reports files that nothing refers to.
fn find_garbage(
    files: &dyn Files,
    dir: &Path,
    configs: &Configs,
    report: &mut Report,
) -> Result<()> {
    let list = |dir: &Path| files.list(dir).map_err(|error| Error::io("listing", dir, error));
    let mut found: Vec<(_, &'static str)> = Vec::new();
    let log = configs.flushed_index.is_none().then_some(LOG_DIR);
    let own = [MANIFEST_FILE, LOCK_FILE, FRAGMENTS_DIR].into_iter().chain(log);
    for name in list(dir)? {
        if !own.clone().any(|known| name.as_os_str() == known) {
            found.push((dir.join(name), "not part of a store"));
        }
    }
    let fragments = dir.join(FRAGMENTS_DIR);
    let named = named_files(configs);
    for name in list(&fragments)? {
        match name.to_str().and_then(FileName::parse) {
            None => found.push((fragments.join(name), "not a fragment")),
            Some(parsed) if !named.contains(&parsed) => {
                found.push((fragments.join(name), "not in the manifest"));
            }
            Some(_) => {}
        }
    }
    note_garbage(files, found, report);
    Ok(())
}

/// Reports files of a store outside the directory that nothing refers to. The server
/// collects them.
fn find_remote_garbage(
    remote: &dyn FragmentStore,
    configs: &Configs,
    report: &mut Report,
) -> Result<()> {
    let listed = wait_for(|done| remote.list(done));
    let listed =
        listed.map_err(|error| Error::io("listing", Path::new(&remote.address()), error))?;
    let named = named_files(configs);
    for file in listed.into_iter().filter(|file| !named.contains(&file.name)) {
        let (path, why) = (remote_path(remote, file.name), "not in the manifest");
        report.garbage.push(Garbage { path, bytes: file.bytes, why });
    }
    Ok(())
}

fn named_files(configs: &Configs) -> BTreeSet<FileName> {
    configs.files().chain(configs.pinned_files()).map(|file| file.name).collect()
}

fn note_garbage(files: &dyn Files, found: Vec<(PathBuf, &'static str)>, report: &mut Report) {
    for (path, why) in found {
        // The size of a directory, or of a file that cannot be opened, is unknown.
        let bytes = files.open_read(&path).and_then(|file| file.len()).unwrap_or(0);
        report.garbage.push(Garbage { path, bytes, why });
    }
}

/// Checks the store's own log, if it has one.
fn check_log(
    files: &dyn Files,
    log_dir: &Path,
    configs: &Configs,
    report: &mut Report,
) -> Result<()> {
    let survey = LogSurvey::open(files, log_dir, Some(configs.log_head))?;
    let free = survey.free().iter().map(|path| (path.clone(), "spare log segment"));
    let unknown = survey.unknown_files().iter().map(|path| (path.clone(), "not a log segment"));
    note_garbage(files, free.chain(unknown).collect(), report);
    report.log.head_segment = configs.log_head;
    commits::check(survey, configs, log_dir, report)
}
