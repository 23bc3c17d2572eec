//! Leases of single files, and stamps: for agents that want to know before they get into each other's way.

use super::desk::Desk;
use super::{Trouble, Worktrees};
use crate::limits::{ID_BYTES_MAX, PATH_LEASES_MAX, TURN_LEASE_MS_MAX, TURN_LEASE_MS_MIN};
use crate::model::ids::LogId;
use crate::snapshot::restore;
use crate::snapshot::tree::Held;
use crate::snapshot::vault::lock;
use std::collections::HashMap;

/// Who holds leases in a work tree, and until when, by path.
pub(super) type PathLeases = HashMap<Vec<u8>, (String, u64)>;

impl Worktrees {
    /// Says that somebody is at work on a file; answers until when.
    pub fn lease(
        &self,
        worktree: LogId,
        path: Vec<u8>,
        holder: &str,
        lease_ms: u64,
    ) -> Result<u64, Trouble> {
        let named = (1..=ID_BYTES_MAX).contains(&holder.len());
        if !named || !(TURN_LEASE_MS_MIN..=TURN_LEASE_MS_MAX).contains(&lease_ms) {
            return Err(Trouble::LeaseMalformed);
        }
        let now_ms = self.inner.clock.now_ms();
        let mut all = lock(&self.inner.leases);
        let leases = all.entry(worktree).or_default();
        leases.retain(|_, (_, until_ms)| *until_ms > now_ms);
        if let Some((by, until_ms)) = leases.get(&path).filter(|(by, _)| by != holder) {
            let path = String::from_utf8_lossy(&path).into_owned();
            return Err(Trouble::Leased { path, holder: by.clone(), until_ms: *until_ms });
        }
        if leases.len() >= PATH_LEASES_MAX && !leases.contains_key(&path) {
            return Err(Trouble::TooManyLeases);
        }
        let until_ms = now_ms + lease_ms;
        leases.insert(path, (holder.to_owned(), until_ms));
        Ok(until_ms)
    }

    /// Gives a lease up; answers whether there was one.
    pub fn release(&self, worktree: LogId, path: &[u8], holder: &str) -> bool {
        let mut all = lock(&self.inner.leases);
        let Some(leases) = all.get_mut(&worktree) else { return false };
        let held = leases.get(path).is_some_and(|(by, _)| by == holder);
        held && leases.remove(path).is_some()
    }

    /// Those that last, by path.
    pub fn leases(&self, worktree: LogId) -> Vec<(Vec<u8>, String, u64)> {
        let now_ms = self.inner.clock.now_ms();
        let all = lock(&self.inner.leases);
        let Some(leases) = all.get(&worktree) else { return Vec::new() };
        let last = leases.iter().filter(|(_, (_, until_ms))| *until_ms > now_ms);
        let mut found: Vec<_> =
            last.map(|(path, (by, until_ms))| (path.clone(), by.clone(), *until_ms)).collect();
        found.sort();
        found
    }
}

impl Desk {
    /// What stands at these paths.
    pub fn stamp(&self, paths: &[Vec<u8>]) -> Result<Vec<Option<Held>>, Trouble> {
        paths.iter().map(|path| Ok(restore::stands_at(self.ground.root(), path)?)).collect()
    }

    /// Whether everything is as it was stamped.
    pub fn assert_unchanged(&self, stamps: &[(Vec<u8>, Option<Held>)]) -> Result<(), Trouble> {
        for (path, stamped) in stamps {
            if restore::stands_at(self.ground.root(), path)? != *stamped {
                return Err(Trouble::FileChanged(String::from_utf8_lossy(path).into_owned()));
            }
        }
        Ok(())
    }
}
