//! The thread of one work tree.

use super::desk::Desk;
use super::{Inner, Trouble};
use crate::limits::{WORKTREE_IDLE_MS, WORKTREE_JOBS_MAX};
use crate::model::worktree::WorktreeKey;
use crate::snapshot::vault::lock;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::thread;
use std::time::Duration;

/// Something to be done there; it is told why if it cannot be.
pub(super) type Job = Box<dyn FnOnce(Result<&mut Desk, Trouble>) + Send>;

/// A handle to the thread.
pub(super) struct Worker {
    jobs: SyncSender<Job>,
    thread: thread::JoinHandle<()>,
}

/// How long nothing happens before what was done is brought to the disk for good.
const PAUSE: Duration = Duration::from_millis(100);

impl Worker {
    pub(super) fn start(inner: Arc<Inner>, key: WorktreeKey) -> io::Result<Self> {
        let (jobs, queue) = sync_channel(WORKTREE_JOBS_MAX);
        let name = format!("worktree-{}", key.log.0);
        let thread = thread::Builder::new()
            .name(name)
            .stack_size(super::STACK_BYTES)
            .spawn(move || run(&inner, &key, &queue))?;
        Ok(Self { jobs, thread })
    }

    pub(super) fn hand(&self, job: Job) -> Result<(), Trouble> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Trouble::Overloaded,
            TrySendError::Disconnected(_) => Trouble::Stopping,
        })
    }

    /// Waits until everything that was handed to it is done.
    pub(super) fn finish(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the thread of a worktree panicked");
        }
    }
}

fn run(inner: &Arc<Inner>, key: &WorktreeKey, queue: &Receiver<Job>) {
    let mut desk = None;
    loop {
        let job = match queue.recv_timeout(PAUSE) {
            Ok(job) => job,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(desk) = &mut desk {
                    settle(desk);
                }
                match queue.recv_timeout(Duration::from_millis(WORKTREE_IDLE_MS)) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        // Whoever hands a job in holds the same lock.
                        let mut workers = lock(&inner.workers);
                        match queue.try_recv() {
                            Ok(job) => {
                                drop(workers);
                                job
                            }
                            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                                workers.remove(&key.log);
                                break;
                            }
                        }
                    }
                }
            }
        };
        do_it(inner, key, &mut desk, job);
    }
    if let Some(desk) = &mut desk {
        settle(desk);
    }
}

fn do_it(inner: &Arc<Inner>, key: &WorktreeKey, desk: &mut Option<Desk>, job: Job) {
    // What has begun is finished; what only waits is not begun any more.
    if inner.closed.load(Ordering::Acquire) {
        return job(Err(Trouble::Stopping));
    }
    if desk.is_none() {
        match catch_unwind(AssertUnwindSafe(|| Desk::open(inner.clone(), key.clone()))) {
            Ok(Ok(opened)) => *desk = Some(opened),
            Ok(Err(trouble)) => return job(Err(trouble)),
            Err(_) => return job(Err(Trouble::Impossible)),
        }
    }
    let Some(open) = desk else { return };
    // A fault of ours is one call's trouble; what is known is looked up again.
    if catch_unwind(AssertUnwindSafe(|| job(Ok(open)))).is_err() {
        tracing::error!(worktree = %key.id, "a job at a worktree panicked");
        *desk = None;
    } else if open.stale {
        // Taken into use again at once: what is half done is finished by that.
        *desk = match Desk::open(inner.clone(), key.clone()) {
            Ok(opened) => Some(opened),
            Err(trouble) => {
                tracing::info!(%trouble, worktree = %key.id, "it cannot be used at the moment");
                None
            }
        };
    }
}

fn settle(desk: &mut Desk) {
    if let Err(error) = desk.settle() {
        tracing::warn!(%error, "what is known of a worktree could not be written down");
    }
}
