//! What a sturdy ref stands for.

use super::QueryError;
use crate::model::code::{Code, Coded};
use crate::model::grant::{Authority, Fallen};
use crate::model::ids::{GrantId, GrantKey, LogId};
use crate::model::infos::{ObjectKind, ProjectKey, SessionKey};
use crate::model::share::ShareKey;
use crate::model::sturdy_ref::{SturdyRef, Verifier, VerifierKey};
use crate::model::worktree::{SnapshotKey, WorktreeKey};
use crate::store::grants::Grant;
use crate::store::{self, Read};

/// A grant that was redeemed: enough to make the live object.
#[derive(Debug, Clone)]
pub struct Redeemed {
    /// The grant.
    pub grant: GrantKey,
    /// Its public name.
    pub id: GrantId,
    /// What its holder may do.
    pub authority: Authority,
    /// The object.
    pub object: Object,
    /// The object's epoch.
    pub epoch: u64,
}

/// Where a redeemed object lives.
#[derive(Debug, Clone)]
pub enum Object {
    /// The server itself.
    Root,
    /// A project.
    Project(ProjectKey),
    /// A session.
    Session(SessionKey),
    /// A published view of one.
    Share(ShareKey),
    /// A work tree.
    Worktree(WorktreeKey),
    /// A state of one.
    Snapshot(SnapshotKey),
}

/// A ref that is shown, and for what.
#[derive(Debug, Clone)]
pub struct Showing {
    /// The ref.
    pub sturdy_ref: SturdyRef,
    /// A ref of whoever shows it, if it is sealed.
    pub own_ref: Option<SturdyRef>,
    /// What for.
    pub shown_for: Shown,
    /// What secrets are hashed with.
    pub key: VerifierKey,
    /// The time.
    pub now_ms: u64,
}

/// What a ref is shown for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// To be redeemed.
    Ref,
    /// To be exchanged for one that can be.
    Claim,
}

/// Why a ref stands for nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedeemError {
    /// All that a stranger is told.
    #[error("this sturdy ref stands for nothing here; ask whoever gave it for a new one")]
    Refused {
        /// The grant, if there is one of that name. Nobody is told.
        shown: Option<GrantKey>,
    },
    /// Told to who showed the right secret.
    #[error("{why}")]
    Fallen {
        /// Which grant.
        grant: GrantKey,
        /// Why it does not stand.
        why: Fallen,
    },
    /// Likewise.
    #[error("this ref was used as often as it may be")]
    UsedUp {
        /// Which grant.
        grant: GrantKey,
    },
    /// Likewise.
    #[error("this sturdy ref is sealed: show a ref of the actor's own with it")]
    Sealed {
        /// Which grant.
        grant: GrantKey,
    },
}

impl RedeemError {
    /// The grant whose ref was shown with the right secret.
    pub fn held(&self) -> Option<GrantKey> {
        match self {
            RedeemError::Refused { .. } => None,
            RedeemError::Fallen { grant, .. }
            | RedeemError::UsedUp { grant }
            | RedeemError::Sealed { grant } => Some(*grant),
        }
    }

    /// The grant whose ref was shown with a wrong one.
    pub fn guessed(&self) -> Option<GrantKey> {
        match self {
            RedeemError::Refused { shown } => *shown,
            _ => None,
        }
    }
}

impl Coded for RedeemError {
    fn code(&self) -> Code {
        match self {
            RedeemError::Refused { .. } => Code::RefRefused,
            RedeemError::Fallen { why, .. } => why.code(),
            RedeemError::UsedUp { .. } => Code::UsedUp,
            RedeemError::Sealed { .. } => Code::Sealed,
        }
    }
}

pub(super) fn redeem(
    read: &Read<'_>,
    showing: &Showing,
) -> Result<Result<Redeemed, RedeemError>, QueryError> {
    let grant = match fitting(read, &showing.sturdy_ref, &showing.key, showing.shown_for)? {
        Ok(grant) => grant,
        Err(shown) => return Ok(Err(RedeemError::Refused { shown })),
    };
    if let Some(why) = grant.fallen(showing.now_ms) {
        return Ok(Err(RedeemError::Fallen { grant: grant.key, why }));
    }
    // Whether a claim was exchanged by the same one, its seed tells.
    if showing.shown_for == Shown::Ref && grant.is_used_up() {
        return Ok(Err(RedeemError::UsedUp { grant: grant.key }));
    }
    // A claim is exchanged for a ref that is sealed like it.
    if showing.shown_for == Shown::Ref && !unsealed(read, &grant, showing)? {
        return Ok(Err(RedeemError::Sealed { grant: grant.key }));
    }
    let object = object(read, grant.kind, grant.log)?;
    let epoch = store::logs::get(read, grant.log)?.epoch;
    let Grant { key, id, authority, .. } = grant;
    Ok(Ok(Redeemed { grant: key, id, authority, object, epoch }))
}

