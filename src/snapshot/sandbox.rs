//! Isolated sandboxes for agents: linked work trees of a person's repository that never discard work in silence.
//!
//! A sandbox is a branch `bowline/<name>`, a directory `<home>/<name>` and an entry `bowline-<name>` among
//! the repository's work trees, as git itself makes them. A ref `refs/bowline/sandboxes/<name>` claims the
//! name before anything else is made and goes last: it points to a tag that holds the operation and the commit
//! the sandbox began at, and keeps that commit from being collected. Commits that would be lost stay under
//! `refs/bowline/discarded/`.
//!
//! No command runs: neither git nor a hook, filter, monitor or textconv the repository names. What a filter
//! would have made of a file (git-lfs) stays as it is stored. Submodules are not checked out.
//!
//! Every step leaves what a repeat can tell apart: directories are filled or deleted under another name and
//! renamed. That holds against a kill; against a loss of power as far as the file system keeps renames in
//! order. Changes of one repository take turns by a lock the kernel drops with its process. Nobody guards
//! against a process that swaps directories inside a sandbox while it is reset.

use git2::{BranchType, ErrorCode, Oid, Repository, RepositoryOpenFlags, Signature, Time};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

mod disk;
mod place;
mod work;

use disk::{exists, gone_is_fine, wipe};
use place::{NOWHERE, branch_name, branch_ref};
use work::{
    changes, check_out, commit_at, differing, keep, present, refuse, remove_untracked, submodules,
    tips, unmerged,
};

/// Longest name: it is a step of a path and of a ref, with a few letters around it.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest token of an operation.
pub const OP_BYTES_MAX: usize = 256;

const RECORDS: &str = "refs/bowline/sandboxes/";

/// Why it cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No repository there or above.
    #[error("the directory is in no git repository")]
    NotGit,
    /// Nothing to make another one of.
    #[error("the repository is bare: it has no work tree")]
    Bare,
    /// Nothing to begin at.
    #[error("the repository has no commit yet")]
    Unborn,
    /// Nothing left of it that a path and a ref can carry.
    #[error("{0:?} has neither a letter a-z nor a digit")]
    BadName(String),
    /// An operation nobody can tell from others.
    #[error("the operation is {bytes} bytes long; 1 to {OP_BYTES_MAX} are accepted")]
    BadOp {
        /// Its length.
        bytes: usize,
    },
    /// The name, its branch, directory or entry is somebody else's.
    #[error("there is a sandbox, branch or directory {0:?} already")]
    Exists(String),
    /// Nobody made it, or it was removed.
    #[error("there is no sandbox {0:?}")]
    NotFound(String),
    /// The place is not this sandbox's: we leave it to a person.
    #[error(
        "{0:?} is not the registered directory of this sandbox; move it away or mend it with `git worktree repair`"
    )]
    NotOurs(PathBuf),
    /// Commits nothing else holds would go.
    #[error("{commits} commits are on no other branch, remote or tag")]
    Unmerged {
        /// How many.
        commits: usize,
    },
    /// Work nobody committed would go.
    #[error("{files} files hold changes that are not committed")]
    Uncommitted {
        /// How many.
        files: usize,
    },
    /// Somebody keeps it as it is.
    #[error("it is locked: {reason}")]
    Locked {
        /// What they say.
        reason: String,
    },
    /// Its branch is the one somebody works on.
    #[error("branch {0:?} is checked out in another work tree")]
    InUse(String),
    /// Not a commit here.
    #[error("{0:?} names no commit")]
    UnknownRevision(String),
    /// Git said no.
    #[error("git: {0}")]
    Git(git2::Error),
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<git2::Error> for Error {
    fn from(error: git2::Error) -> Self {
        match error.code() {
            ErrorCode::Locked => Error::Locked { reason: error.message().to_owned() },
            _ => Error::Git(error),
        }
    }
}

/// The sandboxes of one repository in one home.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    /// Whose HEAD counts: the work tree's we were shown.
    git_dir: PathBuf,
    /// What all work trees share.
    common: PathBuf,
    home: PathBuf,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// What it is called here.
    pub name: String,
    /// The branch it was made with.
    pub branch: String,
    /// Where it is.
    pub directory: PathBuf,
    /// The commit it began at.
    pub start: Oid,
    /// The directory is gone, or something else is in its place.
    pub missing: bool,
}

/// How one stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The branch that is checked out; none if HEAD is detached.
    pub branch: Option<String>,
    /// The commit that is checked out; none before the first.
    pub head: Option<Oid>,
    /// The commit it began at.
    pub start: Oid,
    /// Commits of its branch or HEAD that no other branch, remote or tag holds.
    pub unmerged: usize,
    /// Files modified, staged, in conflict or untracked; ignored ones do not count.
    pub uncommitted: usize,
    /// The directory is gone; what is staged still counts.
    pub missing: bool,
    /// Why somebody locked it.
    pub locked: Option<String>,
}

