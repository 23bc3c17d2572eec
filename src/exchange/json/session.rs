//! What there is to know about a session.
//!
//! Some of it only the server says once the session is there: its project, its slug, when something last
//! happened, what all its steps cost. What a document says about that is kept in `rest`, and told again.

use super::message::{Model, say_model};
use super::number::whole;
use super::object::{Object, identified, is_id};
use super::out::{Out, kept, said};
use super::todo::{Rule, rules_to_json};
use super::{INLINE_BYTES_MAX, SHORT_BYTES_MAX, Untold};
use crate::exchange::{Reason, Thing, Untaken};
use crate::limits::{DIRECTORY_BYTES_MAX, TITLE_BYTES_MAX};
use crate::wire::message_capnp::{session_change, usage};
use crate::wire::session_capnp::{session_draft, session_info};
use serde_json::value::RawValue;

/// The longest `rest` of a session. It is part of the op that makes it, and cannot be content.
const REST_BYTES_MAX: usize = 512 << 10;

/// What a summary says.
const SUMMARY: [&str; 3] = ["additions", "deletions", "files"];

/// Marks what belongs to a revert that the server knows about.
const REVERTED_MARK: &str = "bowline-reverted";

/// A session that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Where its conversation was cut back to: to be said with `setHead` once the messages are there.
    pub reverted: Option<Reverted>,
    /// Fields that could not be taken.
    pub untaken: Vec<Untaken>,
}

/// From where on a conversation is reverted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// The message it begins with.
    pub message_id: String,
    /// The part it begins with; nothing for the whole message.
    pub part_id: Option<String>,
}

/// Something to change about a new session, read and checked.
enum Change<'a> {
    Metadata(&'a str),
    Rules(Vec<Rule>),
    ArchivedAtMs(i64),
    Agent(String),
    Directory(String),
    Path(String),
    Version(String),
    Summary([u64; 3]),
    Model(Model),
    Rest(String),
}

/// Takes a session. Its parent becomes its parent only if the server knows that one (`parent_known`);
/// otherwise it is kept in `rest`, as a text.
pub fn session_from_json(
    raw: &RawValue,
    parent_known: bool,
    mut to: session_draft::Builder<'_>,
) -> Result<Taken, Untaken> {
    let (mut object, id) = identified(Thing::Session, raw)?;
    let mut taken = Taken::default();
    to.set_id(&*id);
    to.set_title(&*take_title(&mut object));
    if parent_known {
        to.set_parent_id(&*object.id("parentID").unwrap_or_default());
    }
    let mut archived = None;
    object.within("time", |time| {
        to.set_created_at_ms(time.whole("created").unwrap_or(0));
        archived = time.signed("archived");
    });
    taken.reverted = take_revert(&mut object);

    let mut changes = take_changes(&mut object);
    changes.extend(archived.map(Change::ArchivedAtMs));
    taken.untaken = leave_out_the_longest(&mut object, &id);
    changes.extend(object.rest().map(Change::Rest));
    let mut list = to.init_changes(changes.len() as u32);
    for (at, change) in (0..).zip(&changes) {
        change.write(list.reborrow().get(at));
    }
    Ok(taken)
}

/// Takes a title. One that is too long is cut, and stays in `rest` whole.
fn take_title(object: &mut Object<'_>) -> String {
    if let Some(title) = object.text("title", 1..=TITLE_BYTES_MAX) {
        return title;
    }
    let mut title = object.get("title").and_then(super::object::text).unwrap_or_default();
    let cut = (0..=TITLE_BYTES_MAX).rev().find(|at| title.is_char_boundary(*at));
    title.truncate(cut.unwrap_or(0));
    title
}

