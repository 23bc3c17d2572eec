//! Once per op: the rules by which a batch is new, known, early or refused.
//!
//! Pure functions of what the store knows about a producer and what a batch says. The engine asks
//! them inside its transaction; tests ask them about histories no disk ever saw.

use crate::limits::WINDOW_OPS_MAX;
use crate::model::code::{Code, Coded};
use crate::model::conditions::Conflict;
use crate::model::ids::{BatchId, Cursor, Digest, GrantKey, InstanceId, OpId, ProducerId};
use crate::model::infos::{ProjectKey, SessionKey};
use crate::model::turn::State;
use serde::{Deserialize, Serialize};

/// What a batch says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Who writes.
    pub producer: ProducerId,
    /// Which epoch of that producer.
    pub epoch: u32,
    /// Which run of it, if it says so.
    pub instance: Option<InstanceId>,
    /// The number of the first op, from 1.
    pub first_seq: u64,
    /// Results up to here need not be kept.
    pub acked_through: u64,
    /// The object's epoch its author believed in, if that matters.
    pub capability_epoch: Option<u64>,
    /// What one op's rejection means to the others.
    pub mode: Mode,
    /// What its author calls it.
    pub batch: Option<BatchId>,
}

impl BatchHeader {
    /// A batch about which nothing special is said.
    pub fn plain(producer: ProducerId, epoch: u32, first_seq: u64) -> Self {
        Self {
            producer,
            epoch,
            instance: None,
            first_seq,
            acked_through: 0,
            capability_epoch: None,
            mode: Mode::Each,
            batch: None,
        }
    }
}

/// What one op's rejection means to the others of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing.
    #[default]
    Each,
    /// Those behind it are rejected too.
    Chain,
    /// All of them are rejected.
    Atomic,
}

/// What the store knows about a producer in one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducerState {
    /// The highest epoch seen; 0 for a producer that never wrote.
    pub epoch: u32,
    /// The run that registered that epoch, if one did.
    pub instance: Option<InstanceId>,
    /// The last number decided.
    pub high: u64,
    /// Results up to here have been dropped.
    pub acked_through: u64,
    /// Results up to here had been dropped before the epoch began: whoever writes under it has never had
    /// them.
    pub inherited: u64,
}

impl ProducerState {
    /// The same producer under a new epoch.
    pub fn taken_over(self, epoch: u32, instance: Option<InstanceId>) -> Self {
        let inherited = if self.epoch == 0 { 0 } else { self.acked_through };
        Self { epoch, instance, inherited, ..self }
    }
}

/// What was decided about one op, kept until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// What the op said.
    pub digest: Digest,
    /// What became of it.
    pub decision: Decision,
}

/// What became of an op.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// It is in the log.
    Applied {
        /// Where.
        cursor: Cursor,
        /// What it made.
        made: Made,
    },
    /// There was nothing to change.
    Unchanged {
        /// What it found.
        made: Made,
    },
    /// It will never happen under this number.
    Rejected {
        /// The stable code, as text so that old receipts outlive renamed variants.
        code: String,
        /// For people.
        text: String,
    },
    /// Nor will this one: the log did not end where its author thought.
    Conflicted(Conflict),
    /// It is in the log, and what it is about was there before.
    AppliedTo {
        /// Where.
        cursor: Cursor,
        /// What it found.
        made: Made,
    },
}

impl Decision {
    /// Whether what depends on this op may go on.
    pub fn happened(&self) -> bool {
        matches!(
            self,
            Decision::Applied { .. } | Decision::AppliedTo { .. } | Decision::Unchanged { .. }
        )
    }
}

/// A recipe for the capability an op returns, so that a repeat can be given the same object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// The op returns no object.
    Nothing,
    /// A project.
    Project(ProjectKey),
    /// A session.
    Session(SessionKey),
    /// A grant: the object it is for, with the authority it has.
    Grant(GrantKey),
    /// So many grants stand no more.
    Cut(u64),
    /// The object has this epoch, and so many grants stand no more.
    Epoch {
        /// The epoch from now on.
        epoch: u64,
        /// How many.
        cut: u64,
    },
    /// A turn.
    Turn {
        /// Where it was begun.
        cursor: Cursor,
        /// How far it was then.
        state: State,
    },
    /// A part.
    Part {
        /// Of the message that was added there.
        message: Cursor,
        /// At this place in it.
        position: u32,
    },
    /// So many sessions are gone.
    Removed(u64),
}

