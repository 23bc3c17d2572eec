//! Looking through a work tree: what has changed is read, the rest is taken from what is known.
//!
//! Each directory is opened in the one above it, and what is in it is looked at there, so nobody can lead the walk out
//! of the tree by moving things about. Bytes are taken as they are: no filter, attribute or line ending changes them.

use super::beneath::{self, Kind, Stat, directory_in, file_in, link_in, stat_in, stat_of};
use super::pack;
use super::rules::Rules;
use super::state::{Child, Dir, Node, Skipped, State};
use super::tree::{self, Held};
use super::vault::{self, Batch};
use super::watch::Watch;
use crate::limits::{RULES_FILE_BYTES_MAX, STREAMED_FILE_BYTES_LEAST, WORKTREE_DEPTH_MAX};
use crate::model::ids::ObjectId;
use rayon::prelude::*;
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Why a work tree could not be looked through.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Vault(#[from] vault::Error),
    /// The work tree itself.
    #[error("the worktree cannot be read: {0}")]
    Unreadable(Errno),
    /// Somebody has had enough.
    #[error("it was cancelled")]
    Cancelled,
    /// There is more than is looked at.
    #[error(
        "the worktree has more than {most} files; ignore some of them, or raise `worktree_files_max`"
    )]
    TooMany {
        /// How many are.
        most: u64,
    },
}

/// What is taken, and how.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Larger files are left out, unless they are wanted.
    pub file_bytes_max: u64,
    /// How many files there may be.
    pub files_max: u64,
    /// Directories that are never looked into, by device and number: the server's own.
    pub own: Vec<(u64, u64)>,
    /// What the time is, in nanoseconds since 1970.
    pub now_ns: fn() -> i64,
}

/// How far a walk is, and whether it is to go on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files that were looked at.
    pub files: AtomicU64,
    /// Bytes that were read.
    pub bytes: AtomicU64,
    /// Somebody has had enough.
    pub cancelled: AtomicBool,
}

/// One walk.
pub struct Walk<'a> {
    /// Where what is read goes.
    pub batch: &'a Batch,
    /// What is taken.
    pub policy: &'a Policy,
    /// Who is told where something happens from now on.
    pub watch: Option<&'a Watch>,
    /// How far it is.
    pub progress: &'a Progress,
    /// Whether to look at everything, or only where something is known to have happened.
    pub full: bool,
}

/// The rules that stand in no directory of the work tree.
#[derive(Debug, Default)]
pub struct OuterRules {
    /// The user's own, for all repositories.
    pub global: Option<Vec<u8>>,
    /// The repository's, that are not part of it.
    pub exclude: Option<Vec<u8>>,
}

impl OuterRules {
    fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for rules in [&self.global, &self.exclude] {
            let bytes = rules.as_deref().unwrap_or_default();
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
        *hasher.finalize().as_bytes()
    }
}

/// A directory on the way down. The rules are only read where a name has to be decided about.
struct Level<'a> {
    above: Option<&'a Level<'a>>,
    outer: &'a OuterRules,
    fd: BorrowedFd<'a>,
    path: &'a [u8],
    rules: OnceLock<Arc<Rules>>,
}

impl Level<'_> {
    fn rules(&self) -> &Arc<Rules> {
        self.rules.get_or_init(|| {
            let own = read_rules(self.fd);
            match self.above {
                Some(above) => {
                    let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                    above.rules().below(name, own.as_deref())
                }
                None => {
                    let (global, exclude) = (&self.outer.global, &self.outer.exclude);
                    Rules::top(global.as_deref(), exclude.as_deref(), own.as_deref())
                }
            }
        })
    }
}

const RULES_FILE: &[u8] = b".gitignore";
const REPOSITORY: &[u8] = b".git";

