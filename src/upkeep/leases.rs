//! Ending delegations and turns nothing is heard of any more.

use crate::clock::Clock;
use crate::engine::Engine;
use crate::limits::{LEASE_LOOK_MS, LEASES_STEP_MAX};
use crate::queries::Readers;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Looks every [`LEASE_LOOK_MS`] whether the time of a delegation or a turn has come, for as long as it is polled.
pub async fn keep_ending(engine: Engine, readers: Readers, clock: &dyn Clock) {
    let mut ticks = tokio::time::interval(Duration::from_millis(LEASE_LOOK_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        end_due(&engine, &readers, clock).await;
    }
}

/// Ends whatever delegation or turn has had its time.
pub async fn end_due(engine: &Engine, readers: &Readers, clock: &dyn Clock) {
    match readers.is_due(clock.now_ms()).await {
        Ok(false) => return,
        Ok(true) => {}
        Err(error) => {
            tracing::warn!(%error, "leases could not be looked at; the next look goes on");
            return;
        }
    }
    // Step by step, so that others have their turn.
    loop {
        match engine.end_due().answer().await {
            Ok(ended) => {
                tracing::info!(ended, "delegations and turns have had their time");
                if ended < LEASES_STEP_MAX.into() {
                    break;
                }
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "leases could not be ended; the next look goes on");
                break;
            }
        }
    }
}
