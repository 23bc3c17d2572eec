//! Outputs of tools are left out of what the model sees. They stay stored.

use super::found::{self, odd};
use super::put_part::{Goes, NewPart};
use super::{Also, Effect, Kind, NotApplied, Place, entry};
use crate::model::content::{Change, ToolStatus};
use crate::model::ids::{MessageId, PartId};
use crate::model::ledger::Made;
use crate::store::Tx;
use serde::{Deserialize, Serialize};

/// The tools whose outputs are to be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneOutputs(pub Vec<(MessageId, PartId)>);

/// How it stands in the history, version 1. The parts follow, each as it stands then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputsPruned {
    /// Which.
    pub parts: Vec<(MessageId, PartId)>,
}

impl PruneOutputs {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let mut changed: Vec<(NewPart, Goes)> = Vec::new();
        for (message, id) in &self.0 {
            let standing = found::message(tx, place.log, message)?;
            let part = found::part(tx, place.log, standing.cursor, id)?
                .ok_or_else(|| found::Error::PartNotFound(message.clone(), id.clone()))?;
            if part.facts.status != Some(ToolStatus::Completed) {
                return Err(super::put_part::Error::NotCompleted.into());
            }
            let content = Change { part: &part.content }.compacted(place.now_ms).map_err(odd)?;
            let facts = part.facts.clone();
            let new = NewPart { id: id.clone(), facts, brings_text: true, content };
            changed.push((new, Goes::instead_of(message.clone(), standing, part)));
        }
        let mut also = Vec::new();
        for ((part, goes), n) in changed.into_iter().zip(1..) {
            let (log, granted) = (place.log, place.granted);
            let entry = part.put(tx, place.later(n), goes, None)?;
            also.push(Also { log, entry, granted });
        }
        let pruned = OutputsPruned { parts: self.0.clone() };
        let effect = Effect::new(Made::Nothing, entry(Kind::PruneOutputs, 1, &pruned)?);
        Ok(Effect { also, ..effect })
    }
}
