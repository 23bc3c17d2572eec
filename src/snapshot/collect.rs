//! Keeping the store small: what is alike is put together, and what nothing leads to any more goes.
//!
//! Nobody waits for it. Objects that are to go are named first; whoever begins to write from then on writes them again
//! if he needs them, and what those need who had begun before is looked up once more when they are done.

use super::pack::TEMPORARY;
use super::vault::{Error, Reader, Vault, lock};
use crate::limits::PACKS_MAX;
use crate::model::ids::ObjectId;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// What a collection did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Collected {
    /// Objects nothing led to.
    pub objects: u64,
    /// How much the store took up before.
    pub bytes_before: u64,
    /// How much it takes up now.
    pub bytes_after: u64,
}

/// Of all objects that are alive, the name each was first found under: alike names are alike inside.
type Alive = HashMap<ObjectId, Box<[u8]>>;

fn reach(store: &Reader, tree: ObjectId, alive: &mut Alive) -> Result<(), Error> {
    let mut open = vec![tree];
    if alive.insert(tree, Box::default()).is_some() {
        return Ok(());
    }
    while let Some(tree) = open.pop() {
        for item in store.tree(tree)? {
            if alive.contains_key(&item.held.id) {
                continue;
            }
            alive.insert(item.held.id, item.name);
            if item.held.mode.is_directory() {
                open.push(item.held.id);
            }
        }
    }
    Ok(())
}

/// Objects that stand for themselves, and when each was last wanted.
type Loose = HashMap<ObjectId, (PathBuf, SystemTime)>;

/// A collection between its two halves.
pub struct Collection {
    vault: Arc<Vault>,
    /// The packs that are looked at. What is added later is left to the next collection.
    old: Vec<OsString>,
    loose: Loose,
    alive: Alive,
    dead: HashSet<ObjectId>,
    bytes_before: u64,
}

/// Whether there is anything to put together.
pub fn is_worth_it(vault: &Vault) -> Result<bool, Error> {
    Ok(packs(vault)?.len() > PACKS_MAX)
}

/// Everything that must stay: what somebody writes down at the moment, and then what is written down.
fn wanted(
    vault: &Vault,
    store: &Reader,
    roots: impl FnOnce() -> Result<HashSet<ObjectId>, Error>,
) -> Result<HashSet<ObjectId>, Error> {
    // In this order: a tree that is not pinned any more has been written down by then, or never will be. One that is
    // not in the store yet rests on nothing that goes.
    let pinned = vault.pinned().into_iter().filter(|tree| store.contains(*tree));
    let pinned: Vec<_> = pinned.collect();
    let mut wanted = roots()?;
    wanted.extend(pinned);
    Ok(wanted)
}

/// Finds out what nothing leads to. `roots` are all trees anybody has written down.
pub fn begin(
    vault: &Arc<Vault>,
    roots: impl FnOnce() -> Result<HashSet<ObjectId>, Error>,
) -> Result<Collection, Error> {
    let bytes_before = vault.bytes()?;
    let (old, loose) = (packs(vault)?, loose(vault)?);
    let store = vault.reader()?;
    let mut dead = HashSet::new();
    store.each(|id| {
        dead.insert(id);
    })?;
    let mut alive = Alive::new();
    for root in wanted(vault, &store, roots)? {
        reach(&store, root, &mut alive)?;
    }
    dead.retain(|id| !alive.contains_key(id));
    vault.condemn(dead.clone());
    Ok(Collection { vault: vault.clone(), old, loose, alive, dead, bytes_before })
}

impl Collection {
    /// Whether everybody is done who may still count on what is to go. Ask again later if not.
    pub fn is_settled(&self) -> bool {
        self.vault.is_settled()
    }

