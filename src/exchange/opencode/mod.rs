//! OpenCode's own data: its database, or the directory of files it used before.
//!
//! It is only ever read, and may be in use meanwhile. A session is read message by message; what cannot be
//! read is told and counted, and does not stop the rest. Older versions lack columns, newer ones have more:
//! everything but the ids and the data themselves may be missing, and what nobody knows is passed over.

mod files;
mod members;
mod rows;
mod sqlite;

use super::{Stop, Taker, Untaken};
use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What every SQLite database begins with.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Where OpenCode keeps what it knows.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Database(sqlite::Database),
    Files(files::Files),
}

/// OpenCode's data cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file system says no.
    #[error("{} cannot be read: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is something else.
    #[error("{} is not OpenCode's data: {text}", path.display())]
    Foreign {
        /// What was looked at.
        path: PathBuf,
        /// Why it is not.
        text: String,
    },
    /// There is a database for each of several release channels.
    #[error("there are several databases; name one of them: {}", shown(paths))]
    Several {
        /// All of them.
        paths: Vec<PathBuf>,
    },
    /// The database says no.
    #[error("the database {} cannot be read: {error}", path.display())]
    Database {
        /// Which one.
        path: PathBuf,
        /// What it says.
        error: Box<dyn Error + Send + Sync>,
    },
    /// Whoever takes it wants no more.
    #[error("a session could not be taken: {0}")]
    Stopped(Stop),
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its id there.
    pub id: String,
    /// The directory it is about; `/` for what belongs to none.
    pub worktree: String,
    /// What people call it.
    pub name: Option<String>,
    /// `git`, if it is under version control.
    pub vcs: Option<String>,
    /// A JSON object with everything else.
    pub rest: String,
}

/// A session that is there to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// The project it belongs to, which may not be among the projects.
    pub project_id: String,
    /// The session it was made for.
    pub parent_id: Option<String>,
    /// Whether that one is listed as well, before this one.
    pub parent_known: bool,
}

/// How much there is, all in all. Every item is either taken or told as untaken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Projects.
    pub projects: u64,
    /// Sessions.
    pub sessions: u64,
    /// Messages.
    pub messages: u64,
    /// Parts of messages.
    pub parts: u64,
    /// Items of todo lists.
    pub todos: u64,
}

/// Opens OpenCode's data: a database, a directory with one in it, or a directory of the older files.
pub fn open(path: &Path) -> Result<Source, SourceError> {
    let source = |kind| Source { path: path.to_owned(), kind };
    let unreadable = |error| SourceError::Io { path: path.to_owned(), error };
    if fs::metadata(path).map_err(unreadable)?.is_file() {
        let mut start = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut start).map_err(unreadable)?;
        if start != SQLITE_MAGIC {
            let text = "it is no database of SQLite".into();
            return Err(SourceError::Foreign { path: path.to_owned(), text });
        }
        return Ok(source(Kind::Database(sqlite::Database::open(path)?)));
    }
    let mut found = databases(path).map_err(unreadable)?;
    if found.len() > 1 {
        return Err(SourceError::Several { paths: found });
    }
    if let Some(database) = found.pop() {
        return Ok(source(Kind::Database(sqlite::Database::open(&database)?)));
    }
    let storage = [path.join("storage"), path.to_owned()];
    if let Some(storage) = storage.into_iter().find(|storage| storage.join("session").is_dir()) {
        return Ok(source(Kind::Files(files::Files::new(storage))));
    }
    let text = "there is neither opencode.db nor storage/session in it".into();
    Err(SourceError::Foreign { path: path.to_owned(), text })
}

/// The databases in a directory: `opencode.db`, and one for each other release channel.
fn databases(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let channel = name.strip_prefix("opencode").and_then(|name| name.strip_suffix(".db"));
        if channel.is_some_and(|channel| channel.is_empty() || channel.starts_with('-')) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

impl Source {
    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How much there is.
    pub fn counts(&self) -> Result<Counts, SourceError> {
        match &self.kind {
            Kind::Database(database) => database.counts(),
            Kind::Files(files) => files.counts(),
        }
    }

    /// All projects.
    pub fn projects(&self, untaken: &mut dyn FnMut(Untaken)) -> Result<Vec<Project>, SourceError> {
        match &self.kind {
            Kind::Database(database) => database.projects(untaken),
            Kind::Files(files) => files.projects(untaken),
        }
    }

    /// All sessions: those with a parent behind it, and otherwise the oldest first.
    pub fn sessions(&self) -> Result<Vec<Listed>, SourceError> {
        let found = match &self.kind {
            Kind::Database(database) => database.sessions()?,
            Kind::Files(files) => files.sessions()?,
        };
        Ok(parents_first(found))
    }

    /// Reads one session, message by message.
    pub fn read(&self, session: &Listed, taker: &mut dyn Taker) -> Result<(), SourceError> {
        match &self.kind {
            Kind::Database(database) => database.read(session, taker),
            Kind::Files(files) => files.read(session, taker),
        }
    }

    /// Tells what belongs to nothing that is listed: no session would bring it.
    pub fn orphans(&self, untaken: &mut dyn FnMut(Untaken)) -> Result<(), SourceError> {
        match &self.kind {
            Kind::Database(database) => database.orphans(untaken),
            Kind::Files(files) => files.orphans(untaken),
        }
    }
}

/// Puts sessions behind their parents, and says which parents are there. Where parents go in a circle, the
/// first one found has none.
fn parents_first(mut found: Vec<Listed>) -> Vec<Listed> {
    let places: HashMap<_, _> =
        found.iter().enumerate().map(|(at, session)| (session.id.clone(), at)).collect();
    let mut children = vec![Vec::new(); found.len()];
    let mut roots = Vec::new();
    for (at, session) in found.iter_mut().enumerate() {
        let parent = session.parent_id.as_ref().and_then(|parent| places.get(parent));
        session.parent_known = parent.is_some_and(|parent| *parent != at);
        match parent {
            Some(parent) if session.parent_known => children[*parent].push(at),
            _ => roots.push(at),
        }
    }
    let mut order = Vec::new();
    let mut is_placed = vec![false; found.len()];
    let circles = 0..found.len();
    for root in roots.into_iter().chain(circles) {
        if is_placed[root] {
            continue;
        }
        let mut waiting = vec![(root, false)];
        while let Some((at, parent_known)) = waiting.pop() {
            if !std::mem::replace(&mut is_placed[at], true) {
                found[at].parent_known = parent_known;
                order.push(at);
                waiting.extend(children[at].iter().rev().map(|child| (*child, true)));
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| found[at].take()).collect()
}

#[cfg(test)]
mod tests;
