//! What agents may do without asking, on the server or in a project.

use super::{Effect, Kind, NotApplied, Place, entry_replacing};
use crate::model::ids::Cursor;
use crate::model::ledger::Made;
use crate::model::permission::{self, Malformed, Rule};
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// The rules somebody wants: for the object whose log this op is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRules(Vec<Rule>);

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesSet {
    /// In order.
    pub rules: Vec<Rule>,
}

impl RulesSet {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::rulesets::set(tx, place.log, place.cursor, &self.rules)
    }

    /// The op whose effect is gone with this one.
    pub(super) fn replaces(
        &self,
        read: &store::Read<'_>,
        place: Place,
    ) -> Result<Option<Cursor>, StoreError> {
        Ok(Some(store::rulesets::get(read, place.log)?.0).filter(|at| at.0 > 0))
    }
}

impl SetRules {
    /// Rules that make sense.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Malformed> {
        permission::check(&rules)?;
        Ok(Self(rules))
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let set = RulesSet { rules: self.0.clone() };
        let replaces = set.replaces(tx, place)?;
        set.project(tx, place)?;
        let entry = entry_replacing(replaces, Kind::SetRules, 1, &set)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
