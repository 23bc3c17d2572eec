//! What is to be put back so that the work of one is undone, and nobody else's.
//!
//! The history of a work tree is a chain of intervals, each between two snapshots, each with those who were at work in
//! it. Undoing goes through it once: where did a file stand before the first change of one's own, and has anybody else
//! touched it since?

use super::diff::Change;
use super::restore::{Conflict, Step, Why};
use super::tree::Held;
use std::collections::BTreeMap;

/// Whose a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Of the one whose work is undone, and of nobody else.
    Own,
    /// Perhaps: several were at work at the time, and nothing tells who did it.
    Shared,
    /// Somebody else's.
    Other,
}

#[derive(Debug)]
struct Path {
    /// Before the first change of one's own.
    before: Option<Held>,
    /// After the last one.
    after: Option<Held>,
    shared: bool,
    /// Something was there before, and was not taken.
    unknown: bool,
    /// Somebody else has changed it since.
    other: bool,
}

/// The work of one, as it is gathered.
#[derive(Debug, Default)]
pub struct Undo {
    paths: BTreeMap<Vec<u8>, Path>,
}

/// Whether something is as it was left. What is in a directory, its entries tell.
fn is_as_left(a: Option<Held>, b: Option<Held>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) if a.mode.is_directory() && b.mode.is_directory() => a.mode == b.mode,
        (a, b) => a == b,
    }
}

impl Undo {
    /// The next change in the history. `unknown` tells whether something may have been there before that was not taken.
    pub fn add(&mut self, change: Change, whose: Whose, unknown: impl FnOnce(&[u8]) -> bool) {
        match (self.paths.get_mut(&change.path), whose) {
            (None, Whose::Other) => {}
            (Some(path), Whose::Other) => path.other = true,
            (Some(path), whose) => {
                path.shared |= whose == Whose::Shared;
                // It does not go on where it was left: somebody has had his hands on it, though nothing tells of that.
                path.other |= !is_as_left(change.old, path.after);
                path.after = change.new;
            }
            (None, whose) => {
                let shared = whose == Whose::Shared;
                let unknown = change.old.is_none() && unknown(&change.path);
                let Change { path, old, new } = change;
                let found = Path { before: old, after: new, shared, unknown, other: false };
                self.paths.insert(path, found);
            }
        }
    }

    /// What is to be done, and what is not: a file somebody else had his hands on is left alone, unless `forced` says
    /// that it is to be put back all the same.
    pub fn plan(self, forced: impl Fn(&[u8]) -> bool) -> (Vec<Step>, Vec<Conflict>) {
        let (mut steps, mut conflicts) = (Vec::new(), Vec::new());
        for (path, found) in self.paths {
            let Path { before, after, shared, unknown, other } = found;
            let force = forced(&path);
            if is_as_left(before, after) && !other {
                continue;
            }
            // Whether a directory is there follows from what is in it, unless it was made or taken away.
            match (shared, other) {
                _ if unknown => conflicts.push(Conflict { path, why: Why::NotTaken }),
                _ if force => steps.push(Step { path, from: after, to: before }),
                (_, true) => conflicts.push(Conflict { path, why: Why::Changed }),
                (true, false) => conflicts.push(Conflict { path, why: Why::Shared }),
                (false, false) => steps.push(Step { path, from: after, to: before }),
            }
        }
        (steps, conflicts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::ObjectId;
    use crate::snapshot::tree::Mode;

    fn held(byte: u8) -> Option<Held> {
        Some(Held { mode: Mode::FILE, id: ObjectId([byte; 20]) }).filter(|_| byte > 0)
    }

    /// `o`, `s` and `x` for own, shared and other; contents are numbers, 0 for none.
    fn check(history: &[(&str, u8, u8)], forced: bool, wanted: Option<(u8, u8)>, why: Option<Why>) {
        let mut undo = Undo::default();
        for (whose, old, new) in history {
            let whose = match *whose {
                "o" => Whose::Own,
                "s" => Whose::Shared,
                _ => Whose::Other,
            };
            let change = Change { path: b"f".to_vec(), old: held(*old), new: held(*new) };
            undo.add(change, whose, |_| false);
        }
        let (steps, conflicts) = undo.plan(|_| forced);
        let step =
            wanted.map(|(from, to)| Step { path: b"f".to_vec(), from: held(from), to: held(to) });
        assert_eq!(steps, step.into_iter().collect::<Vec<_>>(), "{history:?}");
        let found: Vec<_> = conflicts.into_iter().map(|conflict| conflict.why).collect();
        assert_eq!(found, why.into_iter().collect::<Vec<_>>(), "{history:?}");
    }

    #[test]
    fn only_what_one_has_done_oneself_is_undone() {
        check(&[("o", 1, 2)], false, Some((2, 1)), None);
        check(&[("o", 1, 2), ("o", 2, 3)], false, Some((3, 1)), None);
        check(&[("o", 0, 2)], false, Some((2, 0)), None);
        check(&[("o", 1, 0)], false, Some((0, 1)), None);
        check(&[("x", 1, 2)], false, None, None);
        // What was there before does not matter.
        check(&[("x", 1, 2), ("o", 2, 3)], false, Some((3, 2)), None);
        // Somebody went on from it, or in between.
        check(&[("o", 1, 2), ("x", 2, 3)], false, None, Some(Why::Changed));
        check(&[("o", 1, 2), ("x", 2, 3), ("o", 3, 4)], false, None, Some(Why::Changed));
        check(&[("o", 1, 2), ("x", 2, 1)], false, None, Some(Why::Changed));
        check(&[("s", 1, 2)], false, None, Some(Why::Shared));
        check(&[("o", 1, 2), ("s", 2, 3)], false, None, Some(Why::Shared));
        // What is told has a hole in it.
        check(&[("o", 1, 2), ("o", 3, 4)], false, None, Some(Why::Changed));
        // Unless one insists.
        check(&[("o", 1, 2), ("x", 2, 3), ("o", 3, 4)], true, Some((4, 1)), None);
        check(&[("s", 1, 2)], true, Some((2, 1)), None);
        // Back and forth is nothing.
        check(&[("o", 1, 2), ("o", 2, 1)], false, None, None);
    }
}
