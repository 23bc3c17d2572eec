//! What the holder of an object may do with it.

use std::fmt;

/// One right. Numbers are stored as bits; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Look at it.
    Read = 0,
    /// Add to it.
    Append = 1,
    /// Run turns in it.
    Turn = 2,
    /// Record the state of a worktree.
    Snapshot = 3,
    /// Put a worktree back into a recorded state.
    Restore = 4,
    /// Publish it.
    Share = 5,
    /// Hand narrower grants to others.
    Delegate = 6,
    /// Administer it.
    Admin = 7,
}

impl Right {
    /// Every right there is.
    pub const ALL: [Right; 8] = [
        Right::Read,
        Right::Append,
        Right::Turn,
        Right::Snapshot,
        Right::Restore,
        Right::Share,
        Right::Delegate,
        Right::Admin,
    ];

    /// The word used in the schema and in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Append => "append",
            Right::Turn => "turn",
            Right::Snapshot => "snapshot",
            Right::Restore => "restore",
            Right::Share => "share",
            Right::Delegate => "delegate",
            Right::Admin => "admin",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u32);

impl Rights {
    /// Everything: what the root's grant carries.
    pub fn all() -> Self {
        Right::ALL.into_iter().collect()
    }

    /// Whether `right` is among them.
    pub const fn contains(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// A right that is among these and not among those.
    pub fn lacking(self, those: Rights) -> Option<Right> {
        Right::ALL.into_iter().find(|right| self.contains(*right) && !those.contains(*right))
    }

    /// The rights one by one.
    pub fn each(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.contains(*right))
    }

    /// The set as it is stored.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A stored set. Bits this version does not know give nothing.
    pub fn from_bits(bits: u32) -> Self {
        Right::ALL.into_iter().filter(|right| bits & right.bit() != 0).collect()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Right::ALL.iter().filter(|right| self.contains(**right))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_survives_the_store_and_unknown_bits_give_nothing() {
        let some: Rights = [Right::Read, Right::Share].into_iter().collect();
        assert_eq!(Rights::from_bits(some.bits()), some);
        assert_eq!(Rights::from_bits(1 << 30), Rights::default());
        assert!(Right::ALL.into_iter().all(|right| Rights::all().contains(right)));
        assert!(!some.contains(Right::Append));
    }
}
