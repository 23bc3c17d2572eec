//! A JSON object written member by member, and reading what one needs of another.

use crate::exchange::json::quoted;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The members of an object that is being written. What is not there is left out.
#[derive(Debug, Default)]
pub(super) struct Members(String);

impl Members {
    /// Adds a member; the value must be JSON.
    pub(super) fn add(&mut self, name: &str, value: Option<String>) {
        let Some(value) = value else { return };
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0 += &quoted(name);
        self.0.push(':');
        self.0 += &value;
    }

    /// The object, if it has any members.
    pub(super) fn some(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0 + "}")
    }

    /// The object.
    pub(super) fn all(self) -> String {
        self.some().unwrap_or_else(|| "{}".into())
    }
}

/// Where a session or a message stands among others.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Standing {
    #[serde(rename = "parentID", default)]
    pub(super) parent_id: Option<Box<RawValue>>,
    #[serde(default)]
    time: Option<Box<RawValue>>,
}

impl Standing {
    /// Reads what can be read; whatever is odd is as if it were not there.
    pub(super) fn of(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub(super) fn parent(&self) -> Option<String> {
        serde_json::from_str(self.parent_id.as_ref()?.get()).ok()
    }

    pub(super) fn created(&self) -> f64 {
        let time = self.time.as_ref().map_or("{}", |time| time.get());
        let time: BTreeMap<String, &RawValue> = serde_json::from_str(time).unwrap_or_default();
        let created = time.get("created").and_then(|created| created.get().parse().ok());
        created.unwrap_or(0.0)
    }
}
