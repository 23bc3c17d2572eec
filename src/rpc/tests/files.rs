//! Methods about files, and the right each needs.

use super::{Claim, Engine, Held, Limits, LogId, Readers, Right, SystemClock, Try, sent};
use crate::clock::Clock;
use crate::model::ids::{SnapshotId, WorktreeId};
use crate::model::worktree::{SnapshotKey, WorktreeKey};
use crate::wire::worktree_capnp::{snapshot, worktree};
use crate::worktrees::{Setting, Worktrees};
use capnp::capability::Promise;
use std::path::Path;
use std::sync::Arc;

/// Work trees that may lie nowhere.
pub(super) fn worktrees(data: &Path, engine: &Engine, readers: &Readers) -> Worktrees {
    let (data, roots, watching) = (data.to_owned(), Vec::new(), false);
    let setting = Setting { data, roots, watching, limits: Limits::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Worktrees::start(engine.clone(), readers.clone(), clock, setting).unwrap()
}

/// Objects for a work tree there is not, and a snapshot of it.
pub(super) fn objects(claim: impl Fn() -> Claim) -> (worktree::Client, snapshot::Client) {
    let log = LogId(9_999);
    let id = WorktreeId::parse("w").unwrap();
    let tree = WorktreeKey { log, id, project: LogId(9_998) };
    let taken = SnapshotKey { log, id: SnapshotId::parse("s").unwrap(), worktree: log };
    (crate::rpc::worktree::client(claim(), tree), crate::rpc::snapshot::client(claim(), taken))
}

/// One that needs two rights: whoever has only the one that is asked for first is told of the other.
macro_rules! sent_with {
    ($other:literal, $request:expr) => {{
        let promise = $request.send().promise;
        Promise::from_future(async move {
            match promise.await {
                Err(error) if error.extra.contains(concat!("the right \"", $other, "\"")) => Ok(()),
                answer => answer.map(|_| ()),
            }
        })
    }};
}

/// See [`super::METHODS`].
pub(super) const METHODS: &[(&str, Option<Right>, Try)] = &[
    ("Project.worktree", Some(Right::Snapshot), |Held { project, .. }, _| {
        sent!(project.worktree_request())
    }),
    ("Project.worktrees", Some(Right::Read), |Held { project, .. }, _| {
        sent!(project.worktrees_request())
    }),
    ("Project.openedWorktree", Some(Right::Snapshot), |Held { project, .. }, _| {
        let mut request = project.opened_worktree_request();
        request.get().set_id("w");
        sent!(request)
    }),
    ("Project.createSandbox", Some(Right::Restore), |Held { project, .. }, n| {
        let mut request = project.create_sandbox_request();
        request.get().set_name(&[n; 16]);
        sent!(request)
    }),
    ("Project.sandboxes", Some(Right::Read), |Held { project, .. }, _| {
        sent!(project.sandboxes_request())
    }),
    ("Project.resetSandbox", Some(Right::Restore), |Held { project, .. }, _| {
        sent!(project.reset_sandbox_request())
    }),
    ("Project.removeSandbox", Some(Right::Restore), |Held { project, .. }, _| {
        sent!(project.remove_sandbox_request())
    }),
    ("Project.storage", Some(Right::Read), |Held { project, .. }, _| {
        sent!(project.storage_request())
    }),
    ("Session.revert", Some(Right::Turn), |Held { session, .. }, n| {
        let mut request = session.revert_request();
        request.get().set_name(&[n; 16]);
        request.get().init_head().set_undo(());
        sent_with!("restore", request)
    }),
    ("Session.storage", Some(Right::Read), |Held { session, .. }, _| {
        sent!(session.storage_request())
    }),
    ("Turn.snapshot", Some(Right::Turn), |Held { turn, .. }, n| {
        let mut request = turn.snapshot_request();
        request.get().set_name(&[n; 16]);
        sent_with!("snapshot", request)
    }),
    ("Worktree.info", Some(Right::Read), |Held { worktree, .. }, _| sent!(worktree.info_request())),
    ("Worktree.track", Some(Right::Snapshot), |Held { worktree, .. }, n| {
        let mut request = worktree.track_request();
        request.get().set_name(&[n; 16]);
        sent!(request)
    }),
    ("Worktree.snapshots", Some(Right::Read), |Held { worktree, .. }, _| {
        sent!(worktree.snapshots_request())
    }),
    ("Worktree.snapshot", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        let mut request = worktree.snapshot_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Worktree.skipped", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        sent!(worktree.skipped_request())
    }),
    ("Worktree.restore", Some(Right::Restore), |Held { worktree, .. }, n| {
        let mut request = worktree.restore_request();
        request.get().set_name(&[n; 16]);
        request.get().set_snapshot("s");
        sent!(request)
    }),
    ("Worktree.revert", Some(Right::Restore), |Held { worktree, .. }, n| {
        let mut request = worktree.revert_request();
        request.get().set_name(&[n; 16]);
        sent!(request)
    }),
    ("Worktree.unrevert", Some(Right::Restore), |Held { worktree, .. }, n| {
        let mut request = worktree.unrevert_request();
        request.get().set_name(&[n; 16]);
        request.get().set_of(&[n; 16]);
        sent!(request)
    }),
    ("Worktree.removeSnapshot", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        let mut request = worktree.remove_snapshot_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Worktree.lease", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        let mut request = worktree.lease_request();
        request.get().set_path(b"a");
        sent!(request)
    }),
    ("Worktree.release", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        let mut request = worktree.release_request();
        request.get().set_path(b"a");
        sent!(request)
    }),
    ("Worktree.leases", Some(Right::Read), |Held { worktree, .. }, _| {
        sent!(worktree.leases_request())
    }),
    ("Worktree.stamp", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        sent!(worktree.stamp_request())
    }),
    ("Worktree.assertUnchanged", Some(Right::Snapshot), |Held { worktree, .. }, _| {
        sent!(worktree.assert_unchanged_request())
    }),
    ("Snapshot.info", Some(Right::Read), |Held { snapshot, .. }, _| sent!(snapshot.info_request())),
    ("Snapshot.patch", Some(Right::Read), |Held { snapshot, .. }, _| {
        sent!(snapshot.patch_request())
    }),
    ("Snapshot.diff", Some(Right::Read), |Held { snapshot, .. }, _| sent!(snapshot.diff_request())),
    ("Snapshot.diffFull", Some(Right::Read), |Held { snapshot, .. }, _| {
        sent!(snapshot.diff_full_request())
    }),
    ("Snapshot.files", Some(Right::Read), |Held { snapshot, .. }, _| {
        sent!(snapshot.files_request())
    }),
    ("Snapshot.read", Some(Right::Read), |Held { snapshot, .. }, _| {
        let mut request = snapshot.read_request();
        request.get().set_path(b"a");
        sent!(request)
    }),
];
