//! Where a sandbox lies on disk, and how it gets there.

use super::disk::{exists, gone_is_fine, line, read_line, wipe};
use super::work::present;
use super::{Error, Sandbox, Sandboxes};
use git2::build::CheckoutBuilder;
use git2::{Oid, Repository, RepositoryOpenFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why the entry of a sandbox is locked, as git locks its own, until there is a directory.
pub(super) const BEING_MADE: &[u8] = b"bowline: being made";

/// What is on disk of one.
pub(super) struct Place {
    /// Its entry, with the directory as work tree if that is there.
    pub(super) entry: Option<Repository>,
    pub(super) missing: bool,
    locked: Option<Vec<u8>>,
}

impl Place {
    /// Our own lock only says that nobody finished it.
    pub(super) fn locked_by_others(&self) -> Option<String> {
        let reason = self.locked.as_deref().filter(|reason| *reason != BEING_MADE)?;
        Some(String::from_utf8_lossy(reason).into_owned())
    }

    pub(super) fn refuse_locked(&self) -> Result<(), Error> {
        self.locked_by_others().map_or(Ok(()), |reason| Err(Error::Locked { reason }))
    }
}

impl Sandboxes {
    /// Makes what is not there of a claimed sandbox; never undoes anything of what is.
    pub(super) fn complete(&self, repo: &Repository, name: &str, start: Oid) -> Result<(), Error> {
        let place = self.place(name)?;
        let branch = branch_ref(name);
        if present(repo.find_reference(&branch))?.is_none() {
            repo.reference(&branch, start, false, "bowline: sandbox")?;
        }
        if place.entry.is_none() {
            self.refuse_in_use(name)?;
            let new = self.new_entry(name);
            wipe(&new)?;
            fs::create_dir_all(&new)?;
            fs::write(new.join("HEAD"), format!("ref: {branch}\n"))?;
            fs::write(new.join("commondir"), "../..\n")?;
            fs::write(new.join("gitdir"), line(b"", &self.directory(name).join(".git")))?;
            fs::write(new.join("locked"), BEING_MADE)?;
            fs::create_dir_all(self.common.join("worktrees"))?;
            fs::rename(new, self.entry(name))?;
        }
        if place.missing {
            // Somebody may have locked it because it lies on a disk that is away.
            place.refuse_locked()?;
            self.fill(name)?;
        }
        let lock = self.entry(name).join("locked");
        if read_line(&lock)?.as_deref() == Some(BEING_MADE) {
            fs::remove_file(lock)?;
        }
        Ok(())
    }

    /// Makes the directory of what is staged, which at first is what is committed.
    fn fill(&self, name: &str) -> Result<(), Error> {
        let (new, entry) = (self.new_directory(name), self.entry(name));
        wipe(&new)?;
        fs::create_dir(&new)?;
        fs::write(new.join(".git"), line(b"gitdir: ", &entry))?;
        if read_line(&entry.join("locked"))?.as_deref() == Some(BEING_MADE) {
            // Nobody but us was ever there.
            gone_is_fine(fs::remove_file(entry.join("index.lock")))?;
        }
        let repo = open_entry(&entry)?;
        repo.set_workdir(&new, false)?;
        let mut index = repo.index()?;
        if !exists(&entry.join("index"))? {
            index.read_tree(&repo.head()?.peel_to_tree()?)?;
            index.write()?;
        }
        repo.checkout_index(Some(&mut index), Some(CheckoutBuilder::new().force()))?;
        Ok(fs::rename(new, self.directory(name))?)
    }

    /// What is there, provided entry and directory name each other: what lies inside a sandbox is not ours to
    /// believe.
    pub(super) fn place(&self, name: &str) -> Result<Place, Error> {
        let (directory, entry) = (self.directory(name), self.entry(name));
        let registered = match read_line(&entry.join("gitdir"))? {
            Some(link) => {
                let linked = entry.join(OsStr::from_bytes(&link));
                let linked = linked.parent().unwrap_or(&linked);
                let home = linked.parent().and_then(|home| fs::canonicalize(home).ok());
                if home.as_ref() != Some(&self.home) || linked.file_name() != directory.file_name()
                {
                    return Err(Error::NotOurs(linked.to_owned()));
                }
                true
            }
            None if exists(&entry)? => return Err(Error::NotOurs(entry)),
            None => false,
        };
        let missing = !exists(&directory)?;
        if !missing {
            let link = if fs::symlink_metadata(&directory)?.is_dir() {
                read_line(&directory.join(".git"))?
            } else {
                None
            };
            let linked = link.as_deref().and_then(|link| link.strip_prefix(b"gitdir: "));
            let linked = linked.map(|link| directory.join(OsStr::from_bytes(link)));
            let back = linked.and_then(|linked| fs::canonicalize(linked).ok());
            if !registered || back != fs::canonicalize(&entry).ok() {
                return Err(Error::NotOurs(directory));
            }
        }
        let repo = if registered { Some(open_entry(&entry)?) } else { None };
        if let (Some(repo), false) = (&repo, missing) {
            repo.set_workdir(&directory, false)?;
        }
        Ok(Place { entry: repo, missing, locked: read_line(&entry.join("locked"))? })
    }

    pub(super) fn refuse_in_use(&self, name: &str) -> Result<(), Error> {
        let head = format!("ref: {}", branch_ref(name));
        let mut git_dirs = vec![self.common.clone()];
        if exists(&self.common.join("worktrees"))? {
            for entry in fs::read_dir(self.common.join("worktrees"))? {
                git_dirs.push(entry?.path());
            }
        }
        git_dirs.retain(|git_dir| *git_dir != self.entry(name));
        for git_dir in git_dirs {
            if read_line(&git_dir.join("HEAD"))?.as_deref() == Some(head.as_bytes()) {
                return Err(Error::InUse(branch_name(name)));
            }
        }
        Ok(())
    }

    /// Our turn to change something, until it is dropped.
    pub(super) fn turn(&self) -> Result<File, Error> {
        fs::create_dir_all(self.own())?;
        let file = File::options().create(true).append(true).open(self.own().join("lock"))?;
        file.lock()?;
        Ok(file)
    }

    pub(super) fn open(&self) -> Result<Repository, Error> {
        let flags = RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT;
        Ok(Repository::open_ext(&self.git_dir, flags, NOWHERE)?)
    }

    pub(super) fn sandbox(&self, name: String, start: Oid, missing: bool) -> Sandbox {
        let (branch, directory) = (branch_name(&name), self.directory(&name));
        Sandbox { name, branch, directory, start, missing }
    }

    pub(super) fn directory(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(super) fn new_directory(&self, name: &str) -> PathBuf {
        self.home.join(format!(".{name}.new"))
    }

    pub(super) fn entry(&self, name: &str) -> PathBuf {
        self.common.join(format!("worktrees/bowline-{name}"))
    }

    /// Beside the entries, on the same file system: what is not whole must not look like one to git.
    pub(super) fn own(&self) -> PathBuf {
        self.common.join("bowline")
    }

    pub(super) fn new_entry(&self, name: &str) -> PathBuf {
        self.own().join(format!("{name}.new"))
    }
}

/// Without a work tree: neither the entry nor `core.worktree` says where that is, we do.
fn open_entry(entry: &Path) -> Result<Repository, Error> {
    Ok(Repository::open_bare(entry)?)
}

/// Where not to look for repositories.
pub(super) const NOWHERE: [&str; 0] = [];

pub(super) fn branch_name(name: &str) -> String {
    format!("bowline/{name}")
}

pub(super) fn branch_ref(name: &str) -> String {
    format!("refs/heads/bowline/{name}")
}
