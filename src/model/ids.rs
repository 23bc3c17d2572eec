//! Names of things. Ids are opaque: they are compared, never ordered by.

use crate::limits::ID_BYTES_MAX;
use crate::model::code::{Code, Coded};
use data_encoding::BASE32HEX_NOPAD;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! byte_ids {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&encoded(&self.0))
            }
        }
    )+};
}

byte_ids! {
    /// One writing client, see `OpHeader.producer` in the schema.
    ProducerId;
    /// One op, made by the client before it is first sent.
    OpId;
    /// A batch, if its author gave it a name.
    BatchId;
    /// One run of a producer.
    InstanceId;
    /// The public half of a sturdy ref.
    GrantId;
    /// The data of one server, wherever it runs.
    RealmId;
    /// What an op says: half a BLAKE3 hash over its id, kind and payload.
    Digest;
}

impl ProducerId {
    /// What others are told of a producer: the same for all its ops, and of no use to write in its name.
    /// Whoever knows the id itself can.
    pub fn public(self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_derive_key("bowline producer name v1");
        hasher.update(&self.0);
        let mut name = [0; 16];
        hasher.finalize_xof().fill(&mut name);
        name
    }
}

/// 16 bytes as 26 lower-case characters.
fn encoded(bytes: &[u8; 16]) -> String {
    let mut text = BASE32HEX_NOPAD.encode(bytes);
    text.make_ascii_lowercase();
    text
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        pub struct $name(String);

        impl $name {
            /// An id somebody chose.
            pub fn parse(text: &str) -> Result<Self, Malformed> {
                checked(text).map(|text| Self(text.to_owned()))
            }

            /// The id of an object made without one: derived from the op that makes it, so a repeat of
            /// the op names the same object.
            pub fn made_by(op: OpId) -> Self {
                Self(format!(concat!($prefix, "_{}"), op))
            }

            /// The text as it is stored and sent.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

text_ids! {
    /// Names a project on this server.
    ProjectId, "prj";
    /// Names a session on this server.
    SessionId, "ses";
    /// Names a durable subscription of one object.
    SubscriptionName, "sub";
    /// Names a share on this server.
    ShareId, "shr";
    /// Names a message in its session.
    MessageId, "msg";
    /// Names a part in its message.
    PartId, "prt";
    /// Names a turn in its session.
    TurnId, "trn";
    /// Names a work tree on this server.
    WorktreeId, "wrk";
    /// Names a snapshot on this server.
    SnapshotId, "snp";
}

/// An id nobody may choose.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There is nothing there.
    #[error("an id is empty")]
    Empty,
    /// It is too long to be one.
    #[error("an id is {bytes} bytes long; the most accepted is {ID_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It would garble a log line or a table.
    #[error("an id holds a space or control character at byte {at}")]
    Unprintable {
        /// Where.
        at: usize,
    },
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        Code::IdMalformed
    }
}

fn checked(text: &str) -> Result<&str, Malformed> {
    if text.is_empty() {
        return Err(Malformed::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(Malformed::TooLong { bytes: text.len() });
    }
    match text.char_indices().find(|(_, c)| c.is_whitespace() || c.is_control()) {
        Some((at, _)) => Err(Malformed::Unprintable { at }),
        None => Ok(text),
    }
}

impl PartId {
    /// The id of a part that came with a message and without one.
    pub fn made_in(message: &MessageId, index: u32) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("bowline part id v1");
        hasher.update(message.as_str().as_bytes()).update(&index.to_le_bytes());
        Self(format!("prt_{}", encoded(&half(&hasher))))
    }
}

impl MessageId {
    /// The id of a message that was copied from another session, by the op that did.
    pub fn copied_by(op: OpId, original: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("bowline copied message id v1");
        hasher.update(&op.0).update(original.as_bytes());
        Self(format!("msg_{}", encoded(&half(&hasher))))
    }
}

fn half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

impl SubscriptionName {
    /// The name of a subscription of a share, among those of the session it shows. A space keeps it apart from
    /// whatever a client can choose.
    pub fn in_share(&self, share: &ShareId) -> Self {
        Self(format!("{share} {self}"))
    }

    /// The share it is one's, if it is.
    pub fn share(&self) -> Option<ShareId> {
        self.0.split_once(' ').map(|(share, _)| ShareId(share.to_owned()))
    }
}

impl ProducerId {
    /// The server's own: under it stands what the server itself has to say. No client may use it.
    pub const SERVER: ProducerId = ProducerId([0; 16]);
}

/// The content of a file, or a directory with all that is in it, as git names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub [u8; 20]);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

/// The row number of a log: the root's, a project's, a session's or a share's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct LogId(pub i64);

impl LogId {
    /// The root's own log, made with the store.
    pub const ROOT: LogId = LogId(1);
}

/// The row number of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GrantKey(pub i64);

/// A position in a log; the first op is at 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Cursor(pub u64);

impl Cursor {
    /// The position behind this one.
    pub fn next(self) -> Cursor {
        Cursor(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_as_they_are_or_refused_with_a_reason() {
        for good in ["a", "ses_01", "msg_z9-before", "ünïcödé", &"x".repeat(ID_BYTES_MAX)] {
            assert_eq!(SessionId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        let bad = [
            ("", Malformed::Empty),
            ("a b", Malformed::Unprintable { at: 1 }),
            ("ab\n", Malformed::Unprintable { at: 2 }),
            ("\0", Malformed::Unprintable { at: 0 }),
        ];
        for (text, why) in bad {
            assert_eq!(SessionId::parse(text), Err(why), "{text:?}");
        }
        let long = "x".repeat(ID_BYTES_MAX + 1);
        assert_eq!(SessionId::parse(&long), Err(Malformed::TooLong { bytes: ID_BYTES_MAX + 1 }));
    }

    #[test]
    fn an_op_always_makes_the_same_id() {
        let op = OpId([7; 16]);
        assert_eq!(SessionId::made_by(op), SessionId::made_by(op));
        assert_eq!(SessionId::made_by(op).as_str(), "ses_0s3ge1o70s3ge1o70s3ge1o70s");
        assert!(SessionId::parse(SessionId::made_by(op).as_str()).is_ok());
    }
}
