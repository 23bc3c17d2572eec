//! What is said about grants, delegations, shares and the audit trail.

use super::{
    Malformed, Read, Single, canonical, chosen, given, only_segment, page, session_wish, sixteen,
};
use crate::limits::CAVEAT_ITEMS_MAX;
use crate::model::caveats::Caveats;
use crate::model::delegation::Lease;
use crate::model::grant::{self, Held, Narrowing};
use crate::model::history::FOR_EVER;
use crate::model::ids::{GrantId, LogId, MessageId, ShareId};
use crate::model::infos::SessionKey;
use crate::model::ledger::BatchHeader;
use crate::model::page::Page;
use crate::model::rights::Right;
use crate::model::sturdy_ref::{Secret, VerifierKey};
use crate::ops::open_share::Wanted;
use crate::ops::{
    Action, BumpEpoch, CompleteDelegation, Delegate, EndShare, MakeGrant, Op, OpenShare, Refused,
    RevokeActor, RevokeGrant, RotateRoot,
};
use crate::queries::AuditFilter;
use crate::wire::audit_capnp;
use crate::wire::bowline_capnp::op_header;
use crate::wire::grant_capnp::{self, object};
use crate::wire::root_capnp::root;
use crate::wire::session_capnp::{delegation_draft, session, share, share_draft};
use zeroize::Zeroizing;

/// `Object.attenuate`.
pub(in crate::rpc) fn attenuate(
    params: Read<object::attenuate_params::Reader<'_>>,
    object: Held,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let wish = params.get_narrowing()?;
    let sent = canonical::<grant_capnp::narrowing::Owned>(wish, wish.total_size()?)?;
    let action = narrowing(wish)?
        .map(|narrowing| Action::MakeGrant(MakeGrant { object, narrowing, verifier: None }));
    Ok(single.op_with(only_segment(&sent), b"attenuate", action))
}

/// `Object.save`. The secret comes back beside the op, and is nowhere in it.
pub(in crate::rpc) fn save(
    params: Read<object::save_params::Reader<'_>>,
    object: Held,
    key: &VerifierKey,
) -> Result<(BatchHeader, Op, Secret), Malformed> {
    let params = params?;
    let seeded = Seeded::read(params.get_op()?, params.get_seed()?, object.log, key)?;
    let wish = params.get_narrowing()?;
    let sent = canonical::<grant_capnp::narrowing::Owned>(wish, wish.total_size()?)?;
    let verifier = Some(seeded.secret.verifier(key));
    let action = narrowing(wish)?
        .map(|narrowing| Action::MakeGrant(MakeGrant { object, narrowing, verifier }));
    Ok(seeded.op("save", only_segment(&sent), action))
}

/// The header of a call that is one op and makes a ref, from a seed that is as secret as the ref.
struct Seeded<'a> {
    single: Single,
    seed: &'a [u8; 32],
    secret: Secret,
}

impl<'a> Seeded<'a> {
    fn read(
        header: op_header::Reader<'_>,
        seed: &'a [u8],
        log: LogId,
        key: &VerifierKey,
    ) -> Result<Self, Malformed> {
        let single = Single::read(header)?;
        let seed = seed.try_into().map_err(|_| Malformed::Seed)?;
        let secret = Secret::from_seed(seed, grant::made_by(log, single.id), key);
        Ok(Self { single, seed, secret })
    }

    /// The op of a method. The secret comes back beside it, and is nowhere in it; the seed is compared with
    /// what was sent.
    fn op(
        self,
        method: &str,
        sent: &[u8],
        action: Result<Action, Refused>,
    ) -> (BatchHeader, Op, Secret) {
        let mut beside = Zeroizing::new(Vec::with_capacity(method.len() + self.seed.len()));
        beside.extend_from_slice(method.as_bytes());
        beside.extend_from_slice(self.seed);
        let (header, op) = self.single.op_with(sent, &beside, action);
        (header, op, self.secret)
    }
}

