//! What is gathered in memory until it is written down: refusals for want of authority, and reads.
//!
//! Refusals are what a hostile peer can have as many of as it likes. So equal ones are counted together, there
//! are only so many different ones, and they are written down every few seconds.

use crate::limits::DENIALS_KEPT_MAX;
use crate::model::code::Code;
use crate::model::ids::{GrantKey, LogId};
use crate::model::rights::Right;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Somebody was refused for want of authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Denial {
    /// Under which grant; none for a stranger.
    pub granted: Option<GrantKey>,
    /// Of which object.
    pub log: Option<LogId>,
    /// Whose ref was shown with a wrong secret.
    pub shown: Option<GrantKey>,
    /// Why.
    pub code: Code,
    /// Which right was missing, if one was.
    pub missing: Option<Right>,
}

impl Denial {
    /// Of a stranger, of whom nothing is known.
    pub fn of_stranger(code: Code) -> Self {
        Self { granted: None, log: None, shown: None, code, missing: None }
    }
}

/// What is to be written down.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    pub(super) denials: Vec<(Denial, u64)>,
    /// Grants that were used, and the answers given under them.
    pub(super) uses: Vec<(GrantKey, u64)>,
}

impl Notes {
    pub(super) fn is_empty(&self) -> bool {
        self.denials.is_empty() && self.uses.is_empty()
    }
}

/// The refusals since they were last written down.
#[derive(Default)]
pub(super) struct Denials(Mutex<HashMap<Denial, u64>>);

impl Denials {
    pub(super) fn add(&self, denial: Denial, count: u64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.len() < DENIALS_KEPT_MAX || kept.contains_key(&denial);
        let denial = if known { denial } else { Denial::of_stranger(denial.code) };
        *kept.entry(denial).or_default() += count;
    }

    pub(super) fn take(&self) -> Vec<(Denial, u64)> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *kept).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_are_counted_and_different_ones_are_bounded() {
        let denials = Denials::default();
        let of =
            |key| Denial { granted: Some(GrantKey(key)), ..Denial::of_stranger(Code::Revoked) };
        for key in 0..5_000 {
            denials.add(of(key), 1);
            denials.add(of(key), 2);
        }
        let taken = denials.take();
        assert!(taken.len() <= DENIALS_KEPT_MAX + Code::ALL.len());
        assert_eq!(taken.iter().map(|(_, count)| count).sum::<u64>(), 15_000, "none is forgotten");
        assert!(taken.contains(&(of(0), 3)));
        assert!(denials.take().is_empty());
    }
}
