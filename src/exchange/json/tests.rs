//! What goes where, and that everything comes back.

use super::object::{Object, quoted, text};
use super::*;
use crate::limits::{OP_PAYLOAD_BYTES_MAX, TITLE_BYTES_MAX};
use crate::wire::message_capnp::{message_body, part, session_change, todo};
use crate::wire::session_capnp::{session_draft, session_info};
use capnp::message::Builder;
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};

mod arbitrary;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A JSON text in the one way that equal values have in common. Numbers stay as they are written.
fn canonical(raw: &str) -> String {
    if let Some(object) = Object::parse(raw) {
        let members: BTreeMap<_, _> =
            object.left().map(|(key, value)| (canonical(key), canonical(value))).collect();
        let members: Vec<_> = members.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        return format!("{{{}}}", members.join(","));
    }
    if raw.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(raw).unwrap();
        let items: Vec<_> = items.into_iter().map(|item| canonical(item.get())).collect();
        return format!("[{}]", items.join(","));
    }
    text(raw).map_or_else(|| raw.to_owned(), |text| quoted(&text))
}

/// Where content is kept meanwhile.
#[derive(Default)]
struct Shelf(HashMap<[u8; 32], Vec<u8>>);

impl Shelf {
    fn keep(&mut self, bytes: &[u8]) -> Kept {
        assert!(bytes.len() > INLINE_BYTES_MAX, "only what is long is put away");
        let kept = Kept::of(bytes);
        self.0.insert(kept.hash, bytes.to_vec());
        kept
    }

    fn fetch(&self, hash: &[u8], bytes: u64) -> io::Result<Vec<u8>> {
        let found = self.0.get(hash).ok_or(io::ErrorKind::NotFound)?;
        assert_eq!(found.len() as u64, bytes);
        Ok(found.clone())
    }
}

fn part_there_and_back(json: &str) -> String {
    let mut shelf = Shelf::default();
    let mut message = Builder::new_default();
    let to = message.init_root::<part::Builder<'_>>();
    part_from_json(&raw(json), &mut |bytes| shelf.keep(bytes), to).unwrap();
    let from = message.get_root_as_reader::<part::Reader<'_>>().unwrap();
    let bytes = from.total_size().unwrap().word_count * 8;
    assert!(bytes < OP_PAYLOAD_BYTES_MAX as u64, "one part fits into one op: {bytes}");
    part_to_json("ses_1", "msg_1", from, &mut |hash, bytes| shelf.fetch(hash, bytes)).unwrap()
}

fn message_there_and_back(info: &str, parts: &[Box<RawValue>]) -> String {
    let mut shelf = Shelf::default();
    let mut message = Builder::new_default();
    let to = message.init_root::<message_body::Builder<'_>>();
    let untaken = message_from_json(&raw(info), parts, &mut |bytes| shelf.keep(bytes), to).unwrap();
    assert_eq!(untaken, []);
    let from = message.get_root_as_reader::<message_body::Reader<'_>>().unwrap();
    let place = Place {
        session_id: "ses_1",
        message_id: from.get_id().unwrap().to_str().unwrap(),
        created_at_ms: 0,
    };
    let parts = from.get_parts().unwrap();
    message_to_json(place, from, parts, &mut |hash, bytes| shelf.fetch(hash, bytes)).unwrap()
}

/// What a server makes of a draft.
fn made(draft: session_draft::Reader<'_>, taken: &Taken, mut info: session_info::Builder<'_>) {
    info.set_id(draft.get_id().unwrap());
    info.set_title(draft.get_title().unwrap());
    info.set_parent_id(draft.get_parent_id().unwrap());
    info.set_created_at_ms(draft.get_created_at_ms());
    if let Some(reverted) = &taken.reverted {
        let mut revert = info.reborrow().init_revert();
        revert.set_message_id(&*reverted.message_id);
        revert.set_part_id(reverted.part_id.as_deref().unwrap_or_default());
    }
    for change in draft.get_changes().unwrap() {
        match change.which().unwrap() {
            session_change::Metadata(json) => info.set_metadata(json.unwrap()),
            session_change::SetRules(rules) => info.set_rules(rules.unwrap()).unwrap(),
            session_change::ArchivedAtMs(at) => {
                info.set_archived(true);
                info.set_archived_at_ms(at);
            }
            session_change::Agent(agent) => info.set_agent(agent.unwrap()),
            session_change::Model(model) => info.set_model(model.unwrap()).unwrap(),
            session_change::Directory(directory) => info.set_directory(directory.unwrap()),
            session_change::Path(path) => info.set_path(path.unwrap()),
            session_change::Version(version) => info.set_version(version.unwrap()),
            session_change::Rest(rest) => info.set_rest(rest.unwrap()),
            session_change::Summary(summary) => info.set_summary(summary.unwrap()).unwrap(),
            _ => panic!("a session is not made like that"),
        }
    }
}

