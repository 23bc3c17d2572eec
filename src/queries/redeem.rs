//! What a sturdy ref stands for.

use super::QueryError;
use crate::model::code::{Code, Coded};
use crate::model::ids::{GrantKey, LogId};
use crate::model::infos::{ObjectKind, ProjectKey, SessionKey};
use crate::model::rights::Rights;
use crate::model::sturdy_ref::{SturdyRef, Verifier, VerifierKey};
use crate::store::grants::Grant;
use crate::store::{self, Read};

/// A grant that was redeemed: enough to make the live object.
#[derive(Debug, Clone)]
pub struct Redeemed {
    /// The grant.
    pub grant: GrantKey,
    /// What its holder may do.
    pub rights: Rights,
    /// The object.
    pub object: Object,
    /// The object's epoch.
    pub epoch: u64,
    /// The grant as it was found.
    pub found: Grant,
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
    Refused,
    /// Told to who showed the right secret.
    #[error("this sturdy ref was revoked; ask its owner for a new one")]
    Revoked,
    /// Likewise.
    #[error("this sturdy ref has expired; ask its owner for a new one")]
    Expired,
}

impl Coded for RedeemError {
    fn code(&self) -> Code {
        match self {
            RedeemError::Refused => Code::RefRefused,
            RedeemError::Revoked => Code::Revoked,
            RedeemError::Expired => Code::Expired,
        }
    }
}

pub(super) fn redeem(
    read: &Read<'_>,
    sturdy_ref: &SturdyRef,
    key: &VerifierKey,
    shown_for: Shown,
    now_ms: u64,
) -> Result<Result<Redeemed, RedeemError>, QueryError> {
    let found = store::grants::by_id(read, sturdy_ref.grant)?;
    // The same hash and the same comparison for an unknown grant as for a wrong secret, so that the
    // time taken does not tell which grants exist.
    let shown = sturdy_ref.secret.verifier(key);
    let wanted = found.as_ref().map_or(Verifier::from_bytes([0; 32]), |grant| grant.verifier);
    let fits = shown == wanted;
    // One that was only attenuated has no secret, and nothing fits it. A claim is no ref, and a ref no claim,
    // and which it is, is not said.
    let fits = fits && found.as_ref().is_some_and(|it| it.claim == (shown_for == Shown::Claim));
    let Some(grant) = found.filter(|grant| fits && grant.saved) else {
        return Ok(Err(RedeemError::Refused));
    };
    if grant.revoked {
        return Ok(Err(RedeemError::Revoked));
    }
    if grant.authority.has_expired(now_ms) {
        return Ok(Err(RedeemError::Expired));
    }
    let object = object(read, grant.kind, grant.log)?;
    let epoch = store::logs::get(read, grant.log)?.epoch;
    let (key, rights) = (grant.key, grant.authority.rights);
    Ok(Ok(Redeemed { grant: key, rights, object, epoch, found: grant }))
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::grant::Authority;
    use crate::model::ids::GrantId;
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
            claim: false,
        };
        grants::create(&tx, &new(3, Some(secret.verifier(&key)), None), 1).unwrap();
        grants::create(&tx, &new(7, Some(secret.verifier(&key)), Some(100)), 1).unwrap();
        grants::create(&tx, &new(8, None, None), 1).unwrap();
        let shown_at = |grant, secret: &Secret, now_ms| {
            let sturdy_ref = SturdyRef { address: String::new(), grant, secret: secret.clone() };
            redeem(&tx, &sturdy_ref, &key, Shown::Ref, now_ms).unwrap().map(|found| found.rights)
        };
        let shown = |grant, secret: &Secret| shown_at(grant, secret, 50);

        let wrong = Secret::new([6; 32]);
        assert_eq!(shown(grant, &secret), Ok(Rights::all()));
        assert_eq!(shown(grant, &wrong), Err(RedeemError::Refused));
        assert_eq!(shown(GrantId([4; 16]), &secret), Err(RedeemError::Refused));

        let short = GrantId([7; 16]);
        assert_eq!(shown_at(short, &secret, 99), Ok(Rights::all()));
        assert_eq!(shown_at(short, &secret, 100), Err(RedeemError::Expired));
        assert_eq!(
            shown_at(short, &wrong, 100),
            Err(RedeemError::Refused),
            "a stranger hears no more"
        );
        for guess in [&secret, &wrong, &Secret::new([0; 32])] {
            let unsaved = GrantId([8; 16]);
            assert_eq!(shown(unsaved, guess), Err(RedeemError::Refused), "it has no ref");
        }

        for key in grants::operators(&tx).unwrap() {
            grants::revoke(&tx, key, 2).unwrap();
        }
        assert_eq!(shown(grant, &secret), Err(RedeemError::Revoked));
        assert_eq!(shown(grant, &wrong), Err(RedeemError::Refused), "nor here");
    }
}
