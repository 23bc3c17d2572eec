//! The project of a directory, made if there is none.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::limits::{DIRECTORY_BYTES_MAX, PROJECT_REST_BYTES_MAX, TITLE_BYTES_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, LogId, OpId, ProjectId};
use crate::model::infos::ProjectKey;
use crate::model::ledger::Made;
use crate::model::repository;
use crate::store::{self, Read, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenProject {
    directory: String,
    id: Option<ProjectId>,
    name: String,
    /// Whatever else there is to know about it.
    rest: String,
    /// What else it is known by, and the id that goes with that.
    repository: Option<(String, ProjectId)>,
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
    /// Longer than anybody reads.
    #[error("`rest` is {bytes} bytes long; the most accepted is {PROJECT_REST_BYTES_MAX}")]
    RestTooLong {
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
            Error::RestTooLong { .. } => Code::OpTooLarge,
            Error::IdTaken(_) | Error::OtherId { .. } => Code::ProjectExists,
        }
    }
}

/// How it stands in the history, version 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectOpened<'a> {
    /// The project.
    pub key: ProjectKey,
    /// The directory it was opened in.
    pub directory: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Whether it was made with that.
    pub created: bool,
    /// What else it is known by from then on.
    pub repository: Option<Cow<'a, str>>,
    /// Whatever else there is to know about it, as a JSON object; may be empty.
    pub rest: Cow<'a, str>,
}

/// How it stood in version 2, with nothing else to know.
#[derive(Deserialize)]
pub(super) struct ProjectOpenedV2<'a> {
    key: ProjectKey,
    directory: Cow<'a, str>,
    name: Cow<'a, str>,
    created: bool,
    repository: Option<Cow<'a, str>>,
}

impl<'a> From<ProjectOpenedV2<'a>> for ProjectOpened<'a> {
    fn from(opened: ProjectOpenedV2<'a>) -> Self {
        let ProjectOpenedV2 { key, directory, name, created, repository } = opened;
        Self { key, directory, name, created, repository, rest: "".into() }
    }
}

/// How it stood in version 1, when a project was a directory.
#[derive(Deserialize)]
pub(super) struct ProjectOpenedV1<'a> {
    key: ProjectKey,
    directory: Cow<'a, str>,
    name: Cow<'a, str>,
}

impl<'a> From<ProjectOpenedV1<'a>> for ProjectOpened<'a> {
    fn from(ProjectOpenedV1 { key, directory, name }: ProjectOpenedV1<'a>) -> Self {
        Self { key, directory, name, created: true, repository: None, rest: "".into() }
    }
}

impl ProjectOpened<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let log = self.key.log;
        if self.created {
            let (id, directory, name) = (&self.key.id, &self.directory, &self.name);
            store::projects::create(tx, log, id, directory, name, place.cursor, place.now_ms)?;
        }
        store::worktrees::add(tx, log, &self.directory, place.cursor, place.now_ms)?;
        match &self.repository {
            Some(name) => store::worktrees::name(tx, log, name),
            None => Ok(()),
        }
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
        let (directory, name) = (without_trailing_slash(directory), name.to_owned());
        Ok(Self { directory, id, name, rest: String::new(), repository: None })
    }

    /// The same, with whatever else there is to know about it.
    pub fn with_rest(self, rest: String) -> Result<Self, Error> {
        match rest.len() {
            bytes if bytes > PROJECT_REST_BYTES_MAX => Err(Error::RestTooLong { bytes }),
            _ => Ok(Self { rest, ..self }),
        }
    }

    /// The same, known by its remote or, without one, by its first commit. What is neither does not count.
    pub fn of_repository(self, remote: &str, root_commit: &str) -> Self {
        let by_remote = repository::remote_name(remote)
            .map(|name| (format!("remote:{name}"), repository::id_of_remote(&name)));
        let by_root = || {
            repository::is_commit(root_commit)
                .then(|| (format!("root:{root_commit}"), root_commit.to_owned()))
        };
        let known = by_remote.or_else(by_root);
        let repository = known.and_then(|(name, id)| Some((name, ProjectId::parse(&id).ok()?)));
        Self { repository, ..self }
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let found = self.find(tx)?;
        let named = match &self.repository {
            // The first project of a name keeps it.
            Some((name, _)) if store::worktrees::named(tx, name)?.is_none() => Some(name.as_str()),
            _ => None,
        };
        let (key, created) = match found {
            Some(found) => match &self.id {
                Some(id) if *id != found.id => {
                    return Err(Error::OtherId { wanted: id.clone(), has: found.id }.into());
                }
                _ => (found, false),
            },
            None => {
                let of_repository = self.repository.as_ref().map(|(_, id)| id.clone());
                let id = self.id.clone().or(of_repository);
                let id = id.unwrap_or_else(|| ProjectId::made_by(op));
                if store::projects::log_of(tx, &id)?.is_some() {
                    return Err(Error::IdTaken(id).into());
                }
                (ProjectKey { log: store::logs::create_for_project(tx)?, id }, true)
            }
        };
        let known = store::worktrees::project_of(tx, &self.directory)?.is_some();
        if !created && known && named.is_none() {
            return Ok(Effect::new(Made::Project(key), None));
        }
        let opened = ProjectOpened {
            key,
            directory: self.directory.as_str().into(),
            name: self.name.as_str().into(),
            created,
            repository: named.map(Into::into),
            // What is known about a project stands where it was made.
            rest: if created { self.rest.as_str().into() } else { "".into() },
        };
        opened.project(tx, place)?;
        let entry = entry(Kind::OpenProject, 3, &opened)?;
        let made = Made::Project(opened.key);
        // A directory that was added changes the project, but does not make it.
        let effect = Effect::new(made, entry);
        Ok(if created { effect } else { effect.found() })
    }

    /// The project it is: that of the directory if that is known, so that it stays the same when a remote
    /// appears; otherwise that of the repository.
    fn find(&self, tx: &Tx<'_>) -> Result<Option<ProjectKey>, StoreError> {
        if let Some(log) = store::worktrees::project_of(tx, &self.directory)? {
            return store::projects::key_of(tx, log);
        }
        let Some((name, id)) = &self.repository else { return Ok(None) };
        let log = match store::worktrees::named(tx, name)? {
            Some(log) => Some(log),
            None => store::projects::log_of(tx, id)?,
        };
        match log {
            Some(log) => store::projects::key_of(tx, log),
            None => Ok(None),
        }
    }
}

/// What else there is to know about a project that was made at a place of the root's log. It stays in the op.
pub(crate) fn rest_of(read: &Read<'_>, cursor: Cursor) -> Result<String, StoreError> {
    match store::ops::payload_at(read, LogId::ROOT, cursor)? {
        Some((3, payload)) => postcard::from_bytes::<ProjectOpened<'_>>(&payload)
            .map(|opened| opened.rest.into_owned())
            .map_err(|error| StoreError::Corrupt(format!("a project in the history: {error}"))),
        _ => Ok(String::new()),
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
