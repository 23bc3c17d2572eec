//! Calls about files: names of calls, paths, and what is wanted of them.

use super::session::head_of;
use super::{Malformed, Read, chosen};
use crate::limits::{DIRECTORY_BYTES_MAX, PATCHES_MAX, PATHS_PAGE_MAX};
use crate::model::ids::{ObjectId, SnapshotId, WorktreeId};
use crate::model::worktree::{CallName, NameMalformed};
use crate::ops::SetHead;
use crate::snapshot::tree::{Held, Mode};
use crate::wire::root_capnp::project;
use crate::wire::session_capnp::session;
use crate::wire::worktree_capnp::{file_stamp, snapshot, worktree};
use crate::worktrees::Patch;

pub(in crate::rpc) fn call_name(
    name: Read<capnp::data::Reader<'_>>,
) -> Result<CallName, Malformed> {
    let name = name?;
    let bytes = name.len();
    let name = name.try_into().map_err(|_| Malformed::Name(NameMalformed { bytes }))?;
    Ok(CallName(name))
}

pub(in crate::rpc) fn snapshot_id(
    text: Read<capnp::text::Reader<'_>>,
) -> Result<SnapshotId, Malformed> {
    Ok(SnapshotId::parse(text?.to_str()?)?)
}

pub(in crate::rpc) fn worktree_id(
    text: Read<capnp::text::Reader<'_>>,
) -> Result<WorktreeId, Malformed> {
    Ok(WorktreeId::parse(text?.to_str()?)?)
}

/// A path beneath a work tree, as it stands in lists that were told.
pub(in crate::rpc) fn path(bytes: Read<capnp::data::Reader<'_>>) -> Result<Vec<u8>, Malformed> {
    let bytes = bytes?;
    let plain = |step: &[u8]| !matches!(step, b"" | b"." | b".." | b".git");
    let fine = !bytes.is_empty()
        && bytes.len() <= DIRECTORY_BYTES_MAX
        && !bytes.contains(&0)
        && bytes.split(|byte| *byte == b'/').all(plain);
    match fine {
        true => Ok(bytes.to_vec()),
        false => {
            Err(Malformed::Path(String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into()))
        }
    }
}

fn paths(list: Read<capnp::data_list::Reader<'_>>) -> Result<Paths, Malformed> {
    let list = list?;
    match list.len() as usize <= PATHS_PAGE_MAX {
        true => list.iter().map(path).collect(),
        false => Err(Malformed::TooManyPaths),
    }
}

/// Where a page begins: behind any path, or at the beginning.
pub(in crate::rpc) fn after(bytes: Read<capnp::data::Reader<'_>>) -> Result<Vec<u8>, Malformed> {
    let bytes = bytes?;
    match bytes.len() <= DIRECTORY_BYTES_MAX * 2 {
        true => Ok(bytes.to_vec()),
        false => Err(Malformed::Path("a page begins behind a path".into())),
    }
}

/// Paths, as they are sent.
type Paths = Vec<Vec<u8>>;
/// A path, and what was seen there.
type Stamp = (Vec<u8>, Option<Held>);

/// `Worktree.restore`: the call, the snapshot, the paths, and whether what is new stays.
pub(in crate::rpc) fn restore(
    params: Read<worktree::restore_params::Reader<'_>>,
) -> Result<(CallName, SnapshotId, Paths, bool), Malformed> {
    let params = params?;
    let wish = params.get_wish()?;
    let paths = paths(wish.get_paths())?;
    let id = snapshot_id(params.get_snapshot())?;
    Ok((call_name(params.get_name())?, id, paths, wish.get_keep_new()))
}

/// `Worktree.revert`: the call, what is to be undone, and what by force.
pub(in crate::rpc) fn revert(
    params: Read<worktree::revert_params::Reader<'_>>,
) -> Result<(CallName, Vec<Patch>, Paths), Malformed> {
    let params = params?;
    let mut patches = Vec::new();
    let asked = params.get_patches()?;
    if asked.len() > PATCHES_MAX {
        return Err(Malformed::TooManyPaths);
    }
    for patch in asked {
        patches.push(Patch {
            from: snapshot_id(patch.get_from())?,
            to: snapshot_id(patch.get_to())?,
            paths: paths(patch.get_paths())?,
        });
    }
    Ok((call_name(params.get_name())?, patches, paths(params.get_force())?))
}

/// `Session.revert`: the call, where the conversation is to end, and what is put back by force.
pub(in crate::rpc) fn revert_session(
    params: Read<session::revert_params::Reader<'_>>,
) -> Result<(CallName, SetHead, Paths), Malformed> {
    let params = params?;
    let head = head_of(params.get_head()?)?.map_err(Malformed::Op)?;
    Ok((call_name(params.get_name())?, head, paths(params.get_force())?))
}

/// A page of paths: behind which, and how many.
pub(in crate::rpc) fn files(
    params: Read<snapshot::files_params::Reader<'_>>,
) -> Result<(Vec<u8>, u32), Malformed> {
    let params = params?;
    Ok((after(params.get_after())?, params.get_limit()))
}

/// The snapshot something is compared with, if not the one before.
pub(in crate::rpc) fn since(
    text: Read<capnp::text::Reader<'_>>,
) -> Result<Option<SnapshotId>, Malformed> {
    Ok(chosen(text?.to_str()?, SnapshotId::parse)?)
}

/// `Worktree.stamp`.
pub(in crate::rpc) fn stamp(
    params: Read<worktree::stamp_params::Reader<'_>>,
) -> Result<Paths, Malformed> {
    let paths = paths(params?.get_paths())?;
    match paths.len() <= PATHS_PAGE_MAX {
        true => Ok(paths),
        false => Err(Malformed::TooManyPaths),
    }
}

/// `Worktree.assertUnchanged`.
pub(in crate::rpc) fn stamps(
    params: Read<worktree::assert_unchanged_params::Reader<'_>>,
) -> Result<Vec<Stamp>, Malformed> {
    let stamps = params?.get_stamps()?;
    if stamps.len() as usize > PATHS_PAGE_MAX {
        return Err(Malformed::TooManyPaths);
    }
    stamps.iter().map(one_stamp).collect()
}

fn one_stamp(stamp: file_stamp::Reader<'_>) -> Result<Stamp, Malformed> {
    let path = path(stamp.get_path())?;
    if stamp.get_mode() == 0 {
        return Ok((path, None));
    }
    let mode = Mode::from_number(stamp.get_mode());
    let mode = mode.ok_or_else(|| Malformed::Path("a stamp has an unknown mode".into()))?;
    let id = match stamp.get_hash()? {
        [] => [0; 20],
        hash => hash.try_into().map_err(|_| Malformed::Path("a stamp's hash".into()))?,
    };
    Ok((path, Some(Held { mode, id: ObjectId(id) })))
}

/// `Project.createSandbox`: the call, the name, and what it begins at.
pub(in crate::rpc) fn create_sandbox(
    params: Read<project::create_sandbox_params::Reader<'_>>,
) -> Result<(CallName, String, Option<String>), Malformed> {
    let params = params?;
    let name = params.get_sandbox()?.to_str()?.to_owned();
    Ok((call_name(params.get_name())?, name, revision(params.get_from())?))
}

/// A commit, if one is named.
pub(in crate::rpc) fn revision(
    text: Read<capnp::text::Reader<'_>>,
) -> Result<Option<String>, Malformed> {
    Ok(Some(text?.to_str()?.to_owned()).filter(|text| !text.is_empty()))
}