/// As told by a server that does `then` after it made the session.
fn session_there_and_back(
    json: &str,
    parent_known: bool,
    then: impl FnOnce(session_info::Builder<'_>),
) -> (String, Taken) {
    let (mut draft, mut info) = (Builder::new_default(), Builder::new_default());
    let taken = session_from_json(&raw(json), parent_known, draft.init_root()).unwrap();
    let draft = draft.get_root_as_reader::<session_draft::Reader<'_>>().unwrap();
    let bytes = draft.total_size().unwrap().word_count * 8;
    assert!(bytes < OP_PAYLOAD_BYTES_MAX as u64, "a session fits into one op: {bytes}");
    made(draft, &taken, info.init_root());
    then(info.get_root().unwrap());
    (session_to_json(info.get_root_as_reader().unwrap()).unwrap(), taken)
}

fn todo_there_and_back(json: &str) -> Option<String> {
    let mut message = Builder::new_default();
    todo_from_json(&raw(json), message.init_root()).ok()?;
    Some(todo_to_json(message.get_root_as_reader::<todo::Reader<'_>>().unwrap()).unwrap())
}

/// Fails with the place where two texts differ: either may be long.
fn same(back: &str, json: &str) -> Result<(), TestCaseError> {
    let (back, json) = (canonical(back), canonical(json));
    let at = back.bytes().zip(json.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| -> String {
        let text = String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(60)..]).into_owned();
        text.chars().take(120).collect()
    };
    prop_assert!(back == json, "{} was {}", around(&back), around(&json));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_part_comes_back(json in arbitrary::part()) {
        same(&part_there_and_back(&json), &json)?;
    }

    #[test]
    fn every_message_comes_back(
        info in arbitrary::message(),
        parts in prop::collection::vec(arbitrary::part(), 0..3),
    ) {
        // Every part of a message has another id.
        let parts: Vec<_> = parts
            .iter()
            .zip(1..)
            .map(|(json, n)| raw(&json.replacen("prt_1", &format!("prt_{n}"), 1)))
            .collect();
        let told: Vec<_> = parts.iter().map(|part| part.get()).collect();
        let json = format!(r#"{{"info":{info},"parts":[{}]}}"#, told.join(","));
        same(&message_there_and_back(&info, &parts), &json)?;
    }

    #[test]
    fn every_session_comes_back(json in arbitrary::session(), parent_known: bool) {
        let (back, taken) = session_there_and_back(&json, parent_known, |_| {});
        prop_assume!(taken.untaken.is_empty()); // too long: see below
        same(&back, &json)?;
    }

    #[test]
    fn every_todo_comes_back(json in arbitrary::todo()) {
        match todo_there_and_back(&json) {
            Some(back) => same(&back, &json)?,
            None => prop_assert!(json.len() > INLINE_BYTES_MAX, "only what is long is not taken"),
        }
    }
}

/// The name of a part's kind on the wire, its `rest`, and the `rest` of its tool.
fn placed(json: &str) -> (&'static str, String, String) {
    let mut message = Builder::new_default();
    let mut shelf = Shelf::default();
    let to = message.init_root::<part::Builder<'_>>();
    part_from_json(&raw(json), &mut |bytes| shelf.keep(bytes), to).unwrap();
    let from = message.get_root_as_reader::<part::Reader<'_>>().unwrap();
    let mut of_tool = String::new();
    let kind = match from.which().unwrap() {
        part::Text(_) => "text",
        part::Json(_) => "json",
        part::Reasoning(_) => "reasoning",
        part::Tool(tool) => {
            of_tool = tool.unwrap().get_rest().unwrap().to_string().unwrap();
            "tool"
        }
        part::File(_) => "file",
        part::StepStart(_) => "step-start",
        part::StepFinish(_) => "step-finish",
        part::Patch(_) => "patch",
        part::Retry(_) => "retry",
        part::Compaction(_) => "compaction",
    };
    (kind, from.get_rest().unwrap().to_string().unwrap(), of_tool)
}

#[test]
fn what_opencode_writes_every_day_needs_no_rest() {
    for (kind, json) in arbitrary::EVERYDAY_PARTS {
        assert_eq!(placed(json), (*kind, String::new(), String::new()), "{json}");
        assert_eq!(canonical(&part_there_and_back(json)), with_place(json), "{json}");
    }
}

/// The ids a part gets on the way out.
fn with_place(json: &str) -> String {
    canonical(&json.replacen('{', r#"{"sessionID":"ses_1","messageID":"msg_1","#, 1))
}

#[test]
fn what_is_odd_stays_in_rest_and_nothing_else_does() {
    #[rustfmt::skip]
    let cases = [
        ("text", r#"{"type":"text","text":"","synthetic":false}"#, r#"{"synthetic":false}"#, ""),
        ("text", r#"{"type":"text","text":7}"#, r#"{"text":7}"#, ""),
        ("text", r#"{"type":"text","text":"a","time":{"start":1.5,"end":9},"metadata":{}}"#,
            r#"{"time":{"start":1.5},"metadata":{}}"#, ""),
        ("json", r#"{"type":"text"}"#, "", ""),
        ("json", r#"{"type":"agent","name":"build"}"#, "", ""),
        ("json", r#"{"type":"tool","callID":"c","tool":"t","state":{"status":"lost","input":{}}}"#, "", ""),
        ("tool", r#"{"type":"tool","callID":"c","tool":"t","metadata":{"m":1},"state":{"status":"pending","input":{},"raw":""}}"#,
            r#"{"metadata":{"m":1}}"#, r#"{"raw":""}"#),
        ("tool", r#"{"type":"tool","callID":"c","tool":"t","state":{"status":"running","input":[],"output":"","time":{"start":5}}}"#,
            "", r#"{"input":[],"output":""}"#),
        ("step-finish", r#"{"type":"step-finish","reason":"stop","cost":0.10,"tokens":{"input":1,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}"#,
            r#"{"cost":0.10}"#, ""),
        ("step-finish", r#"{"type":"step-finish","reason":"stop","cost":0,"tokens":{"input":1,"cache":{"read":0}}}"#,
            r#"{"tokens":{"cache":{"read":0}}}"#, ""),
        ("step-finish", r#"{"type":"step-finish","reason":"stop","cost":0,"tokens":{"input":1}}"#, r#"{"tokens":{}}"#, ""),
        ("step-finish", r#"{"type":"step-finish","reason":"stop","cost":0}"#, r#"{"cost":0}"#, ""),
        ("patch", r#"{"type":"patch","hash":"h","files":["a",1]}"#, r#"{"files":["a",1]}"#, ""),
    ];
    for (kind, json, rest, of_tool) in cases {
        assert_eq!(placed(json), (kind, rest.to_owned(), of_tool.to_owned()), "{json}");
        assert_eq!(canonical(&part_there_and_back(json)), with_place(json), "{json}");
    }
}

#[test]
fn what_is_long_becomes_content() {
    let long = "é".repeat(INLINE_BYTES_MAX / 2 + 1);
    let (object, inline) = (format!(r#"{{"a":"{long}"}}"#), "x".repeat(INLINE_BYTES_MAX));
    #[rustfmt::skip]
    let cases = [
        (false, false, format!(r#"{{"type":"text","text":"{inline}"}}"#)),
        (true, false, format!(r#"{{"type":"text","text":"{long}"}}"#)),
        (true, false, format!(r#"{{"type":"reasoning","text":"{long}"}}"#)),
        (true, false, format!(r#"{{"type":"file","mime":"text/plain","url":"{long}"}}"#)),
        (false, true, format!(r#"{{"type":"file","mime":"text/plain","url":"","source":{object}}}"#)),
        (false, true, format!(r#"{{"type":"subtask","prompt":"{long}"}}"#)),
        (false, true, format!(r#"{{"type":"patch","hash":"","files":["{long}"]}}"#)),
        (true, true, format!(r#"{{"type":"tool","callID":"c","tool":"t","state":{{"status":"completed","input":{object},"output":"{long}","title":"","metadata":{object},"attachments":[{object}],"time":{{"start":1,"end":2}}}}}}"#)),
        (true, false, format!(r#"{{"type":"tool","callID":"c","tool":"t","state":{{"status":"error","input":{{}},"error":"{long}"}}}}"#)),
    ];
    for (content, rest_content, json) in cases {
        let mut message = Builder::new_default();
        let to = message.init_root::<part::Builder<'_>>();
        part_from_json(&raw(&json), &mut Kept::of, to).unwrap();
        let from = message.get_root_as_reader::<part::Reader<'_>>().unwrap();
        assert_eq!((from.has_content(), from.has_rest_content()), (content, rest_content));
        assert!(from.total_size().unwrap().word_count * 8 < 2 * INLINE_BYTES_MAX as u64);
        assert!(canonical(&part_there_and_back(&json)) == with_place(&json), "{:.60}", json);
    }
}

#[test]
fn a_message_with_a_long_rest_carries_it_in_a_part() {
    let long = "x".repeat(INLINE_BYTES_MAX);
    let info = format!(
        r#"{{"id":"msg_1","sessionID":"ses_1","role":"user","time":{{"created":5}},"summary":{{"diffs":["{long}"]}}}}"#
    );
    let parts = [raw(r#"{"type":"text","text":"hello"}"#)];
    let back = message_there_and_back(&info, &parts);
    let text = r#"{"sessionID":"ses_1","messageID":"msg_1","type":"text","text":"hello"}"#;
    assert!(canonical(&back) == canonical(&format!(r#"{{"info":{info},"parts":[{text}]}}"#)));
}

#[test]
fn what_cannot_be_taken_is_told() {
    use crate::exchange::Reason::{IdMalformed, IdRepeated, NoRole, Shape, UnknownRole};
    let cases = [
        (r#"[]"#, "", Shape),
        (r#"{"id":"msg_1"}"#, "msg_1", NoRole),
        (r#"{"id":"msg_1","role":"oracle"}"#, "msg_1", UnknownRole),
        (r#"{"id":"msg_1","role":null}"#, "msg_1", UnknownRole),
        (r#"{"id":"a b","role":"user"}"#, r#""a b""#, IdMalformed),
        (r#"{"id":5,"role":"user"}"#, "5", IdMalformed),
    ];
    for (info, id, reason) in cases {
        let mut message = Builder::new_default();
        let to = message.init_root::<message_body::Builder<'_>>();
        let untaken = message_from_json(&raw(info), &[], &mut Kept::of, to).unwrap_err();
        assert_eq!((untaken.id.as_str(), untaken.reason), (id, reason), "{info}");
    }
    // A message does not go under with one of its parts.
    let parts =
        [r#"{"id":"p"}"#, "7", r#"{"id":"p","type":"text"}"#, r#"{"id":""}"#, "{}"].map(raw);
    let mut message = Builder::new_default();
    let mut to = message.init_root::<message_body::Builder<'_>>();
    let untaken =
        message_from_json(&raw(r#"{"role":"user"}"#), &parts, &mut Kept::of, to.reborrow())
            .unwrap();
    let reasons: Vec<_> = untaken.iter().map(|untaken| untaken.reason).collect();
    assert_eq!(reasons, [Shape, IdRepeated, IdMalformed]);
    assert_eq!(to.get_parts().unwrap().len(), 2);
}

#[test]
fn what_changed_since_counts() {
    let json = r#"{"id":"ses_1","title":"old","directory":"","time":{"created":1,"updated":2},
        "cost":0.5,"tokens":{"input":5,"output":5,"reasoning":0,"cache":{"read":0,"write":0}},
        "revert":{"messageID":"msg_1","snapshot":"s"},"summary":{"additions":0,"deletions":0,"files":0}}"#;
    let (same, taken) = session_there_and_back(json, true, |mut info| {
        // The server counts the same steps, and it is later by now.
        info.set_updated_at_ms(99);
        info.set_slug("calm-wolf");
        let mut usage = info.init_usage();
        usage.set_cost(0.500000001);
        usage.set_input(10);
    });
    let reverted = Reverted { message_id: "msg_1".into(), part_id: None };
    assert_eq!(taken, Taken { reverted: Some(reverted), untaken: Vec::new() });
    let with_slug = json.replacen('{', r#"{"slug":"calm-wolf","#, 1);
    assert_eq!(canonical(&same), canonical(&with_slug));

    let (changed, _) = session_there_and_back(json, true, |mut info| {
        info.set_title("new");
        info.set_directory("/tree");
        info.set_updated_at_ms(99);
        info.reborrow().init_revert();
        info.reborrow().init_summary().set_files(1);
        let mut usage = info.init_usage();
        usage.set_cost(0.75);
        usage.set_input(11);
    });
    let expected = r#"{"id":"ses_1","title":"new","directory":"/tree","time":{"created":1,"updated":99},
        "cost":0.75,"tokens":{"input":11,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},
        "summary":{"additions":0,"deletions":0,"files":1}}"#;
    assert_eq!(canonical(&changed), canonical(expected));
}

#[test]
fn a_session_keeps_what_does_not_fit_where_it_can() {
    let title = "ü".repeat(TITLE_BYTES_MAX);
    let json = format!(r#"{{"id":"ses_1","title":"{title}"}}"#);
    assert_eq!(session_there_and_back(&json, true, |_| {}).0, json);
    let (renamed, _) = session_there_and_back(&json, true, |mut info| info.set_title("short"));
    assert_eq!(renamed, r#"{"id":"ses_1","title":"short"}"#);

    // An unknown parent stays a text.
    let json = r#"{"id":"ses_1","parentID":"ses_0"}"#;
    let mut draft = Builder::new_default();
    session_from_json(&raw(json), false, draft.init_root()).unwrap();
    let draft = draft.get_root_as_reader::<session_draft::Reader<'_>>().unwrap();
    assert!(draft.get_parent_id().unwrap().is_empty());
    assert_eq!(session_there_and_back(json, false, |_| {}).0, json);

    // What no op could carry is left out, and told.
    let long = "x".repeat(OP_PAYLOAD_BYTES_MAX);
    let json = format!(r#"{{"id":"ses_1","summary":{{"diffs":["{long}"]}},"agent":"build"}}"#);
    let (back, taken) = session_there_and_back(&json, true, |_| {});
    assert_eq!(back, r#"{"id":"ses_1","agent":"build"}"#);
    assert_eq!(taken.untaken.len(), 1);
    assert_eq!(taken.untaken[0].id, "ses_1 summary");
}

#[test]
fn rules_are_taken_only_if_they_are_plain() {
    #[rustfmt::skip]
    let cases = [
        (r#"[{"permission":"edit","pattern":"*","action":"allow"},{"permission":"bash","pattern":"rm *","action":"ask"}]"#, 2),
        (r#"[{"permission":"edit","pattern":"*","action":"deny","why":1}]"#, 0),
        (r#"[{"permission":"edit","pattern":"*","action":"maybe"}]"#, 0),
        (r#"[]"#, 0),
        (r#"{}"#, 0),
    ];
    for (rules, expected) in cases {
        let json = format!(r#"{{"id":"ses_1","permission":{rules}}}"#);
        let mut found = 0;
        let (back, _) = session_there_and_back(&json, true, |info| {
            found = info.into_reader().get_rules().unwrap().len();
        });
        assert_eq!(found, expected, "{rules}");
        assert_eq!(canonical(&back), canonical(&json));
    }
    let mut rule = Builder::new_default();
    let plain = raw(r#"{"permission":"edit","pattern":"*","action":"allow"}"#);
    rule_from_json(&plain, rule.init_root()).unwrap();
    rule_from_json(&raw("{}"), rule.init_root()).unwrap_err();
}
