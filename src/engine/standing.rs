//! Which grants somebody holds an object under, and whether they still stand.
//!
//! The store is the authority, and every change is checked against it inside its transaction. This table
//! makes a revocation reach everything else: the writer marks what a commit has cut before it releases the
//! reply, so once `revoke` has returned, no check here succeeds any more.
//!
//! Whoever begins to hold an object takes its place in the table *first* and asks the store *then*: a
//! revocation in between finds the place, one before it is found in the store.

use crate::model::code::{Code, Coded};
use crate::model::ids::GrantKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// All grants somebody holds an object under.
#[derive(Default)]
pub(super) struct Standings {
    held: Mutex<HashMap<GrantKey, Weak<Standing>>>,
}

/// One of them; shared by all objects held under it, on whatever connection.
pub struct Standing {
    key: GrantKey,
    revoked: AtomicBool,
    /// The greatest number for never.
    expires_at_ms: AtomicU64,
    fell: Notify,
    table: Weak<Standings>,
}

/// Why a grant does not stand any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fallen {
    /// It was taken back.
    #[error("the grant this object is held under was revoked")]
    Revoked,
    /// It has ended by itself.
    #[error("the grant this object is held under has expired")]
    Expired,
}

impl Coded for Fallen {
    fn code(&self) -> Code {
        match self {
            Fallen::Revoked => Code::Revoked,
            Fallen::Expired => Code::Expired,
        }
    }
}

impl Standings {
    /// The shared state of a grant, for as long as the result is kept.
    pub(super) fn hold(self: &Arc<Self>, key: GrantKey) -> Arc<Standing> {
        let mut held = lock(&self.held);
        if let Some(known) = held.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let fresh = Arc::new(Standing {
            key,
            revoked: AtomicBool::new(false),
            expires_at_ms: AtomicU64::new(u64::MAX),
            fell: Notify::new(),
            table: Arc::downgrade(self),
        });
        held.insert(key, Arc::downgrade(&fresh));
        fresh
    }

    /// Grants were taken back.
    pub(super) fn cut(&self, keys: &[GrantKey]) {
        // The last holder of a grant takes it out of the table when it goes, and that may be us: so not
        // while the table is locked.
        let cut: Vec<_> = {
            let held = lock(&self.held);
            keys.iter().filter_map(|key| held.get(key)?.upgrade()).collect()
        };
        for standing in cut {
            standing.fall();
        }
    }

    /// Every grant that is held.
    pub(super) fn keys(&self) -> Vec<GrantKey> {
        lock(&self.held).keys().copied().collect()
    }
}

impl Standing {
    /// Whether it still stands.
    pub fn check(&self, now_ms: impl FnOnce() -> u64) -> Result<(), Fallen> {
        if self.revoked.load(Ordering::Acquire) {
            return Err(Fallen::Revoked);
        }
        // Most grants do not end by themselves, and need not know the time.
        match self.expires_at_ms.load(Ordering::Relaxed) {
            u64::MAX => Ok(()),
            at_ms if at_ms > now_ms() => Ok(()),
            _ => Err(Fallen::Expired),
        }
    }

    /// What the store says of it.
    pub fn found(&self, in_force: Option<Option<u64>>) {
        match in_force {
            None => self.fall(),
            Some(expires) => {
                self.expires_at_ms.store(expires.unwrap_or(u64::MAX), Ordering::Relaxed)
            }
        }
    }

    /// When it ends by itself, if it does.
    pub fn expires_at_ms(&self) -> Option<u64> {
        Some(self.expires_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms != u64::MAX)
    }

    /// Returns once it was taken back.
    pub async fn revoked(&self) {
        loop {
            let fell = self.fell.notified();
            if self.revoked.load(Ordering::Acquire) {
                return;
            }
            fell.await;
        }
    }

    fn fall(&self) {
        self.revoked.store(true, Ordering::Release);
        self.fell.notify_waiters();
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let mut held = lock(&table.held);
            // Somebody may have come back for the grant in between; that entry is not ours.
            if held.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
                held.remove(&self.key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn what_is_cut_falls_for_everybody_who_holds_it() {
        let table = Arc::new(Standings::default());
        let (one, same, other) =
            (table.hold(GrantKey(1)), table.hold(GrantKey(1)), table.hold(GrantKey(2)));
        assert_eq!(one.check(|| 0), Ok(()));
        let mut waiting = Box::pin(same.revoked());
        assert!(waiting.as_mut().now_or_never().is_none());
        table.cut(&[GrantKey(1), GrantKey(9)]);
        assert_eq!(
            (one.check(|| 0), same.check(|| 0)),
            (Err(Fallen::Revoked), Err(Fallen::Revoked))
        );
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!(other.check(|| 0), Ok(()));
        drop(waiting);
        drop((one, same));
        assert_eq!(table.keys(), [GrantKey(2)], "nobody holds it, and the table forgets it");
    }

    #[test]
    fn what_the_store_says_counts() {
        let table = Arc::new(Standings::default());
        let standing = table.hold(GrantKey(1));
        standing.found(Some(Some(10)));
        assert_eq!((standing.check(|| 9), standing.check(|| 10)), (Ok(()), Err(Fallen::Expired)));
        assert_eq!(standing.expires_at_ms(), Some(10));
        standing.found(None);
        assert_eq!(standing.check(|| 0), Err(Fallen::Revoked));
    }
}
