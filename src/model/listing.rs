//! Lists of sessions by what happened last.
//!
//! Sessions move in such a list while it is being read. So it is read as of the moment it was begun, and whatever
//! has moved since comes once more at the end: nothing is skipped, and what comes twice has really changed.

use crate::model::code::{Code, Coded};

/// Which sessions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Exactly this directory; empty for any.
    pub directory: String,
    /// This path or below; empty for any.
    pub path: String,
    /// Only those without a parent.
    pub roots: bool,
    /// Only those something happened in then or later.
    pub start_ms: u64,
    /// With this in their title.
    pub search: String,
    /// Whether those that were put away are wanted.
    pub archived: Archived,
}

/// Whether sessions that were put away are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Archived {
    /// They are not.
    #[default]
    LeaveOut = 0,
    /// They are, too.
    Include = 1,
    /// Only they are.
    Only = 2,
}

/// How far a list was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// When something had last happened as it was begun.
    pub as_of_ms: u64,
    /// The last op there was then.
    pub position: u64,
    /// Where it goes on.
    pub updated_at_ms: u64,
    /// Among those of the same moment.
    pub log: u64,
    /// What was there when it was begun is through.
    pub second_round: bool,
}

/// Not one of ours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is not one that this list gave; begin anew without one")]
pub struct Malformed;

impl Coded for Malformed {
    fn code(&self) -> Code {
        Code::TokenMalformed
    }
}

impl Token {
    /// To begin with, seeing when something last happened. Moments never fall from one commit to the next, so
    /// whatever moves from then on is at this one or later.
    pub fn first(last_update_ms: u64, position: u64) -> Self {
        let (updated_at_ms, log) = (u64::MAX, u64::MAX);
        Self { as_of_ms: last_update_ms, position, updated_at_ms, log, second_round: false }
    }

    /// The round of what has moved since.
    pub fn second(self) -> Self {
        Self { updated_at_ms: self.as_of_ms, log: 0, second_round: true, ..self }
    }

    /// Behind a session.
    pub fn behind(self, updated_at_ms: u64, log: i64) -> Self {
        Self { updated_at_ms, log: u64::try_from(log).unwrap_or(0), ..self }
    }

    /// As it is handed out.
    pub fn bytes(self) -> [u8; 33] {
        let mut bytes = [0; 33];
        let numbers = [self.as_of_ms, self.position, self.updated_at_ms, self.log];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32] = self.second_round.into();
        bytes
    }

    /// As it comes back.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (numbers, [round @ (0 | 1)]) = bytes.split_at_checked(32).ok_or(Malformed)? else {
            return Err(Malformed);
        };
        let mut numbers =
            numbers.chunks_exact(8).map(|at| at.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next().unwrap_or(0);
        let (as_of_ms, position) = (next(), next());
        let (updated_at_ms, log) = (next(), next());
        Ok(Self { as_of_ms, position, updated_at_ms, log, second_round: *round == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_were() {
        let token = Token::first(5, 9).behind(4, 3);
        for token in [token, token.second(), Token::first(u64::MAX, 1)] {
            assert_eq!(Token::parse(&token.bytes()), Ok(token));
        }
        for bad in [&[][..], &[0; 32], &[0; 34], &[2; 33]] {
            assert_eq!(Token::parse(bad), Err(Malformed));
        }
    }
}
