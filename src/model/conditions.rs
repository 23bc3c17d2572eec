//! Under which conditions an op may be tried: what it depends on, and where it expects the log to end.
//!
//! Pure, like the rest of the ledger's rules. A condition that is not met is a deterministic refusal: it
//! is recorded, and a repeat hears the same.

use crate::limits::DEPENDENCIES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::Cursor;
use crate::model::ledger::{Decision, Mode};
use serde::{Deserialize, Serialize};

/// What an op asks for before it is tried.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Conditions {
    /// Earlier numbers of the same producer in the same log.
    pub depends_on: Vec<u64>,
    /// Where the log must end.
    pub expects: Option<Cursor>,
}

/// The log did not end where the op expected it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the log was expected to end at {}, and ended at {}", expected.0, actual.0)]
pub struct Conflict {
    /// Where its author thought it did.
    pub expected: Cursor,
    /// Where it did.
    pub actual: Cursor,
}

impl Coded for Conflict {
    fn code(&self) -> Code {
        Code::CursorConflict
    }
}

/// What is known about an op that another one depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done, or there was nothing to do.
    Happened,
    /// It never will be.
    Rejected,
    /// It was decided, and the decision acknowledged and dropped.
    Forgotten,
}

impl From<&Decision> for Fate {
    fn from(decision: &Decision) -> Self {
        if decision.happened() { Fate::Happened } else { Fate::Rejected }
    }
}

/// Why an op is not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// It names itself, a later op, or nothing.
    #[error("op {seq} cannot depend on op {on}: only on earlier ones, from 1")]
    NotEarlier {
        /// The op.
        seq: u64,
        /// What it names.
        on: u64,
    },
    /// It names too many.
    #[error("the op depends on {count} others; the most accepted is {DEPENDENCIES_MAX}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// One of those was rejected.
    #[error("op {on}, which this one depends on, was rejected")]
    Failed {
        /// Which.
        on: u64,
    },
    /// Nobody knows any more what became of one of those.
    #[error(
        "the result of op {on}, which this one depends on, was acknowledged and dropped; whoever \
         acknowledged it knows whether to send this one"
    )]
    Forgotten {
        /// Which.
        on: u64,
    },
    /// Somebody else has written.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

impl Coded for Unmet {
    fn code(&self) -> Code {
        match self {
            Unmet::NotEarlier { .. } | Unmet::TooMany { .. } => Code::OpMalformed,
            Unmet::Failed { .. } => Code::DependencyFailed,
            Unmet::Forgotten { .. } => Code::DependencyForgotten,
            Unmet::Conflict(conflict) => conflict.code(),
        }
    }
}

impl Conditions {
    /// Whether op `seq` of a batch that begins with `first_seq` may be tried while the log ends at `head`.
    ///
    /// `fate` is asked only about numbers below `seq`.
    pub fn check(
        &self,
        seq: u64,
        first_seq: u64,
        mode: Mode,
        head: Cursor,
        fate: impl Fn(u64) -> Fate,
    ) -> Result<(), Unmet> {
        if self.depends_on.len() > DEPENDENCIES_MAX as usize {
            return Err(Unmet::TooMany { count: self.depends_on.len() });
        }
        if let Some(&on) = self.depends_on.iter().find(|on| **on == 0 || **on >= seq) {
            return Err(Unmet::NotEarlier { seq, on });
        }
        let before = (mode == Mode::Chain && seq > first_seq).then(|| seq - 1);
        for on in self.depends_on.iter().copied().chain(before) {
            match fate(on) {
                Fate::Happened => {}
                Fate::Rejected => return Err(Unmet::Failed { on }),
                // The op before it in a batch is only forgotten if the client acknowledged it in the
                // middle of the chain, and then it knows.
                Fate::Forgotten => return Err(Unmet::Forgotten { on }),
            }
        }
        match self.expects {
            Some(expected) if expected != head => Err(Conflict { expected, actual: head }.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the numbers below the op's, 1 happened, 2 was rejected, 3 is forgotten, 4 happened.
    fn check(depends_on: &[u64], expects: Option<u64>, mode: Mode, seq: u64, want: &str) {
        let fate = |on| match on {
            2 => Fate::Rejected,
            3 => Fate::Forgotten,
            _ if on < seq => Fate::Happened,
            _ => panic!("asked about {on}"),
        };
        let conditions = Conditions { depends_on: depends_on.into(), expects: expects.map(Cursor) };
        let got = conditions.check(seq, 3, mode, Cursor(7), fate);
        let got = got.map_or_else(|unmet| unmet.code().name(), |()| "ok");
        assert_eq!(got, want, "{depends_on:?} {expects:?} {mode:?} {seq}");
    }

    #[test]
    fn an_op_is_tried_when_everything_it_depends_on_happened() {
        check(&[], None, Mode::Each, 5, "ok");
        check(&[1, 4], None, Mode::Each, 5, "ok");
        check(&[1, 2], None, Mode::Each, 5, "dependency-failed");
        check(&[3], None, Mode::Each, 5, "dependency-forgotten");
        for on in [0, 5, 6, u64::MAX] {
            check(&[on], None, Mode::Each, 5, "op-malformed");
        }
        check(&vec![1; DEPENDENCIES_MAX as usize], None, Mode::Each, 5, "ok");
        check(&vec![1; DEPENDENCIES_MAX as usize + 1], None, Mode::Each, 5, "op-malformed");
    }

    #[test]
    fn in_a_chain_each_depends_on_the_one_before_it_in_the_batch() {
        check(&[], None, Mode::Chain, 3, "ok"); // the first of the batch
        check(&[], None, Mode::Chain, 4, "dependency-forgotten");
        check(&[], None, Mode::Chain, 5, "ok");
        check(&[2], None, Mode::Chain, 5, "dependency-failed");
    }

    #[test]
    fn the_log_must_end_where_it_is_expected_to() {
        check(&[], Some(7), Mode::Each, 5, "ok");
        check(&[], Some(6), Mode::Each, 5, "cursor-conflict");
        check(&[], Some(0), Mode::Each, 5, "cursor-conflict");
        check(&[2], Some(6), Mode::Each, 5, "dependency-failed");
    }
}
