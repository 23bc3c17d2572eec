//! Work handed to somebody, for as long as something is heard of it.

use crate::limits::{LEASE_MS_MAX, LEASE_MS_MIN, LEASE_RENEWAL_PARTS};
use crate::model::code::{Code, Coded};
use serde::{Deserialize, Serialize};

/// How a delegation stands, or ended. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It has not.
    Running = 0,
    /// The delegate is done.
    Completed = 1,
    /// The delegate gave up.
    Failed = 2,
    /// Nothing was heard of the delegate for too long.
    Lapsed = 3,
    /// The delegate's grant was taken back.
    Revoked = 4,
    /// The delegate's grant has ended by itself.
    Expired = 5,
}

impl End {
    /// The one behind a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        [End::Running, End::Completed, End::Failed, End::Lapsed, End::Revoked, End::Expired]
            .into_iter()
            .find(|end| *end as u8 == number)
    }
}

/// How long a delegate may be silent; none for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(Option<u64>);

/// It makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease of {ms} ms makes no sense; it is 0 for none, or {LEASE_MS_MIN} to {LEASE_MS_MAX}")]
pub struct BadLease {
    ms: u64,
}

impl Coded for BadLease {
    fn code(&self) -> Code {
        Code::NarrowingMalformed
    }
}

impl Lease {
    /// As it is asked for: 0 for none.
    pub fn new(ms: u64) -> Result<Self, BadLease> {
        match ms {
            0 => Ok(Self(None)),
            LEASE_MS_MIN..=LEASE_MS_MAX => Ok(Self(Some(ms))),
            _ => Err(BadLease { ms }),
        }
    }

    /// As it is stored: 0 for none.
    pub fn ms(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// When a delegation is over unless something is heard by then, seeing when its grant expires.
    pub fn until_ms(self, now_ms: u64, expires_at_ms: Option<u64>) -> Option<u64> {
        let lapses = self.0.map(|ms| now_ms.saturating_add(ms));
        match (lapses, expires_at_ms) {
            (Some(lapses), Some(expires)) => Some(lapses.min(expires)),
            (lapses, expires) => lapses.or(expires),
        }
    }

    /// Whether a heartbeat is worth writing down: one that comes shortly after another moves nothing that
    /// anybody would notice.
    pub fn is_worth_noting(self, before_ms: Option<u64>, after_ms: Option<u64>) -> bool {
        match (before_ms, after_ms) {
            (Some(before), Some(after)) => {
                after.saturating_sub(before) > self.ms() / LEASE_RENEWAL_PARTS
            }
            (before, after) => before != after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_with_silence_or_with_the_grant() {
        let lease = Lease::new(10_000).unwrap();
        assert_eq!(lease.until_ms(5, None), Some(10_005));
        assert_eq!(lease.until_ms(5, Some(100)), Some(100));
        let none = Lease::new(0).unwrap();
        assert_eq!((none.until_ms(5, None), none.until_ms(5, Some(100))), (None, Some(100)));
        for bad in [1, LEASE_MS_MIN - 1, LEASE_MS_MAX + 1, u64::MAX] {
            assert!(Lease::new(bad).is_err(), "{bad}");
        }
        assert!(!lease.is_worth_noting(Some(10_000), Some(10_500)));
        assert!(lease.is_worth_noting(Some(10_000), Some(12_000)));
        assert!(!lease.is_worth_noting(Some(100), Some(100)), "it expires, whatever is heard");
        assert!(!none.is_worth_noting(None, None));
    }

    #[test]
    fn ends_come_back_as_they_were() {
        for number in 0..6 {
            assert_eq!(End::from_number(number).map(|end| end as u8), Some(number));
        }
        assert_eq!(End::from_number(6), None);
    }
}