/// `Session.delegate`. The secret comes back beside the op, and is nowhere in it.
pub(in crate::rpc) fn delegate(
    params: Read<session::delegate_params::Reader<'_>>,
    session: &SessionKey,
    key: &VerifierKey,
) -> Result<(BatchHeader, Op, Secret), Malformed> {
    let params = params?;
    let seeded = Seeded::read(params.get_op()?, params.get_seed()?, session.log, key)?;
    let draft: delegation_draft::Reader<'_> = params.get_delegation()?;
    let sent = canonical::<delegation_draft::Owned>(draft, draft.total_size()?)?;
    let child = match draft.get_where().which() {
        Ok(delegation_draft::where_::Child(child)) => Some(session_wish(child?)?),
        Ok(delegation_draft::where_::Here(())) => None,
        Err(_) => return Err(Malformed::Where),
    };
    let action = narrowing(draft.get_narrowing()?)?.and_then(|narrowing| {
        Ok(Action::Delegate(Box::new(Delegate {
            session: session.clone(),
            narrowing,
            verifier: seeded.secret.verifier(key),
            lease: Lease::new(draft.get_lease_ms())?,
            child: child.transpose()?,
        })))
    });
    Ok(seeded.op("delegate", only_segment(&sent), action))
}

/// `Session.complete`.
pub(in crate::rpc) fn complete(
    params: Read<session::complete_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let (failed, result) = (params.get_failed(), params.get_result()?.to_str()?);
    // What is wrong with it fails the call: only a delegate's op may leave a trace.
    let action = Action::CompleteDelegation(CompleteDelegation::new(failed, result)?);
    let method: &[u8] = if failed { b"fail" } else { b"complete" };
    Ok(single.op_with(&delimited(result), method, Ok(action)))
}

/// `Session.share`. The secret comes back beside the op, and is nowhere in it.
pub(in crate::rpc) fn share(
    params: Read<session::share_params::Reader<'_>>,
    session: &SessionKey,
    key: &VerifierKey,
) -> Result<(BatchHeader, Op, Secret), Malformed> {
    let params = params?;
    let seeded = Seeded::read(params.get_op()?, params.get_seed()?, session.log, key)?;
    let draft: share_draft::Reader<'_> = params.get_share()?;
    let sent = canonical::<share_draft::Owned>(draft, draft.total_size()?)?;
    let up_to = chosen(draft.get_up_to()?.to_str()?, MessageId::parse).map_err(Refused::from);
    let action = narrowing(draft.get_narrowing()?)?.and_then(|narrowing| {
        let wanted = Wanted {
            append: draft.get_append(),
            up_to: up_to?,
            tool_outputs: draft.get_tool_outputs(),
            reasoning: draft.get_reasoning(),
        };
        let verifier = seeded.secret.verifier(key);
        let share = OpenShare::new(session.clone(), wanted, narrowing, verifier)?;
        Ok(Action::OpenShare(Box::new(share)))
    });
    Ok(seeded.op("share", only_segment(&sent), action))
}

/// `Share.unpublish`.
pub(in crate::rpc) fn unpublish(
    params: Read<share::unpublish_params::Reader<'_>>,
    id: &ShareId,
) -> Result<(BatchHeader, Op), Malformed> {
    let single = Single::read(params?.get_op()?)?;
    let action = Ok(Action::EndShare(EndShare { id: id.clone() }));
    Ok(single.op_with(&[], b"unpublish", action))
}

/// `Object.audit`.
pub(in crate::rpc) fn audit(
    params: Read<object::audit_params::Reader<'_>>,
) -> Result<(AuditFilter, Page), Malformed> {
    let params = params?;
    let asked: audit_capnp::audit_filter::Reader<'_> = params.get_filter()?;
    let kinds = asked.get_kinds()?;
    let filter = AuditFilter {
        grant: match asked.get_grant()? {
            [] => None,
            id => Some(GrantId(sixteen("grant", id)?)),
        },
        derived: asked.get_derived(),
        actor: asked.get_actor()?.to_str()?.to_owned(),
        object_id: asked.get_object_id()?.to_str()?.to_owned(),
        from_ms: asked.get_from_ms(),
        until_ms: given(asked.get_until_ms()),
        // The schema has the stored numbers; one that only a newer server knows matches nothing.
        kinds: kinds
            .iter()
            .take(AUDIT_KINDS_MAX)
            .map(|kind| kind.map_or(u16::MAX, |kind| kind as u16))
            .collect(),
    };
    Ok((filter, page(params.get_page())?))
}

/// More kinds than there are say nothing more.
const AUDIT_KINDS_MAX: usize = 64;

/// A text that says where it ends, to be compared with others.
fn delimited(text: &str) -> Vec<u8> {
    let mut sent = (text.len() as u64).to_le_bytes().to_vec();
    sent.extend(text.as_bytes());
    sent
}

/// `Object.grants`.
pub(in crate::rpc) fn grants(
    params: Read<object::grants_params::Reader<'_>>,
) -> Result<(Page, String), Malformed> {
    let params = params?;
    Ok((page(params.get_page())?, params.get_object_id()?.to_str()?.to_owned()))
}

