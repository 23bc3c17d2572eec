//! A turn ends: said by whoever runs it, by somebody who has had enough, or because nothing was heard of it.
//!
//! However it ends, it ends once, and in one transaction: its last parts, tools that still ran, texts that were
//! still coming, what is said of its last message, and the turn that waited for it.

use super::put_part::{self, NewPart};
use super::set_message::{MessageHead, MessageSet};
use super::{Also, Cut, Effect, Entry, Kind, MessagePut, NotApplied, Place, encoded, found};
use crate::limits::{LEASES_STEP_MAX, PARTS_PUT_MAX};
use crate::model::content::{Leaving, Stored};
use crate::model::ids::{Cursor, LogId, MessageId, TurnId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::model::session::FileDiff;
use crate::model::turn::{State, Summary, Turn};
use crate::store::turns::Ending;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// The end somebody wants for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndTurn {
    /// Which.
    pub id: TurnId,
    /// How it ends; one of the last three.
    pub state: State,
    /// Which message is its last; none for the newest.
    pub message: Option<MessageId>,
    /// What is said of that message, as the wire has it, without parts; none if nothing is.
    pub said: Option<Vec<u8>>,
    /// The last parts of it.
    pub parts: Vec<NewPart>,
    /// Why, for people.
    pub reason: String,
    /// What came of it.
    pub summary: Summary,
    /// And file by file.
    pub diffs: Vec<FileDiff>,
}

/// How it stands in the history, version 1. The parts that were closed with it follow, and what is said of its
/// last message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// Its name in the session.
    pub id: TurnId,
    /// Where it was begun.
    pub cursor: Cursor,
    /// How it ended.
    pub state: State,
    /// Why.
    pub reason: String,
    /// Whether nobody said so.
    pub lapsed: bool,
    /// What came of it.
    pub summary: Summary,
    /// And file by file.
    pub diffs: Vec<FileDiff>,
}

/// How a turn that waited stands in the history when it begins, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// Its name in the session.
    pub id: TurnId,
    /// Where it was begun.
    pub cursor: Cursor,
}

impl TurnEnded {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let TurnEnded { state, reason, summary, .. } = self;
        let ending = Ending { state: *state, reason, summary: *summary, at_ms: place.now_ms };
        store::turns::end(tx, place.log, self.cursor, ending)?;
        store::turns::set_diffs(tx, place.log, self.cursor, &self.diffs)
    }
}

impl TurnStarted {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::turns::start(tx, place.log, self.cursor)
    }
}

/// What is written about the end of a turn: first that it ended, then what follows from that.
pub(crate) struct Ended {
    pub(crate) entry: Entry<'static>,
    pub(crate) also: Vec<Also>,
}

/// The ops about an end, each at its place.
struct Saying<'a, 't> {
    tx: &'a Tx<'t>,
    place: Place,
    also: Vec<Also>,
}

impl Saying<'_, '_> {
    /// Where the next one stands.
    fn next(&self) -> Place {
        self.place.later(1 + self.also.len() as u64)
    }

    fn say(&mut self, entry: Entry<'static>) {
        let (log, granted) = (self.place.log, self.place.granted);
        self.also.push(Also { log, entry, granted });
    }

    /// Closes whatever is under way.
    fn close_parts(&mut self, turn: &Turn, why: &str) -> Result<(), StoreError> {
        let log = self.place.log;
        for stream in store::streams::of_session(self.tx, log, Some(turn.cursor))? {
            let (message, position) = (stream.key.message, stream.key.position);
            match store::parts::at(self.tx, log, message, position)? {
                Some(part) => {
                    let closed = put_part::close(self.tx, self.next(), part, Some(why))?;
                    closed.into_iter().for_each(|entry| self.say(entry));
                }
                None => store::streams::close(self.tx, stream.key)?,
            }
        }
        for part in store::parts::under_way(self.tx, log, turn.cursor)? {
            let closed = put_part::close(self.tx, self.next(), part, Some(why))?;
            closed.into_iter().for_each(|entry| self.say(entry));
        }
        Ok(())
    }

