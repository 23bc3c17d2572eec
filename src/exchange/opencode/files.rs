//! The files OpenCode kept everything in before it had a database.
//!
//! ```text
//! storage/project/<project>.json            storage/message/<session>/<message>.json
//! storage/session/<project>/<session>.json  storage/part/<message>/<part>.json
//! storage/todo/<session>.json               storage/session_diff/<session>.json
//! ```

use super::members::Standing;
use super::{Counts, Listed, Project, SourceError};
use crate::exchange::json::with_ids;
use crate::exchange::{ITEM_BYTES_MAX, Reason, Taker, Thing, Untaken};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory of files.
#[derive(Debug)]
pub(super) struct Files {
    storage: PathBuf,
}

impl Files {
    pub(super) fn new(storage: PathBuf) -> Self {
        Self { storage }
    }

    pub(super) fn counts(&self) -> Result<Counts, SourceError> {
        let mut counts = Counts {
            projects: names(&self.storage.join("project"))?.len() as u64,
            sessions: self.all("session")?.len() as u64,
            messages: self.all("message")?.len() as u64,
            parts: self.all("part")?.len() as u64,
            todos: 0,
        };
        for session in names(&self.storage.join("todo"))? {
            counts.todos += self.todos(&session).map_or(1, |todos| todos.len() as u64);
        }
        Ok(counts)
    }

    pub(super) fn projects(
        &self,
        untaken: &mut dyn FnMut(Untaken),
    ) -> Result<Vec<Project>, SourceError> {
        let mut found = Vec::new();
        for id in names(&self.storage.join("project"))? {
            match text(Thing::Project, &id, &self.file("project", &id))
                .and_then(|text| project(&id, &text))
            {
                Ok(project) => found.push(project),
                Err(reason) => untaken(reason),
            }
        }
        Ok(found)
    }

    pub(super) fn sessions(&self) -> Result<Vec<Listed>, SourceError> {
        let mut found = Vec::new();
        for (project_id, id) in self.all("session")? {
            // A session that cannot be read is listed as well, and told when it is to be read.
            let path = self.storage.join("session").join(&project_id).join(format!("{id}.json"));
            let standing = text(Thing::Session, &id, &path).map(|text| Standing::of(&text));
            let standing = standing.unwrap_or_default();
            let parent_id = standing.parent();
            found.push((
                standing.created(),
                Listed { id, project_id, parent_id, parent_known: false },
            ));
        }
        found.sort_by(|(a, first), (b, second)| {
            a.total_cmp(b).then_with(|| first.id.cmp(&second.id))
        });
        Ok(found.into_iter().map(|(_, listed)| listed).collect())
    }

    pub(super) fn read(&self, listed: &Listed, taker: &mut dyn Taker) -> Result<(), SourceError> {
        let id = listed.id.as_str();
        let path = self.storage.join("session").join(&listed.project_id).join(format!("{id}.json"));
        let session = text(Thing::Session, id, &path)
            .and_then(|text| with_ids(Thing::Session, &[("id", id)], &text));
        let is_taken = session.is_ok();
        let diffs = diffs(&self.storage, id).filter(|_| is_taken);
        match diffs {
            None => Ok(()),
            Some(Ok(diffs)) => taker.diffs(&diffs),
            Some(Err(untaken)) => taker.untaken(untaken),
        }
        .map_err(SourceError::Stopped)?;
        match session {
            Ok(session) => taker.session(&session),
            Err(untaken) => taker.untaken(untaken),
        }
        .map_err(SourceError::Stopped)?;
        for message in self.messages_in_order(id)? {
            self.message(id, &message, is_taken, taker)?;
        }
        match self.todos(id) {
            Ok(todos) if todos.is_empty() => Ok(()),
            Ok(todos) if is_taken => taker.todos(&todos),
            Ok(todos) => todos.iter().try_for_each(|_| {
                taker.untaken(orphan(Thing::Todo, id, "its session was not taken"))
            }),
            Err(untaken) => taker.untaken(untaken),
        }
        .map_err(SourceError::Stopped)
    }

