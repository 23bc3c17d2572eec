//! Putting files back: first a plan, then one file after the other, and nothing is lost on the way.
//!
//! Each step says what is expected to stand somewhere and what is to stand there. What is expected is held by a
//! snapshot, so it can be brought back; anything else that is found there stays, and is told as a conflict. A file is
//! replaced by exchanging it with the new one, looked at once more where it came to lie, and only then let go of.
//!
//! The plan is written down before the first step. A crash in the middle leaves it behind, and with it everything that
//! is needed to go on or to go back.

use super::beneath::{
    self, Kind, Root, Stat, c_name, directory_in, file_in, link_in, stat_in, stat_of,
};
use super::pack;
pub use super::plan::{Conflict, Plan, Step, Why};
use super::state::mode_of;
use super::tree::{Held, Mode};
use super::vault::{self, Reader};
use super::walk::Progress;
use crate::limits::STREAMED_FILE_BYTES_LEAST;
use crate::model::ids::ObjectId;
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, RenameFlags};
use rustix::fs::{fchmod, mkdirat, openat, renameat, renameat_with, symlinkat, unlinkat};
use rustix::io::Errno;
use sha1::{Digest, Sha1};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// What came of a plan.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What was changed, in the order of the plan.
    pub done: Vec<Step>,
    /// What was not.
    pub conflicts: Vec<Conflict>,
    /// It was cancelled before its end.
    pub cancelled: bool,
    /// Content somebody wrote in the very moment, that was put aside under this name.
    pub kept: Vec<Vec<u8>>,
}

/// How long a name may be.
const NAME_BYTES_MAX: usize = 255;

/// Whoever carries a plan out.
pub struct Restorer<'a> {
    /// Where.
    pub root: &'a Root,
    /// Where content comes from.
    pub store: &'a Reader,
    /// What files are called while they are written.
    pub name: [u8; 16],
    /// How far it is.
    pub progress: &'a Progress,
    /// Whether a crash may have cut short what was done before: then a file that is empty may be one of ours that
    /// never came to the disk.
    pub again: bool,
}

