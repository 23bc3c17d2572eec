//! Rows of the database, as JSON.

use super::Project;
use super::members::Members;
use crate::exchange::json::{quoted, script_number, with_ids};
use crate::exchange::{Reason, Thing, Untaken};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::value::RawValue;

/// The text of a column; nothing if there is no such column, or nothing in it.
pub(super) fn text(row: &Row<'_>, name: &str) -> Option<String> {
    match row.get_ref(name).ok()? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// The column `data`, with the ids it lacks.
pub(super) fn data(
    thing: Thing,
    ids: &[(&str, &str)],
    row: &Row<'_>,
    bytes_max: u64,
) -> Result<Box<RawValue>, Untaken> {
    let id = ids.first().map_or("", |(_, id)| id);
    let bytes = match row.get_ref("data") {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
        _ => return Err(Untaken::new(thing, id, Reason::NotJson, "there is no text")),
    };
    if bytes.len() as u64 > bytes_max {
        let text = format!("it has {} bytes", bytes.len());
        return Err(Untaken::new(thing, id, Reason::TooLarge, text));
    }
    let data = std::str::from_utf8(bytes)
        .map_err(|error| Untaken::new(thing, id, Reason::NotJson, error.to_string()))?;
    with_ids(thing, ids, data)
}

/// The columns of a row, as JSON.
pub(super) struct Fields<'r> {
    row: &'r Row<'r>,
    thing_id: &'r str,
    /// Columns that cannot be read.
    pub(super) untaken: Vec<Untaken>,
}

impl<'r> Fields<'r> {
    /// The columns of a row about this thing.
    pub(super) fn new(row: &'r Row<'r>, thing_id: &'r str) -> Self {
        Self { row, thing_id, untaken: Vec::new() }
    }

    /// A plain value.
    fn value(&mut self, column: &str) -> Option<String> {
        match self.row.get_ref(column).ok()? {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Real(number) => Some(script_number(number)),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Some(quoted(text)),
                Err(error) => self.wrong(column, error.to_string()),
            },
            ValueRef::Blob(_) => self.wrong(column, "it is no text".into()),
        }
    }

    /// A value that is JSON already.
    fn json(&mut self, column: &str) -> Option<String> {
        match self.row.get_ref(column).ok()? {
            ValueRef::Null => None,
            ValueRef::Text(bytes) => match serde_json::from_slice::<&RawValue>(bytes) {
                Ok(raw) if raw.get() == "null" => None,
                Ok(raw) => Some(raw.get().to_owned()),
                Err(error) => self.wrong(column, error.to_string()),
            },
            // SQLite may have made a number of what is one.
            _ => self.value(column),
        }
    }

    fn wrong(&mut self, column: &str, text: String) -> Option<String> {
        let id = format!("{} {column}", self.thing_id);
        self.untaken.push(Untaken::new(Thing::Field, id, Reason::NotJson, text));
        None
    }

    /// An object of several columns; nothing if there is nothing in any of them.
    fn object(&mut self, columns: &[(&str, &str)]) -> Option<String> {
        let mut members = Members::default();
        for (name, column) in columns {
            members.add(name, self.value(column));
        }
        members.some()
    }
}

/// A session in the shape OpenCode tells it in.
pub(super) fn session(fields: &mut Fields<'_>) -> String {
    let mut members = Members::default();
    for (name, column) in [
        ("slug", "slug"),
        ("projectID", "project_id"),
        ("workspaceID", "workspace_id"),
        ("directory", "directory"),
        ("path", "path"),
        ("parentID", "parent_id"),
        ("title", "title"),
        ("agent", "agent"),
        ("version", "version"),
        ("cost", "cost"),
    ] {
        members.add(name, fields.value(column));
    }
    for name in ["model", "metadata", "revert", "permission"] {
        members.add(name, fields.json(name));
    }
    members.add("summary", summary(fields));
    members.add("tokens", tokens(fields));
    members.add("share", fields.object(&[("url", "share_url")]));
    let times = [
        ("created", "time_created"),
        ("updated", "time_updated"),
        ("compacting", "time_compacting"),
        ("archived", "time_archived"),
    ];
    members.add("time", fields.object(&times));
    members.all()
}

/// OpenCode tells none, or all three numbers.
fn summary(fields: &mut Fields<'_>) -> Option<String> {
    let numbers = ["additions", "deletions", "files"]
        .map(|name| (name, fields.value(&format!("summary_{name}"))));
    let diffs = fields.json("summary_diffs");
    if diffs.is_none() && numbers.iter().all(|(_, number)| number.is_none()) {
        return None;
    }
    let mut members = Members::default();
    for (name, number) in numbers {
        members.add(name, Some(number.unwrap_or_else(|| "0".into())));
    }
    members.add("diffs", diffs);
    members.some()
}

fn tokens(fields: &mut Fields<'_>) -> Option<String> {
    let mut members = Members::default();
    for name in ["input", "output", "reasoning"] {
        members.add(name, fields.value(&format!("tokens_{name}")));
    }
    let cache = [("read", "tokens_cache_read"), ("write", "tokens_cache_write")];
    members.add("cache", fields.object(&cache));
    members.some()
}

pub(super) fn project(row: &Row<'_>, untaken: &mut dyn FnMut(Untaken)) -> Project {
    let id = text(row, "id").unwrap_or_default();
    let mut fields = Fields::new(row, &id);
    let mut rest = Members::default();
    let icon = [("url", "icon_url"), ("override", "icon_url_override"), ("color", "icon_color")];
    rest.add("icon", fields.object(&icon));
    rest.add("commands", fields.json("commands"));
    rest.add("sandboxes", fields.json("sandboxes"));
    let times = [
        ("created", "time_created"),
        ("updated", "time_updated"),
        ("initialized", "time_initialized"),
    ];
    rest.add("time", fields.object(&times));
    fields.untaken.drain(..).for_each(untaken);
    Project {
        worktree: text(row, "worktree").unwrap_or_default(),
        name: text(row, "name"),
        vcs: text(row, "vcs"),
        rest: rest.all(),
        id,
    }
}

/// An item of a todo list.
pub(super) fn todo(fields: &mut Fields<'_>) -> String {
    let mut members = Members::default();
    for name in ["content", "status", "priority"] {
        members.add(name, fields.value(name));
    }
    members.all()
}
