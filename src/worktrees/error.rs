//! Why nothing could be done with files.

use crate::engine::Refusal;
use crate::model::code::{Code, Coded};
use crate::queries::QueryError;
use crate::snapshot::sandbox;
use crate::snapshot::vault;
use crate::snapshot::walk;
use std::io;
use std::path::PathBuf;

/// Why nothing could be done with files.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The operator does not want it.
    #[error("{} lies outside of the directories worktrees may be in. The operator allows more with --worktree-root", directory.display())]
    NotAllowed {
        /// Which.
        directory: PathBuf,
    },
    /// The directory cannot be used.
    #[error("the worktree {} cannot be used: {error}", directory.display())]
    Unreadable {
        /// Which.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is more than is looked at.
    #[error("{0}")]
    TooLarge(String),
    /// Its caller has had enough.
    #[error("the call was cancelled; files are as they were")]
    Cancelled,
    /// The snapshots.
    #[error("the snapshots could not be read or written; the server's log says more")]
    Store(vault::Error),
    /// No such snapshot, or no such call.
    #[error("there is no call of this name that has changed files here, or it was long ago")]
    MoveNotFound,
    /// All of it is wanted.
    #[error(
        "the snapshots of this project take up {bytes} bytes, and may take up {most} (snapshot_bytes_max)"
    )]
    Budget {
        /// How much they do.
        bytes: u64,
        /// How much they may.
        most: u64,
    },
    /// No such file.
    #[error("the snapshot has no such file")]
    FileNotFound,
    /// It is not as it was.
    #[error("{0:?} is not as it was when it was stamped")]
    FileChanged(String),
    /// It is none.
    #[error(
        "a path is relative to the worktree, of 1 to 4096 bytes, without empty steps, `.`, `..` and `.git`: {0:?}"
    )]
    PathMalformed(String),
    /// Somebody else is at work on it.
    #[error("{path:?} is leased by {holder:?} until {until_ms}")]
    Leased {
        /// Which.
        path: String,
        /// By whom.
        holder: String,
        /// Until when.
        until_ms: u64,
    },
    /// A lease that makes no sense.
    #[error(
        "a lease of a file lasts 1 second to 1 day, and its holder has a name of 1 to 128 bytes"
    )]
    LeaseMalformed,
    /// As many leases as there may be.
    #[error("as many files are leased as may be")]
    TooManyLeases,
    /// Another call had it.
    #[error("another call of this name asked for something else; take 16 new random bytes")]
    NameReused,
    /// It belongs to a turn.
    #[error("snapshots of turns stay as long as their sessions")]
    OfTurn,
    /// About a sandbox.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// The engine.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be.
    #[error("{}", .0.text)]
    Op(crate::ops::Refused),
    /// A question.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// As much work as there may be.
    #[error(
        "as much work waits for this worktree, or as many worktrees are in use, as the server takes; try again"
    )]
    Overloaded,
    /// The server is going.
    #[error("the server is stopping")]
    Stopping,
    /// A fault of ours.
    #[error("the server made a mistake; its log says more")]
    Impossible,
}

impl Coded for Trouble {
    fn code(&self) -> Code {
        match self {
            Trouble::NotAllowed { .. } => Code::WorktreeNotAllowed,
            Trouble::Unreadable { .. } => Code::WorktreeUnreadable,
            Trouble::TooLarge(_) => Code::WorktreeTooLarge,
            Trouble::Cancelled => Code::Cancelled,
            Trouble::Store(_) => Code::SnapshotStoreFailed,
            Trouble::MoveNotFound => Code::SnapshotNotFound,
            Trouble::Budget { .. } => Code::SnapshotBudget,
            Trouble::FileNotFound => Code::FileNotFound,
            Trouble::FileChanged(_) => Code::FileChanged,
            Trouble::PathMalformed(_) => Code::PathMalformed,
            Trouble::Leased { .. } => Code::PathLeased,
            Trouble::LeaseMalformed => Code::LeaseMalformed,
            Trouble::NameReused => Code::OpReused,
            Trouble::OfTurn => Code::NotPermitted,
            Trouble::Sandbox(error) => match error {
                sandbox::Error::NotFound(_) => Code::SandboxNotFound,
                sandbox::Error::Exists(_)
                | sandbox::Error::InUse(_)
                | sandbox::Error::NotOurs(_) => Code::SandboxExists,
                sandbox::Error::Unmerged { .. }
                | sandbox::Error::Uncommitted { .. }
                | sandbox::Error::Locked { .. } => Code::SandboxUnmerged,
                sandbox::Error::NotGit
                | sandbox::Error::Bare
                | sandbox::Error::Unborn
                | sandbox::Error::BadName(_)
                | sandbox::Error::BadOp { .. }
                | sandbox::Error::UnknownRevision(_)
                | sandbox::Error::Git(_) => Code::SandboxMalformed,
                sandbox::Error::Io(_) => Code::SnapshotStoreFailed,
            },
            Trouble::Refused(refusal) => refusal.code(),
            Trouble::Op(refused) => refused.code,
            Trouble::Query(error) => error.code(),
            Trouble::Overloaded | Trouble::TooManyLeases => Code::Overloaded,
            Trouble::Stopping => Code::ShuttingDown,
            Trouble::Impossible => Code::Internal,
        }
    }
}

impl From<vault::Error> for Trouble {
    fn from(error: vault::Error) -> Self {
        tracing::error!(%error, "snapshots cannot be read or written");
        Trouble::Store(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        vault::Error::Io(error).into()
    }
}

impl From<walk::Error> for Trouble {
    fn from(error: walk::Error) -> Self {
        match error {
            walk::Error::Vault(error) => error.into(),
            walk::Error::Unreadable(error) => {
                Trouble::Unreadable { directory: PathBuf::new(), error: error.into() }
            }
            walk::Error::Cancelled => Trouble::Cancelled,
            error @ walk::Error::TooMany { .. } => Trouble::TooLarge(error.to_string()),
        }
    }
}
