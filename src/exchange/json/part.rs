//! Parts of messages. A part that lacks what its kind cannot be without is kept whole, as JSON.

use super::object::{Object, identified};
use super::out::{Out, fetched, kept, said};
use super::{Fetch, INLINE_BYTES_MAX, Keep, SHORT_BYTES_MAX, Untold, tool, usage};
use crate::exchange::{Kept, Thing, Untaken};
use crate::wire::message_capnp::{compaction, content, file, part, patch, retry, step_finish};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Takes a part. What is too long to stand in it is handed to `keep`.
pub fn part_from_json(
    raw: &RawValue,
    keep: &mut Keep<'_>,
    to: part::Builder<'_>,
) -> Result<(), Untaken> {
    let (object, id) = identified(Thing::Part, raw)?;
    write(object, &id, keep, to);
    Ok(())
}

/// Writes a part whose id was taken already.
pub(super) fn write(
    mut object: Object<'_>,
    id: &str,
    keep: &mut Keep<'_>,
    mut to: part::Builder<'_>,
) {
    to.set_id(id);
    object.drop("sessionID");
    object.drop("messageID");
    let kind = object.get("type").and_then(super::object::text).unwrap_or_default();
    let is_typed = match kind.as_str() {
        "text" | "reasoning" => object.has("text"),
        "file" => object.has("mime") && object.has("url"),
        "tool" => tool::is_typed(&object),
        "step-start" => true,
        "step-finish" => object.has("reason"),
        "patch" => object.has("hash") && object.has("files"),
        "retry" => object.has("attempt"),
        "compaction" => object.has("auto"),
        _ => false,
    };
    if !is_typed {
        return write_json(object, keep, to);
    }
    object.drop("type");
    match kind.as_str() {
        "text" => {
            let text = long_text(&mut object, "text", keep, to.reborrow());
            to.set_text(&*text);
        }
        "reasoning" => {
            let text = long_text(&mut object, "text", keep, to.reborrow());
            to.set_reasoning(&*text);
        }
        "file" => {
            let url = long_text(&mut object, "url", keep, to.reborrow());
            let mut file = to.reborrow().init_file();
            file.set_url(&*url);
            write_file(&mut object, file);
        }
        "tool" => tool::write(&mut object, keep, to.reborrow()),
        "step-start" => to.set_step_start(&*object.short("snapshot").unwrap_or_default()),
        "step-finish" => write_step_finish(&mut object, to.reborrow().init_step_finish()),
        "patch" => write_patch(&mut object, to.reborrow().init_patch()),
        "retry" => write_retry(&mut object, to.reborrow().init_retry()),
        _ => write_compaction(&mut object, to.reborrow().init_compaction()),
    }
    // A tool has its times in its state, and a retry has another one.
    if kind != "tool" && kind != "retry" {
        object.within("time", |time| take_times(time, to.reborrow()));
    }
    to.set_synthetic(object.is_true("synthetic"));
    to.set_ignored(object.is_true("ignored"));
    if let Some(rest) = object.rest() {
        write_rest(&rest, keep, to);
    }
}

/// A part of a kind the schema has no place for. If it is long, everything but its type is content.
fn write_json(mut object: Object<'_>, keep: &mut Keep<'_>, mut to: part::Builder<'_>) {
    let all = object.rest().unwrap_or_else(|| "{}".into());
    if all.len() <= INLINE_BYTES_MAX {
        return to.set_json(&*all);
    }
    let mut out = Out::new(Object::default());
    out.text("type", &object.short("type").unwrap_or_default());
    to.set_json(&*out.finish());
    if let Some(rest) = object.rest() {
        write_rest(&rest, keep, to);
    }
}

fn write_rest(rest: &str, keep: &mut Keep<'_>, mut to: part::Builder<'_>) {
    if rest.len() <= INLINE_BYTES_MAX {
        to.set_rest(rest);
    } else {
        write_content(keep(rest.as_bytes()), to.init_rest_content());
    }
}

pub(super) fn write_content(kept: Kept, mut to: content::Builder<'_>) {
    to.set_hash(&kept.hash);
    to.set_bytes(kept.bytes);
}

/// Takes the text a part is about. If it is too long to stand there, it becomes the part's content, and
/// what stands there is empty.
pub(super) fn long_text(
    object: &mut Object<'_>,
    name: &str,
    keep: &mut Keep<'_>,
    to: part::Builder<'_>,
) -> String {
    let text = object.text(name, 0..=usize::MAX).unwrap_or_default();
    if text.len() <= INLINE_BYTES_MAX {
        return text;
    }
    write_content(keep(text.as_bytes()), to.init_content());
    String::new()
}

pub(super) fn take_times(time: &mut Object<'_>, mut to: part::Builder<'_>) {
    to.set_started_at_ms(time.whole("start").unwrap_or(0));
    to.set_ended_at_ms(time.whole("end").unwrap_or(0));
}

fn write_file(object: &mut Object<'_>, mut to: file::Builder<'_>) {
    to.set_mime(&*object.text("mime", 0..=SHORT_BYTES_MAX).unwrap_or_default());
    to.set_filename(&*object.short("filename").unwrap_or_default());
}

fn write_step_finish(object: &mut Object<'_>, mut to: step_finish::Builder<'_>) {
    to.set_reason(&*object.text("reason", 0..=SHORT_BYTES_MAX).unwrap_or_default());
    to.set_snapshot(&*object.short("snapshot").unwrap_or_default());
    usage::take(object, || to.init_usage());
}

