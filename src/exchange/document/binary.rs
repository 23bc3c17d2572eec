//! The binary document: the magic `bowline1`, then records.
//!
//! ```text
//! record   tag (1 byte), length (4 bytes, little-endian), that many bytes
//! 1        session: SessionDraft, packed; the first record, once
//! 2        message: MessageBody, packed
//! 3        todo: Todo, packed
//! 4        content: its SHA-256 (32 bytes), an offset (8 bytes, little-endian), bytes from there on
//! 5        end: messages, todos, bytes of content (8 bytes each, little-endian), and the SHA-256 of
//!          everything before that hash; nothing follows
//! 6        where the conversation was cut back to: Revert, packed; at most once
//! ```
//!
//! Content comes in order, without gaps, and before the first message that names it.

use super::{Counts, DocumentError, RECORD_BYTES_MAX};
use crate::exchange::Stop;
use crate::wire::message_capnp::{message_body, revert, todo};
use crate::wire::session_capnp::session_draft;
use capnp::message::{Builder, ReaderOptions};
use capnp::serialize_packed;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// What documents of every version begin with.
pub(super) const FAMILY: &[u8] = b"bowline";
const MAGIC: &[u8; 8] = b"bowline1";

/// The tags. They are stored, so a retired one stays taken.
const SESSION: u8 = 1;
const MESSAGE: u8 = 2;
const TODO: u8 = 3;
const CONTENT: u8 = 4;
const END: u8 = 5;
const REVERT: u8 = 6;

const HASH_BYTES: usize = 32;
const CONTENT_HEAD_BYTES: usize = HASH_BYTES + 8;
const COUNTS_BYTES: usize = 3 * 8;
const END_BYTES: usize = COUNTS_BYTES + HASH_BYTES;

/// Packed bytes may stand for a thousand times as many; that much is unpacked, and may be read twice over.
const UNPACKED_WORDS_MAX: usize = 2 * RECORD_BYTES_MAX / 8;

/// Writes a document.
#[derive(Debug)]
pub struct BinaryWriter<W: Write> {
    out: W,
    hash: Sha256,
    counts: Counts,
    content_bytes: u64,
}

impl<W: Write> BinaryWriter<W> {
    /// Begins with the session.
    pub fn new(out: W, session: session_draft::Reader<'_>) -> Result<Self, DocumentError> {
        let mut writer =
            Self { out, hash: Sha256::new(), counts: Counts::default(), content_bytes: 0 };
        writer.write(MAGIC)?;
        writer.packed::<session_draft::Owned>(SESSION, session)?;
        Ok(writer)
    }

    /// Adds a message. Its content must have been added before.
    pub fn message(&mut self, body: message_body::Reader<'_>) -> Result<(), DocumentError> {
        self.counts.messages += 1;
        self.packed::<message_body::Owned>(MESSAGE, body)
    }

    /// Adds an item of the todo list.
    pub fn todo(&mut self, todo: todo::Reader<'_>) -> Result<(), DocumentError> {
        self.counts.todos += 1;
        self.packed::<todo::Owned>(TODO, todo)
    }

    /// Says where the conversation was cut back to.
    pub fn revert(&mut self, revert: revert::Reader<'_>) -> Result<(), DocumentError> {
        self.packed::<revert::Owned>(REVERT, revert)
    }

    /// Adds a piece of content. Pieces of one content follow each other, beginning at 0.
    pub fn content(
        &mut self,
        hash: &[u8; 32],
        offset: u64,
        data: &[u8],
    ) -> Result<(), DocumentError> {
        self.content_bytes += data.len() as u64;
        self.head(CONTENT, CONTENT_HEAD_BYTES + data.len())?;
        self.write(hash)?;
        self.write(&offset.to_le_bytes())?;
        self.write(data)
    }