/// How an op of a batch came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This call decided it.
    Fresh(Decision),
    /// An earlier call decided it.
    Repeat(Decision),
    /// An earlier call decided it, and the client has acknowledged the result.
    RepeatDropped,
}

/// The answer to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Where the log ends now.
    pub cursor: Cursor,
    /// The number of the op the first outcome is about.
    pub first_seq: u64,
    /// One for each op that was decided.
    pub outcomes: Vec<Outcome>,
    /// The number taken next.
    pub next_expected_seq: u64,
    /// Results from this number on are kept.
    pub floor: u64,
    /// Why the ops without an outcome were not looked at.
    pub stopped: Option<Stop>,
}

/// Why a batch stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Numbers are missing.
    #[error("op {got} came where {expected} is expected; send the ops from {expected} on")]
    Gap {
        /// What the server takes next.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// The number is known with other content.
    #[error("op {seq} differs from the one recorded under this number")]
    Reused {
        /// Which.
        seq: u64,
    },
    /// A successor sends numbers whose results its predecessor has acknowledged.
    #[error(
        "op {seq} was decided for this producer's predecessor and forgotten since; it cannot be told \
         whether it was this one. Look what is there, then go on with a new op from {next} on"
    )]
    Forgotten {
        /// The first such number.
        seq: u64,
        /// What the server takes next.
        next: u64,
    },
    /// Too many results are being kept.
    #[error(
        "the results of {WINDOW_OPS_MAX} ops wait to be acknowledged; acknowledge some with \
         ackedThrough, then send the ops from {next} on"
    )]
    WindowFull {
        /// The first op not looked at.
        next: u64,
    },
    /// An atomic batch was sent again, but not as it was.
    #[error(
        "the ops before {next} were decided as a batch without this one; send an atomic batch again as \
         it was, and new ops from {next} on in another"
    )]
    Regrouped {
        /// The first op that is new.
        next: u64,
    },
}

impl Coded for Stop {
    fn code(&self) -> Code {
        match self {
            Stop::Gap { .. } => Code::SeqGap,
            Stop::Reused { .. } => Code::OpReused,
            Stop::Forgotten { .. } => Code::SeqForgotten,
            Stop::WindowFull { .. } => Code::WindowFull,
            Stop::Regrouped { .. } => Code::BatchRegrouped,
        }
    }
}

/// The producer was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("producer epoch {got} was replaced by {current}; this client must stop writing")]
pub struct Fenced {
    /// The epoch in force.
    pub current: u32,
    /// The epoch that came.
    pub got: u32,
}

impl Coded for Fenced {
    fn code(&self) -> Code {
        Code::ProducerFenced
    }
}

/// What to do with a batch: the first `repeats` ops are known, the next `fresh` ones are to be
/// applied, and the rest is not looked at because of `stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Ops to be answered from what is recorded.
    pub repeats: usize,
    /// Ops to be applied.
    pub fresh: usize,
    /// Why there is a rest, if there is one.
    pub stop: Option<Stop>,
    /// How the producer stands afterwards. Results it has acknowledged now may be dropped once the repeats
    /// are answered.
    pub after: ProducerState,
}

