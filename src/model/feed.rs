//! What a feed consists of: a stretch of history, its places, and what somebody wants to hear of it.

use crate::model::ids::{BatchId, Cursor, LogId, OpId, ProducerId, SubscriptionName};

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
    /// Up to where it was compacted then.
    pub floor: u64,
}

/// What somebody wants to hear.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// Behind which place to begin.
    pub after: u64,
    /// Under which name the server keeps the place, if it shall.
    pub name: Option<SubscriptionName>,
    /// Only these kinds; all if there are none.
    pub kinds: Vec<u16>,
    /// Nothing of this producer.
    pub skip: Option<ProducerId>,
}

impl Wish {
    /// Whether an op is to be told.
    pub fn wants(&self, op: &LoggedOp) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&op.kind)) && self.skip != Some(op.producer)
    }
}

/// How a feed goes on from a place, seeing where the stretch is compacted.
///
/// Behind the floor the history is whole. A feed that stands below has lost something, unless it is in the
/// middle of taking in what is kept below this very floor.
pub fn lost_something(after: u64, floor: u64, taking_in: Option<u64>) -> bool {
    after < floor && taking_in != Some(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_feed_below_the_floor_has_lost_something() {
        let table = [
            (0, 0, None, false),
            (5, 5, None, false),
            (6, 5, None, false),
            (4, 5, None, true),
            (0, 5, None, true), // also one that begins: what follows is not the whole history
            (4, 5, Some(5), false),
            (4, 6, Some(5), true), // compacted again while it was taken in
        ];
        for (after, floor, taking_in, want) in table {
            assert_eq!(
                lost_something(after, floor, taking_in),
                want,
                "{after} {floor} {taking_in:?}"
            );
        }
    }
}
