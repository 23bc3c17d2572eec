//! Trees put together from single paths.

use super::restore::Step;
use super::tree::{self, Held, Mode};
use super::vault::{Batch, Error, Reader};
use crate::model::ids::ObjectId;
use std::collections::{BTreeMap, HashSet};

#[derive(Default)]
struct Branch {
    mode: Option<Mode>,
    leaves: BTreeMap<Vec<u8>, Held>,
    branches: BTreeMap<Vec<u8>, Branch>,
}

impl Branch {
    fn insert(&mut self, path: &[u8], held: Held) {
        match path.iter().position(|byte| *byte == b'/') {
            Some(slash) => {
                let below = self.branches.entry(path[..slash].to_vec()).or_default();
                below.insert(&path[slash + 1..], held);
            }
            None if held.mode.is_directory() => {
                self.branches.entry(path.to_vec()).or_default().mode = Some(held.mode);
            }
            None => {
                self.leaves.insert(path.to_vec(), held);
            }
        }
    }

    fn put(&self, batch: &Batch) -> Result<ObjectId, Error> {
        let mut items: Vec<(&[u8], Held)> = Vec::new();
        for (name, branch) in &self.branches {
            let mode = branch.mode.unwrap_or(Mode::DIRECTORY);
            items.push((name, Held { mode, id: branch.put(batch)? }));
        }
        items.extend(self.leaves.iter().map(|(name, held)| (name.as_slice(), *held)));
        items.sort_unstable_by(|(a, a_held), (b, b_held)| {
            tree::order(a, a_held.mode.is_directory(), b, b_held.mode.is_directory())
        });
        batch.put_tree(items.into_iter())
    }
}

/// The trees of a plan: what it is about before, and after. Directories that only lead to something stand in both, so
/// what is different between the two is the plan and nothing else.
pub fn sides(batch: &Batch, steps: &[Step]) -> Result<(ObjectId, ObjectId), Error> {
    let named: HashSet<&[u8]> = steps.iter().map(|step| &*step.path).collect();
    let side = |of: fn(&Step) -> Option<Held>| {
        let mut top = Branch::default();
        for step in steps {
            let slashes = step.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let above = slashes.map(|(at, _)| &step.path[..at]);
            for directory in above.filter(|directory| !named.contains(directory)) {
                top.insert(directory, Held { mode: Mode::DIRECTORY, id: ObjectId([0; 20]) });
            }
            if let Some(held) = of(step) {
                top.insert(&step.path, held);
            }
        }
        top.put(batch)
    };
    Ok((side(|step| step.from)?, side(|step| step.to)?))
}

/// Changes below one directory: by name, what is to stand there, or what changes beneath it.
#[derive(Default)]
struct Patch {
    here: BTreeMap<Vec<u8>, Option<Held>>,
    below: BTreeMap<Vec<u8>, Patch>,
}

impl Patch {
    fn insert(&mut self, path: &[u8], held: Option<Held>) {
        match path.iter().position(|byte| *byte == b'/') {
            Some(slash) => {
                let below = self.below.entry(path[..slash].to_vec()).or_default();
                below.insert(&path[slash + 1..], held);
            }
            None => {
                self.here.insert(path.to_vec(), held);
            }
        }
    }

    fn put(
        &self,
        batch: &Batch,
        store: &Reader,
        tree: Option<ObjectId>,
    ) -> Result<ObjectId, Error> {
        let items = tree.map_or_else(|| Ok(Vec::new()), |tree| store.tree(tree))?;
        let mut items: BTreeMap<Vec<u8>, Held> =
            items.into_iter().map(|item| (item.name.into_vec(), item.held)).collect();
        for (name, held) in &self.here {
            match (held, items.get(name).copied()) {
                (None, _) => {
                    items.remove(name);
                }
                // What is in a directory, its entries say.
                (Some(held), Some(known))
                    if held.mode.is_directory() && known.mode.is_directory() =>
                {
                    items.insert(name.clone(), Held { mode: held.mode, id: known.id });
                }
                (Some(held), _) if held.mode.is_directory() => {
                    let id = batch.put_tree(std::iter::empty())?;
                    items.insert(name.clone(), Held { mode: held.mode, id });
                }
                (Some(held), _) => {
                    items.insert(name.clone(), *held);
                }
            }
        }
        for (name, patch) in &self.below {
            let known = items.get(name).copied().filter(|held| held.mode.is_directory());
            // Nothing stands beneath what is gone.
            if known.is_none() && patch.is_gone() {
                continue;
            }
            let id = patch.put(batch, store, known.map(|held| held.id))?;
            let mode = known.map_or(Mode::DIRECTORY, |held| held.mode);
            items.insert(name.clone(), Held { mode, id });
        }
        let mut items: Vec<(&[u8], Held)> =
            items.iter().map(|(name, held)| (name.as_slice(), *held)).collect();
        items.sort_unstable_by(|(a, a_held), (b, b_held)| {
            tree::order(a, a_held.mode.is_directory(), b, b_held.mode.is_directory())
        });
        batch.put_tree(items.into_iter())
    }

    fn is_gone(&self) -> bool {
        self.here.values().all(Option::is_none) && self.below.values().all(Patch::is_gone)
    }
}

/// A tree with some of its paths changed.
pub fn patched(
    batch: &Batch,
    store: &Reader,
    tree: ObjectId,
    changes: impl Iterator<Item = (Vec<u8>, Option<Held>)>,
) -> Result<ObjectId, Error> {
    let mut patch = Patch::default();
    changes.for_each(|(path, held)| patch.insert(&path, held));
    patch.put(batch, store, Some(tree))
}
