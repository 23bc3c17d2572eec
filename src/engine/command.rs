//! What the writer can be asked to do, and what it answers.

use crate::limits::COMMAND_BYTES_LEAST;
use crate::model::feed::Stretch;
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId, SubscriptionName};
use crate::model::ledger::{Ack, BatchHeader};
use crate::model::registration::Registration;
use crate::model::sturdy_ref::Verifier;
use crate::ops::Op;
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
}

/// A batch of ops for one log, under one authority.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Under which grant.
    pub grant: GrantKey,
    /// For which log.
    pub log: LogId,
    /// What it says about itself.
    pub header: BatchHeader,
    /// What it wants done. With nothing it only moves `acked_through` on, and asks where the log ends.
    pub ops: Vec<Op>,
}

/// A run of a producer, for one log, under one authority.
#[derive(Debug, Clone)]
pub struct Registering {
    /// Under which grant.
    pub grant: GrantKey,
    /// For which log.
    pub log: LogId,
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
            _ => COMMAND_BYTES_LEAST,
        }
    }

    /// Whether it takes authority back.
    pub(super) fn takes_back(&self) -> bool {
        matches!(self, Command::Append(batch) if batch.ops.iter().any(Op::takes_back))
    }

    /// The log whose content it changes.
    pub(super) fn changes(&self) -> Option<LogId> {
        match self {
            Command::Append(batch) => Some(batch.log),
            _ => None,
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

/// What the writer answers.
#[derive(Debug)]
pub(super) enum Answer {
    Appended {
        ack: Ack,
        /// The log, with the project it belongs to, if it has grown.
        grown: Option<(LogId, Option<LogId>)>,
        /// Grants that stand no more.
        cut: Vec<GrantKey>,
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
    Done(bool),
    Claimed(GrantId),
    Freed(Freed),
}

impl Answer {
    pub(super) fn ack(self) -> Option<Ack> {
        match self {
            Answer::Appended { ack, .. } => Some(ack),
            _ => None,
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
}
