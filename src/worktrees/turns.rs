//! What turns do to files: undone along with the conversation, and told when they have ended.

use super::desk::{Ask, Desk, digest};
use super::moving::{Report, permitted};
use super::tracking::Track;
use super::{Inner, Trouble, Worktrees};
use crate::engine::Recording;
use crate::limits::{DIFFS_MAX, OP_PAYLOAD_BYTES_MAX, TURN_CLOSING_LOOK_MS};
use crate::model::caveats::Caveats;
use crate::model::code::{Advice, Coded};
use crate::model::ids::{Cursor, LogId};
use crate::model::session::FileDiff;
use crate::model::turn::Summary;
use crate::model::worktree::{Actor, CallName, Move, Occasion, SnapshotInfo};
use crate::ops::{MeasureTurn, MoveSession, Record, SetHead};
use crate::queries::{Happened, Rewind};
use crate::snapshot::diff::{self, Change};
use crate::snapshot::ground::Wish;
use crate::snapshot::undo::{Undo, Whose};
use crate::snapshot::unknown::Unknown;
use crate::snapshot::vault::{Reader, lock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A conversation to be taken back, or forth, along with its files.
#[derive(Debug, Clone)]
pub struct RevertSession {
    /// The call.
    pub ask: Ask,
    /// Which session.
    pub session: LogId,
    /// Where its conversation is to end.
    pub head: SetHead,
    /// Paths that are put back whoever has changed them.
    pub force: Vec<Vec<u8>>,
    /// What may be touched.
    pub caveats: Caveats,
}

impl RevertSession {
    fn digest(&self) -> [u8; 16] {
        digest(("session", self.session, &self.head, &self.force))
    }
}

/// Whose the changes up to a snapshot are.
struct Ownership<'a> {
    info: &'a SnapshotInfo,
    own: Vec<bool>,
}

impl<'a> Ownership<'a> {
    fn new(info: &'a SnapshotInfo, is_own: impl Fn(&Actor) -> bool) -> Self {
        Self { info, own: info.snapshot.actors.iter().map(is_own).collect() }
    }

    fn any(&self) -> bool {
        self.own.contains(&true)
    }

    fn of(&self, path: &[u8]) -> Whose {
        if !self.any() {
            return Whose::Other;
        }
        if self.own.iter().all(|own| *own) {
            return Whose::Own;
        }
        let claim = self.info.snapshot.claims.iter().find(|(claimed, _)| claimed == path);
        match claim.and_then(|(_, actor)| self.own.get(*actor as usize)) {
            Some(true) => Whose::Own,
            Some(false) => Whose::Other,
            None => Whose::Shared,
        }
    }
}

impl Worktrees {
    /// Takes a conversation back, or forth, along with its files.
    pub async fn revert_session(&self, revert: RevertSession) -> Result<Report, Trouble> {
        let inner = &self.inner;
        // First of all whether it is a repeat: it may not even be possible any more.
        if inner.readers.was_reverted_by(revert.session, revert.ask.name).await? {
            let worktrees = inner.readers.touched_worktrees(revert.session).await?;
            for worktree in worktrees {
                match inner.readers.moved(worktree, revert.ask.name).await? {
                    Some(moved) if moved.asked != revert.digest() => {
                        return Err(Trouble::NameReused);
                    }
                    Some(moved) => return Ok(moved.into()),
                    None => {}
                }
            }
            return Ok(Report::default());
        }
        let asked = revert.digest();
        let found = inner.readers.rewind(revert.session, revert.head.clone()).await?;
        let found = found.map_err(Trouble::Op)?;
        if let Some(key) = found.worktree {
            return self.at(&key, move |desk| desk.revert_session(&revert)).await;
        }
        let RevertSession { ask, session, head, .. } = revert;
        let nothing = crate::model::ids::ObjectId([0; 20]);
        let done = Move {
            name: ask.name,
            asked,
            before: nothing,
            after: nothing,
            session: Some(session),
            session_at: Cursor(0),
            done: 0,
            conflicts: Vec::new(),
            conflict_count: 0,
        };
        let moved = MoveSession { session, head, planned: found.planned, worktree: None, done };
        let record = Record::MoveSession(Box::new(moved));
        inner.engine.record(Recording { grant: ask.grant, record }).answer().await?;
        Ok(Report::default())
    }