fn write_patch(object: &mut Object<'_>, mut to: patch::Builder<'_>) {
    to.set_hash(&*object.text("hash", 0..=SHORT_BYTES_MAX).unwrap_or_default());
    let files = object.texts("files", INLINE_BYTES_MAX).unwrap_or_default();
    let mut list = to.init_files(files.len() as u32);
    for (at, file) in (0..).zip(&files) {
        list.set(at, file.as_str());
    }
}

fn write_retry(object: &mut Object<'_>, mut to: retry::Builder<'_>) {
    let attempt = object.get("attempt").and_then(super::number::whole);
    if let Some(attempt) = attempt.and_then(|attempt| u32::try_from(attempt).ok()) {
        object.drop("attempt");
        to.set_attempt(attempt);
    }
    to.set_error(object.object("error", INLINE_BYTES_MAX).unwrap_or_default());
    object.within("time", |time| to.set_at_ms(time.whole("created").unwrap_or(0)));
}

fn write_compaction(object: &mut Object<'_>, mut to: compaction::Builder<'_>) {
    let auto = object.is_true("auto");
    if !auto && object.get("auto") == Some("false") {
        object.drop("auto");
    }
    to.set_auto(auto);
    to.set_overflow(object.is_true("overflow"));
    to.set_tail_start_id(&*object.id("tail_start_id").unwrap_or_default());
}

/// A part, as OpenCode writes it. Its id is left out if it is not known yet.
pub fn part_to_json(
    session_id: &str,
    message_id: &str,
    from: part::Reader<'_>,
    fetch: &mut Fetch<'_>,
) -> Result<String, Untold> {
    let rest = rest_of(from, fetch)?;
    let mut rest = kept("the rest of a part", &rest)?;
    if let part::Json(json) = from.which()? {
        let json = said(json)?;
        let mut all = Object::parse(json).ok_or(Untold::NotAnObject { what: "a part" })?;
        all.add(rest);
        rest = all;
    }
    for name in ["id", "sessionID", "messageID"] {
        rest.drop(name);
    }
    let mut out = Out::new(rest);
    out.text("id", said(from.get_id())?);
    out.text("sessionID", session_id);
    out.text("messageID", message_id);
    match from.which()? {
        part::Json(_) => return Ok(out.finish()),
        part::Text(text) => {
            out.say("type", r#""text""#);
            let text = said(text)?;
            out.text_always("text", &fetched("a text", text, from.get_content()?, fetch)?);
        }
        part::Reasoning(text) => {
            out.say("type", r#""reasoning""#);
            let text = said(text)?;
            out.text_always("text", &fetched("a thought", text, from.get_content()?, fetch)?);
        }
        part::Tool(tool) => {
            out.say("type", r#""tool""#);
            tool::say(from, tool?, fetch, &mut out)?;
        }
        part::File(file) => {
            out.say("type", r#""file""#);
            let file = file?;
            out.text_always("mime", said(file.get_mime())?);
            let url = said(file.get_url())?;
            out.text_always("url", &fetched("a file", url, from.get_content()?, fetch)?);
            out.text("filename", said(file.get_filename())?);
        }
        part::StepStart(snapshot) => {
            out.say("type", r#""step-start""#);
            out.text("snapshot", said(snapshot)?);
        }
        part::StepFinish(step) => {
            out.say("type", r#""step-finish""#);
            say_step_finish(step?, &mut out)?;
        }
        part::Patch(patch) => {
            out.say("type", r#""patch""#);
            say_patch(patch?, &mut out)?;
        }
        part::Retry(retry) => {
            out.say("type", r#""retry""#);
            say_retry(retry?, &mut out)?;
        }
        part::Compaction(compaction) => {
            out.say("type", r#""compaction""#);
            let compaction = compaction?;
            out.flag_always("auto", compaction.get_auto());
            out.flag("overflow", compaction.get_overflow());
            out.text("tail_start_id", said(compaction.get_tail_start_id())?);
        }
    }
    if !matches!(from.which()?, part::Tool(_) | part::Retry(_)) {
        out.within("time", |time| {
            say_times(from, time);
            Ok(())
        })?;
    }
    out.flag("synthetic", from.get_synthetic());
    out.flag("ignored", from.get_ignored());
    Ok(out.finish())
}

/// What a part's `rest` says, wherever it stands.
pub(super) fn rest_of<'a>(
    from: part::Reader<'a>,
    fetch: &mut Fetch<'_>,
) -> Result<Cow<'a, str>, Untold> {
    let inline = said(from.get_rest())?;
    fetched("the rest of a part", inline, from.get_rest_content()?, fetch)
}

pub(super) fn say_times(from: part::Reader<'_>, time: &mut Out<'_>) {
    time.whole("start", from.get_started_at_ms());
    time.whole("end", from.get_ended_at_ms());
}

fn say_step_finish(step: step_finish::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    out.text_always("reason", said(step.get_reason())?);
    out.text("snapshot", said(step.get_snapshot())?);
    if step.has_usage() { usage::say(step.get_usage()?, out) } else { Ok(()) }
}

fn say_patch(patch: patch::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    out.text_always("hash", said(patch.get_hash())?);
    let mut files = Vec::new();
    for file in patch.get_files()? {
        files.push(said(file)?);
    }
    if !files.is_empty() || !out.keeps("files") {
        out.say("files", &serde_json::Value::from(files).to_string());
    }
    Ok(())
}

fn say_retry(retry: retry::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    out.whole_always("attempt", retry.get_attempt().into());
    out.object("error", said(retry.get_error())?);
    out.within("time", |time| {
        time.whole("created", retry.get_at_ms());
        Ok(())
    })
}
