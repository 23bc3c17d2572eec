//! What lies before the thread of a work tree: its files, the store, and whom to tell.

use super::{Inner, Trouble};
use crate::engine::{Recording, Refusal};
use crate::model::ids::{GrantKey, ObjectId};
use crate::model::worktree::{CallName, WorktreeInfo, WorktreeKey};
use crate::ops::{Record, Recorded};
use crate::snapshot::ground::{Ground, Place};
use crate::snapshot::restore::{Applied, Plan, Step};
use crate::snapshot::state::Skipped;
use crate::snapshot::vault::{self, Vault};
use crate::snapshot::walk::{Policy, Progress};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// What lies before the thread of a work tree.
pub struct Desk {
    pub(super) inner: Arc<Inner>,
    pub(super) key: WorktreeKey,
    pub(super) info: WorktreeInfo,
    pub(super) ground: Ground,
    pub(super) vault: Arc<Vault>,
    /// Nobody knows whether something was written down: it has to be taken into use again.
    pub(super) stale: bool,
}

/// How often something is sent again to be written down, and how long is waited in between.
const RECORD_TRIES_MAX: u32 = 100;
const RECORD_PAUSE: Duration = Duration::from_millis(100);

/// What every call on files has.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Under which grant; none for what the server does of its own accord.
    pub grant: Option<GrantKey>,
    /// Its name.
    pub name: CallName,
    /// How far it is, and whether it is to go on.
    pub progress: Arc<Progress>,
}

/// What a call asks for, so that another one of the same name is known for another one.
pub(super) fn digest(asked: impl std::fmt::Debug) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("bowline call on files v1");
    hasher.update(format!("{asked:?}").as_bytes());
    let mut digest = [0; 16];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

impl Desk {
    /// Takes a work tree into use, and finishes what a crash has left there.
    pub(super) fn open(inner: Arc<Inner>, key: WorktreeKey) -> Result<Self, Trouble> {
        let info = inner.wait(inner.readers.worktree_info(key.log))?;
        let sandbox = info.sandbox.is_some();
        let root = inner.roots.open(std::path::Path::new(&info.directory), sandbox)?;
        let vault = inner.vault(key.project)?;
        let home = inner.home_of(&key);
        let limits = &inner.setting.limits;
        let own = std::fs::metadata(&inner.setting.data)?;
        let policy = Policy {
            file_bytes_max: limits.snapshot_file_bytes_max,
            files_max: limits.worktree_files_max,
            own: vec![(own.dev(), own.ino())],
            now_ns: crate::clock::file_time_ns,
        };
        let place = Place {
            root,
            home: &home,
            vault: vault.clone(),
            threads: inner.threads.clone(),
            watching: inner.setting.watching,
        };
        let ground = Ground::open(place, policy)?;
        let desk = Self { inner, key, info, ground, vault, stale: false };
        desk.settle_plans()?;
        Ok(desk)
    }

    /// Finishes plans that were cut short: carried out if they were decided, taken back otherwise.
    pub(super) fn settle_plans(&self) -> Result<(), Trouble> {
        let (inner, key) = (&self.inner, &self.key);
        let settled = self.ground.settle(|name| {
            let asked = inner.readers.moved(key.log, CallName(*name));
            let found = inner.wait(asked);
            found.map(|moved| moved.is_some()).map_err(|error| {
                vault::Error::Damaged(format!("whether a plan was decided cannot be told: {error}"))
            })
        })?;
        for (plan, Applied { done, conflicts, kept, .. }) in settled {
            let (done, conflicts) = (done.len(), conflicts.len());
            tracing::info!(
                worktree = %key.id, steps = plan.steps.len(), done, conflicts, ?kept,
                "a change of files that was cut short was finished"
            );
        }
        Ok(())
    }

    /// Brings everything to the disk.
    pub(super) fn settle(&mut self) -> Result<(), vault::Error> {
        self.ground.sync()?;
        self.ground.save()
    }

    /// Has something written down.
    pub(super) fn record(
        &self,
        grant: Option<GrantKey>,
        record: Record,
    ) -> Result<Recorded, Trouble> {
        // What is known by its name can be sent again, when a commit is unknown or the store is being settled.
        let (mut tries, mut unknown) = (0, false);
        loop {
            let submitted = self.inner.engine.record(Recording { grant, record: record.clone() });
            match self.inner.wait(submitted.answer()) {
                Ok(recorded) => return Ok(recorded),
                Err(refusal @ (Refusal::Unknown | Refusal::Recovering | Refusal::Overloaded))
                    if tries < RECORD_TRIES_MAX =>
                {
                    unknown |= matches!(refusal, Refusal::Unknown);
                    tries += 1;
                    std::thread::sleep(RECORD_PAUSE);
                }
                // Whatever is said now, it may have been written down before.
                Err(_) if unknown => return Err(Refusal::Unknown.into()),
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }

    /// What was not taken the last time; a number of it, from behind a path on.
    pub fn skipped(&self, after: &[u8], most: usize) -> Vec<(Vec<u8>, Skipped, u64)> {
        self.ground.skipped(after, most)
    }

    /// Takes back what was done of a plan. Where that fails, what was written down does it: whoever takes the work tree
    /// into use next.
    pub(super) fn undo(&mut self, plan: &Plan, done: Vec<Step>) -> Result<(), Trouble> {
        match self.ground.undo(plan, done) {
            Ok(Applied { conflicts, .. }) => {
                if !conflicts.is_empty() {
                    let conflicts = conflicts.len();
                    tracing::warn!(conflicts, "somebody was at work where files were put back");
                }
                Ok(())
            }
            Err(error) => {
                self.ground.leave(plan);
                self.stale = true;
                Err(error.into())
            }
        }
    }

    /// A plan under a call's name.
    pub(super) fn plan(&self, ask: &Ask, steps: Vec<Step>) -> Plan {
        Plan { name: ask.name.0, at_ns: crate::clock::file_time_ns(), steps }
    }

    /// Trees that are wanted from now on.
    pub(super) fn keep(&self, trees: &[ObjectId]) -> Result<(), Trouble> {
        Ok(self.vault.keep(trees)?)
    }
}
