//! The id of a server, which it keeps in its data directory.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

const FILE: &str = "server-id";
const LETTERS: usize = 16;

/// Returns the id of the server with this data directory, a new one at its first start.
pub fn of(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let id = text.trim();
            if id.len() != LETTERS || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                bail!("{} is damaged: restore it, or delete it to get a new id", path.display());
            }
            Ok(id.to_string())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = stele_objects::new_cluster()?[..LETTERS].to_string();
            write(&path, dir, &id).with_context(|| format!("writing {}", path.display()))?;
            Ok(id)
        }
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn write(path: &Path, dir: &Path, id: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(format!("{id}\n").as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let id = of(&data).unwrap();
        assert_eq!(of(&data).unwrap(), id);
        assert_ne!(of(dir.path()).unwrap(), id);
        std::fs::write(data.join(FILE), "x").unwrap();
        assert!(of(&data).unwrap_err().to_string().contains("damaged"));
    }
}
