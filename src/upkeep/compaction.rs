//! Letting history go by policy: what is older, or more, than anybody wants kept.
//!
//! The state stays, and so do high-water marks and results nobody acknowledged; see `store::compaction`.
//! It is done in small steps through the engine's queue, between other people's commits.

use super::{UpkeepError, audit};
use crate::clock::Clock;
use crate::engine::{Compacting, Engine, Freed, Refusal};
use crate::limits::{Limits, UPLOAD_KEPT_MS, UPLOADS_STEP_MAX};
use crate::model::ids::{Cursor, LogId};
use crate::queries::{QueryError, Readers};
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Logs looked at in one question.
const LOGS_AT_ONCE: u32 = 100;

/// What a sweep over all logs freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Logs looked at.
    pub logs: u64,
    /// Logs of which something was compacted.
    pub compacted: u64,
    /// Ops that are gone.
    pub ops: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Audit entries that are gone.
    pub audited: u64,
}

/// Why a sweep stopped; what it did is done, and the next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The store cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The engine takes no work.
    #[error(transparent)]
    Engine(#[from] Refusal),
}

/// Compacts every log as far as the policy lets it. Named subscriptions that are in use keep what they have
/// not heard.
async fn sweep(
    engine: &Engine,
    readers: &Readers,
    limits: &Limits,
    now_ms: u64,
) -> Result<Swept, SweepError> {
    let policy = limits.history();
    let subscriptions_since_ms = now_ms.saturating_sub(limits.subscription_idle_ms_max);
    // First this: it leaves ops behind that replace others.
    let left = drop_left(engine, readers, limits, now_ms).await?;
    if left > 0 {
        tracing::info!(left, "checkpoints of what was left behind were let go of");
    }
    let spared = engine.spare();
    let mut swept = Swept::default();
    let mut after = LogId(0);
    loop {
        let found = readers
            .compactable(after, LOGS_AT_ONCE, policy, now_ms, subscriptions_since_ms)
            .await?;
        let Some(last) = found.last else { return Ok(swept) };
        after = last;
        swept.logs += found.looked_at;
        for (log, through) in found.logs {
            if spared.contains(log) {
                continue;
            }
            let freed = compact(engine, log, through).await?;
            swept.compacted += u64::from(freed.ops > 0);
            swept.ops += freed.ops;
            swept.bytes += freed.bytes;
        }
    }
}

/// Step by step, so that others have their turn.
async fn compact(engine: &Engine, log: LogId, through: Cursor) -> Result<Freed, Refusal> {
    let mut all = Freed::default();
    loop {
        let freed = engine.compact(Compacting { log, through }).answer().await?;
        let stuck = freed.swept == all.swept;
        all =
            Freed { swept: freed.swept, ops: all.ops + freed.ops, bytes: all.bytes + freed.bytes };
        if freed.swept >= through || stuck {
            return Ok(all);
        }
    }
}

/// Lets go of what was left behind, where the history policy says so; how many checkpoints that was.
async fn drop_left(
    engine: &Engine,
    readers: &Readers,
    limits: &Limits,
    now_ms: u64,
) -> Result<u64, SweepError> {
    let (mut after, mut dropped) = ((LogId(0), Cursor(0)), 0);
    loop {
        let (found, last) = readers.droppable(after, limits.history(), now_ms).await?;
        for (session, checkpoint) in found {
            while engine.drop_left(session, checkpoint).answer().await? > 0 {}
            dropped += 1;
        }
        match last {
            Some(last) => after = last,
            None => return Ok(dropped),
        }
    }
}

/// Lets uploads go that nothing names, step by step.
async fn let_go(engine: &Engine, now_ms: u64) -> Result<u64, Refusal> {
    let before_ms = now_ms.saturating_sub(UPLOAD_KEPT_MS);
    let mut all = 0;
    loop {
        let gone = engine.let_go(before_ms).answer().await?;
        all += gone;
        if gone < UPLOADS_STEP_MAX.into() {
            return Ok(all);
        }
    }
}

/// Goes over all logs every `limits.history_sweep_ms`, for as long as it is polled.
pub async fn keep_sweeping(engine: Engine, readers: Readers, limits: &Limits, clock: &dyn Clock) {
    if limits.history_sweep_ms == 0 {
        return std::future::pending().await;
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(limits.history_sweep_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match sweep(&engine, &readers, limits, clock.now_ms()).await {
            Ok(swept) if swept.ops > 0 => {
                let Swept { logs, compacted, ops, bytes, .. } = swept;
                tracing::info!(logs, compacted, ops, bytes, "history was compacted");
            }
            Ok(swept) => tracing::debug!(?swept, "nothing to compact"),
            Err(error) => tracing::warn!(%error, "compacting stopped; the next sweep goes on"),
        }
        match let_go(&engine, clock.now_ms()).await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(gone, "uploads that nothing names were let go of"),
            Err(error) => tracing::warn!(%error, "unused uploads stay; the next sweep goes on"),
        }
        match audit::prune(&engine, &readers, limits, clock.now_ms()).await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(gone, "old audit entries were let go of"),
            Err(error) => tracing::warn!(%error, "audit entries stay; the next sweep goes on"),
        }
    }
}

/// What compacting a data directory came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// What went.
    pub swept: Swept,
    /// The size of the database file before and after.
    pub file_bytes: (u64, u64),
}

/// Compacts a data directory no server is using, and gives the room back to the file system.
pub fn compact_directory(
    data: &Path,
    limits: &Limits,
    clock: Arc<dyn Clock>,
) -> Result<Compacted, UpkeepError> {
    let now_ms = clock.now_ms();
    let (_held, path, store) = super::hold(data, now_ms)?;
    let trouble = |error| UpkeepError::Store { path: path.clone(), error };
    store.settle().map_err(trouble)?;
    let size = || std::fs::metadata(&path).map(|file| file.len());
    let before = size()?;
    let readers = Readers::start(&path, 1, limits.queue_reads_max)
        .map_err(|error| UpkeepError::Stopped(error.to_string()))?;
    let (engine, writer) = Engine::start(store, limits, clock, |_| {})?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let swept = runtime.block_on(async {
        let swept = sweep(&engine, &readers, limits, now_ms).await.map_err(|e| e.to_string())?;
        let gone = audit::prune(&engine, &readers, limits, now_ms).await;
        Ok(Swept { audited: gone.map_err(|error| error.to_string())?, ..swept })
    });
    drop(readers);
    writer.finish().map_err(|fatal| UpkeepError::Stopped(fatal.to_string()))?;
    let swept = swept.map_err(UpkeepError::Stopped)?;
    Store::open(&path).and_then(|store| store.vacuum()).map_err(trouble)?;
    Ok(Compacted { swept, file_bytes: (before, size()?) })
}
