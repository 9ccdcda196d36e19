//! A file that replaces another one once it is complete. Until then the other stays
//! unchanged.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

pub struct NewFile {
    pub out: BufWriter<File>,
    path: PathBuf,
    /// The temporary path that is written; `None` if the path is a device or a pipe,
    /// which cannot be replaced.
    partial: Option<PathBuf>,
}

impl NewFile {
    pub fn create(path: &Path) -> anyhow::Result<NewFile> {
        let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let partial = (!is_special).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".partial");
            PathBuf::from(name)
        });
        let written = partial.as_deref().unwrap_or(path);
        let file = File::create(written).with_context(|| named(written))?;
        Ok(NewFile { out: BufWriter::new(file), path: path.into(), partial })
    }

    pub fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush().with_context(|| named(&self.path))?;
        if let Some(partial) = self.partial.take() {
            self.out.get_ref().sync_all().with_context(|| named(&partial))?;
            std::fs::rename(&partial, &self.path).with_context(|| named(&self.path))?;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // The partial output of a failed export is useless.
            let _ = std::fs::remove_file(partial);
        }
    }
}

fn named(path: &Path) -> String {
    path.display().to_string()
}
