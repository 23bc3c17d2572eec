//! Which logs somebody holds an object for, and what was last told about them.
//!
//! The writer announces every log it has committed to, before it releases the replies. So what is kept
//! here is never older than what any caller has been told, and asking about an object that did not
//! change costs no trip to the store.

use crate::model::ids::LogId;
use crate::model::infos::ObjectInfo;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All logs that are held by somebody.
#[derive(Default)]
pub(super) struct Live {
    logs: Mutex<HashMap<LogId, Weak<LiveLog>>>,
}

/// One of them; kept by every live object for it, on whatever connection.
pub struct LiveLog {
    id: LogId,
    told: Mutex<Told>,
    /// To take the entry out again; weak, because the table does not need the log.
    table: Weak<Live>,
}

#[derive(Default)]
struct Told {
    /// How often the log has changed while it was held.
    changes: u64,
    info: Option<Arc<ObjectInfo>>,
}

impl Live {
    /// The shared state of a log, for as long as the result is kept.
    pub(super) fn hold(self: &Arc<Self>, id: LogId) -> Arc<LiveLog> {
        let mut logs = lock(&self.logs);
        if let Some(held) = logs.get(&id).and_then(Weak::upgrade) {
            return held;
        }
        let fresh = Arc::new(LiveLog { id, told: Mutex::default(), table: Arc::downgrade(self) });
        logs.insert(id, Arc::downgrade(&fresh));
        fresh
    }

    /// Anything may have changed on disk.
    pub(super) fn all_may_have_changed(&self) {
        let all: Vec<_> = lock(&self.logs).keys().copied().collect();
        self.changed(all);
    }

    /// Logs have changed on disk.
    pub(super) fn changed(&self, ids: impl IntoIterator<Item = LogId>) {
        // The last holder of a log takes it out of the table when it goes, and that may be us: so not
        // while the table is locked.
        let held: Vec<_> = {
            let logs = lock(&self.logs);
            ids.into_iter().filter_map(|id| logs.get(&id)?.upgrade()).collect()
        };
        for log in held {
            let mut told = lock(&log.told);
            told.changes += 1;
            told.info = None;
        }
    }
}

impl LiveLog {
    /// What is told about the object: from memory, or from `fetch` if it changed since it was last
    /// fetched.
    pub async fn info<E>(
        &self,
        fetch: impl Future<Output = Result<ObjectInfo, E>>,
    ) -> Result<Arc<ObjectInfo>, E> {
        let changes = {
            let told = lock(&self.told);
            if let Some(info) = &told.info {
                return Ok(info.clone());
            }
            told.changes
        };
        let info = Arc::new(fetch.await?);
        let mut told = lock(&self.told);
        // A change during the fetch may or may not be in it.
        if told.changes == changes {
            told.info = Some(info.clone());
        }
        Ok(info)
    }
}

impl Drop for LiveLog {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let mut logs = lock(&table.logs);
            // Somebody may have come back for the log in between; that entry is not ours.
            if logs.get(&self.id).is_some_and(|entry| entry.strong_count() == 0) {
                logs.remove(&self.id);
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
    use crate::model::ids::{Cursor, ProjectId};
    use crate::model::infos::ProjectInfo;
    use futures::FutureExt;
    use std::cell::Cell;
    use std::convert::Infallible;

    fn info(sessions: u64) -> ObjectInfo {
        ObjectInfo::Project(ProjectInfo {
            id: ProjectId::parse("p").unwrap(),
            directory: "/".into(),
            name: String::new(),
            created_at_ms: 0,
            cursor: Cursor(1),
            session_count: sessions,
            ..ProjectInfo::default()
        })
    }

    #[test]
    fn what_was_told_is_kept_until_it_changes() {
        let live = Arc::new(Live::default());
        let log = live.hold(LogId(7));
        let fetched = Cell::new(0);
        let ask = || {
            let fetch = async {
                fetched.set(fetched.get() + 1);
                Ok::<_, Infallible>(info(fetched.get()))
            };
            let Ok(told) = log.info(fetch).now_or_never().unwrap();
            *told == info(fetched.get())
        };
        assert!(ask() && ask() && fetched.get() == 1);
        live.changed([LogId(8)]);
        assert!(ask() && fetched.get() == 1, "another log's change is nothing to this one");
        live.changed([LogId(7)]);
        assert!(ask() && fetched.get() == 2);
    }

    #[test]
    fn a_change_during_the_fetch_is_not_missed() {
        let live = Arc::new(Live::default());
        let log = live.hold(LogId(7));
        let overtaken = async {
            live.changed([LogId(7)]);
            Ok::<_, Infallible>(info(1))
        };
        let _ = log.info(overtaken).now_or_never().unwrap();
        let Ok(told) = log.info(async { Ok::<_, Infallible>(info(2)) }).now_or_never().unwrap();
        assert_eq!(*told, info(2), "what was fetched while it changed was not kept");
    }

    #[test]
    fn nobody_holds_a_log_and_the_table_forgets_it() {
        let live = Arc::new(Live::default());
        let (one, other) = (live.hold(LogId(1)), live.hold(LogId(1)));
        assert!(Arc::ptr_eq(&one, &other));
        drop(one);
        assert_eq!(lock(&live.logs).len(), 1);
        drop(other);
        assert_eq!(lock(&live.logs).len(), 0);
    }
}