    /// Says what there is to say of the last message.
    fn say_of(
        &mut self,
        message: &MessageId,
        said: Option<&[u8]>,
        state: State,
        why: &str,
    ) -> Result<(), StoreError> {
        let log = self.place.log;
        let Some(cursor) = store::messages::cursor_of(self.tx, log, message)? else {
            return Ok(());
        };
        let Some(stored) = store::messages::at(self.tx, log, cursor)? else { return Ok(()) };
        let at_ms = self.place.now_ms;
        let (completed, aborted) = (state == State::Completed, state == State::Aborted);
        let leaving = Leaving { said, completed, aborted, why, at_ms };
        let (info, summing_up) = match &stored.info {
            Some(info) => Stored::new(info).info(|info| leaving.apply(info)),
            None => {
                let put = MessagePut::of_payload(stored.version, &stored.payload)?;
                Stored::new(put).body(|body| leaving.apply(body))
            }
        }
        .map_err(found::odd)?;
        let head = MessageHead { id: message.clone(), cursor, summing_up };
        let entry = MessageSet { head, info: info.into() }.say(self.tx, self.next())?;
        self.say(entry);
        Ok(())
    }

    /// The turn that has waited longest runs now, if nothing else does.
    fn start_next(&mut self) -> Result<(), StoreError> {
        let log = self.place.log;
        if store::turns::status(self.tx, log)?.running > 0 {
            return Ok(());
        }
        let Some(next) = store::turns::next_queued(self.tx, log)? else { return Ok(()) };
        let started = TurnStarted { id: next.id.clone(), cursor: next.cursor };
        started.project(self.tx, self.next())?;
        let until_ms = next.lease.until_ms(self.place.now_ms);
        found::keep(self.tx, log, &next, until_ms)?;
        self.say(encoded(Kind::StartTurn, 1, &started)?);
        Ok(())
    }
}

/// What tools that are cut short are said to have ended with.
fn interruption(state: State) -> &'static str {
    match state {
        State::Completed => "Tool execution aborted: the turn ended before the tool did",
        _ => "Tool execution aborted",
    }
}

impl EndTurn {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let turn = store::turns::get(tx, place.log, &self.id)?
            .ok_or_else(|| NotApplied::from(found::Error::TurnNotFound(self.id.clone())))?;
        turn.running()?;
        let newest = store::messages::newest_of_turn(tx, place.log, turn.cursor)?;
        let message = self.message.clone().or(newest).unwrap_or_else(|| turn.message.clone());
        let standing = found::message(tx, place.log, &message)?;
        if standing.turn != turn.cursor {
            return Err(found::Error::OtherTurn(message, turn.id).into());
        }
        let mut new = 0;
        for part in &self.parts {
            let goes = part.check(tx, place, &message, Some(&turn))?;
            if goes.is_new() && goes.position() + new > PARTS_PUT_MAX {
                return Err(put_part::Error::TooMany.into());
            }
            new += u32::from(goes.is_new());
        }
        // Checked; from here on it is written.
        let mut saying = Saying { tx, place, also: Vec::new() };
        for part in &self.parts {
            let goes = match part.check(tx, place, &message, Some(&turn)) {
                Ok(goes) => goes,
                Err(NotApplied::Store(error)) => return Err(error.into()),
                // Nothing can be refused that was not before: they have ids of their own.
                Err(NotApplied::Refused(refused)) => {
                    return Err(StoreError::Other(format!("a part: {}", refused.text)).into());
                }
            };
            let entry = part.put(tx, saying.next(), goes, None)?;
            saying.say(entry);
        }
        let ended = self.conclude(saying, &turn, &message, standing.role, false)?;
        let effect = Effect::new(Made::Nothing, Some(ended.entry));
        Ok(Effect { also: ended.also, ..effect })
    }

    fn conclude(
        &self,
        mut saying: Saying<'_, '_>,
        turn: &Turn,
        message: &MessageId,
        role: Role,
        lapsed: bool,
    ) -> Result<Ended, StoreError> {
        let (tx, place) = (saying.tx, saying.place);
        saying.close_parts(turn, interruption(self.state))?;
        // A turn that said nothing leaves the message it was to answer as it is.
        if role == Role::Assistant {
            let why = match self.reason.as_str() {
                "" => "The turn was aborted",
                reason => reason,
            };
            saying.say_of(message, self.said.as_deref(), self.state, why)?;
        }
        let ended = TurnEnded {
            id: turn.id.clone(),
            cursor: turn.cursor,
            state: self.state,
            reason: self.reason.clone(),
            lapsed,
            summary: self.summary,
            diffs: self.diffs.clone(),
        };
        ended.project(tx, place)?;
        store::turns::drop_lease(tx, place.log, turn.cursor)?;
        saying.start_next()?;
        Ok(Ended { entry: encoded(Kind::EndTurn, 1, &ended)?, also: saying.also })
    }
}

