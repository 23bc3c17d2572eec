//! Small files and whole directories, without following a link.

use super::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What is read of git's one-line files: the kernel's longest path, with a word before it.
const LINE_BYTES_MAX: u64 = 4096 + 64;

pub(super) fn exists(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn gone_is_fine(done: io::Result<()>) -> Result<(), Error> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

pub(super) fn line(word: &[u8], path: &Path) -> Vec<u8> {
    [word, path.as_os_str().as_bytes(), b"\n"].concat()
}

/// One of git's small files, without its end of line; none if it is no such file.
pub(super) fn read_line(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {}
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(error.into());
        }
        _ => return Ok(None),
    }
    let mut line = Vec::new();
    File::open(path)?.take(LINE_BYTES_MAX).read_to_end(&mut line)?;
    line.truncate(line.trim_ascii_end().len());
    Ok(Some(line))
}

/// Deletes a directory and follows no link. Package caches are kept read-only by those who make them, so it
/// asks once more with the right to.
pub(super) fn wipe(directory: &Path) -> Result<(), Error> {
    let denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
    match fs::remove_dir_all(directory) {
        Err(error) if denied(&error) => {
            unseal(directory)?;
            gone_is_fine(fs::remove_dir_all(directory))
        }
        done => gone_is_fine(done),
    }
}

pub(super) fn unseal(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    for child in fs::read_dir(directory)? {
        let child = child?;
        if child.file_type()?.is_dir() {
            unseal(&child.path())?;
        }
    }
    Ok(())
}
