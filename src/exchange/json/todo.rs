//! Todos and rules.

use super::Untold;
use super::object::{Object, is_object};
use super::out::{Out, kept, said};
use crate::exchange::{Reason, Thing, Untaken};
use crate::wire::message_capnp::{Action, rule, todo};
use capnp::struct_list;
use serde_json::value::RawValue;

/// Takes one item of a todo list. It has no place for anything long.
pub fn todo_from_json(raw: &RawValue, mut to: todo::Builder<'_>) -> Result<(), Untaken> {
    let Some(mut object) = Object::parse(raw.get()) else {
        return Err(Untaken::new(Thing::Todo, "", Reason::Shape, "it is not a JSON object"));
    };
    if let Some(content) = object.text("content", 1..=super::INLINE_BYTES_MAX) {
        to.set_content(&*content);
    }
    if let Some(status) = object.short("status") {
        to.set_status(&*status);
    }
    if let Some(priority) = object.short("priority") {
        to.set_priority(&*priority);
    }
    let rest = object.rest().unwrap_or_default();
    if rest.len() > super::INLINE_BYTES_MAX {
        let text = format!("{} bytes are more than can be kept of it", rest.len());
        return Err(Untaken::new(Thing::Todo, "", Reason::TooLarge, text));
    }
    to.set_rest(&*rest);
    Ok(())
}

/// One item of a todo list, as OpenCode writes it.
pub fn todo_to_json(from: todo::Reader<'_>) -> Result<String, Untold> {
    let mut out = Out::new(kept("the rest of a todo", said(from.get_rest())?)?);
    out.text("content", said(from.get_content())?);
    out.text("status", said(from.get_status())?);
    out.text("priority", said(from.get_priority())?);
    Ok(out.finish())
}

/// One rule. A rule on the wire has no place for anything more than it consists of, so one that says more
/// is not taken.
pub fn rule_from_json(raw: &RawValue, to: rule::Builder<'_>) -> Result<(), Untaken> {
    let rule = Rule::read(raw.get())
        .ok_or_else(|| Untaken::new(Thing::Rule, "", Reason::Shape, "it is not a plain rule"))?;
    rule.write(to);
    Ok(())
}

/// Rules, as OpenCode writes them.
pub fn rules_to_json(rules: struct_list::Reader<'_, rule::Owned>) -> Result<String, Untold> {
    let mut text = String::new();
    for rule in rules {
        text.push(if text.is_empty() { '[' } else { ',' });
        let mut out = Out::new(Object::default());
        out.text_always("permission", said(rule.get_permission())?);
        out.text_always("pattern", said(rule.get_pattern())?);
        out.text_always("action", action_name(rule.get_action()?));
        text += &out.finish();
    }
    Ok(if text.is_empty() { "[]".into() } else { text + "]" })
}

/// A rule that says nothing but what a rule says.
#[derive(Debug)]
pub(super) struct Rule {
    permission: String,
    pattern: String,
    action: Action,
}

impl Rule {
    fn read(raw: &str) -> Option<Self> {
        let mut object = Object::parse(raw)?;
        let (permission, pattern) = (object.short("permission")?, object.short("pattern")?);
        let action = match object.short("action")?.as_str() {
            "ask" => Action::Ask,
            "allow" => Action::Allow,
            "deny" => Action::Deny,
            _ => return None,
        };
        object.rest().is_none().then_some(Self { permission, pattern, action })
    }

    /// All rules of an array, if every one is plain.
    pub(super) fn read_all(raw: &str) -> Option<Vec<Self>> {
        let rules: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
        rules.into_iter().map(|raw| is_object(raw.get()).then(|| Self::read(raw.get()))?).collect()
    }

    pub(super) fn write(&self, mut to: rule::Builder<'_>) {
        to.set_permission(&*self.permission);
        to.set_pattern(&*self.pattern);
        to.set_action(self.action);
    }
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Ask => "ask",
        Action::Allow => "allow",
        Action::Deny => "deny",
    }
}