/// Takes from where on the conversation is reverted. What else is said about that is kept with a mark: it
/// means something only as long as the conversation stays reverted.
fn take_revert(object: &mut Object<'_>) -> Option<Reverted> {
    let mut taken = None;
    object.within("revert", |revert| {
        let is_part = |raw| super::object::text(raw).is_some_and(|part| is_id(&part));
        if revert.get("partID").is_none_or(is_part) {
            let message_id = revert.id("messageID");
            taken = message_id.map(|id| Reverted { message_id: id, part_id: revert.id("partID") });
        }
    });
    if let (Some(_), Some(left)) = (&taken, object.get("revert")) {
        let marked = format!(r#"{{"{REVERTED_MARK}":true,{}"#, &left[1..]);
        object.replace("revert", marked);
    }
    taken
}

fn take_changes<'a>(object: &mut Object<'a>) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    changes.extend(object.object("metadata", INLINE_BYTES_MAX).map(Change::Metadata));
    changes.extend(take_rules(object).map(Change::Rules));
    changes.extend(object.short("agent").map(Change::Agent));
    changes.extend(object.text("directory", 1..=DIRECTORY_BYTES_MAX).map(Change::Directory));
    changes.extend(take_path(object).map(Change::Path));
    changes.extend(object.short("version").map(Change::Version));
    changes.extend(take_summary(object).map(Change::Summary));
    object.within("model", |model| changes.extend(Model::take(model, "id").map(Change::Model)));
    changes
}

fn take_rules(object: &mut Object<'_>) -> Option<Vec<Rule>> {
    let raw = object.get("permission").filter(|raw| raw.len() <= INLINE_BYTES_MAX)?;
    let rules = Rule::read_all(raw).filter(|rules| !rules.is_empty())?;
    object.drop("permission");
    Some(rules)
}

/// A path has no slash at either end; an empty one is the root, which the wire cannot tell from none.
fn take_path(object: &mut Object<'_>) -> Option<String> {
    let path = super::object::text(object.get("path")?)?;
    let fits = !path.starts_with('/') && !path.ends_with('/');
    fits.then(|| object.text("path", 1..=SHORT_BYTES_MAX))?
}

/// Takes how many lines and files were changed. As with tokens, zeros come back by themselves if everything
/// is said; otherwise what stays in `rest` tells which zeros were said.
fn take_summary(object: &mut Object<'_>) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    object.within_marked("summary", |summary| {
        let said = SUMMARY.map(|name| summary.get(name).and_then(whole));
        let is_complete = said.iter().all(Option::is_some)
            && said.iter().any(|number| number.is_some_and(|number| number > 0))
            && summary.left().count() == SUMMARY.len();
        numbers = SUMMARY.map(|name| {
            let number =
                if is_complete { summary.whole_or_none(name) } else { summary.whole(name) };
            number.unwrap_or(0)
        });
        !is_complete
    });
    (numbers != [0; 3]).then_some(numbers)
}

fn leave_out_the_longest(object: &mut Object<'_>, id: &str) -> Vec<Untaken> {
    let gone = object.shorten(REST_BYTES_MAX).into_iter();
    gone.map(|(name, bytes)| {
        let text = format!("{bytes} bytes are more than can be kept of a session");
        Untaken::new(Thing::Field, format!("{id} {name}"), Reason::TooLarge, text)
    })
    .collect()
}

impl Change<'_> {
    fn write(&self, mut to: session_change::Builder<'_>) {
        match self {
            Self::Metadata(json) => to.set_metadata(*json),
            Self::Rules(rules) => {
                let mut list = to.init_set_rules(rules.len() as u32);
                for (at, rule) in (0..).zip(rules) {
                    rule.write(list.reborrow().get(at));
                }
            }
            Self::ArchivedAtMs(at) => to.set_archived_at_ms(*at),
            Self::Agent(agent) => to.set_agent(&**agent),
            Self::Directory(directory) => to.set_directory(&**directory),
            Self::Path(path) => to.set_path(&**path),
            Self::Version(version) => to.set_version(&**version),
            Self::Summary([additions, deletions, files]) => {
                let mut summary = to.init_summary();
                summary.set_additions(*additions);
                summary.set_deletions(*deletions);
                summary.set_files(*files);
            }
            Self::Model(model) => model.write(to.init_model()),
            Self::Rest(rest) => to.set_rest(&**rest),
        }
    }
}

