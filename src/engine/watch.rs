//! Who waits for a stretch of history to grow, and the pages they have in common.
//!
//! The writer only notes which stretches grew; a thread of its own wakes those who wait, so a thousand of
//! them cost the writer nothing. Whoever is woken first has the new page read, and the others take the same
//! one.

use crate::limits::DURABLE_SUBSCRIPTIONS_PER_LOG_MAX;
use crate::model::feed::{FeedPage, Stretch};
use crate::model::ids::LogId;
use crate::store::subscriptions::SubscriptionKey;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use tokio::sync::{OnceCell, watch};

/// Pages kept for the others, per stretch.
const PAGES_KEPT: usize = 4;
/// Largest page that is kept: whoever follows live has small ones, and many stretches may be watched.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// How often compaction waits for a feed that takes in what is kept. With a sweep every ten minutes, a day.
const COMPACTION_WAITS_MAX: usize = 144;
/// The holder of a subscription that was forgotten.
pub(super) const NOBODY: u64 = 0;

/// A page that was read, or is being read.
type Slot = Arc<OnceCell<Arc<FeedPage>>>;

/// All stretches somebody watches.
#[derive(Default)]
pub(super) struct Watchtower {
    watched: Mutex<HashMap<Stretch, Weak<Watched>>>,
    grown: Mutex<Grown>,
    wake: Condvar,
}

#[derive(Default)]
struct Grown {
    stretches: HashSet<Stretch>,
    /// It is not known which.
    any: bool,
    closed: bool,
}

/// What a sweep leaves alone.
#[derive(Debug, Default)]
pub struct Spared {
    all: bool,
    logs: HashSet<LogId>,
}

impl Spared {
    /// Whether it leaves this log alone.
    pub fn contains(&self, log: LogId) -> bool {
        self.all || self.logs.contains(&log)
    }
}

/// A stretch, for as long as somebody watches it.
pub struct Watched {
    stretch: Stretch,
    changes: watch::Sender<u64>,
    /// Feeds in the middle of taking in what is kept below a floor, and how often compaction has waited for
    /// them.
    taking_in: AtomicUsize,
    waited: AtomicUsize,
    /// Who holds the named subscriptions that were taken or forgotten while somebody watches.
    holders: Mutex<HashMap<SubscriptionKey, u64>>,
    /// By the place they were asked for; a page may still be on its way.
    pages: Mutex<VecDeque<(u64, Slot)>>,
    tower: Weak<Watchtower>,
}