/// Whether a ref may be redeemed by who shows it.
///
/// A name is worth what whoever gave it is: so the actor's own ref counts only if its maker stands where the
/// sealed ref was made, or above. Anybody else could have given that name to himself.
fn unsealed(read: &Read<'_>, grant: &Grant, showing: &Showing) -> Result<bool, QueryError> {
    if grant.sealed_to.is_empty() {
        return Ok(true);
    }
    let Some(own_ref) = &showing.own_ref else { return Ok(false) };
    let Ok(own) = fitting(read, own_ref, &showing.key, Shown::Ref)? else { return Ok(false) };
    // One that was exchanged for a claim was named by who made the claim.
    let made = store::grants::claim_behind(read, own.key)?;
    let named_by = made.as_ref().map_or(own.parent, |claim| claim.parent);
    let (Some(named_by), Some(sealed_by)) = (named_by, grant.parent) else { return Ok(false) };
    Ok(own.fallen(showing.now_ms).is_none()
        && own.actor == grant.sealed_to
        // One that is sealed itself proves nothing.
        && own.sealed_to.is_empty()
        && store::grants::stems_from(read, sealed_by, named_by)?)
}

/// The grant a ref is for, if its secret fits; otherwise the one of its name, if there is one.
fn fitting(
    read: &Read<'_>,
    sturdy_ref: &SturdyRef,
    key: &VerifierKey,
    shown_for: Shown,
) -> Result<Result<Grant, Option<GrantKey>>, QueryError> {
    let found = store::grants::by_id(read, sturdy_ref.grant)?;
    // The same hash and the same comparison for an unknown grant as for a wrong secret, so that the
    // time taken does not tell which grants exist.
    let shown = sturdy_ref.secret.verifier(key);
    let wanted = found.as_ref().map_or(Verifier::from_bytes([0; 32]), |grant| grant.verifier);
    let fits = shown == wanted;
    // One that was only attenuated has no secret, and nothing fits it. A claim is no ref, and a ref no claim,
    // and which it is, is not said.
    let fits = fits && found.as_ref().is_some_and(|it| it.claim == (shown_for == Shown::Claim));
    Ok(match found {
        Some(grant) if fits && grant.saved => Ok(grant),
        other => Err(other.map(|grant| grant.key)),
    })
}

pub(super) fn object(read: &Read<'_>, kind: ObjectKind, log: LogId) -> Result<Object, QueryError> {
    Ok(match kind {
        ObjectKind::Root => Object::Root,
        ObjectKind::Project => {
            let id = store::projects::info(read, log)?.ok_or(QueryError::ProjectGone)?.id;
            Object::Project(ProjectKey { log, id })
        }
        ObjectKind::Session => {
            let id = store::sessions::info(read, log)?.ok_or(QueryError::SessionGone)?.id;
            Object::Session(SessionKey { log, id })
        }
        ObjectKind::Share => {
            Object::Share(store::shares::terms(read, log)?.ok_or(QueryError::ShareGone)?.key)
        }
        ObjectKind::Worktree => {
            Object::Worktree(store::trees::at(read, log)?.ok_or(QueryError::WorktreeGone)?)
        }
        ObjectKind::Snapshot => Object::Snapshot(super::worktrees::snapshot_key(read, log)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rights::Rights;
    use crate::model::sturdy_ref::Secret;
    use crate::store::{grants, testing};

    #[test]
    fn only_the_right_secret_of_a_live_grant_gives_the_object() {
        let (_dir, mut store) = testing::store();
        let key = VerifierKey([2; 32]);
        let secret = Secret::new([5; 32]);
        let grant = GrantId([3; 16]);
        let tx = store.begin().unwrap();
        let authority = |expires_at_ms| Authority { expires_at_ms, ..Authority::of_operator() };
        let new = |n: u8, verifier, expires_at_ms| grants::NewGrant {
            id: GrantId([n; 16]),
            verifier,
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            authority: authority(expires_at_ms),
            label: "operator",
            actor: "",
            parent: None,
            terms: grants::RefTerms::default(),
        };
        grants::create(&tx, &new(3, Some(secret.verifier(&key)), None), 1).unwrap();
        grants::create(&tx, &new(7, Some(secret.verifier(&key)), Some(100)), 1).unwrap();
        grants::create(&tx, &new(8, None, None), 1).unwrap();
        let shown_at = |grant, secret: &Secret, now_ms| {
            let sturdy_ref = SturdyRef { address: String::new(), grant, secret: secret.clone() };
            let (key, shown_for) = (key.clone(), Shown::Ref);
            let showing = Showing { sturdy_ref, own_ref: None, shown_for, key, now_ms };
            redeem(&tx, &showing)
                .unwrap()
                .map(|found| found.authority.rights)
                .map_err(|error| error.code())
        };
        let shown = |grant, secret: &Secret| shown_at(grant, secret, 50);

        let wrong = Secret::new([6; 32]);
        assert_eq!(shown(grant, &secret), Ok(Rights::all()));
        assert_eq!(shown(grant, &wrong), Err(Code::RefRefused));
        assert_eq!(shown(GrantId([4; 16]), &secret), Err(Code::RefRefused));

        let short = GrantId([7; 16]);
        assert_eq!(shown_at(short, &secret, 99), Ok(Rights::all()));
        assert_eq!(shown_at(short, &secret, 100), Err(Code::Expired));
        assert_eq!(shown_at(short, &wrong, 100), Err(Code::RefRefused), "a stranger hears no more");
        for guess in [&secret, &wrong, &Secret::new([0; 32])] {
            let unsaved = GrantId([8; 16]);
            assert_eq!(shown(unsaved, guess), Err(Code::RefRefused), "it has no ref");
        }

        for key in grants::operators(&tx).unwrap() {
            grants::revoke(&tx, key, Fallen::Stale, 2).unwrap();
        }
        assert_eq!(shown(grant, &secret), Err(Code::EpochStale));
        assert_eq!(shown(grant, &wrong), Err(Code::RefRefused), "nor here");
    }
}
