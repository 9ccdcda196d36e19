//! Files that only this user may read: the data directory of a server, and files with
//! secrets.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit, umask};
use stele_engine::world::DIR_MODE;
use stele_grpc::Secret;

/// The permission bits of everyone but the owner.
const OTHERS: u32 = 0o077;

/// Protects a server's data: new files are readable by this user only, and a crash writes
/// no core dump.
pub fn harden_process() {
    umask(Mode::from_raw_mode(OTHERS));
    let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::debug!(%error, "cannot disable core dumps");
    }
}

/// Removes the permissions of other users from an existing data directory. Fails if this
/// process cannot change the directory.
pub fn narrow_data_dir(dir: &Path) -> anyhow::Result<()> {
    let path = dir.display();
    let metadata = match fs::metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("--data {path}")),
    };
    let mode = metadata.permissions().mode();
    if !metadata.is_dir() || mode & OTHERS == 0 {
        return Ok(());
    }
    let user = geteuid();
    if metadata.uid() != user.as_raw() && !user.is_root() {
        bail!(
            "--data {path} belongs to user {} and is accessible to other users (mode {:03o}): use \
             a directory that user {} owns",
            metadata.uid(),
            mode & 0o777,
            user.as_raw(),
        );
    }
    fs::set_permissions(dir, Permissions::from_mode(mode & !OTHERS))
        .with_context(|| format!("removing the permissions of others from --data {path}"))?;
    tracing::info!(dir = %path, was = format!("{:03o}", mode & 0o777), now = format!("{DIR_MODE:03o}"),
        "removed the permissions of other users from the data directory");
    Ok(())
}

/// Reads a file that contains a secret. Fails if other users may read it; a group may
/// read it if the file belongs to root, as mounted secrets do.
pub fn read_secret(path: &Path) -> anyhow::Result<Secret<Vec<u8>>> {
    let named = || path.display().to_string();
    let mut file = File::open(path).with_context(named)?;
    let metadata = file.metadata().with_context(named)?;
    let mode = metadata.permissions().mode();
    if metadata.is_file() && is_too_open(mode, metadata.uid() == 0) {
        bail!(
            "{} contains a secret and is accessible to other users (mode {:03o}): run chmod 600 on it",
            path.display(),
            mode & 0o777,
        );
    }
    let mut secret = Vec::new();
    file.read_to_end(&mut secret).with_context(named)?;
    Ok(Secret::new(secret))
}

/// Reads a text secret, trimming surrounding whitespace.
pub fn read_secret_text(path: &Path) -> anyhow::Result<Secret> {
    // The error must not include the bytes.
    let text = String::from_utf8(read_secret(path)?.into_exposed());
    let text = text.map_err(|_| anyhow!("{} is not UTF-8 text", path.display()))?;
    Ok(Secret::new(text.trim()))
}

fn is_too_open(mode: u32, of_root: bool) -> bool {
    let allowed = if of_root { 0o740 } else { 0o700 };
    mode & 0o777 & !allowed != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, mode: u32) -> std::path::PathBuf {
        let path = dir.join(format!("{mode:o}"));
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o400] {
            assert_eq!(read_secret(&file(dir.path(), mode)).unwrap().expose(), b"secret");
        }
        for mode in [0o644, 0o604, 0o602] {
            let refused = read_secret(&file(dir.path(), mode)).unwrap_err().to_string();
            assert!(refused.contains("chmod 600") && refused.contains(&format!("{mode:o}")));
        }
        let text = file(dir.path(), 0o400);
        assert_eq!(read_secret_text(&text).unwrap().expose(), "secret");
        let path = dir.path().join("bytes");
        fs::write(&path, b"s3cret\xff").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let refused = format!("{:?}", read_secret_text(&path).unwrap_err());
        assert!(refused.contains("not UTF-8") && !refused.contains("115"), "{refused}");
        assert!(!is_too_open(0o100_640, true) && is_too_open(0o100_640, false));
        assert!(is_too_open(0o660, true) && is_too_open(0o644, true));
    }

    #[test]
    fn a_data_directory_is_narrowed_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777;
        for wide in [0o755, 0o770, 0o707, 0o700] {
            fs::set_permissions(dir.path(), Permissions::from_mode(wide)).unwrap();
            narrow_data_dir(dir.path()).unwrap();
            assert_eq!(mode(), 0o700, "{wide:o}");
        }
        narrow_data_dir(&dir.path().join("not there")).unwrap();
    }
}
