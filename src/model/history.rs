//! How much history is kept, and which part of a log may be compacted.

use serde::{Deserialize, Serialize};

/// What may be compacted. Anything it names is a bound on *history*; the state is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Ops older than this may go; none keeps them for ever.
    pub age_ms_max: Option<u64>,
    /// The oldest may go while all together are larger than this; none keeps them for ever.
    pub bytes_max: Option<u64>,
}

/// A session's own wish, in the words of the wire: 0 leaves it to the server, the greatest number keeps
/// everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HistoryWish {
    /// See [`Policy::age_ms_max`].
    pub age_ms_max: u64,
    /// See [`Policy::bytes_max`].
    pub bytes_max: u64,
}

/// Numbers from here on mean "for ever": the store's integers end here.
pub const FOR_EVER: u64 = i64::MAX as u64;

impl Policy {
    /// The server's policy, as far as a session has no wish of its own.
    pub fn with(self, wish: HistoryWish) -> Self {
        let chosen = |own: u64, servers: Option<u64>| match own {
            0 => servers,
            FOR_EVER.. => None,
            own => Some(own),
        };
        Self {
            age_ms_max: chosen(wish.age_ms_max, self.age_ms_max),
            bytes_max: chosen(wish.bytes_max, self.bytes_max),
        }
    }

    /// Whether an op that was committed then, with so many bytes of history from it to the end of the
    /// log, may be compacted now.
    pub fn lets_go(self, at_ms: u64, bytes_to_end: u64, now_ms: u64) -> bool {
        let old = self.age_ms_max.is_some_and(|max| now_ms.saturating_sub(at_ms) > max);
        let large = self.bytes_max.is_some_and(|max| bytes_to_end > max);
        old || large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_have_a_policy_of_its_own() {
        let servers = Policy { age_ms_max: Some(10), bytes_max: None };
        let wish = |age_ms_max, bytes_max| HistoryWish { age_ms_max, bytes_max };
        assert_eq!(servers.with(wish(0, 0)), servers);
        let own = Policy { age_ms_max: None, bytes_max: Some(7) };
        assert_eq!(servers.with(wish(u64::MAX, 7)), own);
        assert_eq!(servers.with(wish(FOR_EVER, 7)), own);
    }

    #[test]
    fn age_or_size_lets_an_op_go() {
        let policy = Policy { age_ms_max: Some(100), bytes_max: Some(1000) };
        assert!(!policy.lets_go(900, 1000, 1000));
        assert!(policy.lets_go(899, 1, 1000), "too old");
        assert!(policy.lets_go(999, 1001, 1000), "too much behind it");
        assert!(!policy.lets_go(2000, 1, 1000), "the clock went backwards");
        let never = Policy { age_ms_max: None, bytes_max: None };
        assert!(!never.lets_go(0, u64::MAX, u64::MAX));
    }
}
