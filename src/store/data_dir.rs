//! The directory that holds everything: the database, its lock, the root's ref and the socket.

use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Who holds a data directory; written into the lock file for people and scripts to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// When it took the directory.
    pub since_ms: u64,
    /// Where it listens; filled in once it does.
    pub listening: Vec<String>,
}

/// A data directory held by this process, until it is dropped or the process ends however it ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Somebody else does.
    #[error(
        "the data directory {} is in use by {}; stop it, or choose another directory with --data",
        path.display(),
        describe(holder.as_ref())
    )]
    Held {
        /// The directory.
        path: PathBuf,
        /// Who it says it is.
        holder: Option<Holder>,
    },
    /// The file system says no.
    #[error("the data directory {} cannot be used: {what}: {error}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What came of it.
        error: io::Error,
    },
}

fn describe(holder: Option<&Holder>) -> String {
    match holder {
        None => "another process, which is just starting or stopping".into(),
        Some(holder) if holder.listening.is_empty() => format!("process {}", holder.pid),
        Some(holder) => {
            format!("process {}, listening on {}", holder.pid, holder.listening.join(" and "))
        }
    }
}

impl DataDir {
    /// The name of the database file.
    pub const DATABASE: &str = "bowline.db";

    /// Makes the directory if there is none, and holds it.
    pub fn hold(path: &Path, pid: u32, now_ms: u64) -> Result<Self, DataDirError> {
        let trouble = |what| move |error| DataDirError::Io { path: path.to_owned(), what, error };
        // Sturdy refs and everything agents say: for the owner alone.
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(trouble("making it"))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(trouble("opening its lock file"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let holder = lock.read_to_string(&mut text).ok();
                let holder = holder.and_then(|_| serde_json::from_str(&text).ok());
                return Err(DataDirError::Held { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(trouble("locking it")(error)),
        }
        let mut held = Self { path: path.to_owned(), lock };
        held.sign(&Holder { pid, since_ms: now_ms, listening: Vec::new() })
            .map_err(trouble("writing its lock file"))?;
        Ok(held)
    }

    /// Says who holds the directory, for whoever comes second.
    pub fn sign(&mut self, holder: &Holder) -> io::Result<()> {
        let text = serde_json::to_string(holder)?;
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        writeln!(self.lock, "{text}")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file, made if there is none, for the owner alone even in a directory that is not.
    /// SQLite gives its companions the same mode.
    pub fn database(&self) -> io::Result<PathBuf> {
        let path = self.path.join(Self::DATABASE);
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        Ok(path)
    }

    /// The file with the root's sturdy ref.
    pub fn root_ref(&self) -> PathBuf {
        self.path.join("root.ref")
    }
}

/// Whether a file is there, and nobody but its owner can read or write it.
pub fn is_private(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.permissions().mode() & 0o077 == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Puts a file in place whole and synced, for the owner's eyes only: after a crash there is the old
/// one or the new one.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it_and_may_have_it_after_the_first() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/b");
        let mut first = DataDir::hold(&path, 4711, 1).unwrap();
        let listening = vec!["127.0.0.1:4747".to_owned()];
        first.sign(&Holder { pid: 4711, since_ms: 1, listening }).unwrap();

        let error = DataDir::hold(&path, 4712, 2).unwrap_err().to_string();
        assert!(error.contains("process 4711, listening on 127.0.0.1:4747"), "{error}");
        assert!(error.contains("--data"), "{error}");

        drop(first);
        DataDir::hold(&path, 4712, 2).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let outer = tempfile::tempdir().unwrap();
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        let error = DataDir::hold(&file.join("below"), 1, 1).unwrap_err().to_string();
        assert!(error.contains("file/below") && error.contains("making it"), "{error}");
    }

    #[test]
    fn a_private_file_is_replaced_whole() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("root.ref");
        assert!(!is_private(&path).unwrap());
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert!(is_private(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!is_private(&path).unwrap());
    }
}