impl Watchtower {
    /// Starts the thread that wakes those who wait. It ends with [`Watchtower::close`].
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let tower = Arc::new(Self::default());
        let of_thread = tower.clone();
        thread::Builder::new().name("announcer".into()).spawn(move || of_thread.announce())?;
        Ok(tower)
    }

    pub(super) fn close(&self) {
        lock(&self.grown).closed = true;
        self.wake.notify_all();
    }

    pub(super) fn watch(self: &Arc<Self>, stretch: Stretch) -> Arc<Watched> {
        let mut watched = lock(&self.watched);
        if let Some(known) = watched.get(&stretch).and_then(Weak::upgrade) {
            return known;
        }
        let fresh = Arc::new(Watched {
            stretch,
            changes: watch::Sender::new(0),
            taking_in: AtomicUsize::new(0),
            waited: AtomicUsize::new(0),
            holders: Mutex::default(),
            pages: Mutex::default(),
            tower: Arc::downgrade(self),
        });
        watched.insert(stretch, Arc::downgrade(&fresh));
        fresh
    }

    /// Logs have grown on disk; each comes with the project it belongs to.
    pub(super) fn grew(&self, logs: impl IntoIterator<Item = (LogId, Option<LogId>)>) {
        let mut grown = lock(&self.grown);
        for (log, project) in logs {
            grown.stretches.extend([Stretch::Server, Stretch::Log(log)]);
            grown.stretches.extend(project.map(Stretch::Project));
        }
        drop(grown);
        self.wake.notify_one();
    }

    /// Texts of open parts have grown in these sessions; nobody else follows them.
    pub(super) fn texts_grew(&self, sessions: Vec<LogId>) {
        if sessions.is_empty() {
            return;
        }
        lock(&self.grown).stretches.extend(sessions.into_iter().map(Stretch::Log));
        self.wake.notify_one();
    }

    /// A named subscription has another holder.
    pub(super) fn held_by(&self, stretch: Stretch, key: SubscriptionKey, holder: u64) {
        let watched = lock(&self.watched).get(&stretch).and_then(Weak::upgrade);
        if let Some(watched) = watched {
            let mut holders = lock(&watched.holders);
            // Who did not live to let go leaves an entry behind. Without them a feed still notices, a little
            // later, when it has something to save.
            if holders.len() as u64 >= 2 * DURABLE_SUBSCRIPTIONS_PER_LOG_MAX {
                holders.clear();
            }
            holders.insert(key, holder);
            drop(holders);
            watched.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// What a sweep leaves alone. Who is taking in what is kept below a floor would have to begin anew if
    /// more went; it is waited for, but not for ever.
    pub(super) fn spare(&self) -> Spared {
        let watched: Vec<_> = lock(&self.watched).values().filter_map(Weak::upgrade).collect();
        let mut spared = Spared::default();
        for watched in watched {
            if watched.taking_in.load(Ordering::Relaxed) > 0
                && watched.waited.fetch_add(1, Ordering::Relaxed) < COMPACTION_WAITS_MAX
            {
                match watched.stretch {
                    // Which logs it joins is not known here; such feeds are few, and soon through.
                    Stretch::Server | Stretch::Project(_) => spared.all = true,
                    Stretch::Log(log) => drop(spared.logs.insert(log)),
                }
            }
        }
        spared
    }

    /// Some of a log was compacted. Whoever is in the middle of it will notice; pages kept for others go.
    pub(super) fn compacted(&self, log: LogId) {
        let watched: Vec<_> = lock(&self.watched).values().filter_map(Weak::upgrade).collect();
        for stretch in watched {
            if stretch.is_of(log) {
                lock(&stretch.pages).clear();
            }
        }
    }

    /// Something may have grown on disk.
    pub(super) fn may_have_grown(&self) {
        lock(&self.grown).any = true;
        self.wake.notify_one();
    }

    fn announce(&self) {
        loop {
            let (stretches, any) = {
                let mut grown = lock(&self.grown);
                while grown.stretches.is_empty() && !grown.any {
                    if grown.closed {
                        return;
                    }
                    grown = self.wake.wait(grown).unwrap_or_else(PoisonError::into_inner);
                }
                (std::mem::take(&mut grown.stretches), std::mem::take(&mut grown.any))
            };
            // The last to watch a stretch takes it out of the table when it goes, and that may be us: so
            // not while the table is locked.
            let waiting: Vec<_> = {
                let watched = lock(&self.watched);
                match any {
                    true => watched.values().filter_map(Weak::upgrade).collect(),
                    false => stretches
                        .iter()
                        .filter_map(|stretch| watched.get(stretch)?.upgrade())
                        .collect(),
                }
            };
            for stretch in waiting {
                stretch.changes.send_modify(|changes| *changes += 1);
            }
        }
    }
}

impl Watched {
    /// Whether a log is, or may be, part of it. Feeds that join logs are few, and compaction is rare.
    fn is_of(&self, log: LogId) -> bool {
        matches!(self.stretch, Stretch::Server | Stretch::Project(_))
            || self.stretch == Stretch::Log(log)
    }

    /// A feed is taking in what is kept below a floor, for as long as the result is kept.
    pub fn taking_in(self: &Arc<Self>) -> TakingIn {
        self.taking_in.fetch_add(1, Ordering::Relaxed);
        TakingIn(self.clone())
    }

    /// A holder of a named subscription has no more interest in it.
    pub fn let_go(&self, key: SubscriptionKey, holder: u64) {
        let mut holders = lock(&self.holders);
        if holders.get(&key).is_some_and(|now| *now == holder || *now == NOBODY) {
            holders.remove(&key);
        }
    }

    /// Whether a named subscription is still this holder's, as far as has been heard.
    pub fn is_held_by(&self, key: SubscriptionKey, holder: u64) -> bool {
        lock(&self.holders).get(&key).is_none_or(|now| *now == holder)
    }

    /// Told whenever the stretch has grown, or a named subscription was taken up.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What lies behind a place: the page somebody else is having read or had read, or the one that `fetch`
    /// reads now.
    ///
    /// Only pages at the end of the stretch are kept, for those who follow it live. Whoever is still reading
    /// old history reads for itself and holds up nobody.
    pub async fn page<E>(
        self: &Arc<Self>,
        after: u64,
        fetch: impl Future<Output = Result<FeedPage, E>>,
    ) -> Result<Arc<FeedPage>, E> {
        let mut fetch = std::pin::pin!(fetch);
        let mut fetched = false;
        let slot = self.slot(after);
        let read = slot
            .get_or_try_init(async || {
                fetched = true;
                fetch.as_mut().await.map(Arc::new)
            })
            .await
            .cloned();
        if Arc::strong_count(self) == 1 || !read.as_ref().is_ok_and(worth_keeping) {
            lock(&self.pages).retain(|(_, other)| !Arc::ptr_eq(other, &slot));
        }
        match read {
            // An empty page of somebody else's may be older than what this caller was told of.
            Ok(page) if page.ops.is_empty() && !fetched => fetch.await.map(Arc::new),
            read => read,
        }
    }

    fn slot(&self, after: u64) -> Slot {
        let mut pages = lock(&self.pages);
        if let Some((_, slot)) = pages.iter().find(|(kept, _)| *kept == after) {
            return slot.clone();
        }
        let slot = Slot::default();
        pages.truncate(PAGES_KEPT - 1);
        pages.push_front((after, slot.clone()));
        slot
    }
}

/// See [`Watched::taking_in`].
pub struct TakingIn(Arc<Watched>);

impl Drop for TakingIn {
    fn drop(&mut self) {
        if self.0.taking_in.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.waited.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether others may want the same page: it ends where the stretch does, and is small.
fn worth_keeping(page: &Arc<FeedPage>) -> bool {
    let bytes: usize = page.ops.iter().map(|op| op.payload.len()).sum();
    !page.ops.is_empty() && page.through == page.head && bytes <= KEPT_BYTES_MAX
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(tower) = self.tower.upgrade() {
            let mut watched = lock(&tower.watched);
            // Somebody may have come back for the stretch in between; that entry is not ours.
            if watched.get(&self.stretch).is_some_and(|entry| entry.strong_count() == 0) {
                watched.remove(&self.stretch);
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
    use crate::model::feed::LoggedOp;
    use std::cell::Cell;
    use std::convert::Infallible;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn those_who_watch_are_woken_and_no_others() {
        let tower = Watchtower::start().unwrap();
        let (log, project) = (LogId(7), LogId(3));
        let stretches = [Stretch::Server, Stretch::Project(project), Stretch::Log(log)];
        let watched = stretches.map(|stretch| tower.watch(stretch));
        let others = [Stretch::Project(LogId(4)), Stretch::Log(LogId(8))].map(|s| tower.watch(s));
        let mut told = watched.each_ref().map(|watched| watched.changes());
        tower.grew([(log, Some(project))]);
        block_on(async {
            for changes in &mut told {
                changes.changed().await.unwrap();
            }
        });
        for other in &others {
            assert_eq!(*other.changes().borrow(), 0);
        }
        let mut other = others[0].changes();
        tower.may_have_grown();
        block_on(other.changed()).unwrap();
        assert!(!tower.spare().contains(log));
        let taking_in = watched[2].taking_in();
        assert!(tower.spare().contains(log) && !tower.spare().contains(LogId(8)));
        let wide = watched[1].taking_in();
        assert!(tower.spare().contains(LogId(8)), "a feed that joins logs may join any");
        drop(wide);
        for _ in 0..COMPACTION_WAITS_MAX {
            tower.spare();
        }
        assert!(!tower.spare().contains(log), "but not for ever");
        drop(taking_in);
        drop((watched, others));
        tower.close();
        // The thread may be about to let go of what it announced.
        while !lock(&tower.watched).is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_page_is_read_once_for_all_who_ask_at_the_same_place() {
        let tower = Arc::new(Watchtower::default());
        let one = tower.watch(Stretch::Server);
        let _other = tower.watch(Stretch::Server);
        let read = Cell::new(0);
        let op = LoggedOp {
            position: 1,
            log: LogId(1),
            cursor: crate::model::ids::Cursor(1),
            project_id: None,
            session_id: None,
            producer: crate::model::ids::ProducerId([0; 16]),
            seq: 1,
            op_id: crate::model::ids::OpId([0; 16]),
            batch: None,
            at_ms: 0,
            kind: 1,
            version: 1,
            granted: crate::model::ids::GrantKey(1),
            author: Arc::new(crate::model::infos::Author {
                grant: crate::model::ids::GrantId([0; 16]),
                actors: Vec::new(),
            }),
            payload: Vec::new(),
        };
        let ask_of = |after, ops: Vec<LoggedOp>, head| {
            let fetch = async {
                read.set(read.get() + 1);
                Ok::<_, Infallible>(FeedPage {
                    after,
                    ops,
                    through: after + 1,
                    head,
                    floor: 0,
                    cuts: 0,
                })
            };
            let Ok(page) = block_on(one.page(after, fetch));
            page.after
        };
        let ask = |after, ops| ask_of(after, ops, after + 1);
        assert_eq!([ask(1, vec![op.clone()]), ask(1, vec![op.clone()])], [1, 1]);
        assert_eq!(read.get(), 1);
        ask(2, Vec::new());
        ask(2, Vec::new());
        assert_eq!(read.get(), 3, "an empty page is asked for again");
        for after in 3..8 {
            ask(after, vec![op.clone()]);
        }
        assert_eq!(lock(&one.pages).len(), PAGES_KEPT);
        let before = read.get();
        tower.compacted(LogId(5));
        ask(7, vec![op.clone()]);
        assert_eq!(read.get(), before + 1, "what was compacted is not shown from memory");
        ask_of(70, vec![op.clone()], 90);
        ask_of(70, vec![op.clone()], 90);
        assert_eq!(read.get(), before + 3, "old history is read by each for itself");
        let failing = async { Err::<FeedPage, _>("no") };
        assert_eq!(block_on(one.page(80, failing)).unwrap_err(), "no");
        ask(80, vec![op.clone()]);
        assert_eq!(read.get(), before + 4, "a failure is not kept");
    }
}
