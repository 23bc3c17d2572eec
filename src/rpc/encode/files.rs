//! Work trees and snapshots, as they are told.

use crate::model::caveats::Caveats;
use crate::model::worktree::{Occasion, SnapshotInfo, WorktreeInfo};
use crate::snapshot::diff::Change;
use crate::snapshot::restore::{Conflict, Why};
use crate::snapshot::sandbox::{Kept, Sandbox, State};
use crate::snapshot::state::Skipped;
use crate::snapshot::tree::Held;
use crate::wire::worktree_capnp::{
    ConflictReason, FileStatus, Occasion as Told, SkipReason, conflict, file_change, file_entry,
    file_stamp, kept_commit, move_report, sandbox_info, skipped_file, snapshot_info, worktree_info,
};
use crate::worktrees::{Report, Told as ToldChange};

pub(in crate::rpc) fn worktree_info(
    info: &WorktreeInfo,
    project_id: &str,
    store_bytes: u64,
    mut to: worktree_info::Builder<'_>,
) {
    to.set_id(info.key.id.as_str());
    to.set_project_id(project_id);
    to.set_directory(info.directory.as_str());
    to.set_sandbox(info.sandbox.as_deref().unwrap_or_default());
    to.set_opened_at_ms(info.opened_at_ms);
    to.set_snapshots(info.snapshots);
    to.set_bytes(info.bytes);
    to.set_store_bytes(store_bytes);
    to.set_number(info.key.log.0.unsigned_abs());
}

pub(in crate::rpc) fn snapshot_info(
    info: &SnapshotInfo,
    worktree_id: &str,
    mut to: snapshot_info::Builder<'_>,
) {
    let snapshot = &info.snapshot;
    to.set_id(snapshot.key.id.as_str());
    to.set_number(info.number.0);
    to.set_taken_at_ms(info.taken_at_ms);
    to.set_hash(snapshot.tree.to_string());
    to.set_worktree_id(worktree_id);
    to.set_occasion(match snapshot.occasion {
        Occasion::Asked => Told::Asked,
        Occasion::Step => Told::Step,
        Occasion::TurnEnd => Told::TurnEnd,
    });
    to.set_session_id(info.session.as_ref().map_or("", |id| id.as_str()));
    to.set_files(snapshot.files);
    to.set_bytes(snapshot.bytes);
    to.set_stored_bytes(snapshot.stored_bytes);
    to.set_at_work(u32::try_from(snapshot.actors.len()).unwrap_or(u32::MAX));
    let counted: Vec<_> =
        Skipped::ALL.into_iter().zip(&snapshot.skipped).filter(|(_, count)| **count > 0).collect();
    let mut list = to.init_skipped(counted.len() as u32);
    for (at, (reason, count)) in (0..).zip(counted) {
        let mut to = list.reborrow().get(at);
        to.set_reason(skip_reason(reason));
        to.set_count(*count);
    }
}

fn skip_reason(reason: Skipped) -> SkipReason {
    match reason {
        Skipped::Ignored => SkipReason::Ignored,
        Skipped::TooLarge => SkipReason::TooLarge,
        Skipped::Unreadable => SkipReason::Unreadable,
        Skipped::Special => SkipReason::Special,
        Skipped::Repository => SkipReason::Repository,
        Skipped::TooDeep => SkipReason::TooDeep,
        Skipped::Own => SkipReason::Own,
    }
}

pub(in crate::rpc) fn skipped(
    (path, reason, bytes): &(Vec<u8>, Skipped, u64),
    mut to: skipped_file::Builder<'_>,
) {
    to.set_path(path);
    to.set_reason(skip_reason(*reason));
    to.set_bytes(*bytes);
}

pub(in crate::rpc) fn report(report: &Report, caveats: &Caveats, mut to: move_report::Builder<'_>) {
    to.set_done(report.done);
    to.set_conflict_count(report.conflict_count);
    // A repeat may come from somebody who may see less.
    let seen = |conflict: &&Conflict| caveats.allows_path(&conflict.path);
    let conflicts: Vec<_> = report.conflicts.iter().filter(seen).collect();
    let mut list = to.init_conflicts(conflicts.len() as u32);
    for (at, conflict) in (0..).zip(conflicts) {
        one_conflict(conflict, list.reborrow().get(at));
    }
}

fn one_conflict(conflict: &Conflict, mut to: conflict::Builder<'_>) {
    to.set_path(&conflict.path);
    to.set_reason(match conflict.why {
        Why::Changed => ConflictReason::Changed,
        Why::Unreadable => ConflictReason::Unreadable,
        Why::NotEmpty => ConflictReason::NotEmpty,
        Why::NoDirectory => ConflictReason::NoDirectory,
        Why::Forbidden => ConflictReason::Forbidden,
        Why::Shared => ConflictReason::Shared,
        Why::NotTaken => ConflictReason::NotTaken,
    });
}

pub(in crate::rpc) fn changes(
    told: &[ToldChange],
    mut to: capnp::struct_list::Builder<'_, file_change::Owned>,
) {
    for (at, told) in (0..).zip(told) {
        change(told, to.reborrow().get(at));
    }
}

fn change(told: &ToldChange, mut to: file_change::Builder<'_>) {
    let Change { path, old, new } = &told.change;
    to.set_path(path);
    to.set_status(match (old, new) {
        (None, _) => FileStatus::Added,
        (_, None) => FileStatus::Deleted,
        _ => FileStatus::Modified,
    });
    to.set_old_mode(old.map_or(0, |held| held.mode.number()));
    to.set_new_mode(new.map_or(0, |held| held.mode.number()));
    to.set_directory(!told.change.is_about_content());
    to.set_additions(told.lines.additions);
    to.set_deletions(told.lines.deletions);
    to.set_binary(told.lines.binary);
    to.set_too_long(told.lines.too_long);
    to.set_patch(&told.lines.text);
}

pub(in crate::rpc) fn file_entry((path, held): &(Vec<u8>, Held), mut to: file_entry::Builder<'_>) {
    to.set_path(path);
    to.set_mode(held.mode.number());
    to.set_hash(&held.id.0);
}

pub(in crate::rpc) fn stamp(path: &[u8], held: Option<Held>, mut to: file_stamp::Builder<'_>) {
    to.set_path(path);
    if let Some(held) = held {
        to.set_mode(held.mode.number());
        if !held.mode.is_directory() {
            to.set_hash(&held.id.0);
        }
    }
}

pub(in crate::rpc) fn sandbox(sandbox: &Sandbox, state: &State, mut to: sandbox_info::Builder<'_>) {
    to.set_name(sandbox.name.as_str());
    to.set_branch(sandbox.branch.as_str());
    to.set_directory(sandbox.directory.display().to_string());
    to.set_start(state.start.to_string());
    to.set_head(state.head.map(|head| head.to_string()).unwrap_or_default());
    to.set_unmerged(state.unmerged as u64);
    to.set_uncommitted(state.uncommitted as u64);
    to.set_missing(state.missing);
}

pub(in crate::rpc) fn kept(kept: &Kept, mut to: kept_commit::Builder<'_>) {
    to.set_reference(kept.reference.as_str());
    to.set_commit(kept.commit.to_string());
}