fn read_rules(directory: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let file = File::from(file_in(directory, RULES_FILE).ok()?);
    if stat_of(file.as_fd()).ok()?.kind != Kind::File {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(RULES_FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Brings what is known of a work tree up to date. Whether anything had changed.
pub fn walk(
    walk: &Walk<'_>,
    top: BorrowedFd<'_>,
    outer: &OuterRules,
    state: &mut State,
) -> Result<bool, Error> {
    let hash = outer.hash();
    let forced = state.outer_rules != hash;
    state.outer_rules = hash;
    // Opened anew: whoever shares the descriptor shares how far it was read.
    let fd = directory_in(top, b".").map_err(Error::Unreadable)?;
    let level = Level { above: None, outer, fd: fd.as_fd(), path: b"", rules: OnceLock::new() };
    walk.visit(&level, &mut state.top, 0, forced)
}

/// What is known before the first walk.
pub fn unknown(top: BorrowedFd<'_>) -> Result<State, Error> {
    let stat = stat_of(top).map_err(Error::Unreadable)?;
    Ok(State { outer_rules: [0; 32], top: Dir::unknown(stat) })
}

/// What became of something that was looked at.
enum Look {
    Same,
    Changed(Node),
    Gone,
}

/// How often a directory is looked at in which things move about.
const LOOKS_MAX: usize = 3;

/// In directories with more names than this, several threads look at them.
const PARALLEL_LEAST: usize = 128;

impl Walk<'_> {
    fn visit(
        &self,
        level: &Level<'_>,
        dir: &mut Dir,
        depth: usize,
        forced: bool,
    ) -> Result<bool, Error> {
        if !is_the_one(&stat_of(level.fd).map_err(Error::Unreadable)?, dir) {
            (dir.dirty, dir.watched) = (true, false);
        }
        // And one of the same number, too.
        dir.watched &= !dir.dirty;
        if !(self.full || forced || dir.dirty || dir.below) {
            return Ok(false);
        }
        if self.progress.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if let Some(watch) = self.watch.filter(|_| !dir.watched) {
            dir.watched = watch.add(level.fd, level.path);
        }
        let here = self.full || forced || dir.dirty;
        let mut changed = dir.id.is_none();
        // What moves about while it is looked at is looked at again.
        for _ in 0..LOOKS_MAX {
            let mut forced_below = forced;
            if here {
                let (decided, names_changed) = self.here(level, dir, depth, forced)?;
                (forced_below, changed) = (decided, changed || names_changed);
            }
            let looked = self.children(level, dir, depth, here, forced_below)?;
            changed |= looked.changed;
            if !looked.gone {
                break;
            }
            dir.settled = false;
        }
        if changed {
            dir.id = Some(self.put(dir)?);
        }
        if here || changed {
            dir.sum();
        }
        (dir.dirty, dir.below) = (false, false);
        Ok(changed)
    }

    /// Looks at a directory itself. Whether everything beneath has to be decided about anew, and whether it
    /// changed.
    fn here(
        &self,
        level: &Level<'_>,
        dir: &mut Dir,
        depth: usize,
        forced: bool,
    ) -> Result<(bool, bool), Error> {
        let seen_ns = (self.policy.now_ns)();
        let stat = stat_of(level.fd).map_err(Error::Unreadable)?;
        let same = dir.settled && stat == dir.stat && !forced;
        let rules = match (same, dir.rules) {
            (true, None) => None,
            _ => stat_in(level.fd, RULES_FILE)
                .unwrap_or_default()
                .filter(|stat| stat.kind == Kind::File),
        };
        let rules_same = rules == dir.rules && rules.is_none_or(|rules| rules.is_settled(seen_ns));
        let mut changed = false;
        if !(same && rules_same) {
            changed |= self.names(level, dir, stat.device, depth)?;
            changed |= stat.permissions != dir.stat.permissions;
            dir.settled = stat.is_settled(seen_ns);
        }
        (dir.stat, dir.rules) = (stat, rules);
        Ok((forced || !rules_same, changed))
    }

    /// Reads which names there are, and decides which are taken. Whether that changed.
    fn names(
        &self,
        level: &Level<'_>,
        dir: &mut Dir,
        device: u64,
        depth: usize,
    ) -> Result<bool, Error> {
        let mut names = read_names(level.fd).map_err(Error::Unreadable)?;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut old = std::mem::take(&mut dir.children).into_iter().peekable();
        let mut changed = false;
        let mut children = Vec::with_capacity(names.len());
        for (name, kind) in names {
            while old
                .next_if(|child| child.name < name)
                .is_some_and(|gone| gone.node.held().is_some())
            {
                changed = true;
            }
            let known = old.next_if(|child| child.name == name).map(|child| child.node);
            let stat = match kind {
                // What it is says the name; what it is like is seen when it is looked at.
                Some(kind) => Stat { kind, ..NOTHING },
                None => match stat_in(level.fd, &name) {
                    Ok(Some(stat)) => stat,
                    Ok(None) => continue,
                    Err(_) => NOTHING,
                },
            };
            let skip = self.skip(level, &name, stat.kind, device, depth);
            let was = known.as_ref().and_then(Node::held);
            let node = match (skip, known) {
                (Some(why), known) => {
                    let stat = match known {
                        Some(Node::Skipped(_, stat) | Node::Leaf { stat, .. }) => stat,
                        _ => stat_in(level.fd, &name).ok().flatten().unwrap_or(stat),
                    };
                    Node::Skipped(why, stat)
                }
                (None, Some(Node::Dir(known))) if stat.kind == Kind::Directory => Node::Dir(known),
                (None, Some(known @ Node::Leaf { .. })) if stat.kind != Kind::Directory => known,
                (None, _) if stat.kind == Kind::Directory => {
                    Node::Dir(Box::new(Dir::unknown(stat)))
                }
                // Looked at next.
                (None, _) => Node::Skipped(Skipped::Unreadable, NOTHING),
            };
            changed |= was.is_some() && node.held().is_none();
            children.push(Child { name, node });
        }
        changed |= old.any(|gone| gone.node.held().is_some());
        dir.children = children;
        Ok(changed)
    }

    /// Why something is not taken whatever is in it.
    fn skip(
        &self,
        level: &Level<'_>,
        name: &[u8],
        kind: Kind,
        device: u64,
        depth: usize,
    ) -> Option<Skipped> {
        if name == REPOSITORY {
            return Some(Skipped::Repository);
        }
        if kind == Kind::Special {
            return Some(Skipped::Special);
        }
        if kind == Kind::Directory {
            if depth + 1 >= WORKTREE_DEPTH_MAX {
                return Some(Skipped::TooDeep);
            }
            if self.policy.own.iter().any(|(own, _)| *own == device)
                && let Ok(Some(stat)) = stat_in(level.fd, name)
                && self.policy.own.contains(&(stat.device, stat.inode))
            {
                return Some(Skipped::Own);
            }
        }
        level.rules().ignores(name, kind == Kind::Directory).then_some(Skipped::Ignored)
    }

    /// Looks at what is in a directory.
    fn children(
        &self,
        level: &Level<'_>,
        dir: &mut Dir,
        depth: usize,
        here: bool,
        forced: bool,
    ) -> Result<Looked, Error> {
        let look = |child: &mut Child| self.child(level, child, depth, here, forced);
        let looked = match dir.children.len() {
            0 => Looked::default(),
            // Going down a tree whose directories have few entries is work for several threads, too.
            1 => look(&mut dir.children[0])?,
            few if few < PARALLEL_LEAST && !dir.children.iter().any(is_directory) => {
                let mut all = Looked::default();
                for child in &mut dir.children {
                    all = all.and(look(child)?);
                }
                all
            }
            _ => dir
                .children
                .par_iter_mut()
                .with_min_len(if here { 16 } else { PARALLEL_LEAST })
                .map(look)
                .try_reduce(Looked::default, |a, b| Ok(a.and(b)))?,
        };
        if looked.gone {
            dir.children
                .retain(|child| !matches!(&child.node, Node::Skipped(_, stat) if *stat == GONE));
        }
        Ok(looked)
    }

    fn child(
        &self,
        level: &Level<'_>,
        child: &mut Child,
        depth: usize,
        here: bool,
        forced: bool,
    ) -> Result<Looked, Error> {
        let held = child.node.held();
        let look = match &mut child.node {
            Node::Skipped(Skipped::Unreadable, stat) if here && stat.kind == Kind::Directory => {
                match directory_in(level.fd, &child.name) {
                    Ok(_) => Look::Gone,
                    Err(_) => Look::Same,
                }
            }
            Node::Skipped(Skipped::TooLarge | Skipped::Unreadable, stat) if here => {
                let before = *stat;
                self.leaf(level, &child.name, Some((before, None)))?
            }
            Node::Skipped(..) => Look::Same,
            Node::Leaf { stat, id, settled } if here => {
                let known = settled.then_some(*id);
                self.leaf(level, &child.name, Some((*stat, known)))?
            }
            Node::Leaf { .. } => Look::Same,
            Node::Dir(dir) if self.is_due(level, &child.name, dir, here, forced) => {
                match directory_in(level.fd, &child.name) {
                    Ok(fd) => return self.descend(level, &child.name, fd, dir, depth, forced),
                    Err(Errno::ACCESS | Errno::PERM) => {
                        Look::Changed(Node::Skipped(Skipped::Unreadable, dir.stat))
                    }
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Look::Gone,
                    Err(error) => return Err(Error::Unreadable(error)),
                }
            }
            Node::Dir(_) => Look::Same,
        };
        let gone = matches!(look, Look::Gone);
        match look {
            Look::Same => return Ok(Looked::default()),
            Look::Changed(node) => child.node = node,
            Look::Gone => child.node = Node::Skipped(Skipped::Unreadable, GONE),
        }
        Ok(Looked { changed: child.node.held() != held, gone })
    }

    /// Whether a directory has to be looked into.
    fn is_due(&self, level: &Level<'_>, name: &[u8], dir: &Dir, here: bool, forced: bool) -> bool {
        // Nobody says so where one that is known goes away and another one comes in its place.
        let is_another = || {
            let found = stat_in(level.fd, name).ok().flatten();
            !found.is_some_and(|found| is_the_one(&found, dir))
        };
        self.full || forced || dir.dirty || dir.below || here && is_another()
    }

    fn descend(
        &self,
        level: &Level<'_>,
        name: &[u8],
        fd: OwnedFd,
        dir: &mut Dir,
        depth: usize,
        forced: bool,
    ) -> Result<Looked, Error> {
        let mut path = Vec::with_capacity(level.path.len() + 1 + name.len());
        path.extend_from_slice(level.path);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let (above, outer) = (Some(level), level.outer);
        let level = Level { above, outer, fd: fd.as_fd(), path: &path, rules: OnceLock::new() };
        let changed = self.visit(&level, dir, depth + 1, forced)?;
        Ok(Looked { changed, gone: false })
    }

    /// Looks at a file or a link, and reads it if it may have changed since it was known.
    fn leaf(
        &self,
        level: &Level<'_>,
        name: &[u8],
        known: Option<(Stat, Option<ObjectId>)>,
    ) -> Result<Look, Error> {
        if self.progress.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let looked = self.progress.files.fetch_add(1, Ordering::Relaxed);
        if looked >= self.policy.files_max {
            return Err(Error::TooMany { most: self.policy.files_max });
        }
        let seen_ns = (self.policy.now_ns)();
        let stat = match stat_in(level.fd, name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(Look::Gone),
            Err(_) => return Ok(Look::Changed(Node::Skipped(Skipped::Unreadable, NOTHING))),
        };
        if let Some((before, Some(_))) = known
            && before == stat
        {
            return Ok(Look::Same);
        }
        let taken = match stat.kind {
            // It was none when the names were read; the next look will see it.
            Kind::Directory => return Ok(Look::Gone),
            Kind::Special => Err(Skipped::Special),
            Kind::File if stat.bytes > self.policy.file_bytes_max => Err(Skipped::TooLarge),
            Kind::Link => match link_in(level.fd, name) {
                Ok(target) => Ok((stat, self.batch.put(pack::Kind::Blob, &target)?, false)),
                Err(Errno::NOENT) => return Ok(Look::Gone),
                Err(_) => Err(Skipped::Unreadable),
            },
            Kind::File => match read_file(level.fd, name, self.batch, self.progress)? {
                Read_::Taken { stat, id, steady } => Ok((stat, id, !steady)),
                Read_::Gone => return Ok(Look::Gone),
                Read_::Unreadable => Err(Skipped::Unreadable),
            },
        };
        Ok(Look::Changed(match taken {
            Ok((stat, id, restless)) => {
                Node::Leaf { stat, id, settled: !restless && stat.is_settled(seen_ns) }
            }
            Err(why) => Node::Skipped(why, stat),
        }))
    }

    /// Writes down what a directory holds.
    fn put(&self, dir: &Dir) -> Result<ObjectId, Error> {
        let mut items: Vec<(&[u8], Held)> = dir
            .children
            .iter()
            .filter_map(|child| Some((&*child.name, child.node.held()?)))
            .collect();
        items.sort_unstable_by(|(a, a_held), (b, b_held)| {
            tree::order(a, a_held.mode.is_directory(), b, b_held.mode.is_directory())
        });
        Ok(self.batch.put_tree(items.into_iter())?)
    }
}

fn is_the_one(found: &Stat, dir: &Dir) -> bool {
    (found.device, found.inode) == (dir.stat.device, dir.stat.inode)
}

fn is_directory(child: &Child) -> bool {
    matches!(child.node, Node::Dir(_))
}

/// What a look at several things came to.
#[derive(Debug, Default, Clone, Copy)]
struct Looked {
    changed: bool,
    gone: bool,
}

impl Looked {
    fn and(self, other: Self) -> Self {
        Self { changed: self.changed || other.changed, gone: self.gone || other.gone }
    }
}

/// Of what was not looked at yet.
const NOTHING: Stat = Stat {
    kind: Kind::Special,
    permissions: 0,
    device: 0,
    inode: 0,
    bytes: 0,
    modified_ns: 0,
    changed_ns: 0,
};

/// Of what is not there any more, until it is taken out.
const GONE: Stat = Stat { changed_ns: i64::MIN, ..NOTHING };

/// What came of reading a file.
pub(super) enum Read_ {
    /// Its content. `steady`: it did not change meanwhile.
    Taken {
        /// As it was when it was read.
        stat: Stat,
        /// Its content.
        id: ObjectId,
        /// Whether it did not change meanwhile.
        steady: bool,
    },
    /// It is not there.
    Gone,
    /// It may not be read, or is no file.
    Unreadable,
}

/// How often a file that changes while it is read is read again.
const READS_MAX: usize = 4;

/// Reads a file into the store, whatever its size. One that goes on changing is taken as it was found the last time.
pub(super) fn read_file(
    directory: BorrowedFd<'_>,
    name: &[u8],
    batch: &Batch,
    progress: &Progress,
) -> Result<Read_, vault::Error> {
    let mut last = Read_::Gone;
    for _ in 0..READS_MAX {
        let mut file = match file_in(directory, name) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Read_::Gone),
            Err(_) => return Ok(Read_::Unreadable),
        };
        let before = stat_of(file.as_fd())?;
        if before.kind != Kind::File {
            return Ok(Read_::Unreadable);
        }
        let id = if before.bytes >= STREAMED_FILE_BYTES_LEAST {
            match batch.vault().stream_in(before.bytes, &mut file) {
                Ok(Some(id)) => id,
                Ok(None) => continue,
                Err(vault::Error::Io(error)) if is_about_reading(&error) => {
                    return Ok(Read_::Unreadable);
                }
                Err(error) => return Err(error),
            }
        } else {
            let mut bytes = Vec::with_capacity(before.bytes as usize + 1);
            // One that grows without end is not waited for.
            let most = before.bytes.saturating_mul(2).max(STREAMED_FILE_BYTES_LEAST);
            if (&mut file).take(most).read_to_end(&mut bytes).is_err() {
                return Ok(Read_::Unreadable);
            }
            progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            batch.put(pack::Kind::Blob, &bytes)?
        };
        let after = stat_of(file.as_fd())?;
        let steady = after == before;
        last = Read_::Taken { stat: after, id, steady };
        if steady {
            break;
        }
    }
    Ok(last)
}

fn is_about_reading(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::IO | Errno::ACCESS))
}

const NAMES_BYTES: usize = 32 << 10;

type Name = (Box<[u8]>, Option<Kind>);

fn read_names(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<Name>> {
    let mut names = Vec::new();
    // Whoever looked before may have read some of them.
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = vec![MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            // Taken away while we look: there is nothing in it any more.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                kind => Some(beneath::Kind::from(kind)),
            };
            names.push((name.into(), kind));
        }
    }
    Ok(names)
}
