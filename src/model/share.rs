//! What a published view of a session shows.

use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, LogId, SessionId, ShareId};
use crate::model::infos::Role;
use crate::model::rights::{Right, Rights};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a share lives: enough to make the same capability again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareKey {
    /// Its own log, which is also its row.
    pub log: LogId,
    /// Its public name.
    pub id: ShareId,
    /// The log it shows.
    pub session: LogId,
}

/// How much of the session it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The last message; 0 for all, as they come.
    pub up_to: Cursor,
    /// What tools gave.
    pub tool_outputs: bool,
    /// What was thought.
    pub reasoning: bool,
}

/// A share as told to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareInfo {
    /// Where it lives.
    pub key: ShareKey,
    /// The public name of the session, also if that is gone.
    pub session_id: SessionId,
    /// The session's title; none if that is gone.
    pub title: Option<String>,
    /// What it shows.
    pub view: View,
    /// Whether messages may be added through it.
    pub append: bool,
    /// When it was made.
    pub created_at_ms: u64,
    /// When it was ended, if it was.
    pub ended_at_ms: Option<u64>,
    /// Where the session's log ends.
    pub head: Cursor,
    /// The generation of its refs.
    pub epoch: u64,
}

/// A share of a session that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptShare {
    /// Where it lived.
    pub key: ShareKey,
    /// Whether messages could be added through it.
    pub append: bool,
    /// What it showed.
    pub view: View,
    /// When it was made.
    pub created_at_ms: u64,
    /// When it ended.
    pub ended_at_ms: u64,
}

/// It was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this share was ended; nothing is shown through it any more")]
pub struct ShareEnded;

impl Coded for ShareEnded {
    fn code(&self) -> Code {
        Code::ShareEnded
    }
}

/// It was not made to be appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this share is for reading only")]
pub struct ReadOnlyShare;

impl Coded for ReadOnlyShare {
    fn code(&self) -> Code {
        Code::NotPermitted
    }
}

/// What counts when something is to be done with a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Where it lives.
    pub key: ShareKey,
    /// Whether it was not ended.
    pub open: bool,
    /// Whether messages may be added through it.
    pub append: bool,
}

impl Terms {
    /// The rights anybody can be handed through it.
    pub fn rights(&self) -> Rights {
        let append = self.append.then_some(Right::Append);
        [Right::Read].into_iter().chain(append).collect()
    }
}

/// What is shown of a part.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    /// All of it.
    Whole,
    /// This instead.
    Instead(String),
    /// Nothing.
    Nothing,
}

/// Parts that are neither thoughts nor what a tool gave. Of a part nobody knows, nobody knows that.
const PLAIN_PARTS: [&str; 10] = [
    "text",
    "file",
    "agent",
    "subtask",
    "step-start",
    "step-finish",
    "patch",
    "snapshot",
    "retry",
    "compaction",
];
/// What a tool part keeps when what the tool gave is left out. Anything else may hold it.
const TOOL_FIELDS: [&str; 6] = ["id", "type", "tool", "callID", "messageID", "sessionID"];
/// And of its state.
const STATE_FIELDS: [&str; 4] = ["status", "input", "title", "time"];

impl View {
    /// Whether a message at this place is shown.
    pub fn shows(&self, cursor: Cursor) -> bool {
        self.up_to.0 == 0 || cursor <= self.up_to
    }

    /// Where the shown log ends, seeing where the session's does.
    pub fn end(&self, head: Cursor) -> Cursor {
        match self.up_to.0 {
            0 => head,
            _ => head.min(self.up_to),
        }
    }

    /// What is shown of a part of plain text.
    pub fn of_text(&self, role: Role) -> Shown {
        match role == Role::Tool && !self.tool_outputs {
            true => Shown::Nothing,
            false => Shown::Whole,
        }
    }

