//! Messages off a byte stream, read without believing what they announce.

use crate::limits::{FRAME_FIRST_BYTES, SEGMENTS_MAX};
use capnp::Word;
use std::io;
use std::ops::Deref;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::time::Instant;

const WORD_BYTES: usize = 8;
const ZERO: Word = capnp::word(0, 0, 0, 0, 0, 0, 0, 0);
/// Small messages come many to a read.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// A whole message with its segment table, aligned as Cap'n Proto wants it.
pub struct Frame(Vec<Word>);

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        Word::words_to_bytes(&self.0)
    }
}

/// What came is not a message we take.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It announces more than we take.
    #[error("a message of {bytes} bytes was announced; the most accepted is {bytes_max}")]
    TooLarge {
        /// What it announces.
        bytes: u64,
        /// What we take.
        bytes_max: usize,
    },
    /// It announces more segments than any message has.
    #[error("a message of {segments} segments was announced; the most accepted is {SEGMENTS_MAX}")]
    TooManySegments {
        /// What it announces.
        segments: u64,
    },
    /// The stream ended in its middle.
    #[error("the connection ended in the middle of a message")]
    Truncated,
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads one message after the other.
pub struct FrameReader<R> {
    io: BufReader<R>,
    bytes_max: usize,
    words: Vec<Word>,
    filled: usize,
    begun: Option<Instant>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `io`, refusing what announces more than `bytes_max`.
    pub fn new(io: R, bytes_max: usize) -> Self {
        let io = BufReader::with_capacity(READ_AHEAD_BYTES, io);
        Self { io, bytes_max, words: Vec::new(), filled: 0, begun: None }
    }

    /// Changes what is refused; what was refused before may be taken now.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// When the message that is being read began, if one is.
    pub fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Waits for the first byte of a message, or for the end of the stream. Dropping the future loses
    /// nothing.
    pub async fn begin(&mut self) -> Result<(), FrameError> {
        if self.begun.is_none() && !self.io.fill_buf().await?.is_empty() {
            self.begun = Some(Instant::now());
        }
        Ok(())
    }

    /// The next message, or none at a clean end. Dropping the future loses nothing: what was read
    /// stays here, and the next call goes on from there.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            let wanted = self.wanted()?;
            if wanted == self.filled {
                self.filled = 0;
                self.begun = None;
                return Ok(Some(Frame(std::mem::take(&mut self.words))));
            }
            // Room for what is wanted, but at most twice what has really come.
            let room = wanted.min(FRAME_FIRST_BYTES.max(2 * self.filled));
            let room_words = room.div_ceil(WORD_BYTES);
            if self.words.len() < room_words {
                self.words.resize(room_words, ZERO);
            }
            let bytes = &mut Word::words_to_bytes_mut(&mut self.words)[self.filled..room];
            match self.io.read(bytes).await? {
                0 if self.filled == 0 => return Ok(None),
                0 => return Err(FrameError::Truncated),
                read => self.filled += read,
            }
        }
    }

    /// How many bytes the message has, as far as can be told from what is here: first its first word,
    /// then its segment table, then all of it.
    fn wanted(&self) -> Result<usize, FrameError> {
        if self.filled < WORD_BYTES {
            return Ok(WORD_BYTES);
        }
        let bytes = Word::words_to_bytes(&self.words);
        let number = |at: usize| {
            let at = at * 4;
            u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
        };
        let segments = number(0) + 1;
        if segments > SEGMENTS_MAX as u64 {
            return Err(FrameError::TooManySegments { segments });
        }
        let table = (4 * (1 + segments as usize)).next_multiple_of(WORD_BYTES);
        if self.filled < table {
            return Ok(table);
        }
        let body_words: u64 = (1..=segments as usize).map(number).sum();
        let total = table as u64 + body_words * WORD_BYTES as u64;
        match usize::try_from(total) {
            Ok(total) if total <= self.bytes_max => Ok(total),
            _ => Err(FrameError::TooLarge { bytes: total, bytes_max: self.bytes_max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::AsyncWriteExt;

    fn message(words: usize, segments_of: usize) -> Vec<u8> {
        let allocator = capnp::message::HeapAllocator::new()
            .first_segment_words(segments_of as u32)
            .allocation_strategy(capnp::message::AllocationStrategy::FixedSize);
        let mut builder = capnp::message::Builder::new(allocator);
        let mut list = builder
            .init_root::<capnp::any_pointer::Builder<'_>>()
            .initn_as::<capnp::struct_list::Builder<'_, crate::wire::bowline_capnp::page::Owned>>(
            words as u32 / 2,
        );
        for at in 0..list.len() {
            list.reborrow().get(at).set_after(u64::from(at));
        }
        capnp::serialize::write_message_to_words(&builder)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn messages_come_back_whole_however_they_are_cut() {
        let messages = [message(2, 1024), message(5000, 1024), message(64, 8)];
        let stream: Vec<u8> = messages.concat();
        for chunk in [1, 7, 8, 4096, stream.len()] {
            block_on(async {
                let (mut near, far) = tokio::io::duplex(64);
                let write = async {
                    for piece in stream.chunks(chunk) {
                        near.write_all(piece).await.unwrap();
                    }
                    drop(near);
                };
                let read = async {
                    let mut reader = FrameReader::new(far, 1 << 20);
                    let mut found = Vec::new();
                    while let Some(frame) = reader.next().await.unwrap() {
                        found.push(frame.to_vec());
                    }
                    found
                };
                let ((), found) = tokio::join!(write, read);
                assert_eq!(found, messages, "chunks of {chunk}");
            });
        }
    }

    #[test]
    fn announcements_are_refused_before_memory_is_taken() {
        let head = |numbers: &[u32]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let table = [
            (head(&[0, u32::MAX]), "34359738368 bytes"),
            (head(&[0, 1 << 20]), "8388616 bytes"),
            (head(&[u32::MAX, 0]), "4294967296 segments"),
            (head(&[512, 0]), "513 segments"),
            (head(&[1, 1 << 16, 1 << 16, 0]), "1048592 bytes"),
        ];
        for (bytes, why) in table {
            let mut reader = FrameReader::new(&bytes[..], 1 << 20);
            let error = block_on(reader.next()).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
            assert!(reader.words.capacity() * 8 <= FRAME_FIRST_BYTES);
        }
    }

    #[test]
    fn a_large_announcement_costs_only_what_arrives() {
        block_on(async {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            near.write_all(&[0, 0, 0, 0, 0, 0, 0x10, 0]).await.unwrap(); // 1 Mi words = 8 MiB
            near.write_all(&[0; 1000]).await.unwrap();
            let mut reader = FrameReader::new(far, 16 << 20);
            assert!(reader.next().now_or_never().is_none());
            assert!(reader.filled > 8);
            assert!(reader.words.capacity() * 8 <= 2 * FRAME_FIRST_BYTES);
            drop(near);
            assert!(matches!(reader.next().await, Err(FrameError::Truncated)));
        });
    }
}
