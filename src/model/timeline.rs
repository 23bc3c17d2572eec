//! Which part of a session's log is its conversation.
//!
//! Nothing is ever taken out of the log by going back. The conversation is a path through it: stretches of the
//! log, one behind the other. Going back ends a stretch early, and what is said next begins another; what lies
//! between is left behind, and a checkpoint remembers the path that led there.
//!
//! While something is only reverted, the path is whole and the end is marked in it: then it can be taken back.

use crate::model::ids::{Cursor, MessageId, PartId};
use serde::{Deserialize, Serialize};

/// Where no stretch has ended yet.
const OPEN: Cursor = Cursor(u64::MAX);

/// A stretch of the log that belongs to the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its first cursor.
    pub from: Cursor,
    /// Messages up to here, without the one here.
    pub to: Cursor,
    /// Parts of the message at `to` before this position belong to it; 0 for none of that message.
    pub part: u32,
    /// Everything that is no message up to here, without what is here.
    pub until: Cursor,
}

/// A place before which a conversation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Before this message, or in it.
    pub message: Cursor,
    /// Before the part at this position; 0 for the whole message.
    pub part: u32,
    /// Where what is hidden began to be said.
    pub at: Cursor,
}

/// Something is hidden, and can be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// What the conversation ends before.
    pub boundary: Boundary,
    /// The message there.
    pub message: MessageId,
    /// The part there, if it is in the middle of a message.
    pub part: Option<PartId>,
    /// Where that was said. What comes after it is said on top of what is left, and shown.
    pub since: Cursor,
}

/// The path of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Its stretches, in order.
    pub segments: Vec<Segment>,
    /// Where it ends for now, if not at its end.
    pub reverted: Option<Reverted>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { segments: vec![Segment::from(Cursor(0))], reverted: None }
    }
}

impl Segment {
    /// One that goes on.
    fn from(from: Cursor) -> Self {
        Self { from, to: OPEN, part: 0, until: OPEN }
    }

    /// How much of it lies before a boundary; none if nothing does.
    fn before(self, boundary: Boundary) -> Option<Segment> {
        if boundary.message < self.from {
            return None;
        }
        if boundary.message > self.to || (boundary.message == self.to && self.part == 0) {
            return Some(Segment { until: self.until.min(boundary.at), ..self });
        }
        if boundary.message == self.to {
            // It ends in the middle of that message already.
            let part = self.part.min(boundary.part);
            return Some(Segment { part, until: self.until.min(boundary.at), ..self });
        }
        let Boundary { message, part, at } = boundary;
        Some(Segment { from: self.from, to: message, part, until: self.until.min(at) })
    }
}

impl Timeline {
    /// The stretches that are shown.
    pub fn shown(&self) -> Vec<Segment> {
        let Some(reverted) = &self.reverted else { return self.segments.clone() };
        let cut = |segment: &Segment| segment.before(reverted.boundary);
        let mut shown: Vec<Segment> = self.segments.iter().filter_map(cut).collect();
        shown.push(Segment::from(reverted.since.next()));
        shown
    }

    /// The same path, ending before this for now.
    pub fn reverted_to(&self, reverted: Reverted) -> Timeline {
        Timeline { segments: self.segments.clone(), reverted: Some(reverted) }
    }

    /// The same path, to its end.
    pub fn unreverted(&self) -> Timeline {
        Timeline { segments: self.segments.clone(), reverted: None }
    }

    /// The path if what is reverted is left behind.
    pub fn left_behind(&self) -> Timeline {
        Timeline { segments: self.shown(), reverted: None }
    }

    /// A path that takes up another one where that ended.
    pub fn going_on(mut segments: Vec<Segment>, goes_on: Cursor) -> Timeline {
        segments.push(Segment::from(goes_on));
        Timeline { segments, reverted: None }
    }

    /// The stretches that are shown, with an end: what comes after this cursor does not belong to them.
    pub fn closed(&self, end: Cursor) -> Vec<Segment> {
        closed(self.shown(), end)
    }

    /// The path that leads to what is reverted, with its end; none if nothing is.
    pub fn hidden(&self) -> Option<Vec<Segment>> {
        let reverted = self.reverted.as_ref()?;
        Some(closed(self.segments.clone(), reverted.since))
    }
}

fn closed(segments: Vec<Segment>, end: Cursor) -> Vec<Segment> {
    let end = end.next();
    let close = |segment: Segment| match segment.to {
        OPEN => Segment { to: end, until: segment.until.min(end), ..segment },
        _ => segment,
    };
    segments.into_iter().map(close).filter(|segment| segment.from < segment.to).collect()
}

/// The stretches of one path that no other stretch covers. A message that is kept in part is kept.
pub fn beyond(path: &[Segment], others: &[Segment]) -> Vec<Segment> {
    let mut left: Vec<Segment> = path.to_vec();
    for other in others {
        let covered = if other.part > 0 { other.to.next() } else { other.to };
        left = left
            .into_iter()
            .flat_map(|segment| {
                let before = Segment { to: segment.to.min(other.from), part: 0, ..segment };
                let after = Segment { from: segment.from.max(covered), ..segment };
                let apart = segment.to < other.from || segment.from >= covered;
                let pieces = if apart { vec![segment] } else { vec![before, after] };
                pieces.into_iter().filter(|piece| {
                    piece.from < piece.to || (piece.part > 0 && piece.from <= piece.to)
                })
            })
            .collect();
    }
    left
}

