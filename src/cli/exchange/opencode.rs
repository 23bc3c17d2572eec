//! All sessions OpenCode has kept.

use super::import::Taking;
use super::into_session::Done;
use super::{Door, Trouble};
use crate::exchange::opencode;
use std::collections::HashMap;
use std::path::Path;

/// Brings everything in a data directory, or a database, onto the server.
pub(super) fn import(door: Door, path: &Path) -> Result<Done, Trouble> {
    let odd = |error: opencode::SourceError| Trouble::Other(error.to_string());
    let source = opencode::open(path).map_err(odd)?;
    let counts = source.counts().map_err(odd)?;
    let mut untaken = Vec::new();
    let projects = source.projects(&mut |it| untaken.push(it)).map_err(odd)?;
    let known: HashMap<_, _> = projects
        .into_iter()
        .map(|project| (project.id, (project.worktree, project.name.unwrap_or_default())))
        .collect();
    let mut taking = Taking::new(&door, Some(known));
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
