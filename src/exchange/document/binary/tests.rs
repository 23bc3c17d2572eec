//! What is written is read, and what is damaged is refused.

use super::*;
use crate::exchange::Kept;

#[derive(Default)]
struct Notes(Vec<String>);

impl WireTaker for Notes {
    fn session(&mut self, session: session_draft::Reader<'_>) -> Result<(), Stop> {
        self.0.push(format!("session {}", session.get_id()?.to_str()?));
        Ok(())
    }

    fn message(&mut self, body: message_body::Reader<'_>) -> Result<(), Stop> {
        self.0.push(format!("message {}", body.get_id()?.to_str()?));
        if body.get_id()? == "stop" { Err("enough".into()) } else { Ok(()) }
    }

    fn todo(&mut self, todo: todo::Reader<'_>) -> Result<(), Stop> {
        self.0.push(format!("todo {}", todo.get_content()?.to_str()?));
        Ok(())
    }

    fn revert(&mut self, revert: revert::Reader<'_>) -> Result<(), Stop> {
        self.0.push(format!("revert {}", revert.get_message_id()?.to_str()?));
        Ok(())
    }

    fn content(&mut self, hash: &[u8; 32], offset: u64, data: &[u8]) -> Result<(), Stop> {
        self.0.push(format!("content {:x} {offset} {}", hash[0], data.len()));
        Ok(())
    }
}

fn noted(document: &[u8]) -> (String, Vec<String>) {
    let mut notes = Notes::default();
    let end = match read_binary(document, &mut notes) {
        Ok(counts) => format!("{} messages, {} todos", counts.messages, counts.todos),
        Err(error) => error.to_string(),
    };
    (end, notes.0)
}

fn begun() -> BinaryWriter<Vec<u8>> {
    let mut message = Builder::new_default();
    message.init_root::<session_draft::Builder<'_>>().set_id("ses_1");
    BinaryWriter::new(Vec::new(), message.get_root_as_reader().unwrap()).unwrap()
}

fn message(writer: &mut BinaryWriter<Vec<u8>>, id: &str) {
    let mut message = Builder::new_default();
    message.init_root::<message_body::Builder<'_>>().set_id(id);
    writer.message(message.get_root_as_reader().unwrap()).unwrap();
}

fn document() -> Vec<u8> {
    let mut writer = begun();
    let long = [7; 1000];
    let hash = Kept::of(&long).hash;
    writer.content(&hash, 0, &long[..600]).unwrap();
    writer.content(&hash, 600, &long[600..]).unwrap();
    message(&mut writer, "msg_1");
    message(&mut writer, "msg_2");
    let mut todo = Builder::new_default();
    todo.init_root::<todo::Builder<'_>>().set_content("rest");
    writer.todo(todo.get_root_as_reader().unwrap()).unwrap();
    writer.finish().unwrap()
}

#[test]
fn what_is_written_is_read() {
    let (end, lines) = noted(&document());
    assert_eq!(end, "2 messages, 1 todos");
    let first = Kept::of(&[7; 1000]).hash[0];
    let pieces = [format!("content {first:x} 0 600"), format!("content {first:x} 600 400")];
    let expected =
        ["session ses_1", &pieces[0], &pieces[1], "message msg_1", "message msg_2", "todo rest"];
    assert_eq!(lines, expected);
}

#[test]
fn no_damage_goes_unnoticed() {
    let written = document();
    for at in 0..written.len() {
        let (end, _) = noted(&written[..at]);
        let expected = if at < MAGIC.len() { "too short" } else { "ends in the middle" };
        assert!(end.contains(expected), "cut at {at}: {end}");
        for bit in 0..8 {
            let mut damaged = written.clone();
            damaged[at] ^= 1 << bit;
            let (end, _) = noted(&damaged);
            assert!(!end.contains("messages,"), "bit {bit} of {at}: {end}");
        }
    }
}

#[test]
fn every_fault_has_a_reason() {
    let written = document();
    let record = |tag: u8, payload: &[u8]| {
        let bytes = (payload.len() as u32).to_le_bytes();
        [MAGIC, &[tag][..], &bytes, payload].concat()
    };
    let pieces = |pieces: &[(u64, &[u8])]| {
        let mut writer = begun();
        for (offset, data) in pieces {
            writer.content(&Kept::of(b"abc").hash, *offset, data).unwrap();
        }
        writer.finish().unwrap()
    };
    let mut swapped = begun();
    swapped
        .packed::<todo::Owned>(
            9,
            Builder::new_default().init_root::<todo::Builder<'_>>().into_reader(),
        )
        .unwrap();
    let mut stopped = begun();
    message(&mut stopped, "stop");
    // A few packed bytes that would unpack to a gigabyte.
    let bomb = [&[0x55, 0x80, 0x08, 0x01][..], &[0, 255].repeat(300_000)].concat();
    for (document, expected) in [
        ([&written[..], b"x"].concat(), "something follows its end"),
        (b"SQLite format 3\0".to_vec(), "does not begin like one"),
        (b"bowline2....".to_vec(), "of version 2"),
        (b"bowline0....".to_vec(), "does not begin like one"),
        (record(MESSAGE, b""), "the session is not its first record"),
        (record(SESSION, b"\xff"), "a record cannot be read"),
        (record(SESSION, &bomb), "a record cannot be read"),
        ([MAGIC, &[SESSION][..], &[255; 4]].concat(), "longer than any can be"),
        (pieces(&[(0, b"abd")]), "not what its hash says"),
        (pieces(&[(0, b"ab")]), "not what its hash says"),
        (pieces(&[(0, b"ab"), (3, b"c")]), "not what its hash says"),
        (pieces(&[(1, b"bc")]), "is missing"),
        (pieces(&[(0, b"ab"), (2, b"c"), (0, b"abc")]), "0 messages"),
        (swapped.finish().unwrap(), "unknown tag 9"),
        (stopped.finish().unwrap(), "enough"),
    ] {
        let (end, _) = noted(&document);
        assert!(end.contains(expected), "{expected}: {end}");
    }
}