/// Commits that were kept although their sandbox was reset or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The ref that holds them.
    pub reference: String,
    /// The last of them.
    pub commit: Oid,
}

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Whether there was anything to remove.
    pub existed: bool,
    /// What holds the commits that were nowhere else.
    pub kept: Vec<Kept>,
}

/// What a claim says.
struct Record {
    op: String,
    start: Oid,
}

/// The name a sandbox gets: a-z, 0-9 and single dashes between; none if nothing is left.
pub fn slug(name: &str) -> Option<String> {
    let mut slug = String::new();
    for c in name.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => slug.push(c),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
        if slug.len() == NAME_BYTES_MAX {
            break;
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    (!slug.is_empty()).then_some(slug)
}

impl Sandboxes {
    /// What all work trees of the repository share: where refs and entries are written.
    pub fn repository(&self) -> &Path {
        &self.common
    }

    /// Those of the repository `repository` is in, which may itself be a linked work tree. `home` is the
    /// server's own, one for each repository, and made if it is not there; links in it are resolved now.
    pub fn new(repository: &Path, home: &Path) -> Result<Self, Error> {
        let opened = Repository::open_ext(repository, RepositoryOpenFlags::empty(), NOWHERE);
        let repo = match opened {
            Ok(repo) => repo,
            Err(error) if error.code() == ErrorCode::NotFound => return Err(Error::NotGit),
            Err(error) => return Err(error.into()),
        };
        if repo.is_bare() {
            return Err(Error::Bare);
        }
        fs::create_dir_all(home)?;
        let common = fs::canonicalize(repo.commondir())?;
        Ok(Self { git_dir: repo.path().to_owned(), common, home: fs::canonicalize(home)? })
    }

    /// A sandbox at the commit `from` names, or at HEAD, checked out on return. The name is [`slug`]ged first.
    ///
    /// `op` is the caller's own: the same again finds its sandbox and completes what is missing of it, its
    /// directory included; another is told that it exists. After an error, repeat or [`remove`](Self::remove).
    pub fn create(&self, name: &str, from: Option<&str>, op: &str) -> Result<Sandbox, Error> {
        let name = slug(name).ok_or_else(|| Error::BadName(name.to_owned()))?;
        if op.is_empty() || op.len() > OP_BYTES_MAX {
            return Err(Error::BadOp { bytes: op.len() });
        }
        let op = op.escape_default().to_string();
        let _turn = self.turn()?;
        let repo = self.open()?;
        let start = match self.record(&repo, &name)? {
            Some(record) if record.op == op => record.start,
            Some(_) => return Err(Error::Exists(name)),
            None => self.claim(&repo, &name, from, &op)?,
        };
        self.complete(&repo, &name, start)?;
        Ok(self.sandbox(name, start, false))
    }

    /// Those made here, by name.
    pub fn list(&self) -> Result<Vec<Sandbox>, Error> {
        let repo = self.open()?;
        let mut found = Vec::new();
        for reference in repo.references_glob(&format!("{RECORDS}*"))? {
            let reference = reference?;
            let Some(name) = reference.name()?.strip_prefix(RECORDS) else { continue };
            let Some(record) = self.record(&repo, name)? else { continue };
            let missing = match self.place(name) {
                Ok(place) => place.missing,
                Err(Error::NotOurs(path)) if path == self.directory(name) => true,
                // It is in another home.
                Err(Error::NotOurs(_)) => continue,
                Err(error) => return Err(error),
            };
            found.push(self.sandbox(name.to_owned(), record.start, missing));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// How one stands. Waits for nobody, so what is being made or removed may be told half done.
    pub fn state(&self, name: &str) -> Result<State, Error> {
        let repo = self.open()?;
        let Some(record) = self.record(&repo, name)? else {
            return Err(Error::NotFound(name.to_owned()));
        };
        let place = self.place(name)?;
        let tips = tips(&repo, name, &place)?;
        let head = match &place.entry {
            Some(entry) => entry.find_reference("HEAD")?.symbolic_target()?.map(ToOwned::to_owned),
            None => Some(branch_ref(name)),
        };
        Ok(State {
            branch: head.map(|head| head.strip_prefix("refs/heads/").unwrap_or(&head).to_owned()),
            head: match &place.entry {
                Some(entry) => entry.refname_to_id("HEAD").ok(),
                None => tips.first().copied(),
            },
            start: record.start,
            unmerged: unmerged(&repo, name, &tips, &[])?,
            uncommitted: match &place.entry {
                Some(entry) => changes(entry)?.len(),
                None => 0,
            },
            missing: place.missing,
            locked: place.locked_by_others(),
        })
    }

    /// Puts one back to the commit `to` names inside it, or to the one it began at, on its own branch and
    /// without untracked files; what it has lost of itself is completed. Ignored files stay, and without
    /// `discard` are not written over either; nested repositories stay.
    ///
    /// Without `discard` it refuses to drop commits or changes; what already is as wanted does not count, so
    /// that a repeat completes. With it, commits nothing else holds are kept, and told; changes are not: the
    /// caller has taken a snapshot.
    pub fn reset(&self, name: &str, to: Option<&str>, discard: bool) -> Result<Vec<Kept>, Error> {
        let _turn = self.turn()?;
        let repo = self.open()?;
        let Some(record) = self.record(&repo, name)? else {
            return Err(Error::NotFound(name.to_owned()));
        };
        self.place(name)?.refuse_locked()?;
        self.complete(&repo, name, record.start)?;
        let place = self.place(name)?;
        let Some(inside) = &place.entry else { return Err(Error::NotFound(name.to_owned())) };
        let target = match to {
            Some(_) => commit_at(inside, to)?,
            None => inside.find_commit(record.start)?,
        };
        let tree = target.tree()?;

        let branch = branch_ref(name);
        // Read before anything else of it: what is committed meanwhile makes the last step fail.
        let old = inside.refname_to_id(&branch)?;
        let tips = tips(&repo, name, &place)?;
        let commits = unmerged(&repo, name, &tips, &[target.id()])?;
        let changed = changes(inside)?;
        if !discard {
            refuse(commits, differing(inside, &tree, &changed)?)?;
        }
        let kept = keep(&repo, name, &tips, &[target.id()])?;

        if discard {
            remove_untracked(&self.directory(name), &changed)?;
        }
        check_out(inside, &target, discard)?;
        let mut index = inside.index()?;
        index.read_tree(&tree)?;
        index.write()?;
        // Last: until here the branch still tells where it was.
        inside.reference_matching(&branch, target.id(), true, old, "bowline: reset")?;
        inside.set_head(&branch)?;
        inside.cleanup_state()?;
        Ok(kept)
    }

    /// Takes one away: directory, entry, branch, claim. A name nobody claimed is no error, so it can be
    /// repeated; a repeat after a crash may find less to tell of.
    ///
    /// Without `discard` it refuses to drop commits, changes or submodules somebody checked out in it; ignored
    /// files go. With it, commits nothing else holds are kept, and told.
    pub fn remove(&self, name: &str, discard: bool) -> Result<Removed, Error> {
        let _turn = self.turn()?;
        let repo = self.open()?;
        if self.record(&repo, name)?.is_none() {
            return Ok(Removed::default());
        }
        let place = self.place(name)?;
        place.refuse_locked()?;
        self.refuse_in_use(name)?;
        // Held from here: what is committed on it meanwhile makes its deletion fail.
        let branch = present(repo.find_branch(&branch_name(name), BranchType::Local))?;
        let tips = tips(&repo, name, &place)?;
        if !discard {
            let files = match &place.entry {
                Some(entry) => changes(entry)?.len() + submodules(entry)?,
                None => 0,
            };
            refuse(unmerged(&repo, name, &tips, &[])?, files)?;
        }
        let kept = keep(&repo, name, &tips, &[])?;

        // Renamed first, so that what is half deleted is never taken for somebody's changes.
        for (path, gone) in [
            (self.directory(name), self.home.join(format!(".{name}.gone"))),
            (self.entry(name), self.own().join(format!("{name}.gone"))),
        ] {
            wipe(&gone)?;
            gone_is_fine(fs::rename(path, &gone))?;
            wipe(&gone)?;
        }
        wipe(&self.new_directory(name))?;
        wipe(&self.new_entry(name))?;
        if let Some(mut branch) = branch {
            branch.delete()?;
        }
        repo.find_reference(&format!("{RECORDS}{name}"))?.delete()?;
        Ok(Removed { existed: true, kept })
    }

    /// Claims the name and makes the branch. What fails here leaves nothing.
    fn claim(
        &self,
        repo: &Repository,
        name: &str,
        from: Option<&str>,
        op: &str,
    ) -> Result<Oid, Error> {
        let start = commit_at(repo, from)?;
        let taken = present(repo.find_reference(&branch_ref(name)))?.is_some()
            || exists(&self.directory(name))?
            || exists(&self.entry(name))?;
        if taken {
            return Err(Error::Exists(name.to_owned()));
        }
        let nobody = Signature::new("bowline", "bowline@localhost", &Time::new(0, 0))?;
        let tag =
            repo.tag_annotation_create(name, start.as_object(), &nobody, &format!("{op}\n"))?;
        let mut record = repo.reference(&format!("{RECORDS}{name}"), tag, false, "")?;
        if let Err(error) = repo.branch(&branch_name(name), &start, false) {
            record.delete()?;
            let taken = error.code() == ErrorCode::Exists;
            return Err(if taken { Error::Exists(name.to_owned()) } else { error.into() });
        }
        Ok(start.id())
    }

    fn record(&self, repo: &Repository, name: &str) -> Result<Option<Record>, Error> {
        if slug(name).as_deref() != Some(name) {
            return Ok(None);
        }
        let Some(reference) = present(repo.find_reference(&format!("{RECORDS}{name}")))? else {
            return Ok(None);
        };
        let tag = reference.peel_to_tag()?;
        let op = String::from_utf8_lossy(tag.message_bytes().unwrap_or_default());
        Ok(Some(Record { op: op.trim_end_matches('\n').to_owned(), start: tag.target_id() }))
    }
}

#[cfg(test)]
mod tests;
