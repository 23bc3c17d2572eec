//! What was found in a work tree the last time, so that only what has changed is read again.

use super::beneath::{Kind, Stat};
use super::tree::{Held, Mode};
use super::vault::{self, Vault, write_whole};
use crate::model::ids::ObjectId;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A directory as it was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dir {
    /// What it is.
    pub stat: Stat,
    /// Whether its names are known for as long as that does not change.
    pub settled: bool,
    /// Its own ignore rules, as they were when the names were looked at.
    pub rules: Option<Stat>,
    /// What it holds; none while that is not known.
    pub id: Option<ObjectId>,
    /// By name.
    pub children: Vec<Child>,
    /// Of itself and all beneath.
    pub totals: Totals,
    /// Something happened to it since.
    #[serde(skip)]
    pub dirty: bool,
    /// Something happened beneath it since.
    #[serde(skip)]
    pub below: bool,
    /// Whether anybody would say so.
    #[serde(skip)]
    pub watched: bool,
}

/// Something in a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Child {
    /// Its name.
    pub name: Box<[u8]>,
    /// What it is.
    pub node: Node,
}

/// What stands under a name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Node {
    /// A file or a link, and its content.
    Leaf {
        /// What the file system says.
        stat: Stat,
        /// Its content.
        id: ObjectId,
        /// Whether that is its content for as long as `stat` does not change.
        settled: bool,
    },
    /// A directory.
    Dir(Box<Dir>),
    /// Something that is not taken.
    Skipped(Skipped, Stat),
}

/// Why something was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Skipped {
    /// A rule says so.
    Ignored,
    /// It is larger than what is taken unasked.
    TooLarge,
    /// It may not be read.
    Unreadable,
    /// A socket, a pipe, a device.
    Special,
    /// What git keeps of a repository: its files are taken, its history is its own affair.
    Repository,
    /// Nested deeper than is looked at.
    TooDeep,
    /// The server's own data.
    Own,
}

impl Skipped {
    /// Every reason.
    pub const ALL: [Skipped; 7] = [
        Skipped::Ignored,
        Skipped::TooLarge,
        Skipped::Unreadable,
        Skipped::Special,
        Skipped::Repository,
        Skipped::TooDeep,
        Skipped::Own,
    ];
}

/// What there is in a directory and beneath.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files and links that are taken.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// How long the files are, together.
    pub bytes: u64,
    /// What is not taken, by reason.
    pub skipped: [u64; Skipped::ALL.len()],
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
        self.skipped.iter_mut().zip(other.skipped).for_each(|(sum, more)| *sum += more);
    }

    /// How many things are not taken.
    pub fn all_skipped(&self) -> u64 {
        self.skipped.iter().sum()
    }
}

impl Node {
    /// What a snapshot holds of it.
    pub fn held(&self) -> Option<Held> {
        match self {
            Node::Leaf { stat, id, .. } => Some(Held { mode: mode_of(stat), id: *id }),
            Node::Dir(dir) => Some(Held { mode: mode_of(&dir.stat), id: dir.id? }),
            Node::Skipped(..) => None,
        }
    }
}

/// How a snapshot says what something is.
pub fn mode_of(stat: &Stat) -> Mode {
    match stat.kind {
        Kind::Directory => Mode::directory(stat.permissions.into()),
        Kind::Link => Mode::LINK,
        Kind::File | Kind::Special => Mode::file(stat.permissions.into()),
    }
}

impl Dir {
    /// One of which nothing is known but that it is there.
    pub fn unknown(stat: Stat) -> Self {
        Self {
            stat,
            settled: false,
            rules: None,
            id: None,
            children: Vec::new(),
            totals: Totals::default(),
            dirty: true,
            below: false,
            watched: false,
        }
    }

    /// What stands under a name.
    pub fn child(&self, name: &[u8]) -> Option<&Node> {
        let at = self.children.binary_search_by(|child| (*child.name).cmp(name)).ok()?;
        Some(&self.children[at].node)
    }

