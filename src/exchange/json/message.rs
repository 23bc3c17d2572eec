//! Messages, with their parts.

use super::object::{Object, identified};
use super::out::{Out, kept, said};
use super::{Fetch, INLINE_BYTES_MAX, Keep, Untold, part, usage};
use crate::exchange::{Reason, Thing, Untaken};
use crate::wire::message_capnp::{self, Role, failure, message_body, model};
use serde_json::value::RawValue;
use std::collections::HashSet;

/// A part that carries what is too long for a message's own `rest`, which cannot be content. It is the last
/// one, the model does not see it, and on the way out it is part of the message again.
const CARRIER_ID: &str = "bowline-rest";
const CARRIER_JSON: &str = r#"{"type":"bowline-rest"}"#;

/// So many parts of one message are looked at. It is far above what a server takes, and only there so that a
/// few bytes for each part do not fill the memory.
const PARTS_TAKEN_MAX: usize = 1 << 16;

/// Takes a message and its parts. What is too long to stand in it is handed to `keep`. Parts that cannot be
/// taken are left out, and returned. How many parts a server takes is for the caller to look after.
pub fn message_from_json(
    info: &RawValue,
    parts: &[Box<RawValue>],
    keep: &mut Keep<'_>,
    mut to: message_body::Builder<'_>,
) -> Result<Vec<Untaken>, Untaken> {
    let (mut object, id) = identified(Thing::Message, info)?;
    let role = take_role(&mut object, &id)?;
    to.set_id(&*id);
    to.set_role(role);
    object.drop("sessionID");
    take_fields(&mut object, role, to.reborrow());

    let mut taken = Vec::new();
    let mut untaken = Vec::new();
    let mut ids = HashSet::new();
    if let Some(more) = parts.len().checked_sub(PARTS_TAKEN_MAX).filter(|more| *more > 0) {
        let text = format!("{more} parts are left out: it has more than {PARTS_TAKEN_MAX}");
        untaken.push(Untaken::new(Thing::Part, &*id, Reason::TooLarge, text));
    }
    for part in parts.iter().take(PARTS_TAKEN_MAX) {
        match identified(Thing::Part, part) {
            Ok((_, id)) if !id.is_empty() && !ids.insert(id.clone()) => {
                let text = "another part of the message has the same id";
                untaken.push(Untaken::new(Thing::Part, id, Reason::IdRepeated, text));
            }
            Ok(part) => taken.push(part),
            Err(reason) => untaken.push(reason),
        }
    }
    let mut rest = object.rest().unwrap_or_default();
    let carried =
        if rest.len() > INLINE_BYTES_MAX { std::mem::take(&mut rest) } else { String::new() };
    to.set_rest(&*rest);

    let count = taken.len() + usize::from(!carried.is_empty());
    let mut list = to.init_parts(count as u32);
    for ((object, id), at) in taken.into_iter().zip(0..) {
        part::write(object, &id, keep, list.reborrow().get(at));
    }
    if !carried.is_empty() {
        let mut carrier = list.get(count as u32 - 1);
        carrier.set_id(CARRIER_ID);
        carrier.set_json(CARRIER_JSON);
        carrier.set_ignored(true);
        part::write_content(keep(carried.as_bytes()), carrier.init_rest_content());
    }
    Ok(untaken)
}

fn take_role(object: &mut Object<'_>, id: &str) -> Result<Role, Untaken> {
    let wrong = |reason, text: &str| Err(Untaken::new(Thing::Message, id, reason, text));
    let Some(raw) = object.get("role") else {
        return wrong(Reason::NoRole, "it does not say whose it is");
    };
    let role = match super::object::text(raw).as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        Some("tool") => Role::Tool,
        _ => return wrong(Reason::UnknownRole, "its role is not a known one"),
    };
    object.drop("role");
    Ok(role)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "tool",
    }
}

fn take_fields(object: &mut Object<'_>, role: Role, mut to: message_body::Builder<'_>) {
    to.set_metadata(object.object("metadata", INLINE_BYTES_MAX).unwrap_or_default());
    to.set_agent(&*object.short("agent").unwrap_or_default());
    to.set_parent_id(&*object.id("parentID").unwrap_or_default());
    to.set_finish(&*object.short("finish").unwrap_or_default());
    to.set_summary(object.is_true("summary"));
    // An assistant says its model in fields of its own, everybody else in an object.
    let mut model = None;
    if role == Role::Assistant {
        model = Model::take(object, "modelID");
    } else {
        object.within("model", |inner| model = Model::take(inner, "modelID"));
    }
    if let Some(model) = model {
        model.write(to.reborrow().init_model());
    }
    object.within("time", |time| {
        to.set_created_at_ms(time.whole("created").unwrap_or(0));
        to.set_completed_at_ms(time.whole("completed").unwrap_or(0));
    });
    object.within("error", |error| take_error(error, to.reborrow().init_error()));
    usage::take(object, || to.init_usage());
}

