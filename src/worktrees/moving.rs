//! Putting files back.

use super::Trouble;
use super::desk::{Ask, Desk, digest};
use crate::engine::Refusal;
use crate::limits::{PATHS_RECORDED_BYTES_MAX, PATHS_RECORDED_MAX};
use crate::model::caveats::Caveats;
use crate::model::ids::{Cursor, LogId, SnapshotId};
use crate::model::worktree::{CallName, Move};
use crate::ops::{MoveFiles, Record};
use crate::snapshot::diff::{self, Change};
use crate::snapshot::ground::Wish;
use crate::snapshot::restore::{Applied, Conflict, Step, Why};
use crate::snapshot::undo::{Undo, Whose};
use crate::snapshot::unknown::Unknown;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Paths that were changed.
    pub done: u64,
    /// Paths that were not, and why; a bounded number of them.
    pub conflicts: Vec<Conflict>,
    /// How many there were.
    pub conflict_count: u64,
}

impl From<Move> for Report {
    fn from(moved: Move) -> Self {
        let conflict = |(path, why)| Some(Conflict { path, why: Why::from_number(why)? });
        Self {
            done: moved.done,
            conflicts: moved.conflicts.into_iter().filter_map(conflict).collect(),
            conflict_count: moved.conflict_count,
        }
    }
}

/// Files as they are to be again.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The call.
    pub ask: Ask,
    /// As of which snapshot.
    pub snapshot: SnapshotId,
    /// Only these paths, and what is beneath them; none for all.
    pub paths: Vec<Vec<u8>>,
    /// Leave alone what the snapshot does not have.
    pub keep_new: bool,
    /// What may be touched.
    pub caveats: Caveats,
}

/// What changed from one snapshot to another, to be undone.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The first.
    pub from: SnapshotId,
    /// The second.
    pub to: SnapshotId,
    /// Only these paths, and what is beneath them; none for all.
    pub paths: Vec<Vec<u8>>,
}