    /// Takes down what turns have done, once they have ended, for as long as it is polled.
    pub async fn keep_closing(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(TURN_CLOSING_LOOK_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        match self.inner.readers.unclosed_turns(u32::MAX).await {
            Ok(left) => lock(&self.inner.running).extend(left),
            Err(error) => tracing::warn!(%error, "turns whose files were not taken down"),
        }
        loop {
            ticks.tick().await;
            let running: Vec<_> = lock(&self.inner.running).iter().copied().collect();
            for (actor, worktree) in running {
                if let Err(trouble) = self.close(actor, worktree).await {
                    tracing::warn!(%trouble, "what a turn did to files could not be taken down");
                    // What may be possible later is tried again.
                    if trouble.code().advice() == Advice::No {
                        lock(&self.inner.running).remove(&(actor, worktree));
                    }
                }
            }
        }
    }

    /// Takes down what a turn has done, if it has ended.
    pub async fn close(&self, actor: Actor, worktree: LogId) -> Result<(), Trouble> {
        if !lock(&self.inner.running).contains(&(actor, worktree)) {
            return Ok(());
        }
        let turn = self.inner.readers.turn_at(actor.session, actor.turn).await;
        let ended = match turn {
            Ok(turn) => turn.state.is_final(),
            // It is gone, and its session with it.
            Err(_) => {
                lock(&self.inner.running).remove(&(actor, worktree));
                return Ok(());
            }
        };
        if !ended {
            return Ok(());
        }
        let key = self.inner.readers.worktree_key(worktree).await?;
        self.at(&key, move |desk| desk.close(actor)).await
    }

    /// The same for all turns of a session of which snapshots were taken.
    pub async fn close_turns_of(&self, session: LogId) {
        let of: Vec<_> = {
            let running = lock(&self.inner.running);
            running.iter().filter(|(actor, _)| actor.session == session).copied().collect()
        };
        for (actor, worktree) in of {
            if let Err(trouble) = self.close(actor, worktree).await {
                tracing::warn!(%trouble, "what a turn did to files could not be taken down");
            }
        }
    }
}

impl Inner {
    /// The name of the server's own call at the end of a turn: always the same.
    fn closing_name(actor: Actor) -> CallName {
        let mut hasher = blake3::Hasher::new_derive_key("bowline end of a turn v1");
        hasher.update(&actor.session.0.to_le_bytes()).update(&actor.turn.0.to_le_bytes());
        let mut name = [0; 16];
        hasher.finalize_xof().fill(&mut name);
        CallName(name)
    }
}

impl Desk {
    fn revert_session(&mut self, revert: &RevertSession) -> Result<Report, Trouble> {
        let RevertSession { ask, session, head, force, caveats } = revert;
        let asked = revert.digest();
        if let Some(report) = self.done_before(ask.name, asked)? {
            return Ok(report);
        }
        self.close_ended(*session)?;
        // Asked once more: something may have happened while this waited for its turn.
        let found = self.inner.readers.rewind(*session, head.clone());
        let rewind = self.inner.wait(found)?.map_err(Trouble::Op)?;
        let undo = self.gather(&rewind, *session)?;
        let forced = |path: &[u8]| force.iter().any(|it| it == path);
        let (steps, mut conflicts) = undo.plan(forced);
        let steps = permitted(steps, caveats);
        conflicts.retain(|conflict| caveats.allows_path(&conflict.path));
        let worktree = rewind.worktree.as_ref().map(|key| key.log);
        let (session, head, planned) = (*session, head.clone(), rewind.planned);
        self.carry_out((ask, asked), (steps, conflicts), forced, false, Some(session), |done| {
            Record::MoveSession(Box::new(MoveSession { session, head, planned, worktree, done }))
        })
    }

    /// Whose work was what, since the place the conversation goes back to.
    fn gather(&self, rewind: &Rewind, session: LogId) -> Result<Undo, Trouble> {
        let store = self.vault.reader()?;
        let mut undo = Undo::default();
        for happened in &rewind.since {
            match happened {
                Happened::Changed(info) => {
                    let own = |actor: &Actor| rewind.is_own(actor.session, info.number);
                    let whose = Ownership::new(info, own);
                    let (base, tree) = (info.snapshot.base, info.snapshot.tree);
                    // The first one of all tells only what was there.
                    let Some(base) = base else { continue };
                    let unknown = Unknown::read(&store, info.snapshot.base_unknown)?;
                    diff::between(&store, Some(base), Some(tree), &mut |change| {
                        let whose = whose.of(&change.path);
                        undo.add(change, whose, |path| unknown.holds(path));
                        true
                    })?;
                }
                Happened::Moved(moved) => {
                    let own = moved
                        .session
                        .is_some_and(|by| by == session || rewind.is_own(by, moved.at));
                    let whose = if own { Whose::Own } else { Whose::Other };
                    let (before, after) = (Some(moved.before), Some(moved.after));
                    diff::between(&store, before, after, &mut |change| {
                        undo.add(change, whose, |_| false);
                        true
                    })?;
                }
            }
        }
        Ok(undo)
    }

