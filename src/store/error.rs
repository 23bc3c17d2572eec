//! What can go wrong with the store, without a SQLite type in it.

use rusqlite::ErrorCode;
use std::path::PathBuf;

/// Trouble with the store. None of these is a refusal of what a caller wanted.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the write lock of the file.
    #[error("another process holds the database's write lock")]
    Busy,
    /// There is no room.
    #[error("the disk is full")]
    Full,
    /// The disk or the file system failed.
    #[error("the disk reported an error: {0}")]
    Io(String),
    /// The file is damaged.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// The file was written by a newer version.
    #[error(
        "the database is of schema version {found}, and this program knows up to {known}: \
         it was used with a newer bowline. Start that one, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The file's version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file has not been brought up to date yet.
    #[error(
        "the database is of schema version {found}, and this program needs {known}: start the server \
         once, which brings it up to date"
    )]
    Older {
        /// The file's version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file is some other program's.
    #[error("{} is a SQLite database, but not one of bowline's", .0.display())]
    Foreign(PathBuf),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DiskFull) => StoreError::Full,
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
                StoreError::Io(text)
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(text),
            _ => StoreError::Other(text),
        }
    }
}

impl StoreError {
    /// A stored value that no version of this program wrote.
    pub(super) fn odd(table: &str, what: impl std::fmt::Display) -> Self {
        StoreError::Corrupt(format!("table {table}: {what}"))
    }
}
