//! The document in JSON: `{"bowline": …, "info": …, "messages": [{"info": …, "parts": […]}, …], "todos": […]}`.

use super::{Counts, DocumentError, VERSION};
use crate::exchange::{ITEM_BYTES_MAX, Reason, Stop, Taker, Thing, Untaken};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read, Write};

/// Writes a document. What is handed to it must be JSON already.
#[derive(Debug)]
pub struct JsonWriter<W: Write> {
    out: W,
    has_messages: bool,
}

impl<W: Write> JsonWriter<W> {
    /// Begins with the session: see [`session_to_json`](crate::exchange::json::session_to_json).
    pub fn new(mut out: W, info: &str) -> io::Result<Self> {
        // The version comes first, so that a reader that does not know it stops before it took anything.
        write!(out, r#"{{"bowline":{{"version":{VERSION}}},"info":{info},"messages":["#)?;
        Ok(Self { out, has_messages: false })
    }

    /// Adds a message: see [`message_to_json`](crate::exchange::json::message_to_json).
    pub fn message(&mut self, message: &str) -> io::Result<()> {
        self.out.write_all(if self.has_messages { b",\n" } else { b"\n" })?;
        self.has_messages = true;
        self.out.write_all(message.as_bytes())
    }

    /// Ends with the todo list: see [`todo_to_json`](crate::exchange::json::todo_to_json). Gives the writer
    /// back, flushed.
    pub fn finish<T: AsRef<str>>(mut self, todos: &[T]) -> io::Result<W> {
        self.out.write_all(b"\n],\"todos\":[")?;
        for (at, todo) in todos.iter().enumerate() {
            self.out.write_all(if at > 0 { b"," } else { b"" })?;
            self.out.write_all(todo.as_ref().as_bytes())?;
        }
        self.out.write_all(b"]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a document, or what `opencode export` wrote. Keys nobody knows are passed over.
pub fn read(input: impl Read, taker: &mut dyn Taker) -> Result<Counts, DocumentError> {
    read_up_to(ITEM_BYTES_MAX, input, taker)
}

fn read_up_to(
    bytes_max: u64,
    input: impl Read,
    taker: &mut dyn Taker,
) -> Result<Counts, DocumentError> {
    let (left, ended) = (Cell::new(bytes_max), Cell::new(false));
    let input = Metered { input, left: &left, ended: &ended };
    let input = BufReader::with_capacity(64 << 10, input);
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let mut reading =
        Reading { taker, left: &left, bytes_max, counts: Counts::default(), end: None };
    let read = Document(&mut reading).deserialize(&mut deserializer);
    let end = reading.end.take();
    let counts = reading.counts;
    if let Some(end) = end {
        return Err(end);
    }
    let read = read.and_then(|()| deserializer.end());
    match read {
        Ok(()) => Ok(counts),
        Err(_) if left.get() == 0 => Err(DocumentError::TooLarge { bytes_max }),
        Err(error) if error.is_io() => Err(DocumentError::Io(error.into())),
        Err(_) if ended.get() => Err(DocumentError::Truncated),
        Err(error) => Err(DocumentError::Foreign(error.to_string())),
    }
}

/// Lets through only so many bytes until it is allowed more: an item is held in memory whole.
struct Metered<'a, R> {
    input: R,
    left: &'a Cell<u64>,
    /// Whether more was asked for than there is.
    ended: &'a Cell<bool>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let most = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.input.read(&mut to[..most])?;
        self.left.set(left - read as u64);
        self.ended.set(read == 0);
        Ok(read)
    }
}

/// What is known while a document is read.
struct Reading<'a> {
    taker: &'a mut dyn Taker,
    left: &'a Cell<u64>,
    bytes_max: u64,
    counts: Counts,
    /// Why it ended early. It travels here, because errors of the JSON reader are texts only.
    end: Option<DocumentError>,
}

impl Reading<'_> {
    fn next_item(&self) {
        self.left.set(self.bytes_max);
    }

    fn fail<T, E: Error>(&mut self, error: DocumentError) -> Result<T, E> {
        self.end = Some(error);
        Err(E::custom("ended early"))
    }

