//! The work in a sandbox: what would be lost, what keeps it, and how another commit takes its place.

use super::disk::{exists, gone_is_fine};
use super::place::{Place, branch_ref};
use super::{Error, Kept};
use git2::build::CheckoutBuilder;
use git2::{
    CheckoutNotificationType, Commit, Diff, DiffOptions, ErrorCode, Oid, ReferenceType, Repository,
    Status, StatusOptions, Tree,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DISCARDED: &str = "refs/bowline/discarded/";
/// Digits of a commit in the ref that keeps it.
const SHORT_DIGITS: usize = 12;

pub(super) fn refuse(commits: usize, files: usize) -> Result<(), Error> {
    match (commits, files) {
        (0, 0) => Ok(()),
        (0, files) => Err(Error::Uncommitted { files }),
        (commits, _) => Err(Error::Unmerged { commits }),
    }
}

pub(super) fn commit_at<'r>(
    repo: &'r Repository,
    revision: Option<&str>,
) -> Result<Commit<'r>, Error> {
    match revision {
        Some(text) => repo
            .revparse_single(text)
            .and_then(|object| object.peel_to_commit())
            .map_err(|_| Error::UnknownRevision(text.to_owned())),
        None => match repo.head() {
            Ok(head) => Ok(head.peel_to_commit()?),
            Err(error) if error.code() == ErrorCode::UnbornBranch => Err(Error::Unborn),
            Err(error) => Err(error.into()),
        },
    }
}