    /// Takes down first what the turns of a session have done that have ended just now.
    fn close_ended(&mut self, session: LogId) -> Result<(), Trouble> {
        let of: Vec<_> = {
            let running = lock(&self.inner.running);
            let here = running
                .iter()
                .filter(|(actor, worktree)| actor.session == session && *worktree == self.key.log);
            here.map(|(actor, _)| *actor).collect()
        };
        for actor in of {
            let turn = self.inner.wait(self.inner.readers.turn_at(actor.session, actor.turn))?;
            if turn.state.is_final() {
                self.close(actor)?;
            }
        }
        Ok(())
    }

    /// Takes down what a turn that has ended has done.
    fn close(&mut self, actor: Actor) -> Result<(), Trouble> {
        let ask = Ask { grant: None, name: Inner::closing_name(actor), progress: Arc::default() };
        let (occasion, by, wish) = (Occasion::TurnEnd, Some(actor), Wish::default());
        self.track(&Track { ask, occasion, by, wish })?;
        let (_, happened) = self.inner.wait(self.inner.readers.turn_happened(actor))?;
        let turn = self.inner.wait(self.inner.readers.turn_at(actor.session, actor.turn))?;
        let granted = self.inner.wait(self.inner.readers.granted(turn.granted));
        let caveats = granted.map(|granted| granted.grant.authority.caveats).unwrap_or_default();
        let (summary, diffs) = self.measured(actor, &happened, &caveats)?;
        if diffs.is_empty() {
            return Ok(());
        }
        let (session, turn) = (actor.session, actor.turn);
        let measure = MeasureTurn { session, turn, summary, diffs };
        self.record(None, Record::MeasureTurn(Box::new(measure)))?;
        Ok(())
    }

    /// What a turn has done to files, all in all: what it alone did, and what it may have done with others.
    fn measured(
        &self,
        actor: Actor,
        happened: &[Happened],
        caveats: &Caveats,
    ) -> Result<(Summary, Vec<FileDiff>), Trouble> {
        let store = self.vault.reader()?;
        let mut net: BTreeMap<Vec<u8>, Change> = BTreeMap::new();
        for happened in happened {
            let Happened::Changed(info) = happened else { continue };
            let Some(base) = info.snapshot.base else { continue };
            let whose = Ownership::new(info, |at_work| *at_work == actor);
            if !whose.any() {
                continue;
            }
            diff::between(&store, Some(base), Some(info.snapshot.tree), &mut |change| {
                // What its author may not see is not told in his name.
                let seen = caveats.allows_path(&change.path) && change.is_about_content();
                if seen && whose.of(&change.path) != Whose::Other {
                    let new = change.new;
                    net.entry(change.path.clone()).or_insert(change).new = new;
                }
                true
            })?;
        }
        net.retain(|_, change| change.old != change.new);
        let mut summary = Summary { files: net.len() as u64, ..Summary::default() };
        let (mut diffs, mut room) = (Vec::new(), OP_PAYLOAD_BYTES_MAX / 4);
        for change in net.into_values() {
            let (diff, lines) = file_diff(&store, &change, &self.info.directory, room)?;
            summary.additions += lines.0;
            summary.deletions += lines.1;
            if diffs.len() < DIFFS_MAX as usize && room > diff.file.len() + diff.patch.len() {
                room -= diff.file.len() + diff.patch.len();
                diffs.push(diff);
            }
        }
        Ok((summary, diffs))
    }
}

/// One file's part of what a turn did, with its text if there is room for it.
fn file_diff(
    store: &Reader,
    change: &Change,
    directory: &str,
    room: usize,
) -> Result<(FileDiff, (u64, u64)), Trouble> {
    let lines = diff::lines(store, change, u32::from(u16::MAX))?;
    let status = match (change.old, change.new) {
        (None, _) => "added",
        (_, None) => "deleted",
        _ => "modified",
    };
    let text = String::from_utf8_lossy(&lines.text).into_owned();
    let fits = text.len() < room / 8;
    let diff = FileDiff {
        file: format!("{directory}/{}", String::from_utf8_lossy(&change.path)),
        status: status.to_owned(),
        additions: lines.additions,
        deletions: lines.deletions,
        patch: if fits { text } else { String::new() },
        rest: String::new(),
    };
    Ok((diff, (lines.additions, lines.deletions)))
}