    fn taken<E: Error>(&mut self, taken: Result<(), Stop>) -> Result<(), E> {
        taken.or_else(|stop| self.fail(DocumentError::Stopped(stop)))
    }

    fn message<E: Error>(&mut self, raw: &RawValue) -> Result<(), E> {
        #[derive(Deserialize)]
        struct Message {
            info: Box<RawValue>,
            #[serde(default)]
            parts: Vec<Box<RawValue>>,
        }

        self.counts.messages += 1;
        let taken = match serde_json::from_str::<Message>(raw.get()) {
            Ok(message) => self.taker.message(&message.info, &message.parts),
            Err(error) => {
                let place = format!("message {} of the document", self.counts.messages);
                let untaken = Untaken::new(Thing::Message, place, Reason::Shape, error.to_string());
                self.taker.untaken(untaken)
            }
        };
        self.taken(taken)
    }

    fn todos<E: Error>(&mut self, raw: &RawValue) -> Result<(), E> {
        let taken = match serde_json::from_str::<Vec<Box<RawValue>>>(raw.get()) {
            Ok(todos) => {
                self.counts.todos = todos.len() as u64;
                self.taker.todos(&todos)
            }
            Err(error) => {
                let text = error.to_string();
                self.taker.untaken(Untaken::new(Thing::Todo, "todos", Reason::Shape, text))
            }
        };
        self.taken(taken)
    }
}

