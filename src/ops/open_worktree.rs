//! A directory of a project becomes an object of its own: a work tree.

use super::record::{Recorded, Saying};
use super::{Kind, NotApplied, Place, encoded};
use crate::model::code::{Code, Coded};
use crate::model::ids::{OpId, WorktreeId};
use crate::model::infos::ProjectKey;
use crate::model::worktree::WorktreeKey;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// The work tree somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWorktree {
    /// Of which project.
    pub project: ProjectKey,
    /// Which directory.
    pub directory: String,
    /// The sandbox it is, if the server made it as one.
    pub sandbox: Option<String>,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The project was not opened there.
    #[error("{0} is no directory of this project: open the project there first (openProject)")]
    NotOfProject(String),
    /// The project is no more.
    #[error("the project does not exist any more")]
    ProjectGone,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotOfProject(_) => Code::WorktreeNotFound,
            Error::ProjectGone => Code::ProjectNotFound,
        }
    }
}

/// How it stands in the history of the project, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeOpened {
    /// Which.
    pub key: WorktreeKey,
    /// Its directory.
    pub directory: String,
    /// The sandbox it is.
    pub sandbox: Option<String>,
}

impl WorktreeOpened {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let sandbox = self.sandbox.as_deref();
        store::trees::create(tx, &self.key, &self.directory, sandbox, place.now_ms)
    }
}

impl OpenWorktree {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        let (tx, project) = (saying.tx, &self.project);
        let elsewhere = || NotApplied::from(Error::NotOfProject(self.directory.clone()));
        if let Some(known) = store::trees::of_directory(tx, &self.directory)? {
            return match known.project == project.log {
                true => Ok(Recorded::Worktree(known)),
                false => Err(elsewhere()),
            };
        }
        store::projects::info(tx, project.log)?.ok_or(Error::ProjectGone)?;
        let of = store::worktrees::project_of(tx, &self.directory)?;
        if self.sandbox.is_none() && of != Some(project.log) {
            return Err(elsewhere());
        }
        let place = saying.place(project.log)?;
        let log = store::logs::create(tx, project.log)?;
        let mut hasher = blake3::Hasher::new_derive_key("bowline worktree id v1");
        hasher.update(project.id.as_str().as_bytes()).update(&[0]);
        hasher.update(self.directory.as_bytes());
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        let key = WorktreeKey { log, id: WorktreeId::made_by(OpId(id)), project: project.log };
        let (directory, sandbox) = (self.directory.clone(), self.sandbox.clone());
        let opened = WorktreeOpened { key, directory, sandbox };
        opened.project(tx, place)?;
        saying.say(project.log, encoded(Kind::OpenWorktree, 1, &opened)?);
        Ok(Recorded::Worktree(opened.key))
    }
}