    /// The messages of a session, the oldest first. Ids do not tell: they begin anew every two years.
    fn messages_in_order(&self, session: &str) -> Result<Vec<String>, SourceError> {
        let directory = self.storage.join("message").join(session);
        let mut found = Vec::new();
        for id in names(&directory)? {
            let text = text(Thing::Message, &id, &directory.join(format!("{id}.json")));
            found.push((text.map_or(0.0, |text| Standing::of(&text).created()), id));
        }
        found.sort_by(|(a, first), (b, second)| a.total_cmp(b).then_with(|| first.cmp(second)));
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// Reads one message, with its parts.
    fn message(
        &self,
        session: &str,
        id: &str,
        session_is_taken: bool,
        taker: &mut dyn Taker,
    ) -> Result<(), SourceError> {
        let path = self.storage.join("message").join(session).join(format!("{id}.json"));
        let info = if session_is_taken {
            let ids = [("id", id), ("sessionID", session)];
            text(Thing::Message, id, &path).and_then(|text| with_ids(Thing::Message, &ids, &text))
        } else {
            Err(orphan(Thing::Message, id, "its session was not taken"))
        };
        let mut parts = Vec::new();
        let mut untaken = Vec::new();
        let mut left = ITEM_BYTES_MAX;
        let directory = self.storage.join("part").join(id);
        for part in names(&directory)? {
            if info.is_err() {
                untaken.push(orphan(Thing::Part, &part, "its message was not taken"));
                continue;
            }
            let ids = [("id", &*part), ("sessionID", session), ("messageID", id)];
            let path = directory.join(format!("{part}.json"));
            let read = text_up_to(left, Thing::Part, &part, &path)
                .and_then(|text| with_ids(Thing::Part, &ids, &text));
            match read {
                Ok(part) => {
                    left = left.saturating_sub(part.get().len() as u64);
                    parts.push(part);
                }
                Err(reason) => untaken.push(reason),
            }
        }
        match info {
            Ok(info) => taker.message(&info, &parts),
            Err(reason) => taker.untaken(reason),
        }
        .map_err(SourceError::Stopped)?;
        untaken.into_iter().try_for_each(|it| taker.untaken(it)).map_err(SourceError::Stopped)
    }

    fn todos(&self, session: &str) -> Result<Vec<Box<RawValue>>, Untaken> {
        let path = self.file("todo", session);
        if !path.exists() {
            return Ok(Vec::new());
        }
        list(Thing::Todo, session, &path)
    }

    pub(super) fn orphans(&self, untaken: &mut dyn FnMut(Untaken)) -> Result<(), SourceError> {
        let sessions: HashSet<_> = self.all("session")?.into_iter().map(|(_, id)| id).collect();
        let mut messages = HashSet::new();
        for (session, id) in self.all("message")? {
            if sessions.contains(&session) {
                messages.insert(id);
            } else {
                untaken(orphan(Thing::Message, &id, "its session is not there"));
            }
        }
        for (message, id) in self.all("part")? {
            if !messages.contains(&message) {
                untaken(orphan(Thing::Part, &id, "its message is not there"));
            }
        }
        for session in names(&self.storage.join("todo"))? {
            if !sessions.contains(&session) {
                let count = self.todos(&session).map_or(1, |todos| todos.len());
                (0..count).for_each(|_| {
                    untaken(orphan(Thing::Todo, &session, "its session is not there"));
                });
            }
        }
        Ok(())
    }

    fn file(&self, kind: &str, id: &str) -> PathBuf {
        self.storage.join(kind).join(format!("{id}.json"))
    }

    /// Everything of a kind: what it belongs to, and its id.
    fn all(&self, kind: &str) -> Result<Vec<(String, String)>, SourceError> {
        let directory = self.storage.join(kind);
        let mut found = Vec::new();
        for owner in entries(&directory)? {
            let ids = names(&directory.join(&owner))?;
            found.extend(ids.into_iter().map(|id| (owner.clone(), id)));
        }
        Ok(found)
    }
}

/// What a session did to files, where that is kept beside a database.
pub(super) fn diffs_beside(
    database: &Path,
    session: &str,
) -> Option<Result<Vec<Box<RawValue>>, Untaken>> {
    diffs(&database.parent()?.join("storage"), session)
}

/// Nothing if there are none; OpenCode writes an empty list, too.
fn diffs(storage: &Path, session: &str) -> Option<Result<Vec<Box<RawValue>>, Untaken>> {
    // The id comes out of a database: it must not lead anywhere else.
    if session.contains(['/', '\\', '\0']) || session.starts_with('.') {
        return None;
    }
    let path = storage.join("session_diff").join(format!("{session}.json"));
    let diffs =
        path.exists().then(|| list(Thing::Field, &format!("{session} session_diff"), &path));
    diffs.filter(|diffs| !matches!(diffs, Ok(diffs) if diffs.is_empty()))
}

fn list(thing: Thing, id: &str, path: &Path) -> Result<Vec<Box<RawValue>>, Untaken> {
    let text = text(thing, id, path)?;
    serde_json::from_str(&text).map_err(|error| not_json(thing, id, &text, &error))
}

fn not_json(thing: Thing, id: &str, text: &str, error: &serde_json::Error) -> Untaken {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let reason = if is_json { Reason::Shape } else { Reason::NotJson };
    Untaken::new(thing, id, reason, error.to_string())
}

fn orphan(thing: Thing, id: &str, text: &str) -> Untaken {
    Untaken::new(thing, id, Reason::Orphan, text)
}

fn project(id: &str, text: &str) -> Result<Project, Untaken> {
    let wrong = |error: serde_json::Error| not_json(Thing::Project, id, text, &error);
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).map_err(wrong)?;
    members.remove("id");
    // What is not a text stays where it is.
    let mut take = |name: &str| {
        let text = serde_json::from_str::<String>(members.get(name)?.get()).ok()?;
        members.remove(name);
        Some(text)
    };
    let (worktree, name, vcs) = (take("worktree"), take("name"), take("vcs"));
    Ok(Project {
        id: id.to_owned(),
        worktree: worktree.unwrap_or_default(),
        name,
        vcs,
        rest: serde_json::to_string(&members).map_err(wrong)?,
    })
}

fn text(thing: Thing, id: &str, path: &Path) -> Result<String, Untaken> {
    text_up_to(ITEM_BYTES_MAX, thing, id, path)
}

fn text_up_to(bytes_max: u64, thing: Thing, id: &str, path: &Path) -> Result<String, Untaken> {
    let wrong = |reason, text: String| Untaken::new(thing, id, reason, text);
    let unreadable = |error: io::Error| wrong(Reason::Unreadable, error.to_string());
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > bytes_max {
        return Err(wrong(Reason::TooLarge, format!("it has {bytes} bytes")));
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| wrong(Reason::NotJson, error.to_string()))
}

/// The names of the JSON files in a directory, in order; none if there is no such directory.
fn names(directory: &Path) -> Result<Vec<String>, SourceError> {
    let files = entries(directory)?.into_iter();
    Ok(files.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect())
}

/// What is in a directory, in order. OpenCode writes no name that is not text.
fn entries(directory: &Path) -> Result<Vec<String>, SourceError> {
    let failed = |error| SourceError::Io { path: directory.to_owned(), error };
    let found = match fs::read_dir(directory) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        found => found.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in found {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}
