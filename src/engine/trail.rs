//! The audit entries of one transaction, gathered while its commands are carried out.
//!
//! Ops that follow one another in the history, under one grant and in one log, become one entry: what many
//! small batches say costs what one large one does.

use crate::model::audit::{self, Entry, Kind};
use crate::model::ids::{GrantKey, LogId};
use crate::store::ops::Written;

#[derive(Default)]
pub(super) struct Trail {
    entries: Vec<Entry>,
    open: Option<Open>,
}

/// An entry that further ops may be added to.
struct Open {
    entry: Entry,
    ops: Vec<audit::Hash>,
}

impl Trail {
    /// Ops were written, one right behind the other.
    pub(super) fn wrote(
        &mut self,
        (kind, subject): (Kind, Option<GrantKey>),
        granted: Option<GrantKey>,
        log: LogId,
        written: &[Written],
    ) {
        let Some(first) = written.first() else { return };
        let fresh = Entry {
            granted,
            log: Some(log),
            subject,
            position: first.position,
            ..Entry::new(kind)
        };
        let goes_on = self.open.as_ref().is_some_and(|open| {
            kind == Kind::Changed
                && Entry { position: fresh.position, ..open.entry.clone() } == fresh
                && open.entry.position + open.ops.len() as u64 == fresh.position
        });
        if !goes_on {
            self.close();
        }
        let open = self.open.get_or_insert_with(|| Open { entry: fresh, ops: Vec::new() });
        open.ops.extend(written.iter().map(|written| written.digest));
    }

    /// Something else happened.
    pub(super) fn note(&mut self, entry: Entry) {
        self.close();
        self.entries.push(entry);
    }

    /// All of it, in order.
    pub(super) fn finish(mut self) -> Vec<Entry> {
        self.close();
        self.entries
    }

    fn close(&mut self) {
        if let Some(Open { entry, ops }) = self.open.take() {
            let (count, digest) = (ops.len() as u64, audit::digest_of(ops).to_vec());
            self.entries.push(Entry { count, digest, ..entry });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_on_another_goes_with_it() {
        let written = |position: u64| Written { position, digest: [position as u8; 32] };
        let mut trail = Trail::default();
        let mut wrote = |kind, grant, log, positions: &[u64]| {
            let ops: Vec<_> = positions.iter().map(|position| written(*position)).collect();
            trail.wrote((kind, None), Some(GrantKey(grant)), LogId(log), &ops);
        };
        wrote(Kind::Changed, 1, 1, &[1, 2]);
        wrote(Kind::Changed, 1, 1, &[3]);
        wrote(Kind::Changed, 2, 1, &[4]); // another grant
        wrote(Kind::Changed, 2, 2, &[5]); // another log
        wrote(Kind::Changed, 2, 2, &[7]); // not the next
        wrote(Kind::Saved, 2, 2, &[8]);
        wrote(Kind::Saved, 2, 2, &[9]); // each is an act of its own
        wrote(Kind::Changed, 2, 2, &[]);
        trail.note(Entry::new(Kind::Denied));
        let entries = trail.finish();
        let found: Vec<_> = entries.iter().map(|entry| (entry.position, entry.count)).collect();
        assert_eq!(found, [(1, 3), (4, 1), (5, 1), (7, 1), (8, 1), (9, 1), (0, 0)]);
        assert_eq!(entries[0].digest, audit::digest_of([[1; 32], [2; 32], [3; 32]]));
    }
}