/// Why a turn ends that nobody ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its time has come: its lease has run out, or the grant it was begun under has.
    Due,
    /// The grant it was begun under is gone.
    Cut,
}

impl Why {
    /// In words for people.
    fn reason(self, tx: &Tx<'_>, turn: &Turn, now_ms: u64) -> Result<&'static str, StoreError> {
        let force = store::grants::in_force(tx, turn.granted)?;
        let expired = force.is_ok_and(|it| it.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms));
        Ok(match self {
            Why::Cut => "the grant it was begun under was taken back",
            Why::Due if expired => "the grant it was begun under has expired",
            Why::Due => "nothing was heard of it for as long as its lease",
        })
    }
}

/// Ends a turn nobody ends; none if it has ended meanwhile.
pub(crate) fn abort(
    tx: &Tx<'_>,
    place: Place,
    cursor: Cursor,
    why: Why,
) -> Result<Option<Ended>, StoreError> {
    let turn = store::turns::at(tx, place.log, cursor)?;
    let Some(turn) = turn.filter(|turn| !turn.state.is_final()) else {
        store::turns::drop_lease(tx, place.log, cursor)?;
        return Ok(None);
    };
    let newest = store::messages::newest_of_turn(tx, place.log, turn.cursor)?;
    let message = newest.unwrap_or_else(|| turn.message.clone());
    let role = store::messages::standing(tx, place.log, &message)?
        .map_or(Role::User, |standing| standing.role);
    let end = EndTurn {
        id: turn.id.clone(),
        state: State::Aborted,
        message: None,
        said: None,
        parts: Vec::new(),
        reason: why.reason(tx, &turn, place.now_ms)?.to_owned(),
        summary: Summary::default(),
        diffs: Vec::new(),
    };
    // What the server says about it stands under the authority the turn was begun with.
    let place = Place { granted: turn.granted, ..place };
    let saying = Saying { tx, place, also: Vec::new() };
    end.conclude(saying, &turn, &message, role, true).map(Some)
}

/// Turns whose lease has run out, a bounded number of them.
pub(crate) fn lapsed(tx: &Tx<'_>, now_ms: u64) -> Result<Vec<(LogId, Cursor)>, StoreError> {
    store::turns::due(tx, now_ms, LEASES_STEP_MAX)
}

/// Grants were taken back: the turns that were begun under them end.
pub(crate) fn begun_under(tx: &Tx<'_>, cut: &[Cut]) -> Result<Vec<(LogId, Cursor)>, StoreError> {
    let mut turns = Vec::new();
    for (key, _) in cut {
        turns.extend(store::turns::begun_under(tx, *key)?);
    }
    Ok(turns)
}
