//! Files of the engine that a tool opens, and the damage that it finds in them.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stele_engine::world::{Disk, Files};
use stele_engine::{Error, Result};

pub fn files() -> Arc<dyn Files> {
    Arc::new(Disk)
}

/// A damaged location, as a line of a dump.
#[derive(Serialize)]
pub struct Damage {
    pub r#type: &'static str,
    pub path: String,
    pub offset: u64,
    pub what: String,
}

impl Damage {
    /// Describes an error about `path`.
    pub fn of(error: &Error, path: &Path) -> Damage {
        let (path, offset, what) = match error {
            Error::DataLoss { path, offset, what } => (path.as_path(), *offset, what.clone()),
            other => (path, 0, other.to_string()),
        };
        Damage { r#type: "damage", path: path.display().to_string(), offset, what }
    }
}

/// Opens a file to dump. Reports damage that prevents any output on standard error and
/// returns `None`.
pub fn open<T>(opened: Result<T>) -> anyhow::Result<Option<T>> {
    match opened {
        Ok(dump) => Ok(Some(dump)),
        Err(error @ Error::DataLoss { .. }) => {
            eprintln!("stele: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
