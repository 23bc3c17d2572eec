//! Trees as git keeps them: names are bytes, and modes are those the files have.
//!
//! Git itself writes three modes for files and one for directories, and reads any other as the nearest of them. So
//! a file that only its owner may read can be kept as just that, and any git still reads the tree.

use crate::model::ids::ObjectId;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

const KIND: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DIRECTORY: u32 = 0o040_000;

/// What an entry is, and who may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mode(u32);

impl Mode {
    /// A symbolic link.
    pub const LINK: Mode = Mode(LINK);
    /// A directory as most are.
    pub const DIRECTORY: Mode = Mode(DIRECTORY);
    /// A file as most are.
    pub const FILE: Mode = Mode(FILE | 0o644);

    /// Of a file with these permissions. Whose rights a program runs with is never kept: what is put back belongs
    /// to whoever puts it back.
    pub fn file(permissions: u32) -> Self {
        Mode(FILE | (permissions & 0o777))
    }

    /// Of a directory with these permissions; the usual ones are left out, as git does.
    pub fn directory(permissions: u32) -> Self {
        match permissions & 0o777 {
            0o755 => Self::DIRECTORY,
            permissions => Mode(DIRECTORY | permissions),
        }
    }

    /// From its number; none if git has no such thing.
    pub fn from_number(number: u32) -> Option<Self> {
        matches!(number & KIND, FILE | LINK | DIRECTORY).then_some(Mode(number & (KIND | 0o777)))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Whether it is a directory.
    pub fn is_directory(self) -> bool {
        self.0 & KIND == DIRECTORY
    }

    /// Whether it is a symbolic link.
    pub fn is_link(self) -> bool {
        self.0 & KIND == LINK
    }

    /// Whether it is a file.
    pub fn is_file(self) -> bool {
        self.0 & KIND == FILE
    }

    /// Whether two are the same kind of thing.
    pub fn is_like(self, other: Mode) -> bool {
        self.0 & KIND == other.0 & KIND
    }

    /// Who may use it.
    pub fn permissions(self) -> u32 {
        match self.0 {
            DIRECTORY => 0o755,
            number => number & 0o777,
        }
    }
}

/// Something a snapshot holds: what it is, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// What it is.
    pub mode: Mode,
    /// Its content: the bytes of a file, the target of a link, the entries of a directory.
    pub id: ObjectId,
}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name in the directory.
    pub name: Box<[u8]>,
    /// What stands there.
    pub held: Held,
}

/// The order git keeps entries in: by name, where that of a directory ends with a slash.
pub fn order(a: &[u8], a_is_directory: bool, b: &[u8], b_is_directory: bool) -> Ordering {
    let common = a.len().min(b.len());
    let end = |name: &[u8], is_directory| match name.get(common) {
        Some(byte) => *byte,
        None if is_directory => b'/',
        None => 0,
    };
    a[..common]
        .cmp(&b[..common])
        .then_with(|| end(a, a_is_directory).cmp(&end(b, b_is_directory)))
        .then_with(|| a.len().cmp(&b.len()))
}

/// A tree is not one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored tree cannot be read")]
pub struct Malformed;

/// Reads a tree. Links to commits of other repositories, which we never write, are left out.
pub fn parse(mut bytes: &[u8]) -> Result<Vec<Item>, Malformed> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ').ok_or(Malformed)?;
        let (mode, rest) = (&bytes[..space], &bytes[space + 1..]);
        let nul = rest.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (name, rest) = (&rest[..nul], &rest[nul + 1..]);
        let (id, rest) = rest.split_at_checked(20).ok_or(Malformed)?;
        let mode =
            std::str::from_utf8(mode).ok().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let id = ObjectId(id.try_into().map_err(|_| Malformed)?);
        if let Some(mode) = Mode::from_number(mode.ok_or(Malformed)?) {
            items.push(Item { name: name.into(), held: Held { mode, id } });
        }
        bytes = rest;
    }
    Ok(items)
}

/// Writes a tree; the entries must be in order.
pub fn encode<'a>(items: impl Iterator<Item = (&'a [u8], Held)>, into: &mut Vec<u8>) {
    for (name, Held { mode, id }) in items {
        into.extend_from_slice(format!("{:o} ", mode.number()).as_bytes());
        into.extend_from_slice(name);
        into.push(0);
        into.extend_from_slice(&id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_as_git_orders_them() {
        // As `git mktree` sorts them: a directory as if its name ended with a slash.
        let names: [(&[u8], bool); 7] = [
            (b"a", false),
            (b"a-b", false),
            (b"a.b", false),
            (b"a", true),
            (b"a0", false),
            (b"ab", true),
            (b"ab0", false),
        ];
        for (at, (a, a_dir)) in names.iter().enumerate() {
            for (bt, (b, b_dir)) in names.iter().enumerate() {
                assert_eq!(order(a, *a_dir, b, *b_dir), at.cmp(&bt), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn modes_are_kept_as_they_are_apart_from_whose_rights_a_program_has() {
        assert_eq!(Mode::file(0o644).number(), 0o100_644);
        assert_eq!(Mode::file(0o4755).number(), 0o100_755);
        assert_eq!(Mode::file(0o600).permissions(), 0o600);
        assert_eq!(Mode::directory(0o755).number(), 0o40_000);
        assert_eq!(Mode::directory(0o2700).number(), 0o40_700);
        assert_eq!(Mode::DIRECTORY.permissions(), 0o755);
        assert!(Mode::from_number(0o160_000).is_none(), "a link to a commit");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let held = |mode, byte| Held { mode, id: ObjectId([byte; 20]) };
        let items = [
            Item { name: b"a\nb \xff".as_slice().into(), held: held(Mode::file(0o600), 1) },
            Item { name: b"dir".as_slice().into(), held: held(Mode::directory(0o700), 2) },
            Item { name: b"link".as_slice().into(), held: held(Mode::LINK, 3) },
        ];
        let mut bytes = Vec::new();
        encode(items.iter().map(|item| (&*item.name, item.held)), &mut bytes);
        assert_eq!(parse(&bytes).unwrap(), items);
        for cut in 1..bytes.len() {
            let whole = parse(&bytes[..cut]).map(|items| items.len());
            assert!(whole.is_err() || whole.unwrap() < 3, "cut at {cut}");
        }
    }
}
