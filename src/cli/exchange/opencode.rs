//! All sessions OpenCode has kept.

use super::import::{Home, Taking};
use super::into_session::Done;
use super::{Door, Trouble, with_member};
use crate::exchange::{Reason, Thing, Untaken, opencode};
use crate::limits::PROJECT_REST_BYTES_MAX;
use std::collections::HashMap;
use std::path::Path;

/// Brings everything in a data directory, or a database, onto the server.
pub(super) fn import(door: Door, path: &Path) -> Result<Done, Trouble> {
    let odd = |error: opencode::SourceError| Trouble::Other(error.to_string());
    let source = opencode::open(path).map_err(odd)?;
    let counts = source.counts().map_err(odd)?;
    let mut untaken = Vec::new();
    let projects = source.projects(&mut |it| untaken.push(it)).map_err(odd)?;
    let mut known = HashMap::new();
    for project in projects {
        let rest = rest_of(&project, &mut |it| untaken.push(it));
        let (directory, name) = (project.worktree, project.name.unwrap_or_default());
        known.insert(project.id, Home { directory, name, rest });
    }
    let mut taking = Taking::new(&door, known);
    taking.bar.set_length(counts.messages);
    for session in source.sessions().map_err(odd)? {
        // One that cannot be taken stops nothing else.
        let read = source.read(&session, &mut taking);
        match (read, taking.end_session()) {
            (Ok(()), Ok(())) => {}
            (Err(error), _) => taking.done.refused(format!("session {}: {error}", session.id)),
            (_, Err(trouble)) => {
                taking.done.refused(format!("session {}: {trouble}", session.id));
            }
        }
    }
    source.orphans(&mut |it| untaken.push(it)).map_err(odd)?;
    untaken.iter().for_each(|it| taking.done.untaken(it));
    let done = taking.finish()?;
    door.close()?;
    Ok(done)
}

/// Everything else there is to know about a project, as far as it can be kept.
fn rest_of(project: &opencode::Project, untaken: &mut dyn FnMut(Untaken)) -> String {
    let mut rest = project.rest.clone();
    if let Some(vcs) = &project.vcs {
        rest = with_member(&rest, "vcs", &serde_json::Value::from(vcs.as_str()).to_string());
    }
    if rest.len() > PROJECT_REST_BYTES_MAX {
        let text = format!("{} bytes are more than can be kept of a project", rest.len());
        untaken(Untaken::new(Thing::Project, project.id.as_str(), Reason::TooLarge, text));
        rest = String::new();
    }
    rest
}
