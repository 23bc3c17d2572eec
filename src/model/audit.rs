//! The audit trail as values: what an entry says, and how each is chained to the one before it.

use crate::model::ids::{GrantKey, LogId};
use std::sync::LazyLock;

/// What an entry is about. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The server began to run on this data.
    Started = 1,
    /// Ops were applied.
    Changed = 2,
    /// A ref was redeemed.
    Redeemed = 3,
    /// A claim was exchanged.
    Claimed = 4,
    /// A grant was made without a ref.
    Attenuated = 5,
    /// A grant was made with one.
    Saved = 6,
    /// A grant was taken back.
    Revoked = 7,
    /// An object's refs were made stale.
    EpochBumped = 8,
    /// An actor's grants were taken back.
    ActorRevoked = 9,
    /// The root's own ref was replaced.
    RootRotated = 10,
    /// Work was handed to somebody.
    Delegated = 11,
    /// It is over.
    DelegationEnded = 12,
    /// A session was published.
    ShareOpened = 13,
    /// It is so no more.
    ShareEnded = 14,
    /// A run of a producer announced itself.
    Registered = 15,
    /// A named subscription was taken up.
    SubscriptionTaken = 16,
    /// One was dropped.
    SubscriptionForgotten = 17,
    /// Somebody was refused for want of authority.
    Denied = 18,
    /// Old entries were let go of.
    Pruned = 19,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Kind; 19] = [
        Kind::Started,
        Kind::Changed,
        Kind::Redeemed,
        Kind::Claimed,
        Kind::Attenuated,
        Kind::Saved,
        Kind::Revoked,
        Kind::EpochBumped,
        Kind::ActorRevoked,
        Kind::RootRotated,
        Kind::Delegated,
        Kind::DelegationEnded,
        Kind::ShareOpened,
        Kind::ShareEnded,
        Kind::Registered,
        Kind::SubscriptionTaken,
        Kind::SubscriptionForgotten,
        Kind::Denied,
        Kind::Pruned,
    ];

    /// The kind behind a stored number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }

    /// The word people use for it.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Started => "started",
            Kind::Changed => "changed",
            Kind::Redeemed => "redeemed",
            Kind::Claimed => "claimed",
            Kind::Attenuated => "attenuated",
            Kind::Saved => "saved",
            Kind::Revoked => "revoked",
            Kind::EpochBumped => "epoch-bumped",
            Kind::ActorRevoked => "actor-revoked",
            Kind::RootRotated => "root-rotated",
            Kind::Delegated => "delegated",
            Kind::DelegationEnded => "delegation-ended",
            Kind::ShareOpened => "share-opened",
            Kind::ShareEnded => "share-ended",
            Kind::Registered => "registered",
            Kind::SubscriptionTaken => "subscription-taken",
            Kind::SubscriptionForgotten => "subscription-forgotten",
            Kind::Denied => "denied",
            Kind::Pruned => "pruned",
        }
    }
}

/// What keeps the hashes of entries and of ops apart from each other and from all others. They are no
/// secrets, and made once because making them costs more than a hash.
static ENTRY_KEY: LazyLock<Hash> =
    LazyLock::new(|| blake3::derive_key("bowline audit entry v1", &[]));
static OPS_KEY: LazyLock<Hash> =
    LazyLock::new(|| blake3::derive_key("bowline audited ops v1", &[]));

/// A 32-byte hash.
pub type Hash = [u8; 32];

/// What stands before the first entry.
pub const GENESIS: Hash = [0; 32];

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When. Never before the entry in front of it.
    pub at_ms: u64,
    /// What it is about; a number this version may not know.
    pub kind: u16,
    /// Under which authority.
    pub granted: Option<GrantKey>,
    /// The object it happened to.
    pub log: Option<LogId>,
    /// The grant it is about.
    pub subject: Option<GrantKey>,
    /// How many ops, or how often; for `Pruned`, up to which number.
    pub count: u64,
    /// The first op; 0 without ops. For `Pruned`, and for the first of all, the last op that no later entry
    /// tells of.
    pub position: u64,
    /// Of a refusal.
    pub code: String,
    /// Which right was missing, as bits.
    pub missing: u32,
    /// Over the ops; for `Pruned`, the hash of the last entry that went; otherwise empty.
    pub digest: Vec<u8>,
}

