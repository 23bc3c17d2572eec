//! The audit entries of one transaction, gathered while its commands are carried out.
//!
//! Ops that follow one another in the history, under one grant and in one log, become one entry: what many
//! small batches say costs what one large one does.

use crate::model::audit::{AuditedOps, Entry, Kind};
use crate::model::ids::{GrantKey, LogId};

#[derive(Default)]
pub(super) struct Trail {
    entries: Vec<Entry>,
    /// One that further ops may be added to.
    open: Option<(Entry, AuditedOps)>,
}

impl Trail {
    /// Ops were written, one right behind the other.
    pub(super) fn wrote(
        &mut self,
        (kind, subject): (Kind, Option<GrantKey>),
        granted: Option<GrantKey>,
        log: LogId,
        ops: AuditedOps,
    ) {
        if ops.is_empty() {
            return;
        }
        let entry = Entry { granted, log: Some(log), subject, ..Entry::new(kind) };
        match &mut self.open {
            Some((open, before))
                if kind == Kind::Changed
                    && *open == entry
                    && ops.is_held()
                    && before.next_position() == ops.first_position() =>
            {
                before.extend(&ops);
            }
            _ => {
                self.close();
                self.open = Some((entry, ops));
            }
        }
    }

    /// Something else happened. The same once more, right behind it, is counted with it.
    pub(super) fn note(&mut self, entry: Entry) {
        self.close();
        match self.entries.last_mut() {
            Some(last)
                if last.digest.is_empty()
                    && Entry { count: entry.count, ..last.clone() } == entry =>
            {
                last.count += entry.count;
            }
            _ => self.entries.push(entry),
        }
    }

    /// All of it, in order.
    pub(super) fn finish(mut self) -> Vec<Entry> {
        self.close();
        self.entries
    }

    fn close(&mut self) {
        if let Some((entry, ops)) = self.open.take() {
            let (count, position) = (ops.count(), ops.first_position());
            self.entries.push(Entry { count, position, digest: ops.digest().to_vec(), ..entry });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::audit::AuditedOp;

    fn ops(positions: &[u64]) -> AuditedOps {
        let mut ops = AuditedOps::default();
        for position in positions {
            let (numbers, op_id, batch) = ([0; 10], [0; 16], [0; 16]);
            ops.push(&AuditedOp { position: *position, numbers, op_id, batch, payload: b"x" });
        }
        ops
    }

    #[test]
    fn what_follows_on_another_goes_with_it() {
        let mut trail = Trail::default();
        let mut wrote = |kind, grant, log, positions: &[u64]| {
            trail.wrote((kind, None), Some(GrantKey(grant)), LogId(log), ops(positions));
        };
        wrote(Kind::Changed, 1, 1, &[1, 2]);
        wrote(Kind::Changed, 1, 1, &[3]);
        wrote(Kind::Changed, 2, 1, &[4]); // another grant
        wrote(Kind::Changed, 2, 2, &[5]); // another log
        wrote(Kind::Changed, 2, 2, &[7]); // not the next
        wrote(Kind::Saved, 2, 2, &[8]);
        wrote(Kind::Saved, 2, 2, &[9]); // each is an act of its own
        wrote(Kind::Changed, 2, 2, &[]);
        let redeemed = |grant| Entry {
            granted: Some(GrantKey(grant)),
            count: 1,
            ..Entry::new(Kind::Redeemed)
        };
        for grant in [1, 1, 2] {
            trail.note(redeemed(grant));
        }
        let entries = trail.finish();
        let found: Vec<_> = entries.iter().map(|entry| (entry.position, entry.count)).collect();
        let want = [(1, 3), (4, 1), (5, 1), (7, 1), (8, 1), (9, 1), (0, 2), (0, 1)];
        assert_eq!(found, want);
        assert_eq!(entries[0].digest, ops(&[1, 2, 3]).digest());
    }
}
