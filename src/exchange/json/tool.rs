//! Parts that say what became of a tool's call.

use super::object::Object;
use super::out::{Out, fetched, kept, said};
use super::part::{long_text, say_times, take_times};
use super::{Fetch, INLINE_BYTES_MAX, Keep, SHORT_BYTES_MAX, Untold};
use crate::wire::message_capnp::{ToolStatus, part, tool};

/// Whether a part has what a call is never without.
pub(super) fn is_typed(object: &Object<'_>) -> bool {
    let state = object.get("state").and_then(Object::parse).unwrap_or_default();
    let needed: &[&str] = match state.get("status").and_then(status) {
        Some(ToolStatus::Pending | ToolStatus::Running) => &["input"],
        Some(ToolStatus::Completed) => &["input", "output", "title", "metadata"],
        Some(ToolStatus::Error) => &["input", "error"],
        None => return false,
    };
    object.has("callID") && object.has("tool") && needed.iter().all(|name| state.has(name))
}

fn status(raw: &str) -> Option<ToolStatus> {
    match super::object::text(raw)?.as_str() {
        "pending" => Some(ToolStatus::Pending),
        "running" => Some(ToolStatus::Running),
        "completed" => Some(ToolStatus::Completed),
        "error" => Some(ToolStatus::Error),
        _ => None,
    }
}

fn status_name(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Pending => "pending",
        ToolStatus::Running => "running",
        ToolStatus::Completed => "completed",
        ToolStatus::Error => "error",
    }
}

/// What a state calls the text a call gave.
fn output_name(status: ToolStatus) -> &'static str {
    if status == ToolStatus::Error { "error" } else { "output" }
}

/// Takes a call. What is too long to stand in the call goes into the part's own `rest`, under `state`, since
/// only that may be content.
pub(super) fn write(object: &mut Object<'_>, keep: &mut Keep<'_>, mut to: part::Builder<'_>) {
    let written = object.get("state").unwrap_or_default().to_owned();
    let mut state = Object::parse(&written).unwrap_or_default();
    let status = state.get("status").and_then(status).unwrap_or(ToolStatus::Pending);
    state.drop("status");

    let name = output_name(status);
    // A call that is still running may have an empty output or none; one that ended has one.
    let is_said = status == ToolStatus::Completed || status == ToolStatus::Error;
    let output = if is_said || state.get(name).is_some_and(|raw| raw != r#""""#) {
        long_text(&mut state, name, keep, to.reborrow())
    } else {
        String::new()
    };
    let title_bytes = if status == ToolStatus::Completed { 0 } else { 1 };
    let mut compacted = 0;
    state.within("time", |time| {
        take_times(time, to.reborrow());
        compacted = time.whole("compacted").unwrap_or(0);
    });

    let mut tool = to.init_tool();
    tool.set_call_id(&*object.text("callID", 0..=SHORT_BYTES_MAX).unwrap_or_default());
    tool.set_name(&*object.text("tool", 0..=SHORT_BYTES_MAX).unwrap_or_default());
    tool.set_status(status);
    tool.set_input(state.object("input", INLINE_BYTES_MAX).unwrap_or_default());
    tool.set_output(&*output);
    tool.set_title(&*state.text("title", title_bytes..=SHORT_BYTES_MAX).unwrap_or_default());
    tool.set_metadata(state.object("metadata", INLINE_BYTES_MAX).unwrap_or_default());
    tool.set_compacted_at_ms(compacted);
    match state.rest() {
        None => object.drop("state"),
        Some(rest) if rest.len() <= INLINE_BYTES_MAX => {
            object.drop("state");
            tool.set_rest(&*rest);
        }
        Some(rest) => object.replace("state", rest),
    }
}

/// Says a call.
pub(super) fn say(
    from: part::Reader<'_>,
    tool: tool::Reader<'_>,
    fetch: &mut Fetch<'_>,
    out: &mut Out<'_>,
) -> Result<(), Untold> {
    out.text_always("callID", said(tool.get_call_id())?);
    out.text_always("tool", said(tool.get_name())?);

    let long = out.kept("state").unwrap_or_default().to_owned();
    let mut rest = kept("the rest of a tool", said(tool.get_rest())?)?;
    rest.add(Object::parse(&long).unwrap_or_default());
    let mut state = Out::new(rest);
    let status = tool.get_status()?;
    state.say("status", &super::quoted(status_name(status)));
    state.object_always("input", said(tool.get_input())?);
    let output = said(tool.get_output())?;
    let output = fetched("a tool's output", output, from.get_content()?, fetch)?;
    let title = said(tool.get_title())?;
    let metadata = said(tool.get_metadata())?;
    match status {
        ToolStatus::Completed => {
            state.text_always("output", &output);
            state.text_always("title", title);
            state.object_always("metadata", metadata);
        }
        ToolStatus::Error => {
            state.text_always("error", &output);
            state.text("title", title);
            state.object("metadata", metadata);
        }
        ToolStatus::Pending | ToolStatus::Running => {
            state.text("output", &output);
            state.text("title", title);
            state.object("metadata", metadata);
        }
    }
    state.within("time", |time| {
        say_times(from, time);
        time.whole("compacted", tool.get_compacted_at_ms());
        Ok(())
    })?;
    out.say("state", &state.finish());
    Ok(())
}