impl Restorer<'_> {
    /// Carries a plan out. What is as it is to be already, is done. It need not be on disk when this returns: until
    /// it is, the plan is.
    pub fn apply(&self, steps: &[Step]) -> Result<Applied, vault::Error> {
        let mut outcomes: Vec<Option<Result<bool, Why>>> = vec![None; steps.len()];
        let mut parents = Parents::new(self.root);
        let (mut cancelled, mut kept) = (false, Vec::new());
        // What goes, from the inside out.
        for (at, step) in steps.iter().enumerate().rev() {
            if self.progress.cancelled.load(Ordering::Relaxed) {
                cancelled = true;
                break;
            }
            if let Some(from) =
                step.from.filter(|from| !step.to.is_some_and(|to| to.mode.is_like(from.mode)))
            {
                outcomes[at] = self.remove(&mut parents, step, from, &mut kept)?;
            }
        }
        // What comes, from the outside in.
        for (at, step) in steps.iter().enumerate() {
            if cancelled || self.progress.cancelled.load(Ordering::Relaxed) {
                cancelled = true;
                break;
            }
            let Some(to) = step.to else { continue };
            if matches!(outcomes[at], Some(Err(_))) {
                continue;
            }
            let removed = matches!(outcomes[at], Some(Ok(true)));
            let put = self.put(&mut parents, step, to, &mut kept)?;
            outcomes[at] = Some(put.map(|changed| changed || removed));
            self.progress.files.fetch_add(1, Ordering::Relaxed);
        }
        // Who may use a directory is said last: it may not be we.
        for (at, step) in steps.iter().enumerate().rev() {
            if let (Some(to), Some(Ok(_))) =
                (step.to.filter(|to| to.mode.is_directory()), &outcomes[at])
                && let Ok(fd) = self.root.directory(&step.path)
                && stat_of(fd.as_fd())?.permissions as u32 != to.mode.permissions()
            {
                let set = fchmod(&fd, Permissions::from_raw_mode(to.mode.permissions()));
                outcomes[at] = Some(set.map(|()| true).map_err(|_| Why::Forbidden));
            }
        }
        let mut applied = Applied { cancelled, kept, ..Applied::default() };
        for (step, outcome) in steps.iter().zip(outcomes) {
            match outcome {
                Some(Ok(true)) => applied.done.push(step.clone()),
                // It was as it is to be: nothing that could be taken back.
                Some(Ok(false)) => {}
                Some(Err(why)) => applied.conflicts.push(Conflict { path: step.path.clone(), why }),
                None => {}
            }
        }
        Ok(applied)
    }

    /// Takes away what stands somewhere, if it is what was expected.
    fn remove(
        &self,
        parents: &mut Parents<'_>,
        step: &Step,
        from: Held,
        kept: &mut Vec<Vec<u8>>,
    ) -> Result<Option<Result<bool, Why>>, vault::Error> {
        let (parent, name) = match parents.of(&step.path) {
            Ok(found) => found,
            // Nothing can stand there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Some(Ok(false))),
            Err(error) => return Ok(Some(Err(why(error)))),
        };
        if from.mode.is_directory() {
            return Ok(match unlinkat(parent, c_name(name)?, AtFlags::REMOVEDIR) {
                Ok(()) => Some(Ok(true)),
                Err(Errno::NOENT) => Some(Ok(false)),
                // Something else stands there: that is for whoever puts the new one.
                Err(Errno::NOTDIR) => step.to.is_none().then_some(Err(Why::Changed)),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Some(Err(Why::NotEmpty)),
                Err(error) => Some(Err(why(error))),
            });
        }
        let seen = match self.look(parent, name)? {
            Seen::Nothing => return Ok(Some(Ok(false))),
            Seen::Unreadable => return Ok(Some(Err(Why::Unreadable))),
            Seen::Is(held, _) if Some(held) == step.to => return Ok(Some(Ok(false))),
            Seen::Is(held, stat) if held == from => stat,
            Seen::Is(held, _)
                if held.mode.is_directory() && step.to.is_some_and(|to| to.mode.is_directory()) =>
            {
                return Ok(None);
            }
            Seen::Is(..) => return Ok(Some(Err(Why::Changed))),
        };
        let aside = self.aside(&step.path);
        if let Err(error) =
            renameat_with(parent, c_name(name)?, parent, c_name(&aside)?, RenameFlags::NOREPLACE)
        {
            return Ok(Some(Err(why(error))));
        }
        if is_unchanged(parent, &aside, (from, &seen))? {
            unlinkat(parent, c_name(&aside)?, AtFlags::empty())?;
            return Ok(Some(Ok(true)));
        }
        // Somebody was quicker. It goes back to where it was.
        kept.extend(self.give_back(parent, &aside, &step.path)?);
        Ok(Some(Err(Why::Changed)))
    }

    /// Puts what is to stand somewhere.
    fn put(
        &self,
        parents: &mut Parents<'_>,
        step: &Step,
        to: Held,
        kept: &mut Vec<Vec<u8>>,
    ) -> Result<Result<bool, Why>, vault::Error> {
        let (parent, name) = match parents.of(&step.path) {
            Ok(found) => found,
            Err(error) => return Ok(Err(why(error))),
        };
        if to.mode.is_directory() {
            return Ok(match mkdirat(parent, c_name(name)?, Permissions::from_raw_mode(0o755)) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => match stat_in(parent, name)? {
                    Some(stat) if stat.kind == Kind::Directory => {
                        let mode = mode_of(&stat);
                        // One of ours may be new, and not as it is to be yet.
                        let known = mode == to.mode || step.from.is_some_and(|it| it.mode == mode);
                        if known || self.again { Ok(false) } else { Err(Why::Changed) }
                    }
                    _ => Err(Why::Changed),
                },
                Err(error) => Err(why(error)),
            });
        }
        let seen = self.look(parent, name)?;
        // What was to be taken away is gone already.
        let expected = step.from.filter(|from| from.mode.is_like(to.mode));
        let seen = match (seen, expected) {
            (Seen::Is(held, _), _) if held == to => return Ok(Ok(false)),
            (Seen::Unreadable, _) => return Ok(Err(Why::Unreadable)),
            (Seen::Nothing, None) => None,
            (Seen::Is(held, stat), Some(from)) if held == from => Some((held, stat)),
            (Seen::Is(held, stat), _) if self.again && held.mode.is_file() && stat.bytes == 0 => {
                Some((held, stat))
            }
            _ => return Ok(Err(Why::Changed)),
        };
        if let (Some((_, seen)), Some(from)) = (&seen, expected)
            && from.id == to.id
            && to.mode.is_file()
        {
            let set = self.set_mode(parent, name, seen, to.mode)?;
            return Ok(set.map(|()| true));
        }
        let aside = self.aside(&step.path);
        match self.write(parent, &aside, to) {
            Ok(()) => {}
            Err(vault::Error::Io(error)) if is_forbidden(&error) => return Ok(Err(Why::Forbidden)),
            Err(error) => return Err(error),
        }
        let (a, b) = (c_name(&aside)?, c_name(name)?);
        let Some((found, seen)) = seen else {
            return Ok(match renameat_with(parent, &a, parent, &b, RenameFlags::NOREPLACE) {
                Ok(()) => Ok(true),
                Err(Errno::INVAL | Errno::NOSYS) if stat_in(parent, name)?.is_none() => {
                    renameat(parent, &a, parent, &b).map(|()| true).map_err(why)
                }
                Err(error) => {
                    let _ = unlinkat(parent, &a, AtFlags::empty());
                    Err(if error == Errno::EXIST { Why::Changed } else { why(error) })
                }
            });
        };
        match renameat_with(parent, &a, parent, &b, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // A file system that cannot exchange: as short a moment as can be.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let same = stat_in(parent, name)?.is_some_and(|now| is_same_file(&seen, &now));
                if same {
                    return Ok(renameat(parent, &a, parent, &b).map(|()| true).map_err(why));
                }
                let _ = unlinkat(parent, &a, AtFlags::empty());
                return Ok(Err(Why::Changed));
            }
            Err(error) => {
                let _ = unlinkat(parent, &a, AtFlags::empty());
                return Ok(Err(if error == Errno::NOENT { Why::Changed } else { why(error) }));
            }
        }
        if is_unchanged(parent, &aside, (found, &seen))? {
            unlinkat(parent, &a, AtFlags::empty())?;
            return Ok(Ok(true));
        }
        // Somebody has written it in this very moment. Back it goes.
        let exchanged = renameat_with(parent, &a, parent, &b, RenameFlags::EXCHANGE);
        if exchanged.is_err() {
            kept.extend(self.give_back(parent, &aside, &step.path)?);
        } else if held_at(parent, &aside)?.is_some_and(|(held, _)| held == to) {
            unlinkat(parent, &a, AtFlags::empty())?;
        } else {
            // And once more in between: the last one stays where it was written.
            let _ = renameat_with(parent, &a, parent, &b, RenameFlags::EXCHANGE);
            kept.extend(self.give_back(parent, &aside, &step.path)?);
        }
        Ok(Err(Why::Changed))
    }

    /// Puts something back that came to lie aside and is not ours; where something else stands by now, it gets a name
    /// of its own.
    fn give_back(
        &self,
        parent: BorrowedFd<'_>,
        aside: &[u8],
        path: &[u8],
    ) -> Result<Option<Vec<u8>>, vault::Error> {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let name = c_name(&path[directory..])?;
        match renameat_with(parent, c_name(aside)?, parent, name, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(_) => self.keep(parent, aside, path).map(Some),
        }
    }

    /// Gives content nobody holds a name of its own, beside the one it was found under.
    fn keep(
        &self,
        parent: BorrowedFd<'_>,
        aside: &[u8],
        path: &[u8],
    ) -> Result<Vec<u8>, vault::Error> {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at(directory);
        let mut number = 0u32;
        loop {
            let ending = format!(".kept{}{number}", self.prefix());
            let room = NAME_BYTES_MAX - ending.len();
            let own = [&name[..name.len().min(room)], ending.as_bytes()].concat();
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(parent, c_name(aside)?, parent, c_name(&own)?, flags) {
                Ok(()) => return Ok([directory, &own].concat()),
                Err(Errno::EXIST) => number += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set_mode(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        seen: &Stat,
        mode: Mode,
    ) -> Result<Result<(), Why>, vault::Error> {
        let file = match file_in(parent, name) {
            Ok(file) => file,
            Err(error) => return Ok(Err(why(error))),
        };
        let now = stat_of(file.as_fd())?;
        if !is_same_file(seen, &now) {
            return Ok(Err(Why::Changed));
        }
        Ok(fchmod(&file, Permissions::from_raw_mode(mode.permissions())).map_err(why))
    }

    /// Writes a content under a name of ours.
    fn write(&self, parent: BorrowedFd<'_>, aside: &[u8], to: Held) -> Result<(), vault::Error> {
        let name = c_name(aside)?;
        let gone = |error| if error == Errno::NOENT { Ok(()) } else { Err(error) };
        unlinkat(parent, &name, AtFlags::empty()).or_else(gone)?;
        if to.mode.is_link() {
            let target = self.store.read(to.id)?;
            return Ok(symlinkat(c_name(&target)?, parent, &name)?);
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(parent, &name, flags, Permissions::from_raw_mode(0o600))?;
        let mut file = File::from(fd);
        self.store.copy_to(to.id, &mut file)?;
        file.flush()?;
        fchmod(&file, Permissions::from_raw_mode(to.mode.permissions()))?;
        Ok(())
    }

    /// What stands under a name, by its content.
    fn look(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<Seen, vault::Error> {
        Ok(match held_at(parent, name)? {
            Some((held, stat)) => Seen::Is(held, stat),
            None => match stat_in(parent, name) {
                Ok(None) => Seen::Nothing,
                _ => Seen::Unreadable,
            },
        })
    }

    /// What stands at a path is called so while it is moved about.
    fn aside(&self, path: &[u8]) -> Vec<u8> {
        let path = blake3::hash(path);
        let path = data_encoding::HEXLOWER.encode(&path.as_bytes()[..8]);
        format!("{}{path}", self.prefix()).into_bytes()
    }

    fn prefix(&self) -> String {
        format!(".bowline-{}-", data_encoding::HEXLOWER.encode(&self.name[..8]))
    }

    /// Clears what a crash has left lying about. Content nobody holds is given a name of its own and kept.
    pub fn clear(&self, steps: &[Step]) -> Result<Vec<Vec<u8>>, vault::Error> {
        let mut kept = Vec::new();
        let mut parents = Parents::new(self.root);
        for step in steps {
            let Ok((parent, _)) = parents.of(&step.path) else { continue };
            let aside = self.aside(&step.path);
            if stat_in(parent, &aside)?.is_none() {
                continue;
            }
            let known = held_at(parent, &aside)?.is_some_and(|(held, _)| {
                [step.from, step.to].iter().flatten().any(|known| known.id == held.id)
            });
            let mut begun = false;
            for side in [step.from, step.to] {
                begun |= self.is_begun(parent, &aside, side)?;
            }
            if known || begun {
                unlinkat(parent, c_name(&aside)?, AtFlags::empty())?;
            } else {
                kept.push(self.keep(parent, &aside, &step.path)?);
            }
        }
        Ok(kept)
    }

    /// Whether a file is one we had begun to write.
    fn is_begun(
        &self,
        parent: BorrowedFd<'_>,
        aside: &[u8],
        to: Option<Held>,
    ) -> Result<bool, vault::Error> {
        let Some(to) = to.filter(|to| to.mode.is_file()) else { return Ok(false) };
        let mut begun = Vec::new();
        let Ok(file) = file_in(parent, aside) else { return Ok(false) };
        if File::from(file).read_to_end(&mut begun).is_err() {
            return Ok(false);
        }
        let mut whole = Prefix { of: &begun, at: 0, same: true };
        self.store.copy_to(to.id, &mut whole)?;
        Ok(whole.same && whole.at >= begun.len())
    }
}

/// Compares what is written with what is expected to begin like it.
struct Prefix<'a> {
    of: &'a [u8],
    at: usize,
    same: bool,
}

impl Write for Prefix<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.of.get(self.at..).unwrap_or_default();
        let common = rest.len().min(bytes.len());
        self.same &= rest[..common] == bytes[..common];
        self.at += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Seen {
    Nothing,
    Unreadable,
    Is(Held, Stat),
}

/// What stands under a name in a directory, by its content, and what the file system says about it. None if nothing
/// does, or nothing that can be read.
pub fn held_at(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<(Held, Stat)>, vault::Error> {
    // Should it change while it is read, what the file system says will not fit what is found later.
    let Ok(Some(stat)) = stat_in(parent, name) else { return Ok(None) };
    let id = match stat.kind {
        Kind::Special => return Ok(None),
        Kind::Directory => ObjectId([0; 20]),
        Kind::Link => match link_in(parent, name) {
            Ok(target) => pack::name(pack::Kind::Blob, &target)?,
            Err(_) => return Ok(None),
        },
        Kind::File => {
            let Ok(file) = file_in(parent, name) else { return Ok(None) };
            let mut file = File::from(file);
            if !is_same_file(&stat, &stat_of(file.as_fd())?) {
                return Ok(None);
            }
            match content_of(&mut file, stat.bytes) {
                Ok(id) => id?,
                Err(_) => return Ok(None),
            }
        }
    };
    Ok(Some((Held { mode: mode_of(&stat), id }, stat)))
}

fn content_of(file: &mut File, bytes: u64) -> io::Result<Result<ObjectId, git2::Error>> {
    if bytes < STREAMED_FILE_BYTES_LEAST {
        let mut content = Vec::with_capacity(bytes as usize + 1);
        file.take(STREAMED_FILE_BYTES_LEAST * 2).read_to_end(&mut content)?;
        return Ok(pack::name(pack::Kind::Blob, &content));
    }
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {bytes}\0"));
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Ok(ObjectId(hasher.finalize().into()))),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Whether what came to lie under another name is what was seen. What the file system says is not enough: it may have
/// been written again in the same tick of its clock. Reading a long file took longer than that.
fn is_unchanged(
    parent: BorrowedFd<'_>,
    name: &[u8],
    (held, seen): (Held, &Stat),
) -> Result<bool, vault::Error> {
    Ok(stat_in(parent, name)?.is_some_and(|now| is_same_file(seen, &now))
        && (seen.bytes >= STREAMED_FILE_BYTES_LEAST
            || held_at(parent, name)?.is_some_and(|(found, _)| found == held)))
}

/// Whether nothing has happened to a file but that it was given another name.
fn is_same_file(a: &Stat, b: &Stat) -> bool {
    (a.kind, a.device, a.inode, a.bytes, a.modified_ns, a.permissions)
        == (b.kind, b.device, b.inode, b.bytes, b.modified_ns, b.permissions)
}

fn why(error: Errno) -> Why {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => Why::NoDirectory,
        Errno::EXIST => Why::Changed,
        _ => Why::Forbidden,
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The directory the last step was in: the next one is often there, too.
struct Parents<'a> {
    root: &'a Root,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Parents<'a> {
    fn new(root: &'a Root) -> Self {
        Self { root, last: None }
    }

    fn of<'p>(&mut self, path: &'p [u8]) -> Result<(BorrowedFd<'_>, &'p [u8]), Errno> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&[][..], path),
        };
        // What git keeps of a repository is its own affair, and so is everything in it.
        let is_git = path.split(|byte| *byte == b'/').any(|step| step == b".git");
        if is_git || matches!(name, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            self.last = Some((parent.to_vec(), self.root.directory(parent)?));
        }
        match &self.last {
            Some((_, fd)) => Ok((fd.as_fd(), name)),
            None => Err(Errno::NOENT),
        }
    }
}

/// What stands at a path, by its content; of a directory only that it is one. None if nothing does, or nothing that can
/// be read.
pub fn stands_at(root: &Root, path: &[u8]) -> Result<Option<Held>, vault::Error> {
    let mut parents = Parents::new(root);
    match parents.of(path) {
        Ok((parent, name)) => Ok(held_at(parent, name)?.map(|(held, _)| held)),
        Err(_) => Ok(None),
    }
}

/// Reads what stands at a path into the store, however large it is. None if nothing does, or nothing that can be read.
pub fn take(
    root: &Root,
    batch: &vault::Batch,
    path: &[u8],
    progress: &Progress,
) -> Result<Option<Held>, vault::Error> {
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (root.directory(&path[..slash]), &path[slash + 1..]),
        None => (directory_in(root.fd(), b"."), path),
    };
    let Ok(parent) = parent else { return Ok(None) };
    let Ok(Some(stat)) = stat_in(parent.as_fd(), name) else { return Ok(None) };
    Ok(match stat.kind {
        beneath::Kind::Link => match link_in(parent.as_fd(), name) {
            Ok(target) => {
                Some(Held { mode: Mode::LINK, id: batch.put(pack::Kind::Blob, &target)? })
            }
            Err(_) => None,
        },
        beneath::Kind::File => {
            match super::walk::read_file(parent.as_fd(), name, batch, progress)? {
                super::walk::Read_::Taken { stat, id, .. } => {
                    Some(Held { mode: mode_of(&stat), id })
                }
                _ => None,
            }
        }
        _ => None,
    })
}
