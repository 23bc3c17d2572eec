//! Keeping the snapshots within their bounds, while nobody waits.

use super::{Inner, Trouble, Worktrees};
use crate::engine::Recording;
use crate::limits::SNAPSHOTS_STEP_MAX;
use crate::model::ids::LogId;
use crate::model::worktree::WorktreeKey;
use crate::ops::{DropSnapshots, Record};
use crate::snapshot::collect::{self, Collected};
use crate::snapshot::restore::Plan;
use crate::snapshot::vault::{self, lock};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often it is looked whether packs are to be put together.
const LOOK: Duration = Duration::from_secs(10);
/// How long is waited for those who write at the moment.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);
const SETTLE_TRIES_MAX: u32 = 3_000;

impl Inner {
    /// Puts together what a project's snapshots hold, and lets go of what nobody wants.
    pub(super) fn collect(&self, project: LogId) -> Result<Option<Collected>, Trouble> {
        let Ok(_one) = self.collecting.try_lock() else { return Ok(None) };
        // A plan that is not finished may need what nobody else does.
        for entry in std::fs::read_dir(self.home(project))? {
            let entry = entry?;
            let of_worktree = entry.file_name().as_encoded_bytes().starts_with(b"worktree-");
            if of_worktree && !Plan::left_behind(&entry.path())?.is_empty() {
                return Ok(None);
            }
        }
        let vault = self.vault(project)?;
        let roots = || {
            let asked = self.wait(self.readers.wanted_trees(project));
            asked.map_err(|error| vault::Error::Damaged(format!("what is wanted: {error}")))
        };
        let collection = collect::begin(&vault, roots)?;
        for _ in 0..SETTLE_TRIES_MAX {
            if collection.is_settled() {
                return Ok(Some(collection.finish(roots)?));
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
        // Somebody takes very long. Another time.
        Ok(None)
    }
}

impl Worktrees {
    /// Finishes what a crash has left half done, in every work tree.
    pub async fn recover(&self) {
        let all = match self.inner.readers.all_worktrees().await {
            Ok(all) => all,
            Err(error) => return tracing::error!(%error, "worktrees could not be looked at"),
        };
        for key in all {
            let home = self.inner.home_of(&key);
            let left = home.is_dir() && Plan::left_behind(&home).map_or(true, |it| !it.is_empty());
            // Whoever takes it into use finishes it.
            if left && let Err(trouble) = self.at(&key, |_| Ok(())).await {
                tracing::error!(%trouble, worktree = %key.id, "a change of files is half done");
            }
        }
    }

    /// Keeps the snapshots within their bounds, for as long as it is polled.
    pub async fn keep_within_bounds(&self) {
        let limits = &self.inner.setting.limits;
        let sweep = Duration::from_millis(limits.history_sweep_ms);
        let mut ticks = tokio::time::interval(LOOK.min(sweep.max(Duration::from_millis(100))));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut wanted: HashMap<LogId, usize> = HashMap::new();
        let mut swept = tokio::time::Instant::now();
        loop {
            ticks.tick().await;
            let all = match self.inner.readers.all_worktrees().await {
                Ok(all) => all,
                Err(error) => {
                    tracing::warn!(%error, "snapshots could not be looked at");
                    continue;
                }
            };
            let due = !sweep.is_zero() && swept.elapsed() >= sweep;
            if due {
                swept = tokio::time::Instant::now();
                for key in &all {
                    if let Err(trouble) = self.drop_old(key).await {
                        tracing::warn!(%trouble, "old snapshots could not be let go of");
                    }
                }
            }
            let projects: HashSet<LogId> = all.iter().map(|key| key.project).collect();
            for project in projects {
                self.look_after(project, due, &mut wanted).await;
            }
        }
    }

    async fn look_after(&self, project: LogId, due: bool, wanted: &mut HashMap<LogId, usize>) {
        let inner = self.inner.clone();
        let now = match due {
            true => inner.readers.wanted_trees(project).await.map(|trees| trees.len()).ok(),
            false => None,
        };
        let fewer = match (now, wanted.get(&project)) {
            (Some(now), Some(before)) => now < *before,
            // Something may have gone before the last start.
            (Some(_), None) => true,
            _ => false,
        };
        if let Some(now) = now {
            wanted.insert(project, now);
        }
        let work = tokio::task::spawn_blocking(move || {
            let exists = inner.home(project).join("vault.git").is_dir();
            match exists && (fewer || collect::is_worth_it(&*inner.vault(project)?)?) {
                true => inner.collect(project),
                false => Ok(None),
            }
        });
        match work.await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(done))) => {
                let Collected { objects, bytes_before, bytes_after } = done;
                tracing::info!(objects, bytes_before, bytes_after, "snapshots were put together");
            }
            Ok(Err(trouble)) => tracing::warn!(%trouble, "snapshots could not be put together"),
            Err(error) => tracing::error!(%error, "putting snapshots together failed"),
        }
    }

    /// Lets go of snapshots no session names, and of what there was to take back, once they are old.
    async fn drop_old(&self, key: &WorktreeKey) -> Result<(), Trouble> {
        let age_ms = self.inner.setting.limits.snapshot_age_ms_max;
        if age_ms == 0 {
            return Ok(());
        }
        loop {
            let before_ms = self.inner.clock.now_ms().saturating_sub(age_ms);
            let asked = self.inner.readers.old_snapshots(key.log, before_ms, SNAPSHOTS_STEP_MAX);
            let (snapshots, moves) = asked.await?;
            if snapshots.is_empty() && moves.is_empty() {
                return Ok(());
            }
            let dropped = DropSnapshots { worktree: key.log, snapshots, moves };
            let record = Record::DropSnapshots(dropped);
            self.inner.engine.record(Recording { grant: None, record }).answer().await?;
        }
    }

    /// Lets go of a snapshot somebody asked for; answers whether there was one.
    pub async fn remove_snapshot(
        &self,
        grant: crate::model::ids::GrantKey,
        worktree: LogId,
        id: crate::model::ids::SnapshotId,
    ) -> Result<bool, Trouble> {
        let found = match self.inner.readers.snapshot(worktree, id).await {
            Ok(found) => found,
            Err(crate::queries::QueryError::SnapshotNotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if found.snapshot.by.is_some() {
            return Err(Trouble::OfTurn);
        }
        let snapshots = vec![found.snapshot.key.log];
        let record =
            Record::DropSnapshots(DropSnapshots { worktree, snapshots, moves: Vec::new() });
        self.inner.engine.record(Recording { grant: Some(grant), record }).answer().await?;
        Ok(true)
    }

    /// Turns of which snapshots were taken and that were not closed; for tests and for those who watch.
    pub fn turns_open(&self) -> usize {
        lock(&self.inner.running).len()
    }
}
