//! What was left behind by going back in a conversation is let go of, when the history is.
//!
//! Only an automatic checkpoint leads there. Messages nothing else leads to go first, a bounded number at a time,
//! and then the checkpoint: so a crash in between leaves something to go on with.

use super::checkpoint::CheckpointDropped;
use super::remove_message;
use super::{Also, Kind, Place, encoded};
use crate::limits::LEFT_STEP_MAX;
use crate::model::ids::Cursor;
use crate::model::page::Page;
use crate::model::timeline::beyond;
use crate::store::{self, StoreError, Tx};

/// What is said about it, and whether that is all.
pub(crate) fn drop_left(
    tx: &Tx<'_>,
    place: Place,
    checkpoint: Cursor,
) -> Result<(Vec<Also>, bool), StoreError> {
    let (log, granted) = (place.log, place.granted);
    let found = store::checkpoints::at(tx, log, checkpoint)?.filter(|it| it.automatic);
    let (Some(found), Some(timeline)) = (found, store::sessions::timeline(tx, log)?) else {
        return Ok((Vec::new(), true));
    };
    // Whatever anything else leads to as well, one after the other.
    let mut only_here = beyond(&found.path, &timeline.segments);
    store::checkpoints::each(tx, log, |other| {
        if other.cursor != checkpoint {
            only_here = beyond(&only_here, &other.path);
        }
    })?;
    let page = Page::new(0, LEFT_STEP_MAX, false);
    let left = store::messages::page(tx, log, &only_here, page)?;
    let mut said = Vec::new();
    for message in left.items {
        let at = |said: &Vec<Also>| Place {
            cursor: Cursor(place.cursor.0 + said.len() as u64),
            ..place
        };
        let gone = remove_message::gone(tx, at(&said), &message.id, message.cursor)?;
        said.push(Also { log, entry: gone.0, granted });
        said.extend(gone.1.into_iter().map(|entry| Also { log, entry, granted }));
    }
    if left.more {
        return Ok((said, false));
    }
    let dropped = CheckpointDropped { cursor: checkpoint };
    dropped.project(tx, place)?;
    said.push(Also { log, entry: encoded(Kind::DropCheckpoint, 1, &dropped)?, granted });
    Ok((said, true))
}
