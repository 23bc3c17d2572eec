//! Which grants somebody holds an object under, and whether they still stand.
//!
//! The store is the authority, and every change is checked against it inside its transaction. This table
//! makes a revocation reach everything else: the writer marks what a commit has cut before it releases the
//! reply, so once `revoke` has returned, no check here succeeds any more.
//!
//! Whoever begins to hold an object takes its place in the table *first* and asks the store *then*: a
//! revocation in between finds the place, one before it is found in the store.

use crate::model::caveats::Caveats;
use crate::model::grant::Fallen;
use crate::model::ids::GrantKey;
use crate::store::grants::Force;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;

/// All grants somebody holds an object under.
#[derive(Default)]
pub(super) struct Standings {
    held: Mutex<HashMap<GrantKey, Weak<Standing>>>,
    /// What was read under grants nobody holds any more, and nobody has written down yet.
    left: Mutex<HashMap<GrantKey, u64>>,
}

/// One of them; shared by all objects held under it, on whatever connection.
pub struct Standing {
    key: GrantKey,
    /// Why it fell, see [`Fallen`]; [`STANDS`] if it did not.
    fallen: AtomicU8,
    /// The greatest number for never.
    expires_at_ms: AtomicU64,
    fell: Notify,
    /// Answers given under it, and whether it was used at all, since that was last written down.
    reads: AtomicU64,
    used: AtomicBool,
    /// They never change, and may be long: kept once for all objects held under the grant.
    caveats: OnceLock<Arc<Caveats>>,
    table: Weak<Standings>,
}

const STANDS: u8 = u8::MAX;

impl Standings {
    /// The shared state of a grant, for as long as the result is kept.
    pub(super) fn hold(self: &Arc<Self>, key: GrantKey) -> Arc<Standing> {
        let mut held = lock(&self.held);
        if let Some(known) = held.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let fresh = Arc::new(Standing {
            key,
            fallen: AtomicU8::new(STANDS),
            expires_at_ms: AtomicU64::new(u64::MAX),
            fell: Notify::new(),
            reads: AtomicU64::new(0),
            used: AtomicBool::new(false),
            caveats: OnceLock::new(),
            table: Arc::downgrade(self),
        });
        held.insert(key, Arc::downgrade(&fresh));
        fresh
    }

    /// Grants were taken back.
    pub(super) fn cut(&self, cut: &[(GrantKey, Fallen)]) {
        // The last holder of a grant takes it out of the table when it goes, and that may be us: so not
        // while the table is locked.
        let cut: Vec<_> = {
            let held = lock(&self.held);
            cut.iter().filter_map(|(key, why)| Some((held.get(key)?.upgrade()?, *why))).collect()
        };
        for (standing, why) in cut {
            standing.fall(why);
        }
    }

    /// The grants that were used since this was last asked, with the answers given under each.
    pub(super) fn take_uses(&self) -> Vec<(GrantKey, u64)> {
        let mut uses = std::mem::take(&mut *lock(&self.left));
        // As above: not while the table is locked.
        let held: Vec<_> = lock(&self.held).values().filter_map(Weak::upgrade).collect();
        for standing in held {
            if standing.used.swap(false, Ordering::Relaxed) {
                let reads = standing.reads.swap(0, Ordering::Relaxed);
                *uses.entry(standing.key).or_default() += reads;
            }
        }
        uses.into_iter().collect()
    }

    /// Uses that could not be written down.
    pub(super) fn give_back(&self, uses: &[(GrantKey, u64)]) {
        let mut left = lock(&self.left);
        for (key, reads) in uses {
            *left.entry(*key).or_default() += reads;
        }
    }

    /// Every grant that is held.
    pub(super) fn keys(&self) -> Vec<GrantKey> {
        lock(&self.held).keys().copied().collect()
    }
}

#[cfg(test)]
impl Standing {
    /// One that fell, and that no table knows.
    pub(crate) fn fallen(key: GrantKey, why: Fallen) -> Self {
        let table = Arc::new(Standings::default());
        let standing = table.hold(key);
        standing.fall(why);
        drop(table);
        Arc::into_inner(standing).expect("nobody else has it")
    }
}