/// The commits that go with a sandbox: where its HEAD is, detached or not, and where its branch is.
pub(super) fn tips(repo: &Repository, name: &str, place: &Place) -> Result<Vec<Oid>, Error> {
    let head = match &place.entry {
        Some(entry) => match entry.head() {
            Ok(head) => Some(head.peel_to_commit()?.id()),
            Err(error) if error.code() == ErrorCode::UnbornBranch => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let branch = present(repo.refname_to_id(&branch_ref(name)))?;
    Ok(head.into_iter().chain(branch.filter(|tip| Some(*tip) != head)).collect())
}

/// How many commits only these tips hold. Neither the claims nor what was kept counts as holding.
pub(super) fn unmerged(
    repo: &Repository,
    name: &str,
    tips: &[Oid],
    holding: &[Oid],
) -> Result<usize, Error> {
    let mut walk = repo.revwalk()?;
    for tip in tips {
        walk.push(*tip)?;
    }
    for commit in holding {
        walk.hide(*commit)?;
    }
    let own = branch_ref(name);
    for reference in repo.references()? {
        let reference = reference?;
        let at = reference.name_bytes();
        let holds = ["refs/heads/", "refs/remotes/", "refs/tags/"];
        let holds = holds.iter().any(|prefix| at.starts_with(prefix.as_bytes()));
        // A symbolic one is only another name, maybe of our own.
        let direct = reference.kind() == Some(ReferenceType::Direct);
        if holds
            && direct
            && at != own.as_bytes()
            && let Ok(commit) = reference.peel_to_commit()
        {
            walk.hide(commit.id())?;
        }
    }
    Ok(walk.try_fold(0, |count, commit| commit.map(|_| count + 1))?)
}

/// Keeps what only these tips hold.
pub(super) fn keep(
    repo: &Repository,
    name: &str,
    tips: &[Oid],
    holding: &[Oid],
) -> Result<Vec<Kept>, Error> {
    let (mut kept, mut holding) = (Vec::new(), holding.to_vec());
    for tip in tips {
        if unmerged(repo, name, &[*tip], &holding)? == 0 {
            continue;
        }
        let reference = format!("{DISCARDED}{name}-{tip:.SHORT_DIGITS$}");
        match repo.reference(&reference, *tip, false, "") {
            Err(error) if repo.refname_to_id(&reference).ok() != Some(*tip) => {
                return Err(error.into());
            }
            _ => {}
        }
        holding.push(*tip);
        kept.push(Kept { reference, commit: *tip });
    }
    Ok(kept)
}

/// What is not committed, ignored files aside. Without a directory, what is staged.
pub(super) fn changes(entry: &Repository) -> Result<Vec<(Vec<u8>, Status)>, Error> {
    if entry.workdir().is_none() {
        if !exists(&entry.path().join("index"))? {
            return Ok(Vec::new());
        }
        let head = present(entry.head())?.map(|head| head.peel_to_tree()).transpose()?;
        let staged = paths(&entry.diff_tree_to_index(head.as_ref(), None, None)?);
        return Ok(staged.into_iter().map(|path| (path, Status::INDEX_MODIFIED)).collect());
    }
    let mut options = StatusOptions::new();
    options.include_untracked(true).recurse_untracked_dirs(true).include_ignored(false);
    let statuses = entry.statuses(Some(&mut options))?;
    Ok(statuses.iter().map(|file| (file.path_bytes().to_vec(), file.status())).collect())
}

/// Submodules somebody checked out: their commits lie in the entry and go with it.
pub(super) fn submodules(entry: &Repository) -> Result<usize, Error> {
    let modules = entry.path().join("modules");
    Ok(if exists(&modules)? { fs::read_dir(modules)?.count() } else { 0 })
}

/// How many of these changes are not what the tree has in their place already.
pub(super) fn differing(
    inside: &Repository,
    tree: &Tree<'_>,
    changed: &[(Vec<u8>, Status)],
) -> Result<usize, Error> {
    if changed.is_empty() {
        return Ok(0);
    }
    let mut options = DiffOptions::new();
    options.include_untracked(true).recurse_untracked_dirs(true).disable_pathspec_match(true);
    for (path, _) in changed {
        options.pathspec(path.as_slice());
    }
    let on_disk = paths(&inside.diff_tree_to_workdir(Some(tree), Some(&mut options))?);
    let staged = paths(&inside.diff_tree_to_index(Some(tree), None, Some(&mut options))?);
    let in_index = Status::INDEX_NEW | Status::INDEX_MODIFIED | Status::INDEX_TYPECHANGE;
    let differs = |(path, status): &&(Vec<u8>, Status)| {
        on_disk.contains(path)
            || status.is_conflicted()
            || status.intersects(in_index) && staged.contains(path)
    };
    Ok(changed.iter().filter(differs).count())
}

fn paths(diff: &Diff<'_>) -> HashSet<Vec<u8>> {
    let files = diff.deltas().flat_map(|delta| [delta.old_file(), delta.new_file()]);
    files.filter_map(|file| file.path_bytes().map(<[u8]>::to_vec)).collect()
}

/// One by one: libgit2 would take ignored files of the same directory along. What ends in a slash is a
/// repository of its own.
pub(super) fn remove_untracked(
    directory: &Path,
    changed: &[(Vec<u8>, Status)],
) -> Result<(), Error> {
    for (path, _) in changed.iter().filter(|(path, s)| s.is_wt_new() && !path.ends_with(b"/")) {
        let file = directory.join(OsStr::from_bytes(path));
        gone_is_fine(fs::remove_file(&file))?;
        let parents = file.ancestors().skip(1).take_while(|parent| *parent != directory);
        for parent in parents {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn check_out(
    inside: &Repository,
    target: &Commit<'_>,
    discard: bool,
) -> Result<(), Error> {
    let mut in_the_way = 0;
    let mut checkout = CheckoutBuilder::new();
    checkout.force().overwrite_ignored(discard).notify_on(CheckoutNotificationType::CONFLICT);
    checkout.notify(|_, _, _, _, _| {
        in_the_way += 1;
        true
    });
    let done = inside.checkout_tree(target.as_object(), Some(&mut checkout));
    drop(checkout);
    match done {
        // Found before anything was written.
        Err(error) if error.code() == ErrorCode::Conflict => {
            Err(Error::Uncommitted { files: in_the_way })
        }
        done => Ok(done?),
    }
}

pub(super) fn present<T>(found: Result<T, git2::Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::UnbornBranch) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