impl Entry {
    /// An entry that says nothing but this.
    pub fn new(kind: Kind) -> Self {
        Self {
            at_ms: 0,
            kind: kind as u16,
            granted: None,
            log: None,
            subject: None,
            count: 0,
            position: 0,
            code: String::new(),
            missing: 0,
            digest: Vec::new(),
        }
    }

    /// The hash of an entry, which its number and the hash of the one before it go into.
    pub fn hash(&self, number: u64, before: &Hash) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&ENTRY_KEY);
        let key = |key: Option<i64>| key.map_or([0; 9], |key| flagged(&key.to_le_bytes()));
        hasher
            .update(before)
            .update(&number.to_le_bytes())
            .update(&self.at_ms.to_le_bytes())
            .update(&self.kind.to_le_bytes())
            .update(&key(self.granted.map(|key| key.0)))
            .update(&key(self.log.map(|key| key.0)))
            .update(&key(self.subject.map(|key| key.0)))
            .update(&self.count.to_le_bytes())
            .update(&self.position.to_le_bytes())
            .update(&self.missing.to_le_bytes())
            .update(&(self.code.len() as u64).to_le_bytes())
            .update(self.code.as_bytes())
            .update(&(self.digest.len() as u64).to_le_bytes())
            .update(&self.digest);
        *hasher.finalize().as_bytes()
    }
}

fn flagged(bytes: &[u8; 8]) -> [u8; 9] {
    let mut flagged = [1; 9];
    flagged[1..].copy_from_slice(bytes);
    flagged
}

/// Ops that follow one another in the history, as they go into the hash of an entry: everything the history
/// says of them, in large pieces, because a hash is quicker over one large piece than over many small ones.
#[derive(Debug, Clone, Default)]
pub struct AuditedOps {
    first_position: u64,
    count: u64,
    /// What is hashed already, if they were too many to be held.
    hashed: Option<Box<blake3::Hasher>>,
    bytes: Vec<u8>,
}

/// More than this is not held at a time.
const HELD_BYTES_MAX: usize = 4 << 20;

/// An op as it is added to them.
#[derive(Debug, Clone, Copy)]
pub struct AuditedOp<'a> {
    /// Where among all ops of the server.
    pub position: u64,
    /// Other numbers of its row: log, cursor, project, producer, seq, grant, time, kind, version, and the
    /// cursor of the op it replaces; 0 for none.
    pub numbers: [u64; 10],
    /// Its name.
    pub op_id: [u8; 16],
    /// The name of its batch; zeros for none.
    pub batch: [u8; 16],
    /// What it says.
    pub payload: &'a [u8],
}

