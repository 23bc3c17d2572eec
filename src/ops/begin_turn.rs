//! A turn begins: what it is to answer is stored before anything runs.

use super::checkpoint::CheckpointMade;
use super::put_message::PutMessage;
use super::{Also, Effect, Kind, NotApplied, Place, entry, found};
use crate::limits::TURNS_UNDER_WAY_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, MessageId, TurnId};
use crate::model::ledger::Made;
use crate::model::turn::{IfBusy, State, Summary, Turn, TurnLease};
use crate::model::usage::Usage;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// The run of an agent somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginTurn {
    /// The given id, or the one made.
    pub id: TurnId,
    /// What it is to answer.
    pub message: PutMessage,
    /// How long nothing may be heard of it.
    pub lease: TurnLease,
    /// What becomes of it while others run.
    pub if_busy: IfBusy,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another one runs.
    #[error("a turn runs in this session; wait for its end, or ask for this one to be queued")]
    Busy,
    /// The id is another turn's.
    #[error("the session already has a turn {0}")]
    Exists(TurnId),
    /// More than anybody follows.
    #[error("{TURNS_UNDER_WAY_MAX} turns run and wait in this session, which is the most accepted")]
    TooMany,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Busy => Code::SessionBusy,
            Error::Exists(_) => Code::TurnExists,
            Error::TooMany => Code::TooManyTurns,
        }
    }
}

/// How it stands in the history, version 1. Its message follows, and before that, if something had been
/// reverted, that it was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBegan {
    /// Its name in the session.
    pub id: TurnId,
    /// What it answers.
    pub message: MessageId,
    /// Whether it waits.
    pub queued: bool,
    /// How long nothing may be heard of it.
    pub lease_ms: u64,
    /// Where what is left behind begins; 0 if nothing is.
    pub left_behind: Cursor,
}

impl TurnBegan {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::turns::create(tx, place.log, &self.turn(place))?;
        // What was reverted is left behind, files and all.
        store::snapshots::leave_behind(tx, place.log)
    }

    /// The turn as it begins.
    fn turn(&self, place: Place) -> Turn {
        Turn {
            cursor: place.cursor,
            id: self.id.clone(),
            message: self.message.clone(),
            state: if self.queued { State::Queued } else { State::Streaming },
            granted: place.granted,
            lease: TurnLease::stored(self.lease_ms),
            began_at_ms: place.now_ms,
            ended_at_ms: None,
            reason: String::new(),
            retry: None,
            summary: Summary::default(),
            usage: Usage::default(),
            until_ms: None,
        }
    }
}

impl BeginTurn {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let timeline =
            store::sessions::timeline(tx, place.log)?.ok_or(found::Error::SessionNotFound)?;
        if store::turns::get(tx, place.log, &self.id)?.is_some() {
            return Err(Error::Exists(self.id.clone()).into());
        }
        let status = store::turns::status(tx, place.log)?;
        let (running, queued) = (u64::from(status.running), u64::from(status.queued));
        let state = self.if_busy.decide(running, queued).ok_or(Error::Busy)?;
        if running + queued >= TURNS_UNDER_WAY_MAX {
            return Err(Error::TooMany.into());
        }
        self.message.check(tx, place)?;
        let left = CheckpointMade::of_left_behind(tx, place.later(1), &timeline)?;
        // Checked; from here on it is written.
        let mut also = Vec::new();
        let (log, granted) = (place.log, place.granted);
        let left_behind = timeline.reverted.as_ref().map(|reverted| reverted.boundary.message);
        let began = TurnBegan {
            id: self.id.clone(),
            message: self.message.id().clone(),
            queued: state == State::Queued,
            lease_ms: self.lease.ms(),
            left_behind: left_behind.unwrap_or_default(),
        };
        began.project(tx, place)?;
        if state == State::Streaming {
            found::keep(tx, log, &began.turn(place), self.lease.until_ms(place.now_ms))?;
        }
        if let Some(left) = left {
            also.push(Also { log, entry: left.make(tx, place.later(1))?, granted });
        }
        let at = place.later(1 + also.len() as u64);
        let entry_of_message = self.message.put_in(tx, at, place.cursor)?;
        also.push(Also { log, entry: entry_of_message, granted });
        let made = Made::Turn { cursor: place.cursor, state };
        let effect = Effect::new(made, entry(Kind::BeginTurn, 1, &began)?);
        Ok(Effect { also, ..effect })
    }
}
