//! A JSON object that is put together from places of their own and from what `rest` kept.

use super::number::script_number;
use super::object::{Object, quoted};
use super::{Fetch, Untold};
use crate::wire::message_capnp::content;
use std::borrow::Cow;

/// An object on its way out. Whatever is said to it counts; what is empty or 0 leaves the word to `rest`.
#[derive(Debug)]
pub(super) struct Out<'a> {
    text: String,
    rest: Object<'a>,
    /// Whether `rest` has something to say about this object at all.
    kept: bool,
}

impl<'a> Out<'a> {
    pub(super) fn new(rest: Object<'a>) -> Self {
        Self { text: String::new(), rest, kept: false }
    }

    /// Whether `rest` has such a member.
    pub(super) fn keeps(&self, name: &str) -> bool {
        self.rest.has(name)
    }

    /// Whether `rest` had this object: then it also says which zeros were said.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    /// What `rest` has to say about it.
    pub(super) fn kept(&self, name: &str) -> Option<&str> {
        self.rest.get(name)
    }

    /// Forgets what `rest` has to say about it.
    pub(super) fn forget(&mut self, name: &str) {
        self.rest.drop(name);
    }

    /// Says it, in place of what `rest` may say. The value must be JSON.
    pub(super) fn say(&mut self, name: &str, value: &str) {
        self.rest.drop(name);
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.text += &quoted(name);
        self.text.push(':');
        self.text += value;
    }

    fn say_if(&mut self, name: &str, says: bool, value: impl FnOnce() -> String) {
        if says {
            self.say(name, &value());
        }
    }

    /// A text, unless it is empty.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.say_if(name, !text.is_empty(), || quoted(text));
    }

    /// A text nothing of this kind is without.
    pub(super) fn text_always(&mut self, name: &str, text: &str) {
        self.say_if(name, !text.is_empty() || !self.keeps(name), || quoted(text));
    }

    /// A number, unless it is 0.
    pub(super) fn whole(&mut self, name: &str, number: u64) {
        self.say_if(name, number != 0, || number.to_string());
    }

    /// A number nothing of this kind is without.
    pub(super) fn whole_always(&mut self, name: &str, number: u64) {
        self.say_if(name, number != 0 || !self.keeps(name), || number.to_string());
    }

    /// An amount nothing of this kind is without.
    pub(super) fn amount_always(&mut self, name: &str, number: f64) {
        self.say_if(name, number != 0.0 || !self.keeps(name), || script_number(number));
    }

    /// A `true`.
    pub(super) fn flag(&mut self, name: &str, flag: bool) {
        self.say_if(name, flag, || "true".into());
    }

    /// A yes or no nothing of this kind is without.
    pub(super) fn flag_always(&mut self, name: &str, flag: bool) {
        self.say_if(name, flag || !self.keeps(name), || flag.to_string());
    }

    /// An object as it was written, unless there is none.
    pub(super) fn object(&mut self, name: &str, written: &str) {
        self.say_if(name, !written.is_empty(), || written.to_owned());
    }

    /// An object nothing of this kind is without.
    pub(super) fn object_always(&mut self, name: &str, written: &str) {
        if written.is_empty() && !self.keeps(name) {
            self.say(name, "{}");
        } else {
            self.object(name, written);
        }
    }

    /// An object inside this one. If nothing is said there, what `rest` has under the name stands as it is.
    pub(super) fn within(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Out<'_>) -> Result<(), Untold>,
    ) -> Result<(), Untold> {
        let kept = self.rest.get(name);
        let rest = kept.and_then(Object::parse);
        let mut inner =
            Out { text: String::new(), kept: kept.is_some(), rest: rest.unwrap_or_default() };
        write(&mut inner)?;
        if !inner.text.is_empty() {
            let text = inner.finish();
            self.say(name, &text);
        }
        Ok(())
    }

    /// All of it.
    pub(super) fn finish(mut self) -> String {
        for (key, value) in self.rest.left() {
            self.text.push(if self.text.is_empty() { '{' } else { ',' });
            self.text.push_str(key);
            self.text.push(':');
            self.text.push_str(value);
        }
        if self.text.is_empty() { "{}".into() } else { self.text + "}" }
    }
}

/// A text that was received.
pub(super) fn said(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<&str, Untold> {
    Ok(text?.to_str().map_err(capnp::Error::from)?)
}

/// What a `rest` kept; nothing if it is empty.
pub(super) fn kept<'a>(what: &'static str, rest: &'a str) -> Result<Object<'a>, Untold> {
    if rest.is_empty() {
        return Ok(Object::default());
    }
    Object::parse(rest).ok_or(Untold::NotAnObject { what })
}

/// The text of a field: what stands there, or the content in its place.
pub(super) fn fetched<'a>(
    what: &'static str,
    inline: &'a str,
    content: content::Reader<'_>,
    fetch: &mut Fetch<'_>,
) -> Result<Cow<'a, str>, Untold> {
    let hash = content.get_hash()?;
    if !inline.is_empty() || hash.is_empty() {
        return Ok(inline.into());
    }
    let bytes = fetch(hash, content.get_bytes()).map_err(|error| Untold::Fetch { what, error })?;
    String::from_utf8(bytes).map(Into::into).map_err(|_| Untold::NotText { what })
}
