//! Taking the present state of a work tree down.

use super::Trouble;
use super::desk::{Ask, Desk};
use crate::limits::{PATHS_RECORDED_BYTES_MAX, PATHS_RECORDED_MAX};
use crate::model::ids::ObjectId;
use crate::model::worktree::{Actor, Occasion, SnapshotInfo};
use crate::ops::{Record, Recorded, TakeSnapshot};
use crate::queries::Before;
use crate::snapshot::diff::{self, Change};
use crate::snapshot::ground::{Tracked, Wish};
use crate::snapshot::partial::patched;
use crate::snapshot::vault::{Pin, lock};

/// A snapshot somebody wants.
#[derive(Debug, Clone)]
pub struct Track {
    /// The call.
    pub ask: Ask,
    /// Why.
    pub occasion: Occasion,
    /// For whom, if for a turn.
    pub by: Option<Actor>,
    /// What is to be taken.
    pub wish: Wish,
}

impl Desk {
    /// Takes the present state down, and has it written down. A repeat finds what was.
    pub fn track(&mut self, track: &Track) -> Result<SnapshotInfo, Trouble> {
        let Track { ask, occasion, by, wish } = track;
        let readers = self.inner.readers.clone();
        if let Some(known) = self.inner.wait(readers.snapshot_named(self.key.log, ask.name))? {
            return match (known.snapshot.occasion, known.snapshot.by) == (*occasion, *by) {
                true => Ok(known),
                false => Err(Trouble::NameReused),
            };
        }
        self.check_budget()?;
        let tracked = self.look(*wish, ask)?;
        let mut before = self.inner.wait(readers.before_snapshot(self.key.log))?;
        // Whoever takes his last one was at work until now.
        if let Some(by) =
            by.filter(|by| *occasion == Occasion::TurnEnd && !before.actors.contains(by))
        {
            before.actors.push(by);
        }
        let (base, _pin) = self.base(&before)?;
        let claims = self.claims(base, tracked.tree, &before.actors)?;
        let kept: Vec<_> = [Some(tracked.tree), tracked.unknown].into_iter().flatten().collect();
        self.keep(&kept)?;
        let record = Record::TakeSnapshot(Box::new(TakeSnapshot {
            worktree: self.key.log,
            name: ask.name,
            tree: tracked.tree,
            base,
            unknown: tracked.unknown,
            base_unknown: before.last.as_ref().and_then(|last| last.snapshot.unknown),
            occasion: *occasion,
            by: *by,
            actors: before.actors,
            claims,
            files: tracked.totals.files,
            bytes: tracked.totals.bytes,
            stored_bytes: tracked.bytes,
            skipped: tracked.totals.skipped.to_vec(),
        }));
        let Recorded::Snapshot(key, _) = self.record(ask.grant, record)? else {
            return Err(Trouble::Impossible);
        };
        if let Some(by) = by {
            let entry = (*by, self.key.log);
            match occasion {
                Occasion::TurnEnd => lock(&self.inner.running).remove(&entry),
                _ => lock(&self.inner.running).insert(entry),
            };
        }
        Ok(self.inner.wait(readers.snapshot_info(key.log))?)
    }

    /// Looks at the files.
    pub(super) fn look(&mut self, wish: Wish, ask: &Ask) -> Result<Tracked, Trouble> {
        self.ground.track(wish, &ask.progress).map_err(|error| match error.into() {
            Trouble::Unreadable { error, .. } => {
                Trouble::Unreadable { directory: self.info.directory.clone().into(), error }
            }
            trouble => trouble,
        })
    }

    fn check_budget(&mut self) -> Result<(), Trouble> {
        let most = self.inner.setting.limits.snapshot_bytes_max;
        if most == 0 {
            return Ok(());
        }
        let bytes = self.vault.bytes()?;
        if bytes < most {
            return Ok(());
        }
        // Perhaps not all of it is wanted. Nothing of ours may be half done meanwhile.
        self.ground.sync()?;
        self.inner.collect(self.key.project)?;
        match self.vault.bytes()? {
            bytes if bytes < most => Ok(()),
            bytes => Err(Trouble::Budget { bytes, most }),
        }
    }

    /// What the last snapshot held, with what was put back since: whatever is different from that, somebody has done.
    fn base(&self, before: &Before) -> Result<(Option<ObjectId>, Option<Pin>), Trouble> {
        let Some(last) = &before.last else { return Ok((None, None)) };
        let mut tree = last.snapshot.tree;
        if before.moved.is_empty() {
            return Ok((Some(tree), None));
        }
        let batch = self.vault.batch();
        let store = self.vault.reader()?;
        let mut changes = std::collections::BTreeMap::new();
        for moved in &before.moved {
            for change in diff::all(&store, Some(moved.before), Some(moved.after))? {
                changes.insert(change.path, change.new);
            }
        }
        tree = patched(&batch, &store, tree, changes.into_iter())?;
        let pin = self.vault.pin(tree);
        batch.finish()?;
        Ok((Some(tree), Some(pin)))
    }

    /// Who did what, where several were at work: whoever has named a file to a tool, if nobody else has.
    fn claims(
        &self,
        base: Option<ObjectId>,
        tree: ObjectId,
        actors: &[Actor],
    ) -> Result<Vec<(Vec<u8>, u32)>, Trouble> {
        let Some(base) = base.filter(|base| *base != tree && actors.len() > 1) else {
            return Ok(Vec::new());
        };
        let mut named = Vec::new();
        for actor in actors {
            named.push(self.inner.wait(self.inner.readers.named_by_tools(*actor))?);
        }
        let (mut claims, mut room) = (Vec::<(Vec<u8>, u32)>::new(), PATHS_RECORDED_BYTES_MAX);
        diff::between(&self.vault.reader()?, Some(base), Some(tree), &mut |change: Change| {
            let Ok(path) = std::str::from_utf8(&change.path) else { return true };
            let whole = format!("{}/{path}", self.info.directory);
            let dotted = format!("./{path}");
            let is_named = |texts: &std::collections::HashSet<String>| {
                [path, &whole, &dotted].iter().any(|form| texts.contains(*form))
            };
            let mut who = (0u32..).zip(&named).filter(|(_, texts)| is_named(texts));
            if let (Some((actor, _)), None) = (who.next(), who.next()) {
                claims.push((change.path, actor));
            }
            room = room.saturating_sub(claims.last().map_or(0, |(path, _)| path.len() + 16));
            claims.len() < PATHS_RECORDED_MAX && room > 0
        })?;
        Ok(claims)
    }
}