/// A model that was taken; what was not said is empty.
#[derive(Debug)]
pub(super) struct Model {
    provider_id: String,
    model_id: String,
    variant: String,
}

impl Model {
    /// Takes a model, whose own id has another name in a session; nothing if nothing is said.
    pub(super) fn take(object: &mut Object<'_>, id_name: &str) -> Option<Self> {
        let [provider_id, model_id, variant] =
            ["providerID", id_name, "variant"].map(|name| object.short(name).unwrap_or_default());
        let is_said = !(provider_id.is_empty() && model_id.is_empty() && variant.is_empty());
        is_said.then_some(Self { provider_id, model_id, variant })
    }

    pub(super) fn write(&self, mut to: model::Builder<'_>) {
        to.set_provider_id(&*self.provider_id);
        to.set_model_id(&*self.model_id);
        to.set_variant(&*self.variant);
    }
}

fn take_error(error: &mut Object<'_>, mut to: failure::Builder<'_>) {
    to.set_name(&*error.short("name").unwrap_or_default());
    to.set_data(error.object("data", INLINE_BYTES_MAX).unwrap_or_default());
}

/// Which message it is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its session.
    pub session_id: &'a str,
    /// The message itself: the body may have been sent without an id.
    pub message_id: &'a str,
    /// When it came, for a body that does not say when it was made; 0 to say nothing then.
    pub created_at_ms: u64,
}

/// A message with these parts, as OpenCode exports it: `{"info": …, "parts": […]}`. The parts of the body
/// itself are not looked at, because they may not be all.
pub fn message_to_json<'a>(
    place: Place<'_>,
    body: message_body::Reader<'_>,
    parts: impl IntoIterator<Item = message_capnp::part::Reader<'a>>,
    fetch: &mut Fetch<'_>,
) -> Result<String, Untold> {
    let mut told = String::new();
    let mut carried = None;
    for part in parts {
        if is_carrier(part)? {
            carried = Some(part::rest_of(part, fetch)?.into_owned());
            continue;
        }
        told.push(if told.is_empty() { '[' } else { ',' });
        told += &part::part_to_json(place.session_id, place.message_id, part, fetch)?;
    }
    let told = if told.is_empty() { "[]".into() } else { told + "]" };
    let info = info_to_json(place, body, carried.as_deref().unwrap_or_default())?;
    Ok(format!(r#"{{"info":{info},"parts":{told}}}"#))
}

fn is_carrier(part: message_capnp::part::Reader<'_>) -> Result<bool, Untold> {
    Ok(match part.which()? {
        message_capnp::part::Json(json) => part.get_id()? == CARRIER_ID && json? == CARRIER_JSON,
        _ => false,
    })
}

fn info_to_json(
    place: Place<'_>,
    body: message_body::Reader<'_>,
    carried: &str,
) -> Result<String, Untold> {
    let mut rest = kept("the rest of a message", said(body.get_rest())?)?;
    rest.add(kept("the rest of a message", carried)?);
    for name in ["id", "sessionID"] {
        rest.drop(name);
    }
    let mut out = Out::new(rest);
    out.text("id", place.message_id);
    out.text("sessionID", place.session_id);
    let role = body.get_role()?;
    out.text("role", role_name(role));
    out.within("time", |time| {
        let created = match body.get_created_at_ms() {
            0 if !time.keeps("created") => place.created_at_ms,
            created => created,
        };
        time.whole("created", created);
        time.whole("completed", body.get_completed_at_ms());
        Ok(())
    })?;
    out.object("metadata", said(body.get_metadata())?);
    out.text("agent", said(body.get_agent())?);
    out.text("parentID", said(body.get_parent_id())?);
    out.text("finish", said(body.get_finish())?);
    out.flag("summary", body.get_summary());
    if role == Role::Assistant {
        say_model(body.get_model()?, "modelID", &mut out)?;
    } else {
        out.within("model", |out| say_model(body.get_model()?, "modelID", out))?;
    }
    let error = body.get_error()?;
    out.within("error", |out| {
        out.text("name", said(error.get_name())?);
        out.object("data", said(error.get_data())?);
        Ok(())
    })?;
    if body.has_usage() {
        usage::say(body.get_usage()?, &mut out)?;
    }
    Ok(out.finish())
}

pub(super) fn say_model(
    model: model::Reader<'_>,
    id_name: &str,
    out: &mut Out<'_>,
) -> Result<(), Untold> {
    out.text(id_name, said(model.get_model_id())?);
    out.text("providerID", said(model.get_provider_id())?);
    out.text("variant", said(model.get_variant())?);
    Ok(())
}
