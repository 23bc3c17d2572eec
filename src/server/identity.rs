//! Who this server is, and the operator's key to it.

use crate::model::audit::{Entry, Kind};
use crate::model::grant::Authority;
use crate::model::ids::{GrantId, LogId, RealmId};
use crate::model::infos::ObjectKind;
use crate::model::sturdy_ref::{Secret, SturdyRef};
use crate::store::data_dir::{is_private, write_private};
use crate::store::meta::Meta;
use crate::store::{Store, StoreError, audit, delegations, grants, meta};
use std::path::Path;
use std::{fs, io};

/// What became of the file with the root's sturdy ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootRef {
    /// It was there and is still good.
    Kept,
    /// This is the first start.
    Made,
    /// It was gone or no longer fitted; the former ref is dead.
    Replaced,
}

#[derive(Debug)]
pub(super) enum Error {
    Store(StoreError),
    System(io::Error),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::System(error)
    }
}

/// Names a new store, counts this start, and begins leases anew.
pub(super) fn establish(store: &mut Store, now_ms: u64) -> Result<Meta, Error> {
    let tx = store.begin()?;
    if meta::get(&tx)?.is_none() {
        meta::create(&tx, RealmId(random()?), &random()?, now_ms)?;
    }
    meta::count_start(&tx)?;
    let me = meta::get(&tx)?.ok_or_else(|| StoreError::Corrupt("table meta is empty".into()))?;
    audit::begin(&tx, me.incarnation, now_ms)?;
    // Nobody could be heard while nobody listened.
    delegations::begin_anew(&tx, now_ms)?;
    tx.commit()?;
    Ok(me)
}

/// Makes sure that `file` holds a sturdy ref for the root that works, and that nobody but its owner can
/// read it.
///
/// The grant is stored first and the file written second: a crash in between leaves a file that fits no
/// living grant, and the next start comes here again.
pub(super) fn keep_root_ref(
    store: &mut Store,
    me: &Meta,
    file: &Path,
    address: &str,
    now_ms: u64,
) -> Result<RootRef, Error> {
    let tx = store.begin()?;
    let found = match fs::read_to_string(file) {
        Ok(text) => SturdyRef::parse(&text).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(found) = found {
        let grant = grants::by_id(&tx, found.grant)?.filter(|grant| {
            grant.ended.is_none()
                && grant.kind == ObjectKind::Root
                && grant.authority.depth == 0
                && grant.verifier == found.secret.verifier(&me.verifier_key)
        });
        if grant.is_some() {
            if found.address != address || !is_private(file)? {
                write_private(file, &text_of(&SturdyRef { address: address.into(), ..found }))?;
            }
            return Ok(RootRef::Kept);
        }
    }

    let fresh = SturdyRef {
        address: address.to_owned(),
        grant: GrantId(random()?),
        secret: Secret::new(random()?),
    };
    let former = grants::operators(&tx)?;
    let grant = grants::NewGrant {
        id: fresh.grant,
        verifier: Some(fresh.secret.verifier(&me.verifier_key)),
        kind: ObjectKind::Root,
        log: LogId::ROOT,
        authority: Authority::of_operator(),
        label: "operator",
        actor: "",
        parent: None,
        terms: grants::RefTerms::default(),
    };
    let key = grants::create(&tx, &grant, now_ms)?;
    // What others were given goes on; only the lost ref is dead.
    for former in &former {
        grants::succeed(&tx, *former, key, now_ms)?;
    }
    let (subject, log) = (Some(key), Some(LogId::ROOT));
    let replaced = Entry { subject, log, count: 1, ..Entry::new(Kind::RootRotated) };
    audit::append(&tx, vec![replaced], now_ms)?;
    tx.commit()?;
    write_private(file, &text_of(&fresh))?;
    Ok(if former.is_empty() { RootRef::Made } else { RootRef::Replaced })
}

/// Writes the root's ref down again, after it was rotated.
pub(super) fn write_root_ref(file: &Path, sturdy_ref: &SturdyRef) -> io::Result<()> {
    write_private(file, &text_of(sturdy_ref))
}

fn text_of(sturdy_ref: &SturdyRef) -> String {
    format!("{}\n", sturdy_ref.reveal())
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_root_ref_is_made_kept_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("bowline.db")).unwrap();
        let me = establish(&mut store, 1).unwrap();
        let file = dir.path().join("root.ref");
        let mut keep = |address| {
            let became = keep_root_ref(&mut store, &me, &file, address, 1).unwrap();
            (became, SturdyRef::parse(&fs::read_to_string(&file).unwrap()).unwrap())
        };

        let (became, first) = keep("a:1");
        assert_eq!(became, RootRef::Made);
        let (became, moved) = keep("b:2");
        assert_eq!((became, moved.grant), (RootRef::Kept, first.grant));
        assert_eq!(moved.address, "b:2", "the address follows the server");

        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(keep("b:2").0, RootRef::Kept);
        assert!(is_private(&file).unwrap(), "and is for the owner's eyes again");

        fs::remove_file(&file).unwrap();
        let (became, second) = keep("b:2");
        assert_eq!(became, RootRef::Replaced);
        assert_ne!(second.grant, first.grant);

        fs::write(&file, first.reveal()).unwrap();
        assert_eq!(keep("b:2").0, RootRef::Replaced, "a ref that is dead stays dead");
    }

    #[test]
    fn every_start_is_counted_and_the_realm_stays() {
        let dir = tempfile::tempdir().unwrap();
        let start = || {
            let mut store = Store::open(&dir.path().join("bowline.db")).unwrap();
            establish(&mut store, 1).unwrap()
        };
        let (one, two) = (start(), start());
        assert_eq!((one.incarnation, two.incarnation), (1, 2));
        assert_eq!(one.realm, two.realm);
    }
}
