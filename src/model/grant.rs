//! Handing on less: which authority a grant derived from another one has.

use crate::limits::{GRANT_DEPTH_MAX, ID_BYTES_MAX, LAST_USE_EVERY_MS, TITLE_BYTES_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ids::{GrantId, LogId, OpId};
use crate::model::infos::ObjectKind;
use crate::model::rights::{Right, Rights};

/// What a grant lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority {
    /// Which rights.
    pub rights: Rights,
    /// Until when; none for ever.
    pub expires_at_ms: Option<u64>,
    /// How often its ref may be redeemed; none for any number.
    pub uses_max: Option<u32>,
    /// How many grants stand above it.
    pub depth: u32,
}

/// What becomes of one more use of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noting {
    /// It counts, and must be on disk before anything is given.
    Counted,
    /// It is noted as the last one.
    Noted,
    /// One was noted a moment ago.
    Nothing,
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
        "the label is at most {TITLE_BYTES_MAX} bytes, the actor {ID_BYTES_MAX} without spaces and control characters"
    )]
    Words,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Widened(_) => Code::NotPermitted,
            Error::TooDeep => Code::TooDeep,
            Error::Words => Code::NarrowingMalformed,
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
            && is_actor(&self.actor);
        if fine { Ok(self) } else { Err(Error::Words) }
    }
}

impl Authority {
    /// The operator's own: everything, for ever.
    pub fn of_operator() -> Self {
        Self { rights: Rights::all(), expires_at_ms: None, uses_max: None, depth: 0 }
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
        Ok(Self { rights, expires_at_ms, uses_max, depth: self.depth + 1 })
    }

    /// What becomes of one more use of a ref that was last used then.
    pub fn noting(&self, last_used_at_ms: Option<u64>, now_ms: u64) -> Noting {
        let since_ms = now_ms.saturating_sub(last_used_at_ms.unwrap_or(0));
        match self.uses_max {
            Some(_) => Noting::Counted,
            None if since_ms >= LAST_USE_EVERY_MS => Noting::Noted,
            None => Noting::Nothing,
        }
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
    fn a_use_is_counted_where_it_is_limited_and_otherwise_noted_now_and_then() {
        let free = Authority::of_operator();
        let limited = Authority { uses_max: Some(3), ..free };
        assert_eq!(limited.noting(Some(1000), 1001), Noting::Counted);
        assert_eq!(free.noting(None, LAST_USE_EVERY_MS), Noting::Noted);
        assert_eq!(free.noting(Some(1), LAST_USE_EVERY_MS), Noting::Nothing);
        assert_eq!(free.noting(Some(1), LAST_USE_EVERY_MS + 1), Noting::Noted);
    }

    #[test]
    fn an_op_always_makes_the_same_grant_and_never_anothers() {
        let op = OpId([1; 16]);
        assert_eq!(made_by(LogId(1), op), made_by(LogId(1), op));
        assert_ne!(made_by(LogId(1), op), made_by(LogId(2), op));
    }
}