    /// Puts together what stays, and lets the rest go. `roots` as they are now.
    pub fn finish(
        mut self,
        roots: impl FnOnce() -> Result<HashSet<ObjectId>, Error>,
    ) -> Result<Collected, Error> {
        let store = self.vault.reader()?;
        // What is kept from here on was written anew.
        let references = self.vault.references_bytes()?;
        for root in wanted(&self.vault, &store, roots)? {
            reach(&store, root, &mut self.alive)?;
        }
        self.dead.retain(|id| !self.alive.contains_key(id));
        // A store that is in one piece and has nothing to lose stays as it is.
        if self.old.len() > 1 || !self.dead.is_empty() {
            self.repack(&store)?;
        }
        self.remove_loose()?;
        self.vault.release(&self.dead, references)?;
        Ok(Collected {
            objects: self.dead.len() as u64,
            bytes_before: self.bytes_before,
            bytes_after: self.vault.bytes()?,
        })
    }

    fn remove_loose(&self) -> Result<(), Error> {
        for (_, (path, wanted)) in self.loose.iter().filter(|(id, _)| self.dead.contains(*id)) {
            let _loose = lock(&self.vault.loose);
            // Not if somebody has written it again.
            if fs::metadata(path)?.modified()? == *wanted {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// One pack in the place of those there are.
    fn repack(&self, store: &Reader) -> Result<(), Error> {
        let repository = git2::Repository::open(self.vault.directory())?;
        let mut builder = repository.packbuilder()?;
        let mut stays = Vec::new();
        store.each(|id| {
            if !self.dead.contains(&id) && !self.loose.contains_key(&id) {
                stays.push(id);
            }
        })?;
        for id in stays {
            // What came while we looked is in packs that stay; so it does no harm to have it here, too.
            let name = self.alive.get(&id).and_then(|name| std::str::from_utf8(name).ok());
            builder.insert_object(git2::Oid::from_bytes(&id.0)?, name)?;
        }
        let packs = self.vault.packs();
        let aside = packs.join(format!("{TEMPORARY}collected"));
        let mut made = None;
        if builder.object_count() > 0 {
            fs::create_dir_all(&aside)?;
            builder.write(&aside, 0o644)?;
            let name = builder.name()?.unwrap_or_default().to_owned();
            for ending in ["pack", "idx"] {
                let file = format!("pack-{name}.{ending}");
                fs::File::open(aside.join(&file))?.sync_all()?;
                fs::rename(aside.join(&file), packs.join(&file))?;
            }
            fs::remove_dir_all(&aside)?;
            fs::File::open(&packs)?.sync_all()?;
            made = Some(name);
        }
        // From here on everything that is wanted is there twice.
        for name in &self.old {
            let stem = name.to_string_lossy();
            if made.as_ref().is_some_and(|made| *stem == format!("pack-{made}")) {
                continue;
            }
            for ending in ["idx", "pack"] {
                fs::remove_file(packs.join(name).with_extension(ending))?;
            }
        }
        self.vault.reopen()
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.vault.condemn(HashSet::new());
    }
}

/// The packs there are, without their endings.
fn packs(vault: &Vault) -> Result<Vec<OsString>, Error> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(vault.packs())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "idx")
            && let Some(stem) = path.file_stem()
        {
            packs.push(stem.to_owned());
        }
    }
    Ok(packs)
}

/// Objects that stand for themselves: what was too long to be held in memory.
fn loose(vault: &Vault) -> Result<Loose, Error> {
    let mut loose = Loose::new();
    for entry in fs::read_dir(vault.directory().join("objects"))? {
        let entry = entry?;
        let first = entry.file_name();
        if first.len() != 2 {
            continue;
        }
        for file in fs::read_dir(entry.path())? {
            let file = file?;
            let hex = format!("{}{}", first.to_string_lossy(), file.file_name().to_string_lossy());
            let id = data_encoding::HEXLOWER.decode(hex.as_bytes()).ok();
            if let Some(id) = id.and_then(|id| id.try_into().ok()) {
                loose.insert(ObjectId(id), (file.path(), file.metadata()?.modified()?));
            }
        }
    }
    Ok(loose)
}