impl AuditedOps {
    /// One more, right behind the last.
    pub fn push(&mut self, op: &AuditedOp<'_>) {
        if self.count == 0 {
            self.first_position = op.position;
        }
        self.count += 1;
        for number in op.numbers.into_iter().chain([op.position, op.payload.len() as u64]) {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(&op.op_id);
        self.bytes.extend_from_slice(&op.batch);
        self.bytes.extend_from_slice(op.payload);
        self.hash_what_is_held();
    }

    /// More of them, right behind these. Only those that are held can be, see [`AuditedOps::is_held`].
    pub fn extend(&mut self, more: &Self) {
        self.count += more.count;
        self.bytes.extend_from_slice(&more.bytes);
        self.hash_what_is_held();
    }

    /// Whether they are few enough to be held as they are.
    pub fn is_held(&self) -> bool {
        self.hashed.is_none()
    }

    fn hash_what_is_held(&mut self) {
        if self.bytes.len() >= HELD_BYTES_MAX {
            let new = || Box::new(blake3::Hasher::new_keyed(&OPS_KEY));
            self.hashed.get_or_insert_with(new).update(&self.bytes);
            self.bytes.clear();
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the first one is.
    pub fn first_position(&self) -> u64 {
        self.first_position
    }

    /// Where one more would be.
    pub fn next_position(&self) -> u64 {
        self.first_position + self.count
    }

    /// The hash over all of them.
    pub fn digest(&self) -> Hash {
        match &self.hashed {
            None => *blake3::keyed_hash(&OPS_KEY, &self.bytes).as_bytes(),
            Some(hashed) => *hashed.clone().update(&self.bytes).finalize().as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ops_have_the_hash_of_all_of_them_and_are_not_held() {
        let payload = vec![7; 1 << 20];
        let op = |position| AuditedOp {
            position,
            numbers: [position; 10],
            op_id: [1; 16],
            batch: [2; 16],
            payload: &payload,
        };
        let (mut ops, mut all) = (AuditedOps::default(), Vec::new());
        for position in 0..9 {
            let mut one = AuditedOps::default();
            one.push(&op(position));
            all.extend_from_slice(&one.bytes);
            match position % 2 {
                0 => ops.push(&op(position)),
                _ => ops.extend(&one),
            }
            assert!(ops.bytes.len() <= HELD_BYTES_MAX + one.bytes.len());
            assert_eq!(ops.digest(), *blake3::keyed_hash(&OPS_KEY, &all).as_bytes());
        }
        assert!(!ops.is_held());
    }

    #[test]
    fn every_part_of_an_entry_goes_into_its_hash() {
        let plain = Entry::new(Kind::Changed);
        let others = [
            Entry { at_ms: 1, ..plain.clone() },
            Entry { kind: 3, ..plain.clone() },
            Entry { granted: Some(GrantKey(0)), ..plain.clone() },
            Entry { log: Some(LogId(0)), ..plain.clone() },
            Entry { subject: Some(GrantKey(0)), ..plain.clone() },
            Entry { count: 1, ..plain.clone() },
            Entry { position: 1, ..plain.clone() },
            Entry { code: "x".into(), ..plain.clone() },
            Entry { missing: 1, ..plain.clone() },
            Entry { digest: vec![1], ..plain.clone() },
        ];
        let first = plain.hash(1, &GENESIS);
        for other in others {
            assert_ne!(other.hash(1, &GENESIS), first, "{other:?}");
        }
        assert_ne!(plain.hash(2, &GENESIS), first);
        assert_ne!(plain.hash(1, &[1; 32]), first);
        assert_eq!(plain.hash(1, &GENESIS), first);
    }

    #[test]
    fn ops_give_the_same_hash_however_they_came_together() {
        let op = |position| AuditedOp {
            position,
            numbers: [position; 10],
            op_id: [1; 16],
            batch: [0; 16],
            payload: b"said",
        };
        let of = |positions: &[u64]| {
            let mut ops = AuditedOps::default();
            positions.iter().for_each(|position| ops.push(&op(*position)));
            ops
        };
        let (all, mut first) = (of(&[4, 5, 6]), of(&[4]));
        first.extend(&of(&[5, 6]));
        assert_eq!((first.digest(), first.count), (all.digest(), all.count));
        assert_eq!((first.first_position, &first.bytes), (all.first_position, &all.bytes));
        assert_eq!((all.first_position(), all.count(), all.next_position()), (4, 3, 7));
        for other in [of(&[4, 5]), of(&[4, 5, 7]), of(&[5, 4, 6])] {
            assert_ne!(other.digest(), all.digest());
        }
        for changed in [
            AuditedOp { numbers: [0; 10], ..op(4) },
            AuditedOp { op_id: [2; 16], ..op(4) },
            AuditedOp { batch: [2; 16], ..op(4) },
            AuditedOp { payload: b"sai", ..op(4) },
        ] {
            let mut ops = AuditedOps::default();
            ops.push(&changed);
            assert_ne!(ops.digest(), of(&[4]).digest(), "{changed:?}");
        }
    }

    #[test]
    fn kinds_and_words_are_unique() {
        let words: std::collections::BTreeSet<_> =
            Kind::ALL.iter().map(|kind| kind.word()).collect();
        assert_eq!(words.len(), Kind::ALL.len());
        for (number, kind) in (1u16..).zip(Kind::ALL) {
            assert_eq!((kind as u16, Kind::from_number(number)), (number, Some(kind)));
        }
        assert_eq!(Kind::from_number(0), None);
    }
}