/// Decides what to do with a batch.
///
/// `recorded` gives the digest kept for a number, and is asked only about numbers that are decided
/// and not yet acknowledged.
pub fn plan(
    state: ProducerState,
    header: &BatchHeader,
    digests: impl ExactSizeIterator<Item = Digest>,
    recorded: impl Fn(u64) -> Option<Digest>,
) -> Result<Plan, Fenced> {
    let other_run = header.epoch == state.epoch
        && state.instance.is_some_and(|held| header.instance.is_some_and(|sent| sent != held));
    if header.epoch < state.epoch || other_run {
        return Err(Fenced { current: state.epoch, got: header.epoch });
    }
    // Nobody has results of ops that were not decided, nor of those being sent: a repeat of the batch would
    // otherwise drop what its first sending could not.
    let possible = state.high.min(header.first_seq - 1);
    let acked_through = header.acked_through.min(possible).max(state.acked_through);
    let now = match header.epoch > state.epoch {
        true => state.taken_over(header.epoch, header.instance),
        false => ProducerState { instance: state.instance.or(header.instance), ..state },
    };
    let plan = |repeats, fresh: usize, stop| {
        let after = ProducerState { high: state.high + fresh as u64, acked_through, ..now };
        Ok(Plan { repeats, fresh, stop, after })
    };

    let expected = state.high + 1;
    if header.first_seq > expected {
        return plan(0, 0, Some(Stop::Gap { expected, got: header.first_seq }));
    }
    // A producer that goes on by itself knows what it acknowledged. One that took over from an older
    // state may not, and must not take a forgotten number for its own op.
    if header.first_seq <= now.inherited {
        let stop = Some(Stop::Forgotten { seq: header.first_seq, next: expected });
        return Ok(Plan { repeats: 0, fresh: 0, stop, after: state });
    }
    let count = digests.len();
    let repeats = usize::try_from(expected - header.first_seq).unwrap_or(usize::MAX).min(count);
    for (seq, digest) in (header.first_seq..expected).zip(digests) {
        let forgotten = seq <= state.acked_through;
        if !forgotten && recorded(seq) != Some(digest) {
            let before = (seq - header.first_seq) as usize;
            return plan(before, 0, Some(Stop::Reused { seq }));
        }
    }

    if header.mode == Mode::Atomic && repeats > 0 && repeats < count {
        return plan(repeats, 0, Some(Stop::Regrouped { next: expected }));
    }
    let kept = state.high - acked_through;
    let room = usize::try_from(WINDOW_OPS_MAX.saturating_sub(kept)).unwrap_or(usize::MAX);
    let mut fresh = (count - repeats).min(room);
    // What belongs together is not cut in the middle.
    if header.mode != Mode::Each && fresh < count - repeats {
        fresh = 0;
    }
    let stop = (repeats + fresh < count)
        .then_some(Stop::WindowFull { next: header.first_seq + (repeats + fresh) as u64 });
    plan(repeats, fresh, stop)
}

/// An atomic batch in which an op was rejected: that one keeps its reason, the others did not happen
/// either. As it is when nothing was rejected.
pub fn all_or_nothing(first_seq: u64, decisions: Vec<Decision>) -> Vec<Decision> {
    let Some(at) = decisions.iter().position(|decision| !decision.happened()) else {
        return decisions;
    };
    let undone = Undone { culprit: first_seq + at as u64 };
    let (code, text) = (undone.code().name(), undone.to_string());
    decisions
        .into_iter()
        .map(|decision| match decision.happened() {
            true => Decision::Rejected { code: code.to_owned(), text: text.clone() },
            false => decision,
        })
        .collect()
}

/// An op of an atomic batch did not happen because another one could not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("op {culprit} of the same atomic batch was rejected, so this one did not happen either")]
pub struct Undone {
    /// Which.
    pub culprit: u64,
}

impl Coded for Undone {
    fn code(&self) -> Code {
        Code::BatchUndone
    }
}

