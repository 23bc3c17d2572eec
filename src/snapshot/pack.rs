//! Packs: many objects in one file, as git reads them.
//!
//! One file instead of thousands is what makes a first snapshot quick and small. The objects are whole here; putting
//! those together that are alike is left to [`super::collect`].

use crate::limits::PACK_BODY_BYTES_MAX;
use crate::model::ids::ObjectId;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use sha1::{Digest, Sha1};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Tree = 2,
    /// Bytes.
    Blob = 3,
}

/// An object ready to be put into a pack.
pub struct Packed {
    id: ObjectId,
    crc: u32,
    bytes: Vec<u8>,
}

/// Names an object and makes it small. Naming goes through libgit2, which notices bytes that were made to collide.
pub fn pack(kind: Kind, bytes: &[u8]) -> Result<Packed, git2::Error> {
    let id = name(kind, bytes)?;
    Ok(pack_as(id, kind, bytes))
}

/// The name of an object.
pub fn name(kind: Kind, bytes: &[u8]) -> Result<ObjectId, git2::Error> {
    let kind = match kind {
        Kind::Tree => git2::ObjectType::Tree,
        Kind::Blob => git2::ObjectType::Blob,
    };
    git2::Oid::hash_object(kind, bytes).map(ObjectId::from)
}

/// Makes an object small whose name is known.
pub fn pack_as(id: ObjectId, kind: Kind, bytes: &[u8]) -> Packed {
    let mut packed = Vec::with_capacity(bytes.len() / 2 + 64);
    let mut size = bytes.len();
    let mut byte = ((kind as u8) << 4) | (size & 0x0f) as u8;
    size >>= 4;
    while size > 0 {
        packed.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    packed.push(byte);
    deflate(bytes, &mut packed);
    let mut crc = Crc::new();
    crc.update(&packed);
    Packed { id, crc: crc.sum(), bytes: packed }
}

fn deflate(bytes: &[u8], into: &mut Vec<u8>) {
    let mut deflate = Compress::new(Compression::fast(), true);
    let mut rest = bytes;
    loop {
        into.reserve(rest.len() / 2 + 64);
        let before = deflate.total_in();
        let status = deflate.compress_vec(rest, into, FlushCompress::Finish);
        rest = &rest[usize::try_from(deflate.total_in() - before).unwrap_or(rest.len())..];
        if !matches!(status, Ok(Status::Ok | Status::BufError)) {
            return;
        }
    }
}

/// A pack that is being filled. Where it grows too large for memory it is written out, and another one begun.
pub struct PackWriter {
    directory: PathBuf,
    body: Vec<u8>,
    entries: Vec<(ObjectId, u32, u32)>,
    known: HashSet<ObjectId>,
    /// The files of packs that are written out but not in place yet.
    written: Vec<(PathBuf, String)>,
    bytes: u64,
}

const HEADER_BYTES: usize = 12;

impl PackWriter {
    /// For a directory of packs.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            body: vec![0; HEADER_BYTES],
            entries: Vec::new(),
            known: HashSet::new(),
            written: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether it holds an object.
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.known.contains(id)
    }

    /// Puts an object in, once.
    pub fn add(&mut self, packed: &Packed) -> io::Result<()> {
        if !self.known.insert(packed.id) {
            return Ok(());
        }
        if self.body.len() + packed.bytes.len() > PACK_BODY_BYTES_MAX && !self.entries.is_empty() {
            self.write_out()?;
        }
        let offset = u32::try_from(self.body.len()).map_err(io::Error::other)?;
        self.entries.push((packed.id, packed.crc, offset));
        self.body.extend_from_slice(&packed.bytes);
        Ok(())
    }

    /// Writes what there is and puts it in place: when this returns, it is on disk. How many bytes that took.
    pub fn finish(mut self) -> io::Result<u64> {
        if !self.entries.is_empty() {
            self.write_out()?;
        }
        if self.written.is_empty() {
            return Ok(0);
        }
        for (temporary, name) in std::mem::take(&mut self.written) {
            // One of the same name is about to go: else what is in it would not have been written again.
            let mut name = name;
            while ["pack", "idx"].iter().any(|ending| self.path(&name, ending).exists()) {
                name = data_encoding::HEXLOWER.encode(&Sha1::digest(&name));
            }
            // The index last: whoever finds it finds the pack.
            for ending in ["pack", "idx"] {
                std::fs::rename(aside(&temporary, ending), self.path(&name, ending))?;
            }
        }
        File::open(&self.directory)?.sync_all()?;
        Ok(self.bytes)
    }

    fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("pack-{name}.{ending}"))
    }

    fn write_out(&mut self) -> io::Result<()> {
        let count = u32::try_from(self.entries.len()).map_err(io::Error::other)?;
        self.body[..4].copy_from_slice(b"PACK");
        self.body[4..8].copy_from_slice(&2u32.to_be_bytes());
        self.body[8..12].copy_from_slice(&count.to_be_bytes());
        let checksum = Sha1::digest(&self.body);
        self.body.extend_from_slice(&checksum);
        let index = index(&mut self.entries, &checksum);
        let name = data_encoding::HEXLOWER.encode(&checksum);
        // Somebody else may be writing the very same.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{TEMPORARY}{number}-{name}"));
        let write = |ending: &str, bytes: &[u8]| -> io::Result<()> {
            let path = aside(&temporary, ending);
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            file.write_all(bytes)?;
            file.sync_data()
        };
        self.written.push((temporary.clone(), name));
        // Two files that do not depend on each other need not wait for the disk one after the other.
        let (pack, index_written) =
            rayon::join(|| write("pack", &self.body), || write("idx", &index));
        pack.and(index_written)?;
        self.bytes += (self.body.len() + index.len()) as u64;
        self.body.truncate(HEADER_BYTES);
        self.entries.clear();
        Ok(())
    }
}

/// How files are called that are not in place yet; what a crash left of them goes when the store is opened.
pub const TEMPORARY: &str = "tmp_bowline_";

/// Nobody who looks for packs takes these for one.
fn aside(temporary: &Path, ending: &str) -> PathBuf {
    temporary.with_extension(format!("{ending}.new"))
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        for (temporary, _) in &self.written {
            for ending in ["pack", "idx"] {
                let _ = std::fs::remove_file(aside(temporary, ending));
            }
        }
    }
}

fn index(entries: &mut [(ObjectId, u32, u32)], checksum: &[u8]) -> Vec<u8> {
    entries.sort_unstable_by_key(|(id, ..)| *id);
    let mut index = Vec::with_capacity(1100 + entries.len() * 28);
    index.extend_from_slice(b"\xfftOc");
    index.extend_from_slice(&2u32.to_be_bytes());
    let mut below = entries.iter().peekable();
    let mut count = 0u32;
    for first in 0..=255u8 {
        while below.next_if(|(id, ..)| id.0[0] == first).is_some() {
            count += 1;
        }
        index.extend_from_slice(&count.to_be_bytes());
    }
    entries.iter().for_each(|(id, ..)| index.extend_from_slice(&id.0));
    entries.iter().for_each(|(_, crc, _)| index.extend_from_slice(&crc.to_be_bytes()));
    entries.iter().for_each(|(_, _, offset)| index.extend_from_slice(&offset.to_be_bytes()));
    index.extend_from_slice(checksum);
    let own = Sha1::digest(&index);
    index.extend_from_slice(&own);
    index
}
