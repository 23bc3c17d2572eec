//! What a feed consists of: a stretch of history, its places, and what somebody wants to hear of it.

use crate::model::code::{Code, Coded};
use crate::model::ids::{BatchId, Cursor, GrantKey, LogId, OpId, ProducerId, SubscriptionName};
use crate::model::infos::Author;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which ops belong together in a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stretch {
    /// All there are, by position.
    Server,
    /// Those of a project and its sessions, by position.
    Project(LogId),
    /// Those of one log, by cursor.
    Log(LogId),
}

impl Stretch {
    /// The log of the object whose feed this is.
    pub fn log(self) -> LogId {
        match self {
            Stretch::Server => LogId::ROOT,
            Stretch::Project(log) | Stretch::Log(log) => log,
        }
    }
}

/// An op of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOp {
    /// Where among all ops of the server.
    pub position: u64,
    /// In which log.
    pub log: LogId,
    /// Where in it.
    pub cursor: Cursor,
    /// The public name of the project, if there is one.
    pub project_id: Option<String>,
    /// The public name of the session, if it is one's.
    pub session_id: Option<String>,
    /// Who wrote it.
    pub producer: ProducerId,
    /// Under which number.
    pub seq: u64,
    /// Under which name.
    pub op_id: OpId,
    /// In which batch, if that had a name.
    pub batch: Option<BatchId>,
    /// When.
    pub at_ms: u64,
    /// What it says.
    pub kind: u16,
    /// How the payload is written.
    pub version: u16,
    /// Under which grant.
    pub granted: GrantKey,
    /// And whose that is.
    pub author: Arc<Author>,
    /// In full.
    pub payload: Vec<u8>,
}

impl LoggedOp {
    /// Its place in a feed.
    pub fn place(&self, stretch: Stretch) -> u64 {
        match stretch {
            Stretch::Server | Stretch::Project(_) => self.position,
            Stretch::Log(_) => self.cursor.0,
        }
    }
}

/// A piece of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    /// What was asked for: whatever lies behind this place.
    pub after: u64,
    /// The ops found.
    pub ops: Vec<LoggedOp>,
    /// There is nothing more up to this place.
    pub through: u64,
    /// Where the stretch ended then.
    pub head: u64,
    /// Up to where some of it was gone then.
    pub floor: u64,
    /// How often something had been taken away then.
    pub cuts: u64,
}

/// A feed in the middle of taking in what is kept below a floor: that floor, and how often something had
/// been taken away when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeIn {
    /// See [`FeedPage::floor`].
    pub floor: u64,
    /// See [`FeedPage::cuts`].
    pub cuts: u64,
}

/// What somebody wants to hear.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// Behind which place to begin.
    pub after: u64,
    /// Under which name the server keeps the place, if it shall.
    pub name: Option<SubscriptionName>,
    /// Only these kinds; all if there are none.
    pub kinds: BTreeSet<u16>,
    /// Nothing of this producer.
    pub skip: Option<ProducerId>,
    /// Texts of open parts, as they come.
    pub texts: bool,
}

impl Wish {
    /// Whether an op is to be told.
    pub fn wants(&self, op: &LoggedOp) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&op.kind)) && self.skip != Some(op.producer)
    }
}

/// The place a feed was asked for does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the feed was asked for from after {after}, but ends at {head}")]
pub struct Ahead {
    /// What was asked for.
    pub after: u64,
    /// Where it ends.
    pub head: u64,
}

impl Coded for Ahead {
    fn code(&self) -> Code {
        Code::CursorAhead
    }
}

/// Whether a feed that ends at `head` can go on from a place.
pub fn exists(after: u64, head: u64) -> Result<(), Ahead> {
    if after > head { Err(Ahead { after, head }) } else { Ok(()) }
}

/// Whether a feed has lost something, seeing where the stretch is compacted.
///
/// Above the floor the history is whole. A feed that stands below has lost something, unless it is in the
/// middle of taking in what is kept, and nothing more was taken away since it began.
pub fn lost_something(page: &FeedPage, taking_in: Option<TakeIn>) -> bool {
    let now = TakeIn { floor: page.floor, cuts: page.cuts };
    page.after < page.floor && taking_in != Some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_feed_below_the_floor_has_lost_something() {
        let table = [
            (0, (0, 0), None, false),
            (5, (5, 1), None, false),
            (6, (5, 1), None, false),
            (4, (5, 1), None, true),
            (0, (5, 1), None, true), // also one that begins: what follows is not the whole history
            (4, (5, 1), Some((5, 1)), false),
            (4, (6, 2), Some((5, 1)), true), // compacted again while it was taken in
            (4, (5, 2), Some((5, 1)), true), // also below the same floor, where feeds join many logs
            (5, (5, 2), Some((5, 1)), false), // but it was through by then
        ];
        for (after, (floor, cuts), taking_in, want) in table {
            let page = FeedPage { after, ops: Vec::new(), through: after, head: 9, floor, cuts };
            let taking_in = taking_in.map(|(floor, cuts)| TakeIn { floor, cuts });
            assert_eq!(lost_something(&page, taking_in), want, "{page:?} {taking_in:?}");
        }
    }
}
