//! The only way to know the time. Whoever needs it is handed a [`Clock`], so tests can hand in theirs.

use std::time::{SystemTime, UNIX_EPOCH};

/// Tells milliseconds since 1970.
pub trait Clock: Send + Sync + 'static {
    /// The current time. It may jump either way; nothing may use it for order.
    fn now_ms(&self) -> u64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The time as files have it: nanoseconds since 1970.
pub fn file_time_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
