//! Where the content of snapshots is: a git repository of the server's own, one for each project.
//!
//! It shares nothing with the user's repository: no objects, no index, no configuration. What that one's `gc` does, or
//! its hooks, filters and locks, has no influence here. Any git reads it: every tree a snapshot names has a reference.
//!
//! Objects are only ever added, in packs, apart from what [`super::collect`] lets go of.

use super::pack::{self, PackWriter, TEMPORARY};
use super::tree::{self, Held, Item, Malformed};
use crate::limits::{BLOB_CACHE_BYTES_MAX, STREAMED_FILE_BYTES_LEAST};
use crate::model::ids::ObjectId;
use git2::{ObjectType, Odb, OdbLookupFlags};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Why snapshots cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files of the store.
    #[error("the snapshot store: {0}")]
    Io(#[from] io::Error),
    /// What libgit2 says.
    #[error("the snapshot store: {}", .0.message())]
    Git(#[from] git2::Error),
    /// Something is not what it should be.
    #[error("the snapshot store is damaged: {0}")]
    Damaged(String),
    /// The store has no such object.
    #[error("the snapshot store has lost object {0}")]
    Lost(ObjectId),
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Self {
        Error::Damaged(error.to_string())
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Error::Io(error.into())
    }
}

impl From<git2::Oid> for ObjectId {
    fn from(oid: git2::Oid) -> Self {
        let mut id = [0; 20];
        id.copy_from_slice(oid.as_bytes());
        ObjectId(id)
    }
}

fn oid(id: ObjectId) -> Result<git2::Oid, git2::Error> {
    git2::Oid::from_bytes(&id.0)
}

/// The store of one project; safe to use from any thread.
pub struct Vault {
    directory: PathBuf,
    odb: Mutex<Odb<'static>>,
    /// Objects that are about to go: whoever needs one again writes it again.
    condemned: RwLock<Arc<HashSet<ObjectId>>>,
    /// Who is writing, by when it began; see [`Vault::is_settled`].
    writing: Mutex<Writing>,
    /// The last content somebody read a piece of.
    last_read: Mutex<Option<(ObjectId, Arc<[u8]>)>>,
    references: Mutex<()>,
    /// Held while an object comes or goes that stands for itself.
    pub(super) loose: Mutex<()>,
    /// Trees that nobody has written down yet, and how often each is wanted.
    pinned: Mutex<std::collections::HashMap<ObjectId, usize>>,
    /// How many bytes of packs were added since the server started.
    added: AtomicU64,
}

#[derive(Default)]
struct Writing {
    /// Goes up with every collection.
    era: u64,
    /// How many began in which era and go on.
    under_way: std::collections::BTreeMap<u64, usize>,
}

impl Vault {
    /// Opens the store in a directory, which is made if there is none. What a crash left half written goes.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let objects = directory.join("objects");
        let packs = objects.join("pack");
        fs::create_dir_all(&packs)?;
        fs::create_dir_all(directory.join("refs"))?;
        let once = |name: &str, text: &str| -> io::Result<()> {
            let path = directory.join(name);
            match path.exists() {
                true => Ok(()),
                false => write_whole(&path, text.as_bytes()),
            }
        };
        once("HEAD", "ref: refs/heads/none\n")?;
        // Nobody else's collection may run here by itself.
        once("config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[gc]\n\tauto = 0\n")?;
        clear(&[directory, &objects, &packs])?;
        rewrite_references(directory, |_| true)?;
        Ok(Self {
            odb: Mutex::new(open_odb(&objects)?),
            directory: directory.to_owned(),
            condemned: RwLock::default(),
            writing: Mutex::default(),
            last_read: Mutex::default(),
            references: Mutex::default(),
            loose: Mutex::default(),
            pinned: Mutex::default(),
            added: AtomicU64::new(0),
        })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.directory.join("objects").join("pack")
    }

    /// The same store through an own handle, for work that reads much.
    pub fn reader(&self) -> Result<Reader, Error> {
        Ok(Reader { odb: open_odb(&self.directory.join("objects"))? })
    }

    /// Whether an object is there, and will be.
    pub fn contains(&self, id: &ObjectId) -> bool {
        let condemned = self.condemned.read().unwrap_or_else(PoisonError::into_inner).clone();
        if condemned.contains(id) {
            return false;
        }
        let odb = lock(&self.odb);
        oid(*id).is_ok_and(|oid| odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH))
    }

    /// Looks for packs that were added since.
    pub(super) fn refresh(&self) -> Result<(), Error> {
        Ok(lock(&self.odb).refresh()?)
    }

    /// Lets go of what libgit2 knew: packs it had open may be gone.
    pub(super) fn reopen(&self) -> Result<(), Error> {
        let fresh = open_odb(&self.directory.join("objects"))?;
        *lock(&self.odb) = fresh;
        Ok(())
    }

    /// The content of an object.
    pub fn read(&self, id: ObjectId) -> Result<Vec<u8>, Error> {
        let odb = lock(&self.odb);
        read(&odb, id)
    }

    /// The entries of a directory.
    pub fn tree(&self, id: ObjectId) -> Result<Vec<Item>, Error> {
        Ok(tree::parse(&self.read(id)?)?)
    }

    /// How long a content is.
    pub fn length(&self, id: ObjectId) -> Result<u64, Error> {
        let odb = lock(&self.odb);
        let (bytes, _) = odb.read_header(oid(id)?).map_err(|error| lost(error, id))?;
        Ok(bytes as u64)
    }

    /// A piece of a content, and how long all of it is.
    pub fn piece(&self, id: ObjectId, offset: u64, most: usize) -> Result<(Vec<u8>, u64), Error> {
        let cut = |bytes: &[u8]| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            (bytes[from..bytes.len().min(from.saturating_add(most))].to_vec(), bytes.len() as u64)
        };
        if let Some((_, bytes)) = lock(&self.last_read).as_ref().filter(|(last, _)| *last == id) {
            return Ok(cut(bytes));
        }
        let length = self.length(id)?;
        if length > BLOB_CACHE_BYTES_MAX {
            return Ok((self.reader()?.streamed_piece(id, offset, most)?, length));
        }
        let bytes: Arc<[u8]> = self.read(id)?.into();
        let piece = cut(&bytes);
        *lock(&self.last_read) = Some((id, bytes));
        Ok(piece)
    }

    /// Writes a content as it is read, for what is too long to be held in memory. None if it was not `bytes` long.
    pub fn stream_in(&self, bytes: u64, from: &mut impl Read) -> Result<Option<ObjectId>, Error> {
        // Unlike the handles we read through, which libgit2 takes for somebody else's objects.
        let repository = git2::Repository::open(&self.directory)?;
        let odb = repository.odb()?;
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mut writer = odb.writer(length, ObjectType::Blob)?;
        let mut taken = from.take(bytes);
        if io::copy(&mut taken, &mut writer)? != bytes {
            return Ok(None);
        }
        let _loose = lock(&self.loose);
        // Should it be there already, libgit2 only says that it is wanted: it has been written just now.
        let id = ObjectId::from(writer.finalize()?);
        // libgit2 leaves it to the system when it is on disk.
        let hex = id.to_string();
        let directory = self.directory.join("objects").join(&hex[..2]);
        fs::File::open(directory.join(&hex[2..]))?.sync_all()?;
        fs::File::open(directory)?.sync_all()?;
        Ok(Some(id))
    }

    /// Begins to write objects.
    pub fn batch(self: &Arc<Self>) -> Batch {
        let era = {
            let mut writing = lock(&self.writing);
            let era = writing.era;
            *writing.under_way.entry(era).or_default() += 1;
            era
        };
        let writer = Mutex::new(PackWriter::new(&self.packs()));
        Batch { vault: self.clone(), era, writer: Some(writer) }
    }

    /// From now on, these are as good as gone for whoever begins to write.
    pub(super) fn condemn(&self, objects: HashSet<ObjectId>) {
        *self.condemned.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(objects);
        lock(&self.writing).era += 1;
    }

    /// Whether everybody who began to write before the last [`Vault::condemn`] is done.
    pub(super) fn is_settled(&self) -> bool {
        let writing = lock(&self.writing);
        writing.under_way.range(..writing.era).next().is_none()
    }

    /// Keeps a tree until somebody has written down that it is wanted.
    pub fn pin(self: &Arc<Self>, tree: ObjectId) -> Pin {
        *lock(&self.pinned).entry(tree).or_default() += 1;
        Pin { vault: self.clone(), tree }
    }

    pub(super) fn pinned(&self) -> Vec<ObjectId> {
        lock(&self.pinned).keys().copied().collect()
    }

    /// Gives trees references, so that any git knows that they are wanted.
    pub fn keep(&self, trees: &[ObjectId]) -> Result<(), Error> {
        if trees.is_empty() {
            return Ok(());
        }
        let _references = lock(&self.references);
        let mut lines = String::new();
        trees.iter().for_each(|tree| lines.push_str(&reference(*tree)));
        let path = self.directory.join("packed-refs");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
        Ok(file.write_all(lines.as_bytes())?)
    }

    /// How long the list of references is: what is kept from now on stands behind that.
    pub(super) fn references_bytes(&self) -> Result<usize, Error> {
        let _references = lock(&self.references);
        match fs::metadata(self.directory.join("packed-refs")) {
            Ok(metadata) => Ok(usize::try_from(metadata.len()).map_err(io::Error::other)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the references of trees away that stand in the first so many bytes of the list.
    pub(super) fn release(&self, trees: &HashSet<ObjectId>, bytes: usize) -> Result<(), Error> {
        let _references = lock(&self.references);
        let names: HashSet<_> = trees.iter().copied().map(reference).collect();
        let mut at = 0;
        Ok(rewrite_references(&self.directory, |line| {
            at += line.len();
            at > bytes || !names.contains(line)
        })?)
    }

    /// How much the store takes up.
    pub fn bytes(&self) -> Result<u64, Error> {
        let mut bytes = 0;
        let objects = self.directory.join("objects");
        for entry in fs::read_dir(&objects)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(entry.path())? {
                // One that goes meanwhile takes up nothing.
                bytes += file?.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        Ok(bytes)
    }

    /// How many bytes were added since the server started.
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }
}

/// One name for a tree; a tree that several snapshots share has one.
fn reference(tree: ObjectId) -> String {
    format!("{tree} refs/bowline/{tree}\n")
}

/// A store through a handle of one's own.
pub struct Reader {
    odb: Odb<'static>,
}

impl Reader {
    /// The content of an object.
    pub fn read(&self, id: ObjectId) -> Result<Vec<u8>, Error> {
        read(&self.odb, id)
    }

    /// The entries of a directory.
    pub fn tree(&self, id: ObjectId) -> Result<Vec<Item>, Error> {
        Ok(tree::parse(&self.read(id)?)?)
    }

    /// How long a content is.
    pub fn length(&self, id: ObjectId) -> Result<u64, Error> {
        let (bytes, _) = self.odb.read_header(oid(id)?).map_err(|error| lost(error, id))?;
        Ok(bytes as u64)
    }

    /// Whether an object is there.
    pub fn contains(&self, id: ObjectId) -> bool {
        oid(id).is_ok_and(|oid| self.odb.exists(oid))
    }

    /// Every object there is.
    pub(super) fn each(&self, mut found: impl FnMut(ObjectId)) -> Result<(), Error> {
        Ok(self.odb.foreach(|oid| {
            found(ObjectId::from(*oid));
            true
        })?)
    }

    /// Copies a content somewhere else. What is long stands in a file of its own, and is never held in memory.
    pub fn copy_to(&self, id: ObjectId, into: &mut impl Write) -> Result<(), Error> {
        if self.length(id)? > STREAMED_FILE_BYTES_LEAST
            && let Ok((mut reader, ..)) = self.odb.reader(oid(id)?)
        {
            io::copy(&mut reader, into)?;
            return Ok(());
        }
        Ok(into.write_all(&self.read(id)?)?)
    }

    fn streamed_piece(&self, id: ObjectId, offset: u64, most: usize) -> Result<Vec<u8>, Error> {
        let mut piece = Vec::with_capacity(most);
        match self.odb.reader(oid(id)?) {
            Ok((mut reader, ..)) => {
                io::copy(&mut (&mut reader).take(offset), &mut io::sink())?;
                reader.take(most as u64).read_to_end(&mut piece)?;
            }
            Err(_) => {
                let bytes = self.read(id)?;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = bytes.len().min(from.saturating_add(most));
                piece.extend_from_slice(&bytes[from..to]);
            }
        }
        Ok(piece)
    }
}

fn open_odb(objects: &Path) -> Result<Odb<'static>, Error> {
    let odb = Odb::new()?;
    let path = objects
        .to_str()
        .ok_or_else(|| Error::Io(io::Error::other("the data directory's path is not UTF-8")))?;
    odb.add_disk_alternate(path)?;
    Ok(odb)
}

fn read(odb: &Odb<'_>, id: ObjectId) -> Result<Vec<u8>, Error> {
    let object = odb.read(oid(id)?).map_err(|error| lost(error, id))?;
    Ok(object.data().to_vec())
}

fn lost(error: git2::Error, id: ObjectId) -> Error {
    match error.code() {
        git2::ErrorCode::NotFound => Error::Lost(id),
        _ => Error::Git(error),
    }
}

/// Takes away what a crash has left half written, or half taken away.
pub(super) fn clear(directories: &[&Path]) -> io::Result<()> {
    for directory in directories {
        for entry in fs::read_dir(directory)? {
            let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            let name = entry.as_encoded_bytes();
            let temporary = [TEMPORARY, "tmp_object_git2_"];
            let begun = temporary.iter().any(|it| name.starts_with(it.as_bytes()));
            // Nobody finds a pack without its index.
            let lonely = name.ends_with(b".pack") && !path.with_extension("idx").exists();
            match (begun || lonely).then(|| path.is_dir()) {
                Some(true) => fs::remove_dir_all(path)?,
                Some(false) => fs::remove_file(path)?,
                None => {}
            }
        }
    }
    Ok(())
}

/// Writes those references again that are to stay, each once; what a crash has cut short goes.
fn rewrite_references(directory: &Path, mut stays: impl FnMut(&str) -> bool) -> io::Result<()> {
    let path = directory.join("packed-refs");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let whole =
        |line: &str| line.len() == reference(ObjectId([0; 20])).len() && line.ends_with('\n');
    let lines: std::collections::BTreeSet<_> =
        text.split_inclusive('\n').filter(|line| stays(line) && whole(line)).collect();
    let lines: String = lines.into_iter().collect();
    if lines != text { write_whole(&path, lines.as_bytes()) } else { Ok(()) }
}

/// Objects on their way into the store, from any number of threads.
pub struct Batch {
    vault: Arc<Vault>,
    era: u64,
    writer: Option<Mutex<PackWriter>>,
}

impl Batch {
    /// The store.
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Puts an object in, unless it is there.
    pub fn put(&self, kind: pack::Kind, bytes: &[u8]) -> Result<ObjectId, Error> {
        let id = pack::name(kind, bytes)?;
        let Some(writer) = &self.writer else { return Ok(id) };
        if lock(writer).contains(&id) || self.vault.contains(&id) {
            return Ok(id);
        }
        let packed = pack::pack_as(id, kind, bytes);
        lock(writer).add(&packed)?;
        Ok(id)
    }

    /// Puts a directory in; the entries must be in order.
    pub fn put_tree<'a>(
        &self,
        items: impl Iterator<Item = (&'a [u8], Held)>,
    ) -> Result<ObjectId, Error> {
        let mut bytes = Vec::new();
        tree::encode(items, &mut bytes);
        self.put(pack::Kind::Tree, &bytes)
    }

    /// When this returns, all of it is on disk. How many bytes that took.
    pub fn finish(mut self) -> Result<u64, Error> {
        let Some(writer) = self.writer.take() else { return Ok(0) };
        let writer = writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let bytes = writer.finish()?;
        if bytes > 0 {
            self.vault.added.fetch_add(bytes, Ordering::Relaxed);
            self.vault.refresh()?;
        }
        Ok(bytes)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut writing = lock(&self.vault.writing);
        if let Some(count) = writing.under_way.get_mut(&self.era) {
            *count -= 1;
            if *count == 0 {
                writing.under_way.remove(&self.era);
            }
        }
    }
}

/// A tree that is kept as long as this is.
pub struct Pin {
    vault: Arc<Vault>,
    tree: ObjectId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pinned = lock(&self.vault.pinned);
        if let Some(count) = pinned.get_mut(&self.tree) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&self.tree);
            }
        }
    }
}

/// A file whose content is the old or the new, whatever happens.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!("{TEMPORARY}{name}"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// No code panics while it holds one of these locks and leaves something half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