/// Whether a path is one of these or beneath; any is, if there are none.
pub(super) fn is_within(path: &[u8], paths: &[Vec<u8>]) -> bool {
    let beneath = |above: &Vec<u8>| {
        path.strip_prefix(above.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    paths.is_empty() || paths.iter().any(beneath)
}

/// Whether a directory that is gone leads to one of these.
fn leads_to(change: &Change, paths: &[Vec<u8>]) -> bool {
    let gone = change.old.is_none() && change.new.is_some_and(|held| held.mode.is_directory());
    let above = |path: &Vec<u8>| {
        path.strip_prefix(change.path.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
    };
    gone && paths.iter().any(above)
}

impl Desk {
    /// What a call has done, if it has.
    pub(super) fn done_before(
        &self,
        name: CallName,
        asked: [u8; 16],
    ) -> Result<Option<Report>, Trouble> {
        match self.inner.wait(self.inner.readers.moved(self.key.log, name))? {
            Some(moved) if moved.asked != asked => Err(Trouble::NameReused),
            found => Ok(found.map(Report::from)),
        }
    }

    /// Makes the files what they were when a snapshot was taken.
    pub fn restore(&mut self, restore: &Restore) -> Result<Report, Trouble> {
        let Restore { ask, snapshot, paths, keep_new, caveats } = restore;
        let asked = digest(("restore", snapshot, paths, keep_new));
        if let Some(report) = self.done_before(ask.name, asked)? {
            return Ok(report);
        }
        let found = self.inner.readers.snapshot(self.key.log, snapshot.clone());
        let found = self.inner.wait(found)?.snapshot;
        let wanted = found.tree;
        let now = self.look(Wish::default(), ask)?;
        let store = self.vault.reader()?;
        let mut steps = Vec::new();
        diff::between(&store, Some(now.tree), Some(wanted), &mut |change: Change| {
            let wanted = is_within(&change.path, paths) || leads_to(&change, paths);
            if wanted && !(*keep_new && change.new.is_none()) {
                steps.push(Step::from(change));
            }
            true
        })?;
        let unknown = Unknown::read(&store, found.unknown)?;
        let (steps, mut conflicts) = (permitted(steps, caveats), Vec::new());
        // That the snapshot does not have it does not mean that it was not there.
        let (steps, left): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| step.to.is_some() || !unknown.holds(&step.path));
        let not_taken = |step: Step| Conflict { path: step.path, why: Why::NotTaken };
        conflicts.extend(left.into_iter().map(not_taken));
        self.move_files((ask, asked), steps, conflicts, |_| false, true)
    }

    /// Undoes what changed between pairs of snapshots.
    pub fn revert(
        &mut self,
        ask: &Ask,
        patches: &[Patch],
        force: &[Vec<u8>],
        caveats: &Caveats,
    ) -> Result<Report, Trouble> {
        let asked = digest(("revert", patches, force));
        if let Some(report) = self.done_before(ask.name, asked)? {
            return Ok(report);
        }
        let store = self.vault.reader()?;
        let mut undo = Undo::default();
        for Patch { from, to, paths } in patches {
            let tree = |id: &SnapshotId| {
                let asked = self.inner.readers.snapshot(self.key.log, id.clone());
                self.inner.wait(asked).map(|found| (found.snapshot.tree, found.snapshot.unknown))
            };
            let ((from, unknown), (to, _)) = (tree(from)?, tree(to)?);
            let unknown = Unknown::read(&store, unknown)?;
            diff::between(&store, Some(from), Some(to), &mut |change| {
                if is_within(&change.path, paths) {
                    undo.add(change, Whose::Own, |path| unknown.holds(path));
                }
                true
            })?;
        }
        let forced = |path: &[u8]| force.iter().any(|it| it == path);
        let (steps, mut conflicts) = undo.plan(forced);
        let steps = permitted(steps, caveats);
        conflicts.retain(|conflict| caveats.allows_path(&conflict.path));
        self.move_files((ask, asked), steps, conflicts, forced, false)
    }

    /// Takes back what a call has done.
    pub fn unrevert(
        &mut self,
        ask: &Ask,
        of: CallName,
        caveats: &Caveats,
    ) -> Result<Report, Trouble> {
        let asked = digest(("unrevert", of));
        if let Some(report) = self.done_before(ask.name, asked)? {
            return Ok(report);
        }
        let found = self.inner.wait(self.inner.readers.moved(self.key.log, of))?;
        let moved = found.ok_or(Trouble::MoveNotFound)?;
        let store = self.vault.reader()?;
        let steps = diff::all(&store, Some(moved.after), Some(moved.before))?;
        let steps = permitted(steps.into_iter().map(Step::from).collect(), caveats);
        let conflicts = Vec::new();
        self.move_files((ask, asked), steps, conflicts, |_| false, false)
    }

    fn move_files(
        &mut self,
        (ask, asked): (&Ask, [u8; 16]),
        steps: Vec<Step>,
        conflicts: Vec<Conflict>,
        forced: impl Fn(&[u8]) -> bool,
        replacing: bool,
    ) -> Result<Report, Trouble> {
        let worktree = self.key.log;
        self.carry_out((ask, asked), (steps, conflicts), forced, replacing, None, |done| {
            Record::MoveFiles(Box::new(MoveFiles { worktree, done }))
        })
    }

    /// Carries a plan out and has it written down; if that is refused, everything is put back as it was. `replacing`
    /// says whether files may be replaced that are not taken otherwise; they are kept first.
    pub(super) fn carry_out(
        &mut self,
        (ask, asked): (&Ask, [u8; 16]),
        (steps, mut conflicts): (Vec<Step>, Vec<Conflict>),
        forced: impl Fn(&[u8]) -> bool,
        replacing: bool,
        session: Option<LogId>,
        record: impl FnOnce(Move) -> Record,
    ) -> Result<Report, Trouble> {
        let batch = self.vault.batch();
        let mut kept = Vec::with_capacity(steps.len());
        for mut step in steps {
            // What is not taken otherwise, and what is put back by force, is kept first.
            let unknown =
                replacing && step.from.is_none() && self.ground.is_skipped(&step.path).is_some();
            if unknown || forced(&step.path) {
                step.from = self.ground.take(&batch, &step.path)?;
            }
            kept.push(step);
        }
        let held = self.ground.trees_of(batch, &kept)?;
        self.keep(&[held.before])?;
        let plan = self.plan(ask, kept);
        let applied = match self.ground.apply(&plan, &ask.progress) {
            Ok(applied) => applied,
            Err(error) => {
                // Half done. It is taken into use again at once, and what was written down takes it back.
                self.stale = true;
                return Err(error.into());
            }
        };
        let Applied { done, conflicts: more, cancelled, kept } = applied;
        for path in kept {
            let path = String::from_utf8_lossy(&path).into_owned();
            tracing::warn!(path, "what was written in this very moment was put aside");
        }
        if cancelled {
            self.undo(&plan, done)?;
            return Err(Trouble::Cancelled);
        }
        conflicts.extend(more);
        // Mostly all of it was done, and nothing has to be written twice.
        let sides = match done == plan.steps {
            true => held,
            false => self.ground.trees_of(self.vault.batch(), &done)?,
        };
        self.keep(&[sides.before, sides.after])?;
        let conflict_count = conflicts.len() as u64;
        let mut room = PATHS_RECORDED_BYTES_MAX;
        let fits = conflicts.iter().take(PATHS_RECORDED_MAX).take_while(|it| {
            room = room.saturating_sub(it.path.len() + 16);
            room > 0
        });
        let fits = fits.count();
        conflicts.truncate(fits);
        let moved = Move {
            name: ask.name,
            asked,
            before: sides.before,
            after: sides.after,
            session,
            session_at: Cursor(0),
            done: done.len() as u64,
            conflicts: conflicts.iter().map(|it| (it.path.clone(), it.why as u8)).collect(),
            conflict_count,
        };
        match self.record(ask.grant, record(moved)) {
            Ok(_) => Ok(Report { done: done.len() as u64, conflicts, conflict_count }),
            Err(Trouble::Refused(refusal @ (Refusal::Unknown | Refusal::Stopping))) => {
                // It may have been written down: whoever takes the work tree into use next looks, and decides.
                self.stale = true;
                Err(Trouble::Refused(refusal))
            }
            Err(trouble) => {
                self.undo(&plan, done)?;
                Err(trouble)
            }
        }
    }
}

/// Steps at paths that may be touched. What lies elsewhere is not even named.
pub(super) fn permitted(steps: Vec<Step>, caveats: &Caveats) -> Vec<Step> {
    steps.into_iter().filter(|step| caveats.allows_path(&step.path)).collect()
}