/// The content of an op, as the ledger compares it: what it says, and under which conditions.
///
/// `sent` delimits itself, so what follows it cannot be taken for a part of it.
pub fn digest(op_id: OpId, sent: &[u8], mode: Mode, beside: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&op_id.0).update(sent).update(beside);
    hasher.update(match mode {
        Mode::Each => b"",
        Mode::Chain => b"chain",
        Mode::Atomic => b"atomic",
    });
    let mut half = [0; 16];
    hasher.finalize_xof().fill(&mut half);
    Digest(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: ProducerId = ProducerId([1; 16]);

    fn digest_of(letter: char) -> Digest {
        Digest([letter as u8; 16])
    }

    fn header() -> BatchHeader {
        BatchHeader::plain(PRODUCER, 1, 1)
    }

    /// `state` is "epoch/acked..high", `batch` is "epoch/first:letters" with a `!` behind it if it is
    /// atomic; letters stand for contents, and the op recorded under number n says the n-th letter of the
    /// alphabet.
    fn check(state: &str, batch: &str, want: &str) {
        let (batch, mode) = match batch.strip_suffix('!') {
            Some(batch) => (batch, Mode::Atomic),
            None => (batch, Mode::Each),
        };
        let (epoch, rest) = state.split_once('/').unwrap();
        let (acked, high) = rest.split_once("..").unwrap();
        let state = ProducerState {
            epoch: epoch.parse().unwrap(),
            high: high.parse().unwrap(),
            acked_through: acked.parse().unwrap(),
            ..Default::default()
        };
        let (epoch, rest) = batch.split_once('/').unwrap();
        let (first, letters) = rest.split_once(':').unwrap();
        let header = BatchHeader {
            epoch: epoch.parse().unwrap(),
            first_seq: first.parse().unwrap(),
            mode,
            ..header()
        };
        let digests: Vec<_> = letters.chars().map(digest_of).collect();
        let recorded = |seq: u64| {
            assert!(seq > state.acked_through && seq <= state.high, "asked about {seq}");
            char::from_u32('a' as u32 + seq as u32 - 1).map(digest_of)
        };
        let got = match plan(state, &header, digests.into_iter(), recorded) {
            Err(_) => "fenced".to_owned(),
            Ok(Plan { repeats, fresh, stop: None, .. }) => format!("{repeats}+{fresh}"),
            Ok(Plan { repeats, fresh, stop: Some(stop), .. }) => {
                format!("{repeats}+{fresh} {}", stop.code())
            }
        };
        assert_eq!(got, want, "{state:?} {batch}");
    }

    #[test]
    fn a_batch_is_split_into_known_new_and_rest() {
        check("0/0..0", "1/1:abc", "0+3");
        check("1/0..3", "1/1:abc", "3+0"); // sent again
        check("1/0..3", "1/1:abcd", "3+1"); // sent again, with more
        check("1/0..3", "1/3:cd", "1+1");
        check("1/0..3", "1/4:d", "0+1");
        check("1/0..3", "1/5:e", "0+0 seq-gap");
        check("1/0..3", "1/1:axc", "1+0 op-reused"); // and c is not looked at
        check("1/0..3", "1/1:xbcd", "0+0 op-reused");
        check("1/2..3", "1/1:xyc", "3+0"); // what was acknowledged is known by number only
        check("2/0..3", "1/4:d", "fenced");
        check("2/0..3", "3/4:d", "0+1"); // a takeover goes on where the other stopped
        check("2/0..3", "3/1:abc", "3+0");
        check("2/2..3", "3/1:abc", "0+0 seq-forgotten"); // a successor with an older state
        check("2/2..3", "3/3:c", "1+0");
        check("2/2..3", "2/1:xyc", "3+0"); // the producer itself knows what it acknowledged
    }

    #[test]
    fn a_run_writes_under_its_own_epoch_and_knows_only_its_own_results() {
        let (one, other) = (Some(InstanceId([1; 16])), Some(InstanceId([2; 16])));
        let held =
            ProducerState { epoch: 2, instance: one, high: 9, acked_through: 6, inherited: 4 };
        let ask = |epoch, instance, first_seq| {
            let header = BatchHeader { epoch, instance, first_seq, ..header() };
            plan(held, &header, [digest_of('x')].into_iter(), |_| Some(digest_of('x')))
        };
        assert_eq!(ask(2, one, 10).unwrap().after.instance, one);
        assert_eq!(ask(2, None, 10).unwrap().after.instance, one, "it need not say");
        assert!(ask(2, other, 10).is_err(), "another run cannot have the same epoch");
        let after = ask(3, other, 10).unwrap().after;
        assert_eq!(
            (after.epoch, after.instance, after.inherited),
            (3, other, 6),
            "but the next one"
        );

        let stop =
            |epoch, first| ask(epoch, None, first).unwrap().stop.map(|stop| stop.code().name());
        assert_eq!(stop(2, 4), Some("seq-forgotten"), "acknowledged by the run before");
        assert_eq!(stop(2, 5), None, "acknowledged by itself");
        assert_eq!(stop(3, 6), Some("seq-forgotten"));
        assert_eq!(stop(3, 7), None);
        let forgotten = ask(3, None, 6).unwrap();
        assert_eq!(forgotten.after, held, "and nothing moves");
    }

    #[test]
    fn an_atomic_batch_is_taken_whole_or_not_at_all() {
        check("1/0..3", "1/4:de!", "0+2");
        check("1/0..3", "1/2:bc!", "2+0"); // sent again
        check("1/0..3", "1/2:bcd!", "2+0 batch-regrouped"); // sent again, with more
        check("1/0..3", "1/5:ef!", "0+0 seq-gap");
        check("1/0..3", "1/3:xd!", "0+0 op-reused");
        let state = ProducerState { epoch: 1, high: WINDOW_OPS_MAX - 1, ..Default::default() };
        let header = BatchHeader { first_seq: WINDOW_OPS_MAX, mode: Mode::Atomic, ..header() };
        let got = plan(state, &header, [digest_of('x'); 2].into_iter(), |_| None).unwrap();
        assert_eq!((got.repeats, got.fresh), (0, 0), "there is room for one of two");
        assert_eq!(got.stop, Some(Stop::WindowFull { next: WINDOW_OPS_MAX }));
    }

    #[test]
    fn one_rejection_undoes_an_atomic_batch_and_keeps_its_own_reason() {
        let applied = |n| Decision::Applied { cursor: Cursor(n), made: Made::Nothing };
        let no = Decision::Rejected { code: "message-exists".into(), text: "no".into() };
        let fine = vec![applied(1), applied(2)];
        assert_eq!(all_or_nothing(5, fine.clone()), fine);
        let got = all_or_nothing(5, vec![applied(1), no.clone(), applied(2)]);
        assert_eq!(got[1], no);
        for at in [0, 2] {
            let Decision::Rejected { code, text } = &got[at] else { panic!("{:?}", got[at]) };
            assert_eq!(code, "batch-undone");
            assert!(text.contains("op 6"), "{text}");
        }
    }

    #[test]
    fn a_full_window_takes_what_fits_and_says_where_it_stopped() {
        let high = WINDOW_OPS_MAX - 1;
        let state = ProducerState { epoch: 1, high, ..Default::default() };
        let header = BatchHeader { first_seq: high + 1, ..header() };
        let three = || [digest_of('x'); 3].into_iter();
        let got = plan(state, &header, three(), |_| None).unwrap();
        assert_eq!((got.repeats, got.fresh), (0, 1));
        assert_eq!(got.stop, Some(Stop::WindowFull { next: high + 2 }));

        let acked = BatchHeader { acked_through: high, ..header };
        let got = plan(state, &acked, three(), |_| None).unwrap();
        assert_eq!((got.fresh, got.stop, got.after.acked_through), (3, None, high));
    }

    #[test]
    fn nobody_can_acknowledge_the_future() {
        let state = ProducerState { epoch: 1, high: 3, acked_through: 2, ..Default::default() };
        let header = BatchHeader { first_seq: 4, acked_through: u64::MAX, ..header() };
        let got = plan(state, &header, [digest_of('d')].into_iter(), |_| None).unwrap();
        assert_eq!(got.after.acked_through, 3);
        let older = BatchHeader { acked_through: 1, ..header };
        let got = plan(state, &older, [digest_of('d')].into_iter(), |_| None).unwrap();
        assert_eq!(got.after.acked_through, 2);
        let own = BatchHeader { first_seq: 3, acked_through: 3, ..header };
        let got =
            plan(state, &own, [digest_of('c')].into_iter(), |_| Some(digest_of('c'))).unwrap();
        assert_eq!(got.after.acked_through, 2, "nor its own ops");
    }

    #[test]
    fn the_digest_covers_id_content_and_conditions() {
        let op = OpId([1; 16]);
        let one = digest(op, b"x", Mode::Each, b"");
        assert_eq!(one, digest(op, b"x", Mode::Each, b""));
        assert_ne!(one, digest(OpId([2; 16]), b"x", Mode::Each, b""));
        assert_ne!(one, digest(op, b"y", Mode::Each, b""));
        assert_ne!(one, digest(op, b"x", Mode::Atomic, b""));
        assert_ne!(one, digest(op, b"x", Mode::Chain, b""));
        assert_ne!(one, digest(op, b"x", Mode::Each, b"z"));
    }
}
