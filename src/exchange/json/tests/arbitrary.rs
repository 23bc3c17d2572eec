//! JSON as OpenCode writes it, and as nobody should.

use proptest::prelude::{Just, Strategy, prop, prop_oneof};
use proptest::strategy::{BoxedStrategy, Union};

/// One part of every kind as OpenCode writes it, and what it is on the wire.
#[rustfmt::skip]
pub(super) const EVERYDAY_PARTS: &[(&str, &str)] = &[
    ("text", r#"{"id":"prt_1","type":"text","text":"","time":{"start":1}}"#),
    ("text", r#"{"id":"prt_1","type":"text","text":"Grüße \n 👋","synthetic":true,"ignored":true,"time":{"start":1,"end":2}}"#),
    ("reasoning", r#"{"id":"prt_1","type":"reasoning","text":"hm","time":{"start":1,"end":2}}"#),
    ("file", r#"{"id":"prt_1","type":"file","mime":"image/png","filename":"a.png","url":"data:image/png;base64,AA"}"#),
    ("tool", r#"{"id":"prt_1","type":"tool","callID":"c","tool":"bash","state":{"status":"running","input":{"command":"ls"},"time":{"start":1}}}"#),
    ("tool", r#"{"id":"prt_1","type":"tool","callID":"c","tool":"bash","state":{"status":"completed","input":{},"output":"","title":"","metadata":{},"time":{"start":1,"end":2,"compacted":3}}}"#),
    ("tool", r#"{"id":"prt_1","type":"tool","callID":"c","tool":"bash","state":{"status":"error","input":{},"error":"no","metadata":{"interrupted":true},"time":{"start":1,"end":2}}}"#),
    ("step-start", r#"{"id":"prt_1","type":"step-start"}"#),
    ("step-start", r#"{"id":"prt_1","type":"step-start","snapshot":"4b825dc"}"#),
    ("step-finish", r#"{"id":"prt_1","type":"step-finish","reason":"stop","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}"#),
    ("step-finish", r#"{"id":"prt_1","type":"step-finish","reason":"tool-calls","snapshot":"4b","cost":0.0123,"tokens":{"total":15,"input":5,"output":1,"reasoning":2,"cache":{"read":3,"write":4}}}"#),
    ("patch", r#"{"id":"prt_1","type":"patch","hash":"4b","files":["/a","/b c"]}"#),
    ("patch", r#"{"id":"prt_1","type":"patch","hash":"4b","files":[]}"#),
    ("retry", r#"{"id":"prt_1","type":"retry","attempt":1,"error":{"name":"APIError","data":{"message":"m","isRetryable":true}},"time":{"created":5}}"#),
    ("compaction", r#"{"id":"prt_1","type":"compaction","auto":false}"#),
    ("compaction", r#"{"id":"prt_1","type":"compaction","auto":true,"overflow":true,"tail_start_id":"msg_5"}"#),
    ("json", r#"{"id":"prt_1","type":"agent","name":"build","source":{"value":"@build","start":0,"end":6}}"#),
    ("json", r#"{"id":"prt_1","type":"subtask","prompt":"p","description":"d","agent":"general"}"#),
    ("json", r#"{"id":"prt_1","type":"snapshot","snapshot":"4b"}"#),
];

/// How often a field is as it should be, out of ten times.
const USUAL: u32 = 6;

type Json = BoxedStrategy<String>;

fn any_of(texts: &'static [&'static str]) -> Json {
    prop::sample::select(texts).prop_map(str::to_owned).boxed()
}

fn number() -> Json {
    any_of(&[
        "0",
        "1",
        "42",
        "1755169195136",
        "18446744073709551615",
        "-0",
        "-7",
        "1.0",
        "2.50",
        "1e3",
    ])
}

fn text() -> Json {
    let long = prop::sample::select(vec![4_096_usize, 4_097, 131_072, 131_073]);
    let long = long.prop_map(|length| format!("\"{}\"", "x".repeat(length))).boxed();
    let short = any_of(&[
        r#""""#,
        r#""a""#,
        r#""msg_1""#,
        r#""Grüße \n \u00e9 \ud83d\ude00 👋""#,
        r#""half \ud83d""#,
        r#""a\u0000b""#,
        r#"" space ""#,
    ]);
    Union::new_weighted(vec![(19, short), (1, long)]).boxed()
}

/// Anything.
fn any() -> Json {
    let leaf = prop_oneof![
        any_of(&["null", "true", "false", "{}", "[]", "123456789012345678901234567890"]),
        number(),
        text()
    ];
    let key = any_of(&[
        r#""a""#,
        r#""time""#,
        r#""start""#,
        r#""input""#,
        r#""cache""#,
        r#""type""#,
        r#""id""#,
        r#""rest""#,
        r#""tit\u006ce""#,
        r#""é""#,
        r#""\ud800""#,
        r#""""#,
    ]);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let members = prop::collection::vec((key.clone(), inner.clone()), 0..4);
        let object = members.prop_map(|members| {
            let members: Vec<_> =
                members.iter().map(|(key, value)| format!("{key} : {value}")).collect();
            format!("{{{}}}", members.join(" , "))
        });
        let array =
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", ")));
        prop_oneof![object, array]
    })
    .boxed()
}

/// An object with these fields, of which any may be missing or odd, and with others.
fn object(fields: Vec<(&'static str, Json)>) -> Json {
    object_with("", fields)
}

/// The same, with some members that are always there.
fn object_with(always: &'static str, fields: Vec<(&'static str, Json)>) -> Json {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, usual)| {
            let said = move |value: String| Some(format!("\"{name}\":{value}"));
            Union::new_weighted(vec![
                (USUAL, usual.prop_map(said).boxed()),
                (2, any().prop_map(said).boxed()),
                (2, Just(None).boxed()),
            ])
        })
        .collect();
    let unknown = any_of(&["mode", "system", "état", "tools", "x-y", "providerExecuted", "raw"]);
    let unknown = prop::collection::vec((unknown, any()), 0..2);
    (fields, unknown, prop::bool::ANY)
        .prop_map(move |(fields, unknown, turned)| {
            let always = (!always.is_empty()).then(|| always.to_owned());
            let unknown = unknown.iter().map(|(name, value)| format!("\"{name}\":{value}"));
            let mut members: Vec<_> =
                always.into_iter().chain(fields.into_iter().flatten()).chain(unknown).collect();
            if turned {
                members.reverse();
            }
            format!("{{{}}}", members.join(","))
        })
        .boxed()
}

fn flag() -> Json {
    any_of(&["true", "false"])
}

fn time(names: &[&'static str]) -> Json {
    object(names.iter().map(|name| (*name, number())).collect())
}

fn cost() -> Json {
    any_of(&["0", "0.0", "0.0123", "1e-7", "3", "12345.678", "-1", "0.10"])
}

fn tokens() -> Json {
    let cache = object(vec![("read", number()), ("write", number())]);
    let exact = r#"{"input":5,"output":0,"reasoning":0,"cache":{"read":7,"write":0}}"#;
    let zero = r#"{"total":1,"input":0,"output":0,"reasoning":0,"cache":{"write":0,"read":0}}"#;
    let odd = object(vec![
        ("total", number()),
        ("input", number()),
        ("output", number()),
        ("reasoning", number()),
        ("cache", cache),
    ]);
    prop_oneof![Just(exact.to_owned()), Just(zero.to_owned()), odd].boxed()
}

fn data() -> Json {
    object(vec![("message", text()), ("statusCode", number())])
}

fn error() -> Json {
    object(vec![("name", text()), ("data", data())])
}

fn state() -> Json {
    let usual = |status: &'static str| {
        object_with(
            status,
            vec![
                ("input", data()),
                ("output", text()),
                ("error", text()),
                ("title", text()),
                ("metadata", data()),
                ("raw", text()),
                ("time", time(&["start", "end", "compacted"])),
                (
                    "attachments",
                    prop::collection::vec(data(), 0..2)
                        .prop_map(|all| format!("[{}]", all.join(",")))
                        .boxed(),
                ),
            ],
        )
    };
    prop_oneof![
        usual(r#""status":"pending""#),
        usual(r#""status":"running""#),
        usual(r#""status":"completed""#),
        usual(r#""status":"error""#),
        usual(r#""status":"unheard-of""#),
    ]
    .boxed()
}

macro_rules! part {
    ($kind:literal $(, $name:literal: $value:expr)*) => {
        object_with(
            concat!(r#""id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":""#, $kind, r#"""#),
            vec![
                $(($name, $value),)*
                ("time", time(&["start", "end", "created"])),
                ("synthetic", flag()),
                ("ignored", flag()),
                ("metadata", data()),
            ],
        )
    };
}

/// A part of message msg_1 in session ses_1.
pub(super) fn part() -> Json {
    let files = prop_oneof![any_of(&["[]", r#"["/a","/é"]"#, r#"[null]"#])].boxed();
    prop_oneof![
        part!("text", "text": text()),
        part!("reasoning", "text": text()),
        part!("file", "mime": text(), "url": text(), "filename": text(), "source": data()),
        part!("tool", "callID": text(), "tool": text(), "state": state()),
        part!("step-start", "snapshot": text()),
        part!("step-finish", "reason": text(), "snapshot": text(), "cost": cost(), "tokens": tokens()),
        part!("snapshot", "snapshot": text()),
        part!("patch", "hash": text(), "files": files),
        part!("agent", "name": text(), "source": data()),
        part!("subtask", "prompt": text(), "description": text(), "agent": text()),
        part!("retry", "attempt": number(), "error": error()),
        part!("compaction", "auto": flag(), "overflow": flag(), "tail_start_id": text()),
        part!("never-seen", "text": text()),
    ]
    .boxed()
}

/// Message msg_1 in session ses_1.
pub(super) fn message() -> Json {
    let fields = || {
        let model = object(vec![("providerID", text()), ("modelID", text()), ("variant", text())]);
        vec![
            ("time", time(&["created", "completed"])),
            ("agent", text()),
            ("model", model),
            ("parentID", text()),
            ("modelID", text()),
            ("providerID", text()),
            ("variant", text()),
            ("path", data()),
            ("cost", cost()),
            ("tokens", tokens()),
            ("error", error()),
            ("summary", prop_oneof![flag(), data()].boxed()),
            ("finish", text()),
            ("metadata", data()),
        ]
    };
    prop_oneof![
        object_with(r#""id":"msg_1","sessionID":"ses_1","role":"user""#, fields()),
        object_with(r#""id":"msg_1","sessionID":"ses_1","role":"assistant""#, fields()),
    ]
    .boxed()
}

/// Session ses_1.
pub(super) fn session() -> Json {
    let model = object(vec![("id", text()), ("providerID", text()), ("variant", text())]);
    let summary = object(vec![
        ("additions", number()),
        ("deletions", number()),
        ("files", number()),
        ("diffs", data()),
    ]);
    let rule = r#"{"permission":"edit","pattern":"*","action":"allow"}"#;
    let rules = prop_oneof![
        Just(format!("[{rule}]")),
        Just(format!("[{rule},{{}}]")),
        Just("[]".to_owned())
    ];
    object_with(
        r#""id":"ses_1""#,
        vec![
            ("slug", text()),
            ("projectID", text()),
            ("workspaceID", text()),
            ("directory", text()),
            ("path", any_of(&[r#""""#, r#""src/a""#, r#""/src""#, r#""src/""#])),
            ("parentID", text()),
            ("title", text()),
            ("version", text()),
            ("agent", text()),
            ("model", model),
            ("metadata", data()),
            ("summary", summary),
            ("cost", cost()),
            ("tokens", tokens()),
            ("share", data()),
            ("permission", rules.boxed()),
            ("revert", object(vec![("messageID", text()), ("partID", text()), ("diff", text())])),
            ("time", time(&["created", "updated", "compacting", "archived"])),
        ],
    )
}

/// An item of a todo list.
pub(super) fn todo() -> Json {
    object(vec![("content", text()), ("status", text()), ("priority", text()), ("id", text())])
}
