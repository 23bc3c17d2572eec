//! The list of things to do, as a whole.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::ledger::Made;
use crate::model::session::Todo;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// The list somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTodos(pub Vec<Todo>);

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodosSet {
    /// In order.
    pub todos: Vec<Todo>,
}

impl TodosSet {
    /// What follows from it. Former lists stay: going back in the conversation brings them back.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::todos::set(tx, place.log, place.cursor, &self.todos)
    }
}

impl SetTodos {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let set = TodosSet { todos: self.0.clone() };
        set.project(tx, place)?;
        Ok(Effect::new(Made::Nothing, entry(Kind::SetTodos, 1, &set)?))
    }
}