/// How much of a message these stretches show: parts before this position; none if nothing.
pub fn shown_of(segments: &[Segment], message: Cursor) -> Option<u32> {
    segments.iter().find_map(|segment| match () {
        () if message < segment.from => None,
        () if message < segment.to => Some(u32::MAX),
        () if message == segment.to && segment.part > 0 => Some(segment.part),
        () => None,
    })
}

/// Whether these stretches hold what was said there, if it is no message.
pub fn holds(segments: &[Segment], at: Cursor) -> bool {
    segments.iter().any(|segment| segment.from <= at && at < segment.until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reverted before a message, or in it, when the log ended at `since`.
    fn before(message: u64, part: u32, since: u64) -> Reverted {
        let boundary = Boundary { message: Cursor(message), part, at: Cursor(message) };
        let message = MessageId::parse("m").unwrap();
        Reverted { boundary, message, part: None, since: Cursor(since) }
    }

    /// The cursors of 1 to 30 that are shown, `.5` for those shown in part.
    fn shown(timeline: &Timeline) -> Vec<f64> {
        let segments = timeline.shown();
        (1..=30u64)
            .filter_map(|cursor| match shown_of(&segments, Cursor(cursor)) {
                Some(u32::MAX) => Some(cursor as f64),
                Some(_) => Some(cursor as f64 + 0.5),
                None => None,
            })
            .collect()
    }

    fn range(from: u64, to: u64) -> Vec<f64> {
        (from..=to).map(|cursor| cursor as f64).collect()
    }

    #[test]
    fn going_back_hides_and_going_on_leaves_behind() {
        let all = Timeline::default();
        assert_eq!(shown(&all), range(1, 30));
        let back = all.reverted_to(before(5, 0, 10));
        assert_eq!(shown(&back), [range(1, 4), range(11, 30)].concat(), "what is new is shown");
        assert_eq!(shown(&back.unreverted()), range(1, 30), "nothing is lost by going back");
        // A second one is counted from the whole path, so it may lie further on.
        let further_on = back.reverted_to(before(9, 0, 12));
        assert_eq!(shown(&further_on), [range(1, 8), range(13, 30)].concat());

        let on = back.left_behind();
        assert_eq!(shown(&on), [range(1, 4), range(11, 30)].concat());
        // Back beyond what was left behind, and on from there.
        let further = on.reverted_to(before(3, 0, 19)).left_behind();
        assert_eq!(shown(&further), [range(1, 2), range(20, 30)].concat());

        // What was left behind is a path of its own, and can be taken up again.
        let left = back.hidden().unwrap();
        let again = Timeline::going_on(left, Cursor(25));
        assert_eq!(shown(&again), [range(1, 10), range(25, 30)].concat());
        assert_eq!(on.hidden(), None);
    }

    #[test]
    fn what_only_one_path_leads_to_is_found() {
        let back = Timeline::default().reverted_to(before(5, 0, 10));
        let (left, now) = (back.hidden().unwrap(), back.left_behind());
        let only = beyond(&left, &now.segments);
        let cursors: Vec<_> = (1..30).filter(|at| shown_of(&only, Cursor(*at)).is_some()).collect();
        assert_eq!(cursors, [5, 6, 7, 8, 9, 10]);
        // In the middle of a message: the message stays.
        let back = Timeline::default().reverted_to(before(5, 2, 10));
        let only = beyond(&back.hidden().unwrap(), &back.left_behind().segments);
        let cursors: Vec<_> = (1..30).filter(|at| shown_of(&only, Cursor(*at)).is_some()).collect();
        assert_eq!(cursors, [6, 7, 8, 9, 10]);
        assert!(beyond(&left, &left).is_empty());
    }

    #[test]
    fn a_message_can_be_kept_in_part() {
        let back = Timeline::default().reverted_to(before(5, 2, 8));
        let kept = [range(1, 4), vec![5.5], range(9, 30)].concat();
        assert_eq!(shown(&back), kept);
        let on = back.left_behind();
        assert_eq!(shown(&on), kept);
        // Back into the same message: not more than was kept of it.
        let again = |part| shown_of(&on.reverted_to(before(5, part, 20)).shown(), Cursor(5));
        assert_eq!((again(3), again(1), again(0)), (Some(2), Some(1), None));
    }

    proptest! {
        /// However one goes back and on: the path is in order, nothing is in it twice, what is said next
        /// belongs to it, and nothing beyond a boundary does.
        #[test]
        fn the_path_stays_a_path(steps in prop::collection::vec((1u64..60, 0u32..3), 0..12)) {
            let (mut timeline, mut head) = (Timeline::default(), 10u64);
            for (back, part) in steps {
                let to = back.min(head);
                let reverted = timeline.reverted_to(before(to, part, head));
                for cursor in to + 1..=head {
                    prop_assert_eq!(shown_of(&reverted.shown(), Cursor(cursor)), None);
                }
                timeline = reverted.left_behind();
                head += 4;
                prop_assert_eq!(shown_of(&timeline.shown(), Cursor(head)), Some(u32::MAX));
                let ordered = timeline.segments.windows(2).all(|pair| pair[0].to <= pair[1].from);
                prop_assert!(ordered, "{:?}", timeline);
            }
        }
    }
}
