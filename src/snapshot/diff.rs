//! What is different between two trees. Directories that are the same are not looked into.

use super::state::by_steps;
use super::tree::{self, Held, Item};
use super::vault::{Error, Reader};
use crate::limits::DIFF_FILE_BYTES_MAX;
use crate::model::ids::ObjectId;
use git2::{DiffOptions, Patch};
use std::cmp::Ordering;

/// A path at which two trees are not the same. Of a directory that is in both, only the mode can be different; one
/// that is in one of them is told with everything beneath it, itself first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: Vec<u8>,
    /// What stands there in the first.
    pub old: Option<Held>,
    /// What stands there in the second.
    pub new: Option<Held>,
}

impl Change {
    /// Whether a file or a link is concerned, and not just a directory.
    pub fn is_about_content(&self) -> bool {
        [self.old, self.new].iter().flatten().any(|held| !held.mode.is_directory())
    }

    /// The other way round.
    pub fn reversed(self) -> Self {
        Self { old: self.new, new: self.old, ..self }
    }
}

/// Tells what is different between two trees, by path; none stands for the empty one. Goes on as long as it is
/// asked to.
pub fn between(
    store: &Reader,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
    told: &mut dyn FnMut(Change) -> bool,
) -> Result<bool, Error> {
    if old == new {
        return Ok(true);
    }
    let items = |id: Option<ObjectId>| id.map_or_else(|| Ok(Vec::new()), |id| store.tree(id));
    compare(store, &mut Vec::new(), items(old)?, items(new)?, told)
}

/// All of it.
pub fn all(
    store: &Reader,
    old: Option<ObjectId>,
    new: Option<ObjectId>,
) -> Result<Vec<Change>, Error> {
    let mut all = Vec::new();
    between(store, old, new, &mut |change| {
        all.push(change);
        true
    })?;
    Ok(all)
}

fn compare(
    store: &Reader,
    path: &mut Vec<u8>,
    mut old: Vec<Item>,
    mut new: Vec<Item>,
    told: &mut dyn FnMut(Change) -> bool,
) -> Result<bool, Error> {
    // A name that is a file here and a directory there stands at two places in git's order.
    old.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    new.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(true),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        let was = if order.is_le() { old.next() } else { None };
        let is = if order.is_ge() { new.next() } else { None };
        let Some(name) = was.as_ref().or(is.as_ref()).map(|item| item.name.clone()) else {
            return Ok(true);
        };
        let (was, is) = (was.map(|item| item.held), is.map(|item| item.held));
        if was == is {
            continue;
        }
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let go_on = entry(store, path, was, is, told)?;
        path.truncate(length);
        if !go_on {
            return Ok(false);
        }
    }
}

fn entry(
    store: &Reader,
    path: &mut Vec<u8>,
    was: Option<Held>,
    is: Option<Held>,
    told: &mut dyn FnMut(Change) -> bool,
) -> Result<bool, Error> {
    let directory = |held: Option<Held>| held.filter(|held| held.mode.is_directory());
    let same_mode = matches!((was, is), (Some(was), Some(is)) if was.mode == is.mode);
    let both = directory(was).is_some() && directory(is).is_some();
    let same = both && same_mode;
    if !same {
        let change = Change { path: path.clone(), old: was, new: is };
        if !told(change) {
            return Ok(false);
        }
    }
    let items = |held: Option<Held>| match directory(held) {
        Some(held) => store.tree(held.id),
        None => Ok(Vec::new()),
    };
    match directory(was).map(|held| held.id) == directory(is).map(|held| held.id) {
        true => Ok(true),
        false => compare(store, path, items(was)?, items(is)?, told),
    }
}

