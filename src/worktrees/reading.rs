//! What snapshots hold, and how they differ. Nobody waits for the files of a work tree here.

use super::{Trouble, Worktrees};
use crate::limits::{FILE_PIECE_BYTES_MAX, PAGE_BYTES_MAX, PATHS_PAGE_MAX};
use crate::model::caveats::Caveats;
use crate::model::ids::{LogId, ObjectId};
use crate::snapshot::diff::{self, Change, Lines};
use crate::snapshot::state::by_steps;
use crate::snapshot::tree::Held;
use crate::snapshot::vault::{Reader, Vault};
use std::sync::Arc;

/// A page of something, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Behind which path the next one begins, if there is one.
    pub next: Option<Vec<u8>>,
}

/// A page somebody wants of what is different between two trees.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The first tree; none for the empty one.
    pub old: Option<ObjectId>,
    /// The second.
    pub new: ObjectId,
    /// Behind this path.
    pub after: Vec<u8>,
    /// How many at most.
    pub limit: u32,
    /// Lines around each change; none if the text is not wanted.
    pub context: Option<u32>,
    /// Only what may be seen.
    pub caveats: Caveats,
}

/// A change, with its lines if they were wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What changed.
    pub change: Change,
    /// How.
    pub lines: Lines,
}

/// How many at most, of what was asked for.
fn bounded(limit: u32) -> usize {
    match limit as usize {
        0 => PATHS_PAGE_MAX,
        limit => limit.min(PATHS_PAGE_MAX),
    }
}

impl Worktrees {
    /// Looks something up in a project's snapshots.
    async fn look<T: Send + 'static>(
        &self,
        project: LogId,
        question: impl FnOnce(&Arc<Vault>, &Reader) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let permit = self.inner.reading.clone().acquire_owned().await;
        let inner = self.inner.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let vault = inner.vault(project)?;
            let store = vault.reader()?;
            question(&vault, &store)
        });
        looked.await.unwrap_or(Err(Trouble::Impossible))
    }

    /// What is different between two trees, a page of it.
    pub async fn difference(
        &self,
        project: LogId,
        wanted: Difference,
    ) -> Result<Listed<Told>, Trouble> {
        self.look(project, move |_, store| {
            let (most, mut found) = (bounded(wanted.limit), Vec::new());
            diff::between(store, wanted.old, Some(wanted.new), &mut |change| {
                let behind = by_steps(&change.path, &wanted.after).is_gt();
                if behind && wanted.caveats.allows_path(&change.path) {
                    found.push(change);
                }
                found.len() <= most
            })?;
            let mut more = found.len() > most;
            found.truncate(most);
            let (mut items, mut bytes) = (Vec::new(), 0);
            for change in found {
                if bytes > PAGE_BYTES_MAX {
                    more = true;
                    break;
                }
                let lines = match wanted.context.filter(|_| change.is_about_content()) {
                    Some(context) => diff::lines(store, &change, context)?,
                    None => Lines::default(),
                };
                bytes += change.path.len() + lines.text.len() + 64;
                items.push(Told { change, lines });
            }
            let next = items.last().map(|told| told.change.path.clone()).filter(|_| more);
            Ok(Listed { items, next })
        })
        .await
    }

    /// What a tree holds, a page of it.
    pub async fn files(
        &self,
        project: LogId,
        tree: ObjectId,
        after: Vec<u8>,
        limit: u32,
        caveats: Caveats,
    ) -> Result<Listed<(Vec<u8>, Held)>, Trouble> {
        self.look(project, move |_, store| {
            let (most, mut items) = (bounded(limit), Vec::new());
            diff::list(store, tree, &after, &mut |path, held| {
                if caveats.allows_path(path) {
                    items.push((path.to_vec(), held));
                }
                items.len() <= most
            })?;
            let more = items.len() > most;
            items.truncate(most);
            let next = items.last().map(|(path, _)| path.clone()).filter(|_| more);
            Ok(Listed { items, next })
        })
        .await
    }

    /// A piece of a file in a tree, how long all of it is, and what it is.
    pub async fn file_piece(
        &self,
        project: LogId,
        tree: ObjectId,
        path: Vec<u8>,
        offset: u64,
        bytes_max: u32,
    ) -> Result<(Vec<u8>, u64, Held), Trouble> {
        self.look(project, move |vault, store| {
            let held = diff::at(store, tree, &path)?.filter(|held| !held.mode.is_directory());
            let held = held.ok_or(Trouble::FileNotFound)?;
            let most = match bytes_max as usize {
                0 => FILE_PIECE_BYTES_MAX,
                most => most.min(FILE_PIECE_BYTES_MAX),
            };
            let (data, bytes) = vault.piece(held.id, offset, most)?;
            Ok((data, bytes, held))
        })
        .await
    }

    /// What all snapshots of a project take up.
    pub async fn stored_bytes(&self, project: LogId) -> Result<u64, Trouble> {
        self.look(project, |vault, _| Ok(vault.bytes()?)).await
    }
}
