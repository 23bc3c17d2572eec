//! Handing on less: which authority a grant derived from another one has.

use crate::limits::{GRANT_DEPTH_MAX, ID_BYTES_MAX, TITLE_BYTES_MAX};
use crate::model::caveats::{self, Caveats};
use crate::model::code::{Code, Coded};
use crate::model::ids::{GrantId, LogId, OpId};
use crate::model::infos::ObjectKind;
use crate::model::rights::{Right, Rights};

/// What a grant lets its holder do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// Which rights.
    pub rights: Rights,
    /// Until when; none for ever.
    pub expires_at_ms: Option<u64>,
    /// How often its ref may be redeemed; none for any number.
    pub uses_max: Option<u32>,
    /// How many grants stand above it.
    pub depth: u32,
    /// For what.
    pub caveats: Caveats,
}

/// Why a grant does not stand any more. Numbers of those that are stored stay taken; a time that has passed
/// is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fallen {
    /// It was taken back.
    #[error("the grant behind this was revoked; ask its owner for a new one")]
    Revoked = 0,
    /// The object's refs were made stale.
    #[error("the refs of this object were made stale; ask its owner for a new one")]
    Stale = 1,
    /// The delegate is done.
    #[error("the delegation behind this is over: it was completed")]
    Completed = 2,
    /// The delegate gave up.
    #[error("the delegation behind this is over: it failed")]
    Failed = 3,
    /// Nothing was heard of the delegate.
    #[error("the delegation behind this is over: its lease ran out")]
    Lapsed = 4,
    /// It has ended by itself.
    #[error("the grant behind this has expired; ask its owner for a new one")]
    Expired = 5,
    /// Its ref was not used in time.
    #[error("this sturdy ref was not used in time and has expired; ask its owner for a new one")]
    Unused = 6,
}

impl Fallen {
    /// The reason behind a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        use Fallen::*;
        [Revoked, Stale, Completed, Failed, Lapsed, Expired, Unused]
            .into_iter()
            .find(|fallen| *fallen as u8 == number)
    }
}

impl Coded for Fallen {
    fn code(&self) -> Code {
        match self {
            Fallen::Revoked => Code::Revoked,
            Fallen::Stale => Code::EpochStale,
            Fallen::Completed | Fallen::Failed | Fallen::Lapsed => Code::DelegationEnded,
            Fallen::Expired | Fallen::Unused => Code::Expired,
        }
    }
}

/// How much of an authority somebody wants to hand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowing {
    /// Which rights; none for all.
    pub rights: Option<Rights>,
    /// Until when; none for as long as the one it is derived from.
    pub expires_at_ms: Option<u64>,
    /// How often its ref may be redeemed; none for as often as that one's.
    pub uses_max: Option<u32>,
    /// Whether its ref can only be exchanged.
    pub claim: bool,
    /// By when its ref must be used first; none for no such time.
    pub unused_until_ms: Option<u64>,
    /// Whose own ref must be shown with its ref; empty for nobody's.
    pub sealed_to: String,
    /// For what it may be used.
    pub caveats: Caveats,
    /// What it is for.
    pub label: String,
    /// Whom it is for.
    pub actor: String,
}

/// Why it cannot be handed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Somebody wants to hand on what nobody gave him.
    #[error("the right {:?} cannot be handed on: this object does not carry it", .0.word())]
    Widened(Right),
    /// The tree is deep enough.
    #[error("{GRANT_DEPTH_MAX} grants stand above this one already")]
    TooDeep,
    /// The words are too many, or garble a table.
    #[error(
        "the label is at most {TITLE_BYTES_MAX} bytes, an actor {ID_BYTES_MAX} without spaces and control characters"
    )]
    Words,
    /// It is about the caveats.
    #[error(transparent)]
    Caveats(#[from] caveats::Error),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Widened(_) => Code::NotPermitted,
            Error::TooDeep => Code::TooDeep,
            Error::Words => Code::NarrowingMalformed,
            Error::Caveats(error) => error.code(),
        }
    }
}