impl Standing {
    /// Whether it still stands.
    pub fn check(&self, now_ms: impl FnOnce() -> u64) -> Result<(), Fallen> {
        match self.fallen.load(Ordering::Acquire) {
            STANDS => {}
            why => return Err(Fallen::from_number(why).unwrap_or(Fallen::Revoked)),
        }
        // Most grants do not end by themselves, and need not know the time.
        match self.expires_at_ms.load(Ordering::Relaxed) {
            at_ms if at_ms != u64::MAX && at_ms <= now_ms() => Err(Fallen::Expired),
            _ => {
                // Written only where it changes something, so that many threads can look at once.
                if !self.used.load(Ordering::Relaxed) {
                    self.used.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }

    /// The caveats of the grant, as first told.
    pub fn caveats(&self, found: &Caveats) -> Arc<Caveats> {
        self.caveats.get_or_init(|| Arc::new(found.clone())).clone()
    }

    /// An answer is given under it.
    pub fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// What the store says of it.
    pub fn found(&self, in_force: Result<Force, Fallen>) {
        match in_force {
            Err(why) => self.fall(why),
            Ok(Force { expires_at_ms, .. }) => {
                self.expires_at_ms.store(expires_at_ms.unwrap_or(u64::MAX), Ordering::Relaxed)
            }
        }
    }

    /// When it ends by itself, if it does.
    pub fn expires_at_ms(&self) -> Option<u64> {
        Some(self.expires_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms != u64::MAX)
    }

    /// Returns once it was taken back, with the reason.
    pub async fn fell(&self) -> Fallen {
        loop {
            let fell = self.fell.notified();
            match self.fallen.load(Ordering::Acquire) {
                STANDS => fell.await,
                why => return Fallen::from_number(why).unwrap_or(Fallen::Revoked),
            }
        }
    }

    fn fall(&self, why: Fallen) {
        // The first reason counts.
        let _ =
            self.fallen.compare_exchange(STANDS, why as u8, Ordering::Release, Ordering::Relaxed);
        self.fell.notify_waiters();
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            if *self.used.get_mut() {
                table.give_back(&[(self.key, *self.reads.get_mut())]);
            }
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
        let mut waiting = Box::pin(same.fell());
        assert!(waiting.as_mut().now_or_never().is_none());
        table.cut(&[(GrantKey(1), Fallen::Stale), (GrantKey(9), Fallen::Revoked)]);
        table.cut(&[(GrantKey(1), Fallen::Revoked)]);
        assert_eq!(
            (one.check(|| 0), same.check(|| 0)),
            (Err(Fallen::Stale), Err(Fallen::Stale)),
            "the first reason counts"
        );
        assert_eq!(waiting.as_mut().now_or_never(), Some(Fallen::Stale));
        assert_eq!(other.check(|| 0), Ok(()));
        drop(waiting);
        drop((one, same));
        assert_eq!(table.keys(), [GrantKey(2)], "nobody holds it, and the table forgets it");
    }

    #[test]
    fn what_the_store_says_counts() {
        let table = Arc::new(Standings::default());
        let standing = table.hold(GrantKey(1));
        standing.found(Ok(Force { expires_at_ms: Some(10), only_own: false }));
        assert_eq!((standing.check(|| 9), standing.check(|| 10)), (Ok(()), Err(Fallen::Expired)));
        assert_eq!(standing.expires_at_ms(), Some(10));
        standing.found(Err(Fallen::Revoked));
        assert_eq!(standing.check(|| 0), Err(Fallen::Revoked));
    }

    #[test]
    fn reads_are_counted_also_of_grants_nobody_holds_any_more() {
        let table = Arc::new(Standings::default());
        let (one, two, idle) =
            (table.hold(GrantKey(1)), table.hold(GrantKey(2)), table.hold(GrantKey(3)));
        for standing in [&one, &one, &two] {
            standing.check(|| 0).unwrap();
            standing.count_read();
        }
        drop(two);
        let mut uses = table.take_uses();
        uses.sort_by_key(|(key, _)| key.0);
        assert_eq!(uses, [(GrantKey(1), 2), (GrantKey(2), 1)]);
        assert_eq!(table.take_uses(), [], "they are taken once");
        table.give_back(&uses[..1]);
        one.check(|| 0).unwrap();
        one.count_read();
        assert_eq!(table.take_uses(), [(GrantKey(1), 3)], "and none is lost");
        drop(idle);
    }
}