/// The whole document.
struct Document<'r, 'a>(&'r mut Reading<'a>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"info\" and \"messages\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reading = self.0;
        let mut has_info = false;
        let mut has_messages = false;
        let mut todos: Option<Box<RawValue>> = None;
        while let Some(key) = map.next_key::<String>()? {
            reading.next_item();
            match key.as_str() {
                "bowline" => {
                    #[derive(Deserialize)]
                    struct Mark {
                        version: u64,
                    }
                    let found = map.next_value::<Mark>()?.version;
                    if found > VERSION.into() {
                        return reading.fail(DocumentError::Newer { found });
                    }
                }
                "info" if !has_info => {
                    has_info = true;
                    let info: Box<RawValue> = map.next_value()?;
                    let taken = reading.taker.session(&info);
                    reading.taken(taken)?;
                }
                "messages" if !has_info => {
                    return reading.fail(DocumentError::Order("messages"));
                }
                "messages" if !has_messages => {
                    has_messages = true;
                    map.next_value_seed(Messages(&mut *reading))?;
                }
                "info" | "messages" => {
                    let text = format!("{key:?} stands there twice");
                    return reading.fail(DocumentError::Foreign(text));
                }
                // They are told after the messages, wherever they stand.
                "todos" => todos = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !has_info {
            return reading.fail(DocumentError::Foreign("there is no \"info\" in it".into()));
        }
        todos.map_or(Ok(()), |todos| reading.todos(&todos))
    }
}

/// The messages, one at a time.
struct Messages<'r, 'a>(&'r mut Reading<'a>);

impl<'de> DeserializeSeed<'de> for Messages<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(message) = seq.next_element::<Box<RawValue>>()? {
            self.0.message(&message)?;
            self.0.next_item();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it is given.
    #[derive(Default)]
    struct Notes {
        lines: Vec<String>,
        stop_at: Option<&'static str>,
    }

    impl Notes {
        fn note(&mut self, line: String) -> Result<(), Stop> {
            let stop = self.stop_at.is_some_and(|stop| line.starts_with(stop));
            self.lines.push(line);
            if stop { Err("enough".into()) } else { Ok(()) }
        }
    }

    impl Taker for Notes {
        fn session(&mut self, info: &RawValue) -> Result<(), Stop> {
            self.note(format!("session {info}"))
        }

        fn message(&mut self, info: &RawValue, parts: &[Box<RawValue>]) -> Result<(), Stop> {
            let parts: Vec<_> = parts.iter().map(|part| part.get()).collect();
            self.note(format!("message {info} {}", parts.join(" ")))
        }

        fn todos(&mut self, todos: &[Box<RawValue>]) -> Result<(), Stop> {
            self.note(format!("{} todos", todos.len()))
        }

        fn untaken(&mut self, untaken: Untaken) -> Result<(), Stop> {
            self.note(format!("not {} {}", untaken.id, untaken.reason))
        }
    }

    fn noted(document: &str) -> (String, Vec<String>) {
        let mut notes = Notes::default();
        let end = match read(document.as_bytes(), &mut notes) {
            Ok(counts) => format!("{} messages, {} todos", counts.messages, counts.todos),
            Err(error) => error.to_string(),
        };
        (end, notes.lines)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = JsonWriter::new(Vec::new(), r#"{"id":"ses_1"}"#).unwrap();
        writer.message(r#"{"info":{"id":"msg_1"},"parts":[{"n":1e3},{}]}"#).unwrap();
        writer.message(r#"{"info":{"id":"msg_2"},"parts":[]}"#).unwrap();
        let written = writer.finish(&[r#"{"content":"a"}"#, "{}"]).unwrap();
        let (end, lines) = noted(std::str::from_utf8(&written).unwrap());
        assert_eq!(end, "2 messages, 2 todos");
        assert_eq!(
            lines,
            [
                r#"session {"id":"ses_1"}"#,
                r#"message {"id":"msg_1"} {"n":1e3} {}"#,
                r#"message {"id":"msg_2"} "#,
                "2 todos",
            ]
        );
        // Nothing of it is left over when it is cut short.
        for length in 0..written.len() - 1 {
            if let Ok(text) = std::str::from_utf8(&written[..length]) {
                let (end, _) = noted(text.trim_end());
                assert_eq!(end, DocumentError::Truncated.to_string(), "{text}");
            }
        }
    }

    #[test]
    fn documents_of_others_are_read_or_refused_with_a_reason() {
        #[rustfmt::skip]
        let cases = [
            // As `opencode export` writes it, with keys somebody may add.
            (r#" {"new":[1,{"a":2}],"info":{},"messages":[{"parts":[],"info":{"a":1}}]}"#, "1 messages, 0 todos", 2),
            (r#"{"todos":[{}],"info":{},"messages":[]}"#, "0 messages, 1 todos", 2),
            (r#"{"info":{}}"#, "0 messages, 0 todos", 1),
            (r#"{"info":{},"messages":[5,{"parts":[]},{"info":1,"parts":{}},{"info":2}],"todos":{}}"#, "4 messages, 0 todos", 6),
            (r#"{"messages":[],"info":{}}"#, "comes before", 0),
            (r#"{"messages":[]}"#, "comes before", 0),
            (r#"{}"#, "there is no \"info\"", 0),
            (r#"[]"#, "expected an object with", 0),
            (r#"{"info":{},"info":{}}"#, "twice", 1),
            (r#"{"info":{}} x"#, "trailing", 1),
            (r#"{"info":{},"messages":{}}"#, "expected an array", 1),
            (r#"{"bowline":{"version":2},"info":{}}"#, "of version 2", 0),
            (r#"{"info":{,}"#, "not a session document", 0),
        ];
        for (document, expected, lines) in cases {
            let (end, found) = noted(document);
            assert!(end.contains(expected), "{document}: {end}");
            assert_eq!(found.len(), lines, "{document}: {found:?}");
        }
    }

    #[test]
    fn a_taker_that_stops_is_asked_no_more() {
        let mut notes = Notes { stop_at: Some("message"), ..Notes::default() };
        let document = r#"{"info":{},"messages":[{"info":1},{"info":2}]}"#;
        let error = read(document.as_bytes(), &mut notes).unwrap_err();
        assert_eq!(error.to_string(), "the session could not be taken: enough");
        assert_eq!(notes.lines.len(), 2);
    }

    #[test]
    fn one_item_may_not_fill_the_memory() {
        let long = "x".repeat(200 << 10);
        let message = format!(r#"{{"info":"{long}"}}"#);
        // Many long messages are fine, as long as none of them is too long.
        for (bytes_max, expected) in [(100 << 10, None), (400 << 10, Some(5))] {
            let document = format!(r#"{{"info":{{}},"messages":[{}]}}"#, [&*message; 5].join(","));
            let mut notes = Notes::default();
            let read = read_up_to(bytes_max, document.as_bytes(), &mut notes);
            match (read, expected) {
                (Ok(counts), Some(messages)) => assert_eq!(counts.messages, messages),
                (Err(DocumentError::TooLarge { .. }), None) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}
