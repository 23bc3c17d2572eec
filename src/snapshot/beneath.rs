//! Files beneath one directory, and nothing outside of it, whatever the names say and whoever moves things about.
//!
//! A path is walked by the kernel, which is told not to leave the root and to follow no link. What is done then is
//! done to a name in the directory that was found, never to a path.

use rustix::fs::{AtFlags, FileType, Mode as Permissions, OFlags, ResolveFlags, Stat as Raw};
use rustix::fs::{fstat, openat, openat2, statat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory nothing leads out of.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether the kernel does without `openat2`, which is asked once.
static WITHOUT_OPENAT2: AtomicBool = AtomicBool::new(false);

impl Root {
    /// Opens a directory that is named by whoever runs the server, or was allowed by it. Links on the way there
    /// are its own affair.
    pub fn open(path: &Path) -> rustix::io::Result<Self> {
        let fd = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Permissions::empty(),
        )?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// A directory beneath as a root of its own. `path` says where it lies, all of it.
    pub fn beneath(&self, path: &Path) -> rustix::io::Result<Root> {
        let steps = path.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        let fd = self.directory(steps.as_os_str().as_encoded_bytes())?;
        Ok(Root { fd, path: path.to_owned() })
    }

    /// The directory itself.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory beneath; the root itself for an empty path.
    pub fn directory(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        if path.is_empty() {
            return directory_in(self.fd(), b".");
        }
        // Nothing is ever asked for by such a name, so whoever comes with one means something else.
        if path.split(|byte| *byte == b'/').any(|step| matches!(step, b"" | b"." | b"..")) {
            return Err(Errno::INVAL);
        }
        if !WITHOUT_OPENAT2.load(Ordering::Relaxed) {
            let within = ResolveFlags::BENEATH
                .union(ResolveFlags::NO_SYMLINKS)
                .union(ResolveFlags::NO_MAGICLINKS);
            let opened = openat2(self.fd(), c_name(path)?, DIRECTORY, Permissions::empty(), within);
            match opened {
                Err(Errno::NOSYS | Errno::PERM) => WITHOUT_OPENAT2.store(true, Ordering::Relaxed),
                // Longer than one call takes, or moved meanwhile: step by step.
                Err(Errno::NAMETOOLONG | Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        let mut at = directory_in(self.fd(), b".")?;
        for step in path.split(|byte| *byte == b'/') {
            at = directory_in(at.as_fd(), step)?;
        }
        Ok(at)
    }
}

/// A directory that stands under a name in another one, if it is one and no link to one.
pub fn directory_in(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    openat(directory, c_name(name)?, DIRECTORY, Permissions::empty())
}

/// A file that stands under a name in a directory, to be read. Never waits for a pipe to be written to.
pub fn file_in(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, c_name(name)?, flags | OFlags::NOCTTY, Permissions::empty())
}

/// What stands under a name in a directory; none if nothing does.
pub fn stat_in(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match statat(directory, c_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(raw) => Ok(Some(Stat::from(&raw))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an open file or directory is.
pub fn stat_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    fstat(fd).map(|raw| Stat::from(&raw))
}

/// Where a link that stands under a name leads.
pub fn link_in(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    rustix::fs::readlinkat(directory, c_name(name)?, Vec::new()).map(CString::into_bytes)
}

/// A name as the kernel takes it.
pub fn c_name(name: &[u8]) -> rustix::io::Result<CString> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// The kind of thing that stands somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// A file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Directory,
    /// A socket, a pipe, a device.
    Special,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Link,
            FileType::Directory => Kind::Directory,
            _ => Kind::Special,
        }
    }
}

/// What the file system says about something without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Who may use it.
    pub permissions: u16,
    /// Which one it is.
    pub device: u64,
    /// Which one it is on that device.
    pub inode: u64,
    /// How long.
    pub bytes: u64,
    /// When its content was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// When anything about it was.
    pub changed_ns: i64,
}

impl From<&Raw> for Stat {
    fn from(raw: &Raw) -> Self {
        let ns = |seconds: i64, ns: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(ns).unwrap_or(0))
        };
        Self {
            kind: FileType::from_raw_mode(raw.st_mode).into(),
            permissions: (raw.st_mode & 0o777) as u16,
            device: raw.st_dev,
            inode: raw.st_ino,
            bytes: u64::try_from(raw.st_size).unwrap_or(0),
            modified_ns: ns(raw.st_mtime, raw.st_mtime_nsec),
            changed_ns: ns(raw.st_ctime, raw.st_ctime_nsec),
        }
    }
}

/// How long after a change a file system may give another one the same time.
const TICK_NS: i64 = 50_000_000;
/// The same where it knows no fractions of a second, or only even ones.
const COARSE_TICK_NS: i64 = 2_100_000_000;

impl Stat {
    /// Whether what was read when this was seen, at that time, is still there as long as this does not change: not if
    /// it could have been changed again in the same tick of the file system's clock.
    pub fn is_settled(&self, seen_ns: i64) -> bool {
        let whole = |ns: i64| ns % 1_000_000_000 == 0;
        let tick = match whole(self.modified_ns) && whole(self.changed_ns) {
            true => COARSE_TICK_NS,
            false => TICK_NS,
        };
        self.modified_ns.max(self.changed_ns).saturating_add(tick) < seen_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_leads_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside/b")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink(dir.path().join("outside"), root.join("absolute")).unwrap();
        symlink("a", root.join("inside")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        for stepwise in [false, true] {
            WITHOUT_OPENAT2.store(stepwise, Ordering::Relaxed);
            let root = Root::open(&root).unwrap();
            for good in ["", "a", "a/b"] {
                root.directory(good.as_bytes()).unwrap();
            }
            let bad = [
                "..",
                "a/..",
                "a/../..",
                "out",
                "out/b",
                "absolute/b",
                "inside",
                "inside/b",
                "magic",
                "magic/etc",
                "/etc",
                "a//b",
                "a/./b",
                "a/b/",
                "a\0b",
            ];
            for bad in bad {
                assert!(root.directory(bad.as_bytes()).is_err(), "{bad}");
            }
            assert!(file_in(root.fd(), b"out").is_err());
        }
        WITHOUT_OPENAT2.store(false, Ordering::Relaxed);
    }

    #[test]
    fn what_was_changed_a_moment_ago_is_not_believed() {
        let stat = |modified_ns, changed_ns| Stat {
            kind: Kind::File,
            permissions: 0o644,
            device: 1,
            inode: 1,
            bytes: 1,
            modified_ns,
            changed_ns,
        };
        let second = 1_000_000_000;
        assert!(stat(1, 1).is_settled(second));
        assert!(!stat(1, second - 1).is_settled(second), "changed in the same tick");
        assert!(!stat(second * 5, 1).is_settled(second), "changed in the future");
        assert!(!stat(second, second).is_settled(second * 2), "a clock of whole seconds");
        assert!(stat(second, second).is_settled(second * 4));
    }
}