/// `Object.revoke`.
pub(in crate::rpc) fn revoke(
    params: Read<object::revoke_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let id = GrantId(sixteen("grant", params.get_grant()?)?);
    let action = Ok(Action::RevokeGrant(RevokeGrant { id }));
    Ok(single.op_with(&id.0, b"revoke", action))
}

/// `Object.bumpEpoch`.
pub(in crate::rpc) fn bump_epoch(
    params: Read<object::bump_epoch_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let single = Single::read(params?.get_op()?)?;
    Ok(single.op_with(&[], b"bumpEpoch", Ok(Action::BumpEpoch(BumpEpoch))))
}

/// `Root.revokeActor`.
pub(in crate::rpc) fn revoke_actor(
    params: Read<root::revoke_actor_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let actor = params.get_actor()?.to_str()?.to_owned();
    let action = match grant::is_actor(&actor) && !actor.is_empty() {
        true => Ok(Action::RevokeActor(RevokeActor { actor: actor.clone() })),
        false => Err(grant::Error::Words.into()),
    };
    Ok(single.op_with(&delimited(&actor), b"revokeActor", action))
}

/// `Root.rotate`. The secret comes back beside the op, and is nowhere in it.
pub(in crate::rpc) fn rotate(
    params: Read<root::rotate_params::Reader<'_>>,
    key: &VerifierKey,
) -> Result<(BatchHeader, Op, Secret), Malformed> {
    let params = params?;
    let seeded = Seeded::read(params.get_op()?, params.get_seed()?, LogId::ROOT, key)?;
    let verifier = seeded.secret.verifier(key);
    Ok(seeded.op("rotate", &[], Ok(Action::RotateRoot(RotateRoot { verifier }))))
}

fn narrowing(
    wish: grant_capnp::narrowing::Reader<'_>,
) -> Result<Result<Narrowing, Refused>, Malformed> {
    let mut rights = Vec::new();
    for right in wish.get_rights()?.iter().take(Right::ALL.len() * 2) {
        match right {
            Ok(right) => rights.push(right_of(right)),
            Err(_) => return Err(Malformed::Right),
        }
    }
    let rights = Some(rights).filter(|rights| !rights.is_empty());
    // One more than is accepted is enough to be refused by.
    let mut tools = Vec::new();
    for tool in wish.get_tools()?.iter().take(CAVEAT_ITEMS_MAX + 1) {
        tools.push(tool?.to_str()?.to_owned());
    }
    let mut paths = Vec::new();
    for path in wish.get_paths()?.iter().take(CAVEAT_ITEMS_MAX + 1) {
        paths.push(path?.to_vec());
    }
    let caveats = Caveats {
        tools: match (tools.is_empty(), wish.get_no_tools()) {
            (false, true) => return Err(Malformed::ToolsAndNone),
            (true, false) => None,
            _ => Some(tools),
        },
        paths: Some(paths).filter(|paths| !paths.is_empty()),
        only_own: wish.get_only_own_messages(),
    };
    let narrowing = Narrowing {
        unused_until_ms: time(wish.get_expires_if_unused_at_ms()),
        sealed_to: wish.get_sealed_to()?.to_str()?.to_owned(),
        caveats,
        rights: rights.map(|rights| rights.into_iter().collect()),
        expires_at_ms: time(wish.get_expires_at_ms()),
        uses_max: Some(wish.get_uses_max()).filter(|uses| *uses > 0),
        claim: wish.get_claim(),
        label: wish.get_label()?.to_str()?.to_owned(),
        actor: wish.get_actor()?.to_str()?.to_owned(),
    };
    Ok(narrowing.check().map_err(Refused::from))
}

/// A time of which 0 says nothing. The store's numbers end in the year 292 million.
fn time(at_ms: u64) -> Option<u64> {
    given(at_ms.min(FOR_EVER))
}

fn right_of(right: grant_capnp::Right) -> Right {
    match right {
        grant_capnp::Right::Read => Right::Read,
        grant_capnp::Right::Append => Right::Append,
        grant_capnp::Right::Turn => Right::Turn,
        grant_capnp::Right::Snapshot => Right::Snapshot,
        grant_capnp::Right::Restore => Right::Restore,
        grant_capnp::Right::Share => Right::Share,
        grant_capnp::Right::Delegate => Right::Delegate,
        grant_capnp::Right::Admin => Right::Admin,
    }
}
