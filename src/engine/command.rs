//! What the writer can be asked to do, and what it answers.

use super::notes::Notes;
use crate::limits::COMMAND_BYTES_LEAST;
use crate::model::content::ContentRef;
use crate::model::feed::Stretch;
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId, SubscriptionName};
use crate::model::ledger::{Ack, BatchHeader};
use crate::model::registration::Registration;
use crate::model::sturdy_ref::Verifier;
use crate::ops::{Cut, Op, Record, Recorded};
use crate::store::streams::StreamKey;
use crate::store::subscriptions::{SubscriptionKey, Taken};

/// One change of durable state. There is no other way to make one.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Ops for a log.
    Append(Submission),
    /// A run of a producer announces itself.
    Register(Registering),
    /// A named subscription is taken up.
    Subscribe(Subscribing),
    /// A named subscription moves on.
    Acknowledge(Acknowledgement),
    /// A named subscription is dropped.
    Forget {
        /// Under which grant.
        grant: GrantKey,
        /// Of which feed.
        stretch: Stretch,
        /// Which.
        name: SubscriptionName,
    },
    /// History is compacted.
    Compact(Compacting),
    /// A ref is redeemed.
    Redeem(GrantKey),
    /// A claim is exchanged.
    Claim(Claiming),
    /// Something is heard of a delegate.
    Heartbeat(GrantKey),
    /// An open part has more text.
    Grow(Growing),
    /// Something long comes, before a part names it.
    Upload(Uploading),
    /// Something is heard of a turn.
    TurnHeartbeat {
        /// Under which grant.
        grant: GrantKey,
        /// In which session.
        session: LogId,
        /// Where it was begun.
        turn: Cursor,
    },
    /// What only an automatic checkpoint leads to is let go of, and then the checkpoint.
    DropLeft {
        /// In which session.
        session: LogId,
        /// Where it was made.
        checkpoint: Cursor,
    },
    /// Uploads nobody has named are let go of.
    LetGo {
        /// If they were not touched since.
        before_ms: u64,
    },
    /// Delegations and turns whose time has come are ended.
    EndDue,
    /// What was refused and read meanwhile is written down.
    Note(Notes),
    /// Something that was done to the files of a work tree is written down.
    Record(Recording),
    /// Old audit entries are let go of.
    Prune {
        /// Up to this one.
        through: u64,
    },
}

/// A batch of ops for one log, under one authority.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Under which grant.
    pub grant: GrantKey,
    /// For which log.
    pub log: LogId,
    /// The object it came through: its epoch counts.
    pub object: LogId,
    /// Whether that object is good only for what was written under the same grant.
    pub only_own: bool,
    /// What it says about itself.
    pub header: BatchHeader,
    /// What it wants done. With nothing it only moves `acked_through` on, and asks where the log ends.
    pub ops: Vec<Op>,
}

impl Submission {
    /// A batch for the log of the object it comes through.
    pub fn plain(grant: GrantKey, log: LogId, header: BatchHeader, ops: Vec<Op>) -> Self {
        Self { grant, log, object: log, only_own: false, header, ops }
    }
}

/// More text for an open part.
#[derive(Debug, Clone)]
pub struct Growing {
    /// Under which grant.
    pub grant: GrantKey,
    /// Which part.
    pub key: StreamKey,
    /// From which byte on.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// A piece of something long.
#[derive(Debug, Clone)]
pub struct Uploading {
    /// Under which grant.
    pub grant: GrantKey,
    /// For which session.
    pub session: LogId,
    /// What it is to be.
    pub content: ContentRef,
    /// From which byte on.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
}

/// Something that was done to the files of a work tree.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Under which grant; none for what the server does of its own accord.
    pub grant: Option<GrantKey>,
    /// What.
    pub record: Record,
}

/// A run of a producer, for one log, under one authority.
#[derive(Debug, Clone)]
pub struct Registering {
    /// Under which grant.
    pub grant: GrantKey,
    /// For which log.
    pub log: LogId,
    /// The object it came through: its epoch counts.
    pub object: LogId,
    /// What it says about itself.
    pub registration: Registration,
}

/// Where a run of a producer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The epoch it writes under.
    pub epoch: u32,
    /// The number taken next.
    pub next_expected_seq: u64,
    /// Results from this number on are kept.
    pub floor: u64,
    /// Where the log ends now.
    pub cursor: Cursor,
}

/// A named subscription to be taken up.
#[derive(Debug, Clone)]
pub struct Subscribing {
    /// Under which grant.
    pub grant: GrantKey,
    /// Of which feed.
    pub stretch: Stretch,
    /// Under which name.
    pub name: SubscriptionName,
    /// Where it begins if there is none of this name yet.
    pub after: u64,
    /// If there are too many, those not used for this long are forgotten.
    pub idle_ms_max: u64,
}

/// How far a named subscription was taken in.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledgement {
    /// Which.
    pub key: SubscriptionKey,
    /// By whom: only the last who took it up counts.
    pub holder: u64,
    /// Up to here.
    pub place: u64,
}

/// A claim to be exchanged for a grant of its own.
#[derive(Debug, Clone, Copy)]
pub struct Claiming {
    /// The claim.
    pub claim: GrantKey,
    /// What fits the secret of the ref it is exchanged for.
    pub verifier: Verifier,
}

/// A piece of a log to be compacted.
#[derive(Debug, Clone, Copy)]
pub struct Compacting {
    /// Which log.
    pub log: LogId,
    /// At most up to here; one step may not get that far.
    pub through: Cursor,
}

/// What a compaction freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// How far the log is looked at now.
    pub swept: Cursor,
    /// Ops that are gone.
    pub ops: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