/// A session, as OpenCode writes it.
pub fn session_to_json(info: session_info::Reader<'_>) -> Result<String, Untold> {
    let mut rest = kept("the rest of a session", said(info.get_rest())?)?;
    rest.drop("id");
    let mut out = Out::new(rest);
    out.text("id", said(info.get_id())?);
    // What only the server can know is as it was told, if it was.
    if !out.keeps("slug") {
        out.text("slug", said(info.get_slug())?);
    }
    if !out.keeps("projectID") {
        out.text("projectID", said(info.get_project_id())?);
    }
    out.text("parentID", said(info.get_parent_id())?);
    out.text("directory", said(info.get_directory())?);
    out.text("path", said(info.get_path())?);
    say_title(said(info.get_title())?, &mut out);
    out.text("agent", said(info.get_agent())?);
    out.within("model", |out| say_model(info.get_model()?, "id", out))?;
    out.text("version", said(info.get_version())?);
    out.object("metadata", said(info.get_metadata())?);
    let rules = info.get_rules()?;
    if !rules.is_empty() {
        out.say("permission", &rules_to_json(rules)?);
    }
    say_summary(info, &mut out)?;
    let went_on = say_usage(info.get_usage()?, &mut out)?;
    say_revert(info, &mut out)?;
    out.within("time", |time| {
        if !time.keeps("created") {
            time.whole("created", info.get_created_at_ms());
        }
        if went_on || !time.keeps("updated") {
            time.whole("updated", info.get_updated_at_ms());
        }
        if info.get_archived() {
            time.say("archived", &info.get_archived_at_ms().to_string());
        }
        Ok(())
    })?;
    Ok(out.finish())
}

/// A title that was cut is told whole, unless there is another one now.
fn say_title(title: &str, out: &mut Out<'_>) {
    let whole = out.kept("title").and_then(super::object::text).unwrap_or_default();
    if whole.len() <= TITLE_BYTES_MAX || !whole.starts_with(title) {
        out.text("title", title);
    }
}

fn say_summary(info: session_info::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    let summary = info.get_summary()?;
    let numbers = [summary.get_additions(), summary.get_deletions(), summary.get_files()];
    out.within("summary", |out| {
        let zeros = numbers != [0; 3] && !out.is_kept();
        for (name, number) in SUMMARY.into_iter().zip(numbers) {
            if zeros { out.whole_always(name, number) } else { out.whole(name, number) }
        }
        Ok(())
    })
}

/// Says what all steps cost, and returns whether more was done than `rest` knows of. Both accounts are sums
/// over the same steps, so the larger one knows more of them. If they are equal, what was told is told again
/// as it was.
fn say_usage(usage: usage::Reader<'_>, out: &mut Out<'_>) -> Result<bool, Untold> {
    let counted = sum([
        usage.get_input(),
        usage.get_output(),
        usage.get_reasoning(),
        usage.get_cache_read(),
        usage.get_cache_write(),
    ]);
    let told = out.kept("tokens").map(told_tokens);
    let went_on = told.is_some_and(|told| counted > told);
    if went_on {
        out.forget("tokens");
        out.forget("cost");
    }
    let is_new = !out.keeps("tokens") && !out.keeps("cost");
    if is_new && (counted > 0 || usage.get_cost() > 0.0) {
        super::usage::say(usage, out)?;
    }
    Ok(went_on)
}

fn told_tokens(raw: &str) -> u64 {
    let tokens = Object::parse(raw).unwrap_or_default();
    let cache = tokens.get("cache").and_then(Object::parse).unwrap_or_default();
    let number = |object: &Object<'_>, name| object.get(name).and_then(whole).unwrap_or(0);
    sum([
        number(&tokens, "input"),
        number(&tokens, "output"),
        number(&tokens, "reasoning"),
        number(&cache, "read"),
        number(&cache, "write"),
    ])
}

fn sum(tokens: [u64; 5]) -> u64 {
    tokens.into_iter().fold(0, u64::saturating_add)
}

fn say_revert(info: session_info::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    let revert = info.get_revert()?;
    let message_id = said(revert.get_message_id())?;
    let is_marked =
        out.kept("revert").and_then(Object::parse).is_some_and(|revert| revert.has(REVERTED_MARK));
    if message_id.is_empty() {
        if is_marked {
            out.forget("revert");
        }
        return Ok(());
    }
    out.within("revert", |out| {
        out.forget(REVERTED_MARK);
        out.text("messageID", message_id);
        out.text("partID", said(revert.get_part_id())?);
        Ok(())
    })
}