    /// Ends the document. Gives the writer back, flushed.
    pub fn finish(mut self) -> Result<W, DocumentError> {
        self.head(END, END_BYTES)?;
        for count in [self.counts.messages, self.counts.todos, self.content_bytes] {
            self.write(&count.to_le_bytes())?;
        }
        self.out.write_all(&self.hash.finalize())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn packed<T: capnp::traits::Owned>(
        &mut self,
        tag: u8,
        value: impl capnp::traits::SetterInput<T>,
    ) -> Result<(), DocumentError> {
        let unwritable = |error: capnp::Error| DocumentError::Damaged(error.to_string());
        let mut message = Builder::new_default();
        message.set_root::<T>(value).map_err(unwritable)?;
        let mut bytes = Vec::new();
        serialize_packed::write_message(&mut bytes, &message).map_err(unwritable)?;
        self.head(tag, bytes.len())?;
        self.write(&bytes)
    }

    fn head(&mut self, tag: u8, bytes: usize) -> Result<(), DocumentError> {
        if bytes > RECORD_BYTES_MAX {
            return Err(DocumentError::TooLarge { bytes_max: RECORD_BYTES_MAX as u64 });
        }
        self.write(&[tag])?;
        self.write(&(bytes as u32).to_le_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        self.hash.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }
}

/// Whoever takes a binary document in. An error ends the reading.
pub trait WireTaker {
    /// The session, first and once.
    fn session(&mut self, session: session_draft::Reader<'_>) -> Result<(), Stop>;

    /// The next message.
    fn message(&mut self, body: message_body::Reader<'_>) -> Result<(), Stop>;

    /// The next item of the todo list.
    fn todo(&mut self, todo: todo::Reader<'_>) -> Result<(), Stop>;

    /// Where the conversation was cut back to, if it was; once, at any time.
    fn revert(&mut self, revert: revert::Reader<'_>) -> Result<(), Stop>;

    /// The next piece of content, which some message after it names.
    fn content(&mut self, hash: &[u8; 32], offset: u64, data: &[u8]) -> Result<(), Stop>;
}

/// Reads a document. Only when it returns is it certain that nothing of it was missing or changed.
pub fn read_binary(input: impl Read, taker: &mut dyn WireTaker) -> Result<Counts, DocumentError> {
    let mut input = Input { input, hash: Sha256::new() };
    input.magic()?;
    let counts = Counts::default();
    let mut reading = Reading { taker, counts, content_bytes: 0, content: None, reverted: false };
    let mut payload = Vec::new();
    let mut is_first = true;
    loop {
        let [tag] = input.array()?;
        let bytes = u32::from_le_bytes(input.array()?) as usize;
        if bytes > RECORD_BYTES_MAX {
            return Err(damaged("a record is longer than any can be"));
        }
        if is_first != (tag == SESSION) {
            return Err(damaged("the session is not its first record"));
        }
        is_first = false;
        if tag == END {
            return input.end(bytes, reading);
        }
        input.fill(&mut payload, bytes)?;
        reading.record(tag, &payload)?;
    }
}

fn damaged(text: impl Into<String>) -> DocumentError {
    DocumentError::Damaged(text.into())
}

/// The bytes of a document, hashed as they are read.
struct Input<R> {
    input: R,
    hash: Sha256,
}

impl<R: Read> Input<R> {
    fn magic(&mut self) -> Result<(), DocumentError> {
        let found = match self.array::<8>() {
            Err(DocumentError::Truncated) => {
                return Err(DocumentError::Foreign("it is too short".into()));
            }
            found => found?,
        };
        match found.strip_prefix(FAMILY) {
            Some(b"1") => Ok(()),
            Some([digit @ b'2'..=b'9']) => {
                Err(DocumentError::Newer { found: u64::from(digit - b'0') })
            }
            _ => Err(DocumentError::Foreign("it does not begin like one".into())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DocumentError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(truncated)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    /// Reads this many bytes. The buffer grows as they come, and not as their number promises.
    fn fill(&mut self, to: &mut Vec<u8>, bytes: usize) -> Result<(), DocumentError> {
        to.clear();
        (&mut self.input).take(bytes as u64).read_to_end(to)?;
        if to.len() < bytes {
            return Err(DocumentError::Truncated);
        }
        self.hash.update(&*to);
        Ok(())
    }

    fn end(mut self, bytes: usize, mut reading: Reading<'_>) -> Result<Counts, DocumentError> {
        if bytes != END_BYTES {
            return Err(damaged("its end is not one"));
        }
        reading.end_content()?;
        let mut told = [0; 3];
        for count in &mut told {
            *count = u64::from_le_bytes(self.array()?);
        }
        let found: [u8; HASH_BYTES] = self.hash.clone().finalize().into();
        if self.array::<HASH_BYTES>()? != found {
            return Err(damaged("its hash is another one"));
        }
        let counts = reading.counts;
        if told != [counts.messages, counts.todos, reading.content_bytes] {
            return Err(damaged("it holds less or more than it says"));
        }
        match self.input.read_exact(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(counts),
            Err(error) => Err(error.into()),
            Ok(()) => Err(damaged("something follows its end")),
        }
    }
}

fn truncated(error: io::Error) -> DocumentError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => DocumentError::Truncated,
        _ => error.into(),
    }
}

struct Reading<'a> {
    taker: &'a mut dyn WireTaker,
    counts: Counts,
    content_bytes: u64,
    /// The content whose pieces are coming: its hash, the hash of what came, and how much that was.
    content: Option<([u8; HASH_BYTES], Sha256, u64)>,
    /// Whether it was said where the conversation was cut back to.
    reverted: bool,
}

impl Reading<'_> {
    fn record(&mut self, tag: u8, payload: &[u8]) -> Result<(), DocumentError> {
        if tag != CONTENT {
            self.end_content()?;
        }
        let taken = match tag {
            SESSION => {
                let message = unpacked(payload)?;
                self.taker.session(message.get_root().map_err(unreadable)?)
            }
            MESSAGE => {
                self.counts.messages += 1;
                let message = unpacked(payload)?;
                self.taker.message(message.get_root().map_err(unreadable)?)
            }
            TODO => {
                self.counts.todos += 1;
                let message = unpacked(payload)?;
                self.taker.todo(message.get_root().map_err(unreadable)?)
            }
            REVERT => {
                if std::mem::replace(&mut self.reverted, true) {
                    return Err(damaged("it says twice where it was cut back to"));
                }
                let message = unpacked(payload)?;
                self.taker.revert(message.get_root().map_err(unreadable)?)
            }
            CONTENT => return self.piece(payload),
            _ => return Err(damaged(format!("a record has the unknown tag {tag}"))),
        };
        taken.map_err(DocumentError::Stopped)
    }

    fn piece(&mut self, payload: &[u8]) -> Result<(), DocumentError> {
        let cut = || damaged("a piece of content is too short");
        let (hash, rest) = payload.split_first_chunk::<HASH_BYTES>().ok_or_else(cut)?;
        let (offset, data) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
        let offset = u64::from_le_bytes(*offset);
        let goes_on =
            matches!(&self.content, Some((current, _, next)) if current == hash && *next == offset);
        if !goes_on {
            self.end_content()?;
            if offset != 0 {
                return Err(damaged("a piece of content is missing"));
            }
            self.content = Some((*hash, Sha256::new(), 0));
        }
        if let Some((_, came, next)) = &mut self.content {
            came.update(data);
            *next += data.len() as u64;
        }
        self.content_bytes += data.len() as u64;
        self.taker.content(hash, offset, data).map_err(DocumentError::Stopped)
    }

    fn end_content(&mut self) -> Result<(), DocumentError> {
        let is_other = |(hash, came, _): ([u8; 32], Sha256, u64)| came.finalize()[..] != hash;
        if self.content.take().is_some_and(is_other) {
            return Err(damaged("content is not what its hash says"));
        }
        Ok(())
    }
}

fn unreadable(error: capnp::Error) -> DocumentError {
    damaged(format!("a record cannot be read: {error}"))
}

fn unpacked(
    mut payload: &[u8],
) -> Result<capnp::message::Reader<capnp::serialize::OwnedSegments>, DocumentError> {
    let mut options = ReaderOptions::new();
    options.traversal_limit_in_words(Some(UNPACKED_WORDS_MAX));
    let message = serialize_packed::read_message(&mut payload, options).map_err(unreadable)?;
    if !payload.is_empty() {
        return Err(damaged("a record is longer than what it holds"));
    }
    Ok(message)
}

#[cfg(test)]
mod tests;