/// Whether a text can name an actor; an empty one names none.
pub fn is_actor(text: &str) -> bool {
    text.len() <= ID_BYTES_MAX && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

impl Narrowing {
    /// Whether the words make sense.
    pub fn check(self) -> Result<Self, Error> {
        let fine = self.label.len() <= TITLE_BYTES_MAX
            && !self.label.contains(char::is_control)
            && is_actor(&self.actor)
            && is_actor(&self.sealed_to);
        match fine {
            true => Ok(Self { caveats: self.caveats.check()?, ..self }),
            false => Err(Error::Words),
        }
    }
}

impl Authority {
    /// The operator's own: everything, for ever.
    pub fn of_operator() -> Self {
        Self {
            rights: Rights::all(),
            expires_at_ms: None,
            uses_max: None,
            depth: 0,
            caveats: Caveats::default(),
        }
    }

    /// The authority of a grant derived from one with this authority. It never has more.
    pub fn narrowed(&self, narrowing: &Narrowing) -> Result<Self, Error> {
        if self.depth >= GRANT_DEPTH_MAX {
            return Err(Error::TooDeep);
        }
        let rights = narrowing.rights.unwrap_or(self.rights);
        if let Some(missing) = rights.lacking(self.rights) {
            return Err(Error::Widened(missing));
        }
        let expires_at_ms = match (self.expires_at_ms, narrowing.expires_at_ms) {
            (Some(mine), Some(wanted)) => Some(mine.min(wanted)),
            (mine, wanted) => mine.or(wanted),
        };
        let uses_max = match (self.uses_max, narrowing.uses_max) {
            (Some(mine), Some(wanted)) => Some(mine.min(wanted)),
            (mine, wanted) => mine.or(wanted),
        };
        let caveats = self.caveats.narrowed(&narrowing.caveats)?;
        Ok(Self { rights, expires_at_ms, uses_max, depth: self.depth + 1, caveats })
    }

    /// Whether it has ended by itself.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

/// The public name of the grant an op makes: the same whenever the op is repeated.
pub fn made_by(log: LogId, op: OpId) -> GrantId {
    let mut hasher = blake3::Hasher::new_derive_key("bowline grant id v1");
    hasher.update(&log.0.to_le_bytes()).update(&op.0);
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    GrantId(id)
}

/// The public name of the grant that a claim is exchanged for.
pub fn claimed(claim: GrantId) -> GrantId {
    let mut hasher = blake3::Hasher::new_derive_key("bowline claimed grant id v1");
    hasher.update(&claim.0);
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    GrantId(id)
}

/// An object by its kind and its log: what a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Which kind.
    pub kind: ObjectKind,
    /// Which one.
    pub log: LogId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn narrowing(bits: Option<u32>, expires_at_ms: Option<u64>) -> Narrowing {
        let rights = bits.map(Rights::from_bits);
        Narrowing {
            rights,
            expires_at_ms,
            uses_max: None,
            claim: false,
            unused_until_ms: None,
            sealed_to: String::new(),
            caveats: Caveats::default(),
            label: String::new(),
            actor: String::new(),
        }
    }

    proptest! {
        /// Along any path, what is left is the intersection of everything that was asked for, and asking
        /// for more than that is refused with the right that is missing.
        #[test]
        fn authority_is_the_intersection_along_the_path(
            path in prop::collection::vec((prop::option::of(0u32..256), prop::option::of(1u64..100)), 1..20)
        ) {
            let mut held = Authority::of_operator();
            let (mut rights, mut expires) = (Rights::all(), u64::MAX);
            for (bits, expires_at_ms) in path {
                let wanted = bits.map_or(rights, Rights::from_bits);
                match held.narrowed(&narrowing(bits, expires_at_ms)) {
                    Ok(got) => {
                        prop_assert_eq!(wanted.lacking(rights), None);
                        rights = wanted;
                        expires = expires.min(expires_at_ms.unwrap_or(u64::MAX));
                        prop_assert_eq!(got.rights, rights);
                        prop_assert_eq!(got.expires_at_ms.unwrap_or(u64::MAX), expires);
                        prop_assert_eq!(got.depth, held.depth + 1);
                        held = got;
                    }
                    Err(Error::Widened(right)) => {
                        prop_assert!(wanted.contains(right) && !rights.contains(right));
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
        }
    }

    #[test]
    fn a_tree_is_only_so_deep_and_words_are_checked() {
        let deep = Authority { depth: GRANT_DEPTH_MAX, ..Authority::of_operator() };
        assert_eq!(deep.narrowed(&narrowing(None, None)), Err(Error::TooDeep));
        let few = |uses_max| Narrowing { uses_max, ..narrowing(None, None) };
        let twice = Authority::of_operator().narrowed(&few(Some(2))).unwrap();
        let uses = |wanted| twice.narrowed(&few(wanted)).unwrap().uses_max;
        assert_eq!((uses(None), uses(Some(1)), uses(Some(9))), (Some(2), Some(1), Some(2)));
        let said = |label: &str, actor: &str| Narrowing {
            label: label.into(),
            actor: actor.into(),
            ..narrowing(None, None)
        };
        assert!(said("for tests", "agent-7").check().is_ok());
        for (label, actor) in
            [("a\nb", ""), ("", "a b"), (&*"x".repeat(1025), ""), ("", &*"x".repeat(129))]
        {
            assert_eq!(said(label, actor).check(), Err(Error::Words), "{label:?} {actor:?}");
        }
    }

    #[test]
    fn reasons_come_back_as_they_were() {
        for number in 0..7 {
            assert_eq!(Fallen::from_number(number).map(|fallen| fallen as u8), Some(number));
        }
        assert_eq!(Fallen::from_number(7), None);
    }

    #[test]
    fn an_op_always_makes_the_same_grant_and_never_anothers() {
        let op = OpId([1; 16]);
        assert_eq!(made_by(LogId(1), op), made_by(LogId(1), op));
        assert_ne!(made_by(LogId(1), op), made_by(LogId(2), op));
    }
}
