//! What was there when a snapshot was taken, and was not taken: that it is not in the snapshot does not mean that it was
//! not there, so nothing at these paths may be taken away to get back to it.

use super::pack::Kind;
use super::state::{Skipped, State};
use super::tree::{Held, Mode};
use super::vault::{Batch, Error, Reader};
use crate::limits::UNKNOWN_RECORDED_MAX;
use crate::model::ids::ObjectId;
use std::collections::HashSet;

/// Paths of which a snapshot knows only that something stood there.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Unknown {
    paths: HashSet<Vec<u8>>,
    /// There were more than are recorded.
    more: bool,
}

/// The name the list has in the tree that keeps it.
const NAME: &[u8] = b"unknown";

/// Writes down what was not taken; none if everything was. Paths end with a zero byte, and one that is empty says that
/// there were more.
pub fn write(batch: &Batch, state: &State) -> Result<Option<ObjectId>, Error> {
    let skipped = state.top.totals.all_skipped();
    if skipped == state.top.totals.skipped[Skipped::Repository as usize] {
        return Ok(None);
    }
    let found = state.top.skipped(b"", UNKNOWN_RECORDED_MAX + 1);
    let mut list = Vec::new();
    for (path, why, _) in found.iter().take(UNKNOWN_RECORDED_MAX) {
        // What git keeps of a repository is never touched at all.
        if *why != Skipped::Repository {
            list.extend_from_slice(path);
            list.push(0);
        }
    }
    if found.len() > UNKNOWN_RECORDED_MAX {
        list.push(0);
    }
    let id = batch.put(Kind::Blob, &list)?;
    let held = Held { mode: Mode::FILE, id };
    batch.put_tree(std::iter::once((NAME, held))).map(Some)
}

impl Unknown {
    /// Reads it back.
    pub fn read(store: &Reader, id: Option<ObjectId>) -> Result<Self, Error> {
        let Some(id) = id else { return Ok(Self::default()) };
        let mut unknown = Self::default();
        for item in store.tree(id)? {
            let list = store.read(item.held.id)?;
            for path in list.strip_suffix(b"\0").unwrap_or(&list).split(|byte| *byte == 0) {
                match path {
                    b"" => unknown.more = true,
                    path => drop(unknown.paths.insert(path.to_vec())),
                }
            }
        }
        Ok(unknown)
    }

    /// Whether something may have stood at a path that the snapshot does not hold.
    pub fn holds(&self, path: &[u8]) -> bool {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = above.map(|(at, _)| &path[..at]).chain(std::iter::once(path));
        self.more || above.any(|path| self.paths.contains(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beneath_something_unknown_is_unknown() {
        let paths = [b"a/b".to_vec(), b"c".to_vec()];
        let unknown = Unknown { paths: paths.into(), more: false };
        for (path, held) in
            [("a/b", true), ("a/b/c", true), ("c/d", true), ("a", false), ("a/bc", false)]
        {
            assert_eq!(unknown.holds(path.as_bytes()), held, "{path}");
        }
        assert!(Unknown { more: true, ..Unknown::default() }.holds(b"anything"));
    }
}