    fn child_mut(&mut self, name: &[u8]) -> Option<&mut Node> {
        let at = self.children.binary_search_by(|child| (*child.name).cmp(name)).ok()?;
        Some(&mut self.children[at].node)
    }

    /// What stands at a path.
    pub fn at(&self, path: &[u8]) -> Option<&Node> {
        match path.iter().position(|byte| *byte == b'/') {
            None => self.child(path),
            Some(slash) => match self.child(&path[..slash])? {
                Node::Dir(dir) => dir.at(&path[slash + 1..]),
                _ => None,
            },
        }
    }

    /// Something happened in a directory; the nearest one that is known will be looked at.
    pub fn touch(&mut self, path: &[u8]) {
        if path.is_empty() {
            self.dirty = true;
            return;
        }
        self.below = true;
        let (first, rest) = match path.iter().position(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (path, &[][..]),
        };
        match self.child_mut(first) {
            Some(Node::Dir(dir)) => dir.touch(rest),
            _ => self.dirty = true,
        }
    }

    /// Nobody watches anything of it any more.
    pub fn unwatch(&mut self) {
        self.watched = false;
        for child in &mut self.children {
            if let Node::Dir(dir) = &mut child.node {
                dir.unwatch();
            }
        }
    }

    /// Sums up what is in it.
    pub fn sum(&mut self) {
        let mut totals = Totals { directories: 1, ..Totals::default() };
        for child in &self.children {
            match &child.node {
                Node::Leaf { stat, .. } => {
                    totals.files += 1;
                    totals.bytes += if stat.kind == Kind::File { stat.bytes } else { 0 };
                }
                Node::Dir(dir) => totals.add(&dir.totals),
                Node::Skipped(why, _) => totals.skipped[*why as usize] += 1,
            }
        }
        self.totals = totals;
    }

    /// What is not taken, in order, from behind a path on; a number of them.
    pub fn skipped(&self, after: &[u8], most: usize) -> Vec<(Vec<u8>, Skipped, u64)> {
        let mut found = Vec::new();
        self.collect_skipped(&mut Vec::new(), after, most, &mut found);
        found
    }

    fn collect_skipped(
        &self,
        path: &mut Vec<u8>,
        after: &[u8],
        most: usize,
        found: &mut Vec<(Vec<u8>, Skipped, u64)>,
    ) {
        if self.totals.all_skipped() == 0 {
            return;
        }
        for child in &self.children {
            if found.len() >= most {
                return;
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&child.name);
            match &child.node {
                Node::Skipped(why, stat) if by_steps(path, after).is_gt() => {
                    found.push((path.clone(), *why, stat.bytes));
                }
                Node::Dir(dir) => dir.collect_skipped(path, after, most, found),
                _ => {}
            }
            path.truncate(length);
        }
    }
}

/// The order paths have when directories are gone through by name.
pub fn by_steps(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/'))
}

/// What is known about a work tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// The rules that stand in no directory of it, by their hash.
    pub outer_rules: [u8; 32],
    /// Its top.
    pub top: Dir,
}

/// The file's format; another one is not read, and the work tree is looked at as if for the first time.
const MAGIC: &[u8; 8] = b"bowlst1\n";

impl State {
    /// Keeps it over a restart.
    pub fn save(&self, path: &Path) -> Result<(), vault::Error> {
        let body = postcard::to_stdvec(self)
            .map_err(|error| vault::Error::Damaged(format!("what is known: {error}")))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.extend_from_slice(&body);
        Ok(write_whole(path, &bytes)?)
    }

    /// What was kept, if it can still be believed: it must be whole, and what it speaks of be in the store.
    pub fn load(path: &Path, vault: &Vault) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let (hash, body) = bytes.strip_prefix(MAGIC.as_slice())?.split_at_checked(32)?;
        if blake3::hash(body).as_bytes() != hash {
            return None;
        }
        let state: Self = postcard::from_bytes(body).ok()?;
        vault.contains(&state.top.id?).then_some(state)
    }
}