    /// What is shown of a part in JSON. What cannot be read is shown only where everything is.
    pub fn of_json(&self, role: Role, part: &str) -> Shown {
        if self.tool_outputs && self.reasoning {
            return Shown::Whole;
        }
        let Ok(Value::Object(part)) = serde_json::from_str(part) else { return Shown::Nothing };
        match part.get("type").and_then(Value::as_str) {
            Some("reasoning") if self.reasoning => Shown::Whole,
            Some("tool") if self.tool_outputs => Shown::Whole,
            Some("tool") => Shown::Instead(Value::Object(without_output(part)).to_string()),
            _ if role == Role::Tool && !self.tool_outputs => Shown::Nothing,
            Some(kind) if PLAIN_PARTS.contains(&kind) => Shown::Whole,
            _ => Shown::Nothing,
        }
    }

    /// Whether a message's metadata is shown: it is the client's own, and may hold anything.
    pub fn shows_metadata(&self) -> bool {
        self.tool_outputs && self.reasoning
    }
}

fn without_output(mut part: Map<String, Value>) -> Map<String, Value> {
    let state = part.remove("state");
    part.retain(|name, _| TOOL_FIELDS.contains(&name.as_str()));
    if let Some(Value::Object(mut state)) = state {
        state.retain(|name, _| STATE_FIELDS.contains(&name.as_str()));
        part.insert("state".to_owned(), Value::Object(state));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cret";

    fn view(tool_outputs: bool, reasoning: bool) -> View {
        View { up_to: Cursor(0), tool_outputs, reasoning }
    }

    #[test]
    fn what_is_left_out_is_nowhere() {
        let tool = format!(
            r#"{{"type":"tool","tool":"bash","callID":"c1","metadata":{{"o":"{SECRET}"}},"output":"{SECRET}",
               "state":{{"status":"completed","input":{{"command":"ls"}},"output":"{SECRET}",
               "metadata":{{"x":"{SECRET}"}},"attachments":["{SECRET}"],"error":"{SECRET}","title":"ls"}}}}"#
        );
        let Shown::Instead(shown) = view(false, true).of_json(Role::Assistant, &tool) else {
            panic!("it should be shortened");
        };
        assert!(!shown.contains(SECRET), "{shown}");
        for kept in ["bash", "c1", "completed", "\"command\":\"ls\"", "title"] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        let table = [
            (view(true, true), Role::Assistant, tool.as_str(), Shown::Whole),
            (view(true, false), Role::Assistant, &tool, Shown::Whole),
            (view(true, false), Role::Assistant, r#"{"type":"reasoning"}"#, Shown::Nothing),
            (view(false, true), Role::Assistant, r#"{"type":"reasoning"}"#, Shown::Whole),
            (view(false, false), Role::Assistant, r#"{"type":"file"}"#, Shown::Whole),
            (view(false, false), Role::Tool, r#"{"type":"file"}"#, Shown::Nothing),
            (view(true, false), Role::Assistant, r#"{"type":"thinking"}"#, Shown::Nothing),
            (view(false, true), Role::Assistant, r#"{"type":"tool_result"}"#, Shown::Nothing),
            (view(true, false), Role::Assistant, r#"{"text":"no type"}"#, Shown::Nothing),
            (view(true, true), Role::Assistant, r#"{"type":"thinking"}"#, Shown::Whole),
            (view(false, false), Role::Assistant, "[1]", Shown::Nothing),
            (view(true, true), Role::Tool, "[1]", Shown::Whole),
        ];
        for (view, role, part, want) in table {
            assert_eq!(view.of_json(role, part), want, "{view:?} {role:?} {part}");
        }
        assert_eq!(view(false, true).of_text(Role::Tool), Shown::Nothing);
        assert_eq!(view(false, false).of_text(Role::User), Shown::Whole);
        assert_eq!(view(true, false).of_text(Role::Tool), Shown::Whole);
    }

    #[test]
    fn a_view_ends_where_it_was_made_to() {
        let some = View { up_to: Cursor(5), ..view(true, true) };
        assert!(some.shows(Cursor(5)) && !some.shows(Cursor(6)));
        assert_eq!((some.end(Cursor(3)), some.end(Cursor(9))), (Cursor(3), Cursor(5)));
        assert!(view(true, true).shows(Cursor(9)));
        assert_eq!(view(true, true).end(Cursor(9)), Cursor(9));
    }
}
