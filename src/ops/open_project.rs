//! The project of a directory, made if there is none.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::limits::{DIRECTORY_BYTES_MAX, TITLE_BYTES_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ids::{OpId, ProjectId};
use crate::model::infos::{ProjectInfo, ProjectKey};
use crate::model::ledger::Made;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenProject {
    directory: String,
    id: Option<ProjectId>,
    name: String,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No place on any machine.
    #[error("directory {0:?} is not an absolute path")]
    NotAbsolute(String),
    /// Longer than a kernel takes.
    #[error("the directory is {bytes} bytes long; the most accepted is {DIRECTORY_BYTES_MAX}")]
    DirectoryTooLong {
        /// Its length.
        bytes: usize,
    },
    /// It would garble a log line or a table.
    #[error("directory {0:?} holds a control character")]
    Unprintable(String),
    /// Longer than anybody reads.
    #[error("the name is {bytes} bytes long; the most accepted is {TITLE_BYTES_MAX}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The id is another project's.
    #[error("project id {0} belongs to another directory")]
    IdTaken(ProjectId),
    /// The directory's project has another id.
    #[error("the directory already is project {has}, so it cannot become {wanted}")]
    OtherId {
        /// The id asked for.
        wanted: ProjectId,
        /// The id it has.
        has: ProjectId,
    },
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotAbsolute(_) | Error::DirectoryTooLong { .. } | Error::Unprintable(_) => {
                Code::DirectoryMalformed
            }
            Error::NameTooLong { .. } => Code::NameTooLong,
            Error::IdTaken(_) | Error::OtherId { .. } => Code::ProjectExists,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectOpened<'a> {
    /// The project.
    pub key: ProjectKey,
    /// Its directory.
    pub directory: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
}

impl ProjectOpened<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let info = ProjectInfo {
            id: self.key.id.clone(),
            directory: self.directory.clone().into_owned(),
            name: self.name.clone().into_owned(),
            created_at_ms: place.now_ms,
            cursor: place.cursor,
            session_count: 0,
        };
        store::projects::create(tx, self.key.log, &info)
    }
}

impl OpenProject {
    /// A wish that makes sense.
    pub fn new(directory: &str, id: Option<ProjectId>, name: &str) -> Result<Self, Error> {
        if directory.len() > DIRECTORY_BYTES_MAX {
            return Err(Error::DirectoryTooLong { bytes: directory.len() });
        }
        if directory.contains(char::is_control) {
            return Err(Error::Unprintable(directory.to_owned()));
        }
        if !directory.starts_with('/') {
            return Err(Error::NotAbsolute(directory.to_owned()));
        }
        if name.len() > TITLE_BYTES_MAX {
            return Err(Error::NameTooLong { bytes: name.len() });
        }
        Ok(Self { directory: without_trailing_slash(directory), id, name: name.to_owned() })
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        if let Some(found) = store::projects::by_directory(tx, &self.directory)? {
            return match &self.id {
                Some(id) if *id != found.id => {
                    Err(Error::OtherId { wanted: id.clone(), has: found.id }.into())
                }
                _ => Ok(Effect::new(Made::Project(found), None)),
            };
        }
        let id = self.id.clone().unwrap_or_else(|| ProjectId::made_by(op));
        if store::projects::log_of(tx, &id)?.is_some() {
            return Err(Error::IdTaken(id).into());
        }

        let opened = ProjectOpened {
            key: ProjectKey { log: store::logs::create_for_project(tx)?, id },
            directory: self.directory.as_str().into(),
            name: self.name.as_str().into(),
        };
        opened.project(tx, place)?;
        let entry = entry(Kind::OpenProject, 1, &opened)?;
        Ok(Effect::new(Made::Project(opened.key), entry))
    }
}

/// One directory has one spelling, as far as text can tell.
fn without_trailing_slash(directory: &str) -> String {
    match directory.trim_end_matches('/') {
        "" => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_checked_and_spelt_one_way() {
        let good = [("/", "/"), ("/a", "/a"), ("/a/", "/a"), ("/a//", "/a"), ("/a b/ü", "/a b/ü")];
        for (given, kept) in good {
            assert_eq!(OpenProject::new(given, None, "").unwrap().directory, kept);
        }
        for bad in ["", "a", "./a", "~/a", "/a\nb", "/\0", &"/a".repeat(4096)] {
            let error = OpenProject::new(bad, None, "").unwrap_err();
            assert_eq!(error.code(), Code::DirectoryMalformed, "{bad:?}");
        }
        let long = "n".repeat(TITLE_BYTES_MAX + 1);
        assert_eq!(OpenProject::new("/a", None, &long).unwrap_err().code(), Code::NameTooLong);
    }
}