/// Tells what a tree holds behind a path, directories before what is in them. Goes on as long as it is asked to.
pub fn list(
    store: &Reader,
    tree: ObjectId,
    after: &[u8],
    told: &mut dyn FnMut(&[u8], Held) -> bool,
) -> Result<bool, Error> {
    fn go(
        store: &Reader,
        tree: ObjectId,
        path: &mut Vec<u8>,
        after: &[u8],
        told: &mut dyn FnMut(&[u8], Held) -> bool,
    ) -> Result<bool, Error> {
        let mut items = store.tree(tree)?;
        items.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for Item { name, held } in items {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let order = by_steps(path, after);
            // What is beneath stands behind it, so it may be wanted even if this is not.
            let leads_there = after.strip_prefix(path.as_slice()).is_some();
            let mut go_on = order.is_le() || told(path, held);
            if go_on && held.mode.is_directory() && (order.is_gt() || leads_there) {
                go_on = go(store, held.id, path, after, told)?;
            }
            path.truncate(length);
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
    go(store, tree, &mut Vec::new(), after, told)
}

/// What a path holds in a tree.
pub fn at(store: &Reader, tree: ObjectId, path: &[u8]) -> Result<Option<Held>, Error> {
    let mut held = Held { mode: tree::Mode::DIRECTORY, id: tree };
    for step in path.split(|byte| *byte == b'/') {
        if !held.mode.is_directory() {
            return Ok(None);
        }
        match store.tree(held.id)?.into_iter().find(|item| *item.name == *step) {
            Some(item) => held = item.held,
            None => return Ok(None),
        }
    }
    Ok(Some(held))
}

/// How two contents differ, line by line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines that are only in the second.
    pub additions: u64,
    /// Lines that are only in the first.
    pub deletions: u64,
    /// Unified text, without the names of the files; empty if there is none to give.
    pub text: Vec<u8>,
    /// It is not text.
    pub binary: bool,
    /// It is too long to be compared line by line.
    pub too_long: bool,
}

/// Compares what stands at a path line by line. Links are text: where they lead.
pub fn lines(store: &Reader, change: &Change, context: u32) -> Result<Lines, Error> {
    let content = |held: Option<Held>| match held.filter(|held| !held.mode.is_directory()) {
        Some(held) => store.length(held.id).map(|bytes| Some((held.id, bytes))),
        None => Ok(None),
    };
    let (old, new) = (content(change.old)?, content(change.new)?);
    if old.map(|(id, _)| id) == new.map(|(id, _)| id) {
        return Ok(Lines::default());
    }
    if [old, new].iter().flatten().any(|(_, bytes)| *bytes > DIFF_FILE_BYTES_MAX) {
        return Ok(Lines { too_long: true, ..Lines::default() });
    }
    let bytes = |content: Option<(ObjectId, u64)>| match content {
        Some((id, _)) => store.read(id),
        None => Ok(Vec::new()),
    };
    let (old, new) = (bytes(old)?, bytes(new)?);
    let mut options = DiffOptions::new();
    options.context_lines(context).interhunk_lines(0);
    let mut patch = Patch::from_buffers(&old, None, &new, None, Some(&mut options))?;
    if patch.delta().flags().is_binary() || [&old, &new].iter().any(|bytes| is_binary(bytes)) {
        return Ok(Lines { binary: true, ..Lines::default() });
    }
    let (_, additions, deletions) = patch.line_stats()?;
    let text = patch.to_buf()?.to_vec();
    let hunks = text.windows(3).position(|bytes| bytes == b"\n@@").map_or(0, |at| at + 1);
    let text = text.get(hunks..).filter(|text| text.starts_with(b"@@")).unwrap_or_default();
    Ok(Lines {
        additions: additions as u64,
        deletions: deletions as u64,
        text: text.to_vec(),
        ..Lines::default()
    })
}

const BINARY_LOOKED_AT: usize = 8000;

fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_LOOKED_AT)].contains(&0)
}

/// A change as a person reads it, headed as `git diff` does.
pub fn unified(change: &Change, lines: &Lines) -> Vec<u8> {
    let mut text = Vec::new();
    let name = |side: &[u8]| quoted(side, &change.path);
    let (a, b) = (name(b"a/"), name(b"b/"));
    text.extend_from_slice(b"diff --git ");
    text.extend_from_slice(&a);
    text.push(b' ');
    text.extend_from_slice(&b);
    text.push(b'\n');
    let mode = |held: Held| format!("{:06o}", held.mode.number());
    match (change.old, change.new) {
        (None, Some(new)) => text.extend(format!("new file mode {}\n", mode(new)).bytes()),
        (Some(old), None) => text.extend(format!("deleted file mode {}\n", mode(old)).bytes()),
        (Some(old), Some(new)) if old.mode != new.mode => {
            text.extend(format!("old mode {}\nnew mode {}\n", mode(old), mode(new)).bytes());
        }
        _ => {}
    }
    let side = |held: Option<Held>, name: Vec<u8>| match held {
        Some(_) => name,
        None => b"/dev/null".to_vec(),
    };
    let (old, new) = (side(change.old, a), side(change.new, b));
    if lines.binary || lines.too_long {
        let why = if lines.binary { "Binary files" } else { "Long files" };
        text.extend_from_slice(format!("{why} ").as_bytes());
        text.extend_from_slice(&old);
        text.extend_from_slice(b" and ");
        text.extend_from_slice(&new);
        text.extend_from_slice(b" differ\n");
    } else if !lines.text.is_empty() {
        text.extend_from_slice(b"--- ");
        text.extend_from_slice(&old);
        text.extend_from_slice(b"\n+++ ");
        text.extend_from_slice(&new);
        text.push(b'\n');
        text.extend_from_slice(&lines.text);
    }
    text
}

/// A name as git writes it in a patch: in quotes if something in it would be taken for something else.
fn quoted(side: &[u8], path: &[u8]) -> Vec<u8> {
    let odd = |byte: &u8| *byte < 0x20 || *byte >= 0x7f || matches!(*byte, b'"' | b'\\');
    let whole: Vec<u8> = side.iter().chain(path).copied().collect();
    if !whole.iter().any(odd) {
        return whole;
    }
    let mut out = vec![b'"'];
    for byte in whole {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            b'\r' => out.extend(b"\\r"),
            byte if odd(&byte) => out.extend(format!("\\{byte:03o}").bytes()),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
    out
}
