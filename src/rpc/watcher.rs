//! Calls that take their time: who looks on hears how far they are, and can stop them.

use super::scope::Claim;
use crate::snapshot::walk::Progress;
use crate::wire::worktree_capnp::watcher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// When it is told first how far a call is, and how often from then on.
const TOLD_FIRST: Duration = Duration::from_millis(20);
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Dropped with the call: whoever does not wait any more does not want it any more.
pub(super) struct Watched {
    progress: Arc<Progress>,
    done: bool,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self { progress: Arc::default(), done: false }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Waits for the work, and tells how far it is.
    pub(super) async fn wait<T>(
        mut self,
        watcher: Option<watcher::Client>,
        claim: &Claim,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        let mut watcher = watcher;
        let mut pause = TOLD_FIRST;
        let done = loop {
            let Some(watching) = &watcher else { break work.await };
            let told = async {
                tokio::time::sleep(pause).await;
                // One at a time, and only to who takes what he is sent.
                let _turn = claim.turn_to_feed().await;
                let mut request = watching.progress_request();
                request.get().set_files(self.progress.files.load(Ordering::Relaxed));
                request.get().set_bytes(self.progress.bytes.load(Ordering::Relaxed));
                request.send().promise.await.and_then(|answer| Ok(answer.get()?.get_stop()))
            };
            tokio::select! {
                done = &mut work => break done,
                told = told => match told {
                    Ok(false) => pause = TOLD_EVERY,
                    Ok(true) => self.progress.cancelled.store(true, Ordering::Relaxed),
                    // Nobody looks on any more.
                    Err(_) => watcher = None,
                },
            }
        };
        self.done = true;
        done
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.done {
            self.progress.cancelled.store(true, Ordering::Relaxed);
        }
    }
}
