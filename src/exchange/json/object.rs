//! A JSON object that is taken apart member by member, and remembers what nobody took.

use super::number::{amount, signed, whole};
use crate::exchange::{Reason, Thing, Untaken};
use crate::model::ids::MessageId;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;

/// The members of an object, each with its value as it was written. Of a key that stands there twice the
/// last one counts, as in JavaScript.
#[derive(Debug, Default)]
pub(super) struct Object<'a> {
    members: Vec<Member<'a>>,
}

#[derive(Debug)]
struct Member<'a> {
    /// As it was written, with its quotes: a key may hold half a character that no text can.
    key: &'a str,
    /// What it reads as; the key itself if it cannot be read.
    name: Cow<'a, str>,
    left: Left<'a>,
}

/// What is left of a member.
#[derive(Debug)]
enum Left<'a> {
    All(&'a str),
    /// An object some of whose members were taken.
    Some(String),
    Nothing,
}

impl<'a> Object<'a> {
    /// Takes a text for an object.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a member, as far as nobody took it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|member| member.name == name).and_then(Member::left)
    }

    /// The whole value of a member nobody took anything of.
    fn whole_value(&self, name: &str) -> Option<&'a str> {
        let member = self.members.iter().find(|member| member.name == name)?;
        match member.left {
            Left::All(value) => Some(value),
            Left::Some(_) | Left::Nothing => None,
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Takes a member away, whatever it is.
    pub(super) fn drop(&mut self, name: &str) {
        self.leave(name, Left::Nothing);
    }

    /// Leaves this of a member, in place of what it was. It must be JSON.
    pub(super) fn replace(&mut self, name: &str, value: String) {
        self.leave(name, Left::Some(value));
    }

    fn leave(&mut self, name: &str, left: Left<'a>) {
        if let Some(member) = self.members.iter_mut().find(|member| member.name == name) {
            member.left = left;
        }
    }

    /// Takes what `read` makes of a member; if it makes nothing of it, the member stays.
    fn take<T>(&mut self, name: &str, read: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        let taken = read(self.whole_value(name)?)?;
        self.drop(name);
        Some(taken)
    }

    /// Takes a text of this many bytes.
    pub(super) fn text(&mut self, name: &str, bytes: RangeInclusive<usize>) -> Option<String> {
        self.take(name, |raw| text(raw).filter(|text| bytes.contains(&text.len())))
    }

    /// Takes a text that is short, and says something.
    pub(super) fn short(&mut self, name: &str) -> Option<String> {
        self.text(name, 1..=super::SHORT_BYTES_MAX)
    }

    /// Takes a text that may name something; see `model::ids`.
    pub(super) fn id(&mut self, name: &str) -> Option<String> {
        self.take(name, |raw| text(raw).filter(|text| is_id(text)))
    }

    /// Takes a whole number above 0.
    pub(super) fn whole(&mut self, name: &str) -> Option<u64> {
        self.take(name, |raw| whole(raw).filter(|number| *number > 0))
    }

    /// Takes a whole number, 0 as well.
    pub(super) fn whole_or_none(&mut self, name: &str) -> Option<u64> {
        self.take(name, whole)
    }

    /// Takes a whole number, also one below 0.
    pub(super) fn signed(&mut self, name: &str) -> Option<i64> {
        self.take(name, signed)
    }

    /// Takes an amount, 0 as well.
    pub(super) fn amount(&mut self, name: &str) -> Option<f64> {
        self.take(name, amount)
    }

    /// Takes a `true`.
    pub(super) fn is_true(&mut self, name: &str) -> bool {
        self.take(name, |raw| (raw == "true").then_some(())).is_some()
    }

    /// Takes an object as it was written, if it is not longer than this.
    pub(super) fn object(&mut self, name: &str, bytes_max: usize) -> Option<&'a str> {
        self.take(name, |raw| (is_object(raw) && raw.len() <= bytes_max).then_some(raw))
    }

    /// Takes an array of texts, not longer than this altogether.
    pub(super) fn texts(&mut self, name: &str, bytes_max: usize) -> Option<Vec<String>> {
        self.take(name, |raw| {
            let texts = (raw.len() <= bytes_max).then(|| serde_json::from_str::<Vec<String>>(raw));
            texts?.ok()
        })
    }

    /// Lets `read` take what it can of an object inside this one. What it leaves stays under the same name.
    pub(super) fn within(&mut self, name: &str, read: impl FnOnce(&mut Object<'a>)) {
        self.within_marked(name, |inner| {
            read(inner);
            false
        });
    }

    /// As `within`. If `read` says so, something stays under the name even if nothing is left: it tells
    /// the way out that zeros in there were not said.
    pub(super) fn within_marked(&mut self, name: &str, read: impl FnOnce(&mut Object<'a>) -> bool) {
        let Some(mut inner) = self.whole_value(name).and_then(Object::parse) else { return };
        let before = inner.count();
        let mark = read(&mut inner);
        match inner.rest() {
            _ if inner.count() == before && !inner.is_touched() => {}
            None if mark => self.replace(name, "{}".into()),
            None => self.drop(name),
            Some(rest) => self.replace(name, rest),
        }
    }

    fn count(&self) -> usize {
        self.members.iter().filter(|member| member.left().is_some()).count()
    }

    fn is_touched(&self) -> bool {
        self.members.iter().any(|member| matches!(member.left, Left::Some(_)))
    }

    /// What nobody took, as an object; nothing if there is none.
    pub(super) fn rest(&self) -> Option<String> {
        let mut text = String::new();
        for (key, value) in self.left() {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(key);
            text.push(':');
            text.push_str(value);
        }
        (!text.is_empty()).then(|| text + "}")
    }

    /// The members nobody took: the key with its quotes, and the value.
    pub(super) fn left(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().filter_map(|member| Some((member.key, member.left()?)))
    }

    /// Takes away the longest members until the rest is not longer than this. Says which: the name and the
    /// length.
    pub(super) fn shorten(&mut self, bytes_max: usize) -> Vec<(String, usize)> {
        let mut left: usize = self.left().map(|(key, value)| key.len() + value.len() + 2).sum();
        let mut longest: Vec<_> = self.members.iter_mut().map(|it| (it.left_bytes(), it)).collect();
        longest.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut gone = Vec::new();
        for (bytes, member) in longest {
            if left <= bytes_max || bytes == 0 {
                break;
            }
            left -= member.key.len() + bytes + 2;
            member.left = Left::Nothing;
            gone.push((member.name.to_string(), bytes));
        }
        gone
    }

    /// Adds the members of another one; one that is here already stays as it is.
    pub(super) fn add(&mut self, other: Object<'a>) {
        let here: HashSet<_> = self.members.iter().map(|member| member.name.clone()).collect();
        self.members.extend(other.members.into_iter().filter(|new| !here.contains(&new.name)));
    }
}

impl Member<'_> {
    fn left_bytes(&self) -> usize {
        self.left().map_or(0, str::len)
    }

    fn left(&self) -> Option<&str> {
        match &self.left {
            Left::All(value) => Some(value),
            Left::Some(value) => Some(value),
            Left::Nothing => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<Member<'de>> = Vec::new();
                let mut places = HashMap::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    let (key, left) = (key.get(), Left::All(value.get()));
                    let read = if key.contains('\\') {
                        text(key).map(Cow::Owned)
                    } else {
                        Some(Cow::Borrowed(&key[1..key.len() - 1]))
                    };
                    let readable = read.is_some();
                    let name = read.unwrap_or(Cow::Borrowed(key));
                    let place = *places.entry((readable, name.clone())).or_insert(members.len());
                    match members.get_mut(place) {
                        Some(earlier) => earlier.left = left,
                        None => members.push(Member { key, name, left }),
                    }
                }
                Ok(Object { members })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The text a JSON text stands for. There is none for one that ends in half a character, which JavaScript
/// may write where it cut a longer text.
pub(super) fn text(raw: &str) -> Option<String> {
    raw.starts_with('"').then(|| serde_json::from_str(raw).ok()).flatten()
}

/// A text, as JSON writes it.
pub(in crate::exchange) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether a value is an object. Raw values have no space before them.
pub(super) fn is_object(raw: &str) -> bool {
    raw.starts_with('{')
}

/// The rule is the same for everything that has a name.
pub(super) fn is_id(text: &str) -> bool {
    MessageId::parse(text).is_ok()
}

/// The object a thing must be, and its id, which is taken out of it; empty if it has none.
pub(super) fn identified(thing: Thing, raw: &RawValue) -> Result<(Object<'_>, String), Untaken> {
    let Some(mut object) = Object::parse(raw.get()) else {
        return Err(Untaken::new(thing, "", Reason::Shape, "it is not a JSON object"));
    };
    let id = match object.get("id") {
        None => String::new(),
        Some(id) => {
            let shown: String = id.chars().take(100).collect();
            object.id("id").ok_or_else(|| {
                Untaken::new(thing, shown, Reason::IdMalformed, "no id may look like that")
            })?
        }
    };
    Ok((object, id))
}

/// An object with these ids before everything else, in place of those it has. Where OpenCode stores
/// something, it leaves the ids out.
pub fn with_ids(thing: Thing, ids: &[(&str, &str)], data: &str) -> Result<Box<RawValue>, Untaken> {
    let id = ids.first().map_or("", |(_, id)| id);
    let wrong = |reason, text: String| Untaken::new(thing, id, reason, text);
    let data: &RawValue =
        serde_json::from_str(data).map_err(|error| wrong(Reason::NotJson, error.to_string()))?;
    let Some(mut object) = Object::parse(data.get()) else {
        return Err(wrong(Reason::Shape, "it is not a JSON object".into()));
    };
    let mut text = String::new();
    for (name, id) in ids {
        object.drop(name);
        text.push(if text.is_empty() { '{' } else { ',' });
        text += &quoted(name);
        text.push(':');
        text += &quoted(id);
    }
    for (key, value) in object.left() {
        text.push(if text.is_empty() { '{' } else { ',' });
        text += key;
        text.push(':');
        text += value;
    }
    let text = if text.is_empty() { "{}".into() } else { text + "}" };
    RawValue::from_string(text).map_err(|error| wrong(Reason::NotJson, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_stays_as_it_was_written() {
        let text =
            r#"{"a" : "x", "n": 1e3, "o": { "i" : 5, "j": [ 1 ] }, "b": true, "half":"\ud83d"}"#;
        let mut object = Object::parse(text).unwrap();
        assert_eq!(object.short("a").as_deref(), Some("x"));
        assert_eq!(object.whole("n"), None, "written in an odd way");
        assert_eq!(object.short("half"), None, "no text holds it");
        object.within("o", |inner| assert_eq!(inner.whole("i"), Some(5)));
        assert!(object.is_true("b"));
        assert_eq!(object.rest().unwrap(), r#"{"n":1e3,"o":{"j":[ 1 ]},"half":"\ud83d"}"#);
    }

    #[test]
    fn an_object_inside_is_left_alone_or_leaves_a_mark() {
        let cases = [
            (r#"{"o":{ }}"#, false, Some(r#"{"o":{ }}"#)), // nothing was taken of it
            (r#"{"o":{"i":5}}"#, false, None),
            (r#"{"o":{"i":5}}"#, true, Some(r#"{"o":{}}"#)),
            (r#"{"o":{"i":0}}"#, false, Some(r#"{"o":{"i":0}}"#)),
            (r#"{"o":5}"#, true, Some(r#"{"o":5}"#)),
            (r#"{}"#, true, None),
        ];
        for (text, mark, expected) in cases {
            let mut object = Object::parse(text).unwrap();
            object.within_marked("o", |inner| {
                inner.whole("i");
                mark
            });
            assert_eq!(object.rest().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn of_a_key_that_stands_there_twice_the_last_one_counts() {
        let mut object =
            Object::parse(r#"{"a":1,"b":2,"\u0061":3,"\ud800":4,"\ud800":5}"#).unwrap();
        assert_eq!(object.whole("a"), Some(3));
        assert_eq!(object.rest().unwrap(), r#"{"b":2,"\ud800":5}"#);
        assert!(Object::parse("[]").is_none() && Object::parse("{").is_none());
    }

    #[test]
    fn ids_are_added_and_replaced() {
        let ids = [("id", "prt_1"), ("messageID", "msg_1")];
        let made = with_ids(Thing::Part, &ids, r#" {"type":"x","id":"other"} "#).unwrap();
        assert_eq!(made.get(), r#"{"id":"prt_1","messageID":"msg_1","type":"x"}"#);
        for (data, reason) in [("{", Reason::NotJson), ("[]", Reason::Shape), ("", Reason::NotJson)]
        {
            let untaken = with_ids(Thing::Part, &ids, data).unwrap_err();
            assert_eq!((untaken.id.as_str(), untaken.reason), ("prt_1", reason), "{data}");
        }
    }
}