impl Command {
    /// What it takes up in the queue.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Command::Append(batch) => batch.ops.iter().map(Op::bytes).sum(),
            Command::Grow(growing) => growing.text.len() + COMMAND_BYTES_LEAST,
            Command::Upload(uploading) => uploading.data.len() + COMMAND_BYTES_LEAST,
            Command::Record(recording) => recording.record.bytes() + COMMAND_BYTES_LEAST,
            _ => COMMAND_BYTES_LEAST,
        }
    }

    /// Whether it takes authority back.
    pub(super) fn takes_back(&self) -> bool {
        matches!(self, Command::Append(batch) if batch.ops.iter().any(Op::takes_back))
    }

    /// Whether it redeems a ref.
    pub(super) fn redeems(&self) -> bool {
        matches!(self, Command::Redeem(_))
    }

    /// Under which grant it is asked for, and of which object.
    pub(super) fn under(&self) -> Option<(GrantKey, Option<LogId>)> {
        match self {
            Command::Append(batch) => Some((batch.grant, Some(batch.object))),
            Command::Register(registering) => Some((registering.grant, Some(registering.object))),
            Command::Subscribe(subscribing) => {
                Some((subscribing.grant, Some(subscribing.stretch.log())))
            }
            Command::Forget { grant, stretch, .. } => Some((*grant, Some(stretch.log()))),
            Command::Redeem(grant) | Command::Heartbeat(grant) => Some((*grant, None)),
            Command::Claim(claiming) => Some((claiming.claim, None)),
            Command::Grow(growing) => Some((growing.grant, Some(growing.key.session))),
            Command::Upload(uploading) => Some((uploading.grant, Some(uploading.session))),
            Command::TurnHeartbeat { grant, session, .. } => Some((*grant, Some(*session))),
            Command::Record(recording) => {
                recording.grant.map(|grant| (grant, Some(recording.record.log())))
            }
            Command::Acknowledge(_)
            | Command::LetGo { .. }
            | Command::DropLeft { .. }
            | Command::Compact(_)
            | Command::EndDue
            | Command::Note(_)
            | Command::Prune { .. } => None,
        }
    }

    /// The log whose history it cuts.
    pub(super) fn compacts(&self) -> Option<LogId> {
        match self {
            Command::Compact(compacting) => Some(compacting.log),
            _ => None,
        }
    }
}

/// A log that has grown, and the project it belongs to.
pub(super) type Grown = (LogId, Option<LogId>);

/// What the writer answers.
#[derive(Debug)]
pub(super) enum Answer {
    Appended {
        ack: Ack,
        /// The logs that have grown, each with the project it belongs to.
        grown: Vec<Grown>,
        /// Grants that stand no more.
        cut: Vec<Cut>,
    },
    Ended {
        count: u64,
        grown: Vec<Grown>,
        cut: Vec<Cut>,
    },
    Recorded {
        recorded: Recorded,
        grown: Vec<Grown>,
    },
    Registered(Registered),
    Taken {
        stretch: Stretch,
        taken: Taken,
    },
    Forgotten {
        stretch: Stretch,
        /// Which, if there was one.
        key: Option<SubscriptionKey>,
    },
    /// A text has become so long.
    Grew {
        length: u64,
        session: LogId,
        /// Whether the turn had waited.
        went_on: bool,
    },
    Done(bool),
    Claimed(GrantId),
    Freed(Freed),
    Until(u64),
}

impl Answer {
    pub(super) fn ack(self) -> Option<Ack> {
        match self {
            Answer::Appended { ack, .. } => Some(ack),
            _ => None,
        }
    }

    pub(super) fn length(self) -> Option<u64> {
        match self {
            Answer::Grew { length, .. } => Some(length),
            _ => None,
        }
    }

    /// The session of a turn that had waited and goes on.
    pub(super) fn went_on(&self) -> Option<LogId> {
        match self {
            Answer::Grew { session, went_on: true, .. } => Some(*session),
            _ => None,
        }
    }

    /// The session in which a text has grown.
    pub(super) fn grown_text(&self) -> Option<LogId> {
        match self {
            Answer::Grew { session, .. } => Some(*session),
            _ => None,
        }
    }

    pub(super) fn ended(self) -> Option<u64> {
        match self {
            Answer::Ended { count, .. } => Some(count),
            _ => None,
        }
    }

    pub(super) fn recorded(self) -> Option<Recorded> {
        match self {
            Answer::Recorded { recorded, .. } => Some(recorded),
            _ => None,
        }
    }

    /// The logs it tells have grown.
    pub(super) fn grown(&self) -> &[Grown] {
        match self {
            Answer::Appended { grown, .. }
            | Answer::Ended { grown, .. }
            | Answer::Recorded { grown, .. } => grown,
            _ => &[],
        }
    }

    /// The grants it tells stand no more.
    pub(super) fn cut(&self) -> &[Cut] {
        match self {
            Answer::Appended { cut, .. } | Answer::Ended { cut, .. } => cut,
            _ => &[],
        }
    }

    pub(super) fn taken(self) -> Option<Taken> {
        match self {
            Answer::Taken { taken, .. } => Some(taken),
            _ => None,
        }
    }

    pub(super) fn forgotten(self) -> Option<bool> {
        match self {
            Answer::Forgotten { key, .. } => Some(key.is_some()),
            _ => None,
        }
    }
}

macro_rules! parts {
    ($($name:ident, $variant:ident, $part:ty;)+) => {
        impl Answer {
            $(pub(super) fn $name(self) -> Option<$part> {
                match self {
                    Answer::$variant(part) => Some(part),
                    _ => None,
                }
            })+
        }
    };
}

parts! {
    registered, Registered, Registered;
    done, Done, bool;
    claimed, Claimed, GrantId;
    freed, Freed, Freed;
    until, Until, u64;
}
