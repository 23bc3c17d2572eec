//! Turns: one run of an agent in a session.

use crate::limits::{
    LEASE_RENEWAL_PARTS, TURN_LEASE_MS_DEFAULT, TURN_LEASE_MS_MAX, TURN_LEASE_MS_MIN,
};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, GrantKey, MessageId, TurnId};
use crate::model::usage::Usage;
use serde::{Deserialize, Serialize};

/// How far a turn is. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// It waits for others to end.
    Queued = 0,
    /// It runs.
    Streaming = 1,
    /// It came to its end.
    Completed = 2,
    /// It did not, and said why.
    Failed = 3,
    /// It was cut short, by somebody or because nothing was heard of it any more.
    Aborted = 4,
}

impl State {
    /// The state behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Queued, Self::Streaming, Self::Completed, Self::Failed, Self::Aborted]
            .into_iter()
            .find(|state| *state as i64 == number)
    }

    /// Whether nothing leads on from here.
    pub fn is_final(self) -> bool {
        !matches!(self, State::Queued | State::Streaming)
    }

    /// The word people use for it.
    pub const fn word(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Streaming => "streaming",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Aborted => "aborted",
        }
    }
}

/// What becomes of a turn while another one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfBusy {
    /// It is refused.
    Refuse,
    /// It waits.
    Queue,
    /// It runs beside them.
    Beside,
}

impl IfBusy {
    /// What becomes of it, where so many run and wait; none if it is refused.
    pub fn decide(self, running: u64, queued: u64) -> Option<State> {
        match self {
            IfBusy::Beside => Some(State::Streaming),
            _ if running + queued == 0 => Some(State::Streaming),
            IfBusy::Queue => Some(State::Queued),
            IfBusy::Refuse => None,
        }
    }
}

/// How long nothing may be heard of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLease(u64);

/// A lease nobody could keep, or that never ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the turn's lease is {0} ms; it must be between {TURN_LEASE_MS_MIN} and {TURN_LEASE_MS_MAX}, or 0 for \
     {TURN_LEASE_MS_DEFAULT}"
)]
pub struct LeaseMalformed(u64);

impl Coded for LeaseMalformed {
    fn code(&self) -> Code {
        Code::LeaseMalformed
    }
}

impl TurnLease {
    /// A lease that makes sense.
    pub fn new(ms: u64) -> Result<Self, LeaseMalformed> {
        match ms {
            0 => Ok(Self(TURN_LEASE_MS_DEFAULT)),
            TURN_LEASE_MS_MIN..=TURN_LEASE_MS_MAX => Ok(Self(ms)),
            _ => Err(LeaseMalformed(ms)),
        }
    }

    /// As it was stored.
    pub fn stored(ms: u64) -> Self {
        Self(ms)
    }

    /// How long.
    pub fn ms(self) -> u64 {
        self.0
    }

    /// When it runs out if something was heard just now.
    pub fn until_ms(self, now_ms: u64) -> u64 {
        now_ms.saturating_add(self.0)
    }

    /// Whether it is worth writing down that something was heard, seeing when it runs out as written.
    pub fn is_worth_renewing(self, until_ms: u64, now_ms: u64) -> bool {
        self.until_ms(now_ms).saturating_sub(until_ms) > self.0 / LEASE_RENEWAL_PARTS
    }
}

/// It is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("turn {id} has ended: {}", state.word())]
pub struct TurnEnded {
    /// Which.
    pub id: TurnId,
    /// How.
    pub state: State,
}

impl Coded for TurnEnded {
    fn code(&self) -> Code {
        Code::TurnEnded
    }
}

/// A turn waits before it tries again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// For the how-manieth time.
    pub attempt: u32,
    /// Why, for people.
    pub message: String,
    /// When it tries again.
    pub next_at_ms: u64,
}

/// What came of work on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Lines added.
    pub additions: u64,
    /// Lines taken away.
    pub deletions: u64,
    /// Files touched.
    pub files: u64,
}

/// A turn as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Where in the session's log it was begun.
    pub cursor: Cursor,
    /// Its name in the session.
    pub id: TurnId,
    /// What it answers.
    pub message: MessageId,
    /// How far it is.
    pub state: State,
    /// Under which grant it was begun.
    pub granted: GrantKey,
    /// How long nothing may be heard of it.
    pub lease: TurnLease,
    /// When it was begun.
    pub began_at_ms: u64,
    /// When it ended, if it did.
    pub ended_at_ms: Option<u64>,
    /// Why.
    pub reason: String,
    /// Set while it waits.
    pub retry: Option<Retry>,
    /// What came of it.
    pub summary: Summary,
    /// What its steps cost.
    pub usage: Usage,
    /// When its lease runs out, if it runs.
    pub until_ms: Option<u64>,
}

impl Turn {
    /// Whether something may still be said in it.
    pub fn running(&self) -> Result<(), TurnEnded> {
        match self.state.is_final() {
            true => Err(TurnEnded { id: self.id.clone(), state: self.state }),
            false => Ok(()),
        }
    }
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Turns that run.
    pub running: u32,
    /// Turns that wait for them.
    pub queued: u32,
    /// Set if what runs only waits to try again.
    pub retry: Option<(TurnId, Retry)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_runs_unless_asked_otherwise() {
        for (if_busy, running, queued, state) in [
            (IfBusy::Refuse, 0, 0, Some(State::Streaming)),
            (IfBusy::Refuse, 1, 0, None),
            (IfBusy::Refuse, 0, 1, None),
            (IfBusy::Queue, 0, 0, Some(State::Streaming)),
            (IfBusy::Queue, 1, 0, Some(State::Queued)),
            (IfBusy::Queue, 0, 1, Some(State::Queued)),
            (IfBusy::Beside, 3, 2, Some(State::Streaming)),
        ] {
            assert_eq!(if_busy.decide(running, queued), state, "{if_busy:?} {running} {queued}");
        }
    }

    #[test]
    fn leases_have_a_range_and_are_renewed_when_it_is_worth_it() {
        for (ms, kept) in [(0, Some(TURN_LEASE_MS_DEFAULT)), (999, None), (1_000, Some(1_000))] {
            assert_eq!(TurnLease::new(ms).ok().map(TurnLease::ms), kept);
        }
        let error = TurnLease::new(TURN_LEASE_MS_MAX + 1).unwrap_err();
        assert_eq!(error.code(), Code::LeaseMalformed);
        let lease = TurnLease(16_000);
        assert!(!lease.is_worth_renewing(16_000, 1_000));
        assert!(lease.is_worth_renewing(16_000, 1_001));
    }
}
