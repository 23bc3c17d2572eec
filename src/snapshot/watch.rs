//! Being told by the kernel where something happened, so that the rest need not be looked at.
//!
//! It only ever saves work. Whatever it cannot promise (too many directories, events that were lost, file systems that
//! change elsewhere) is answered by looking at everything.

use super::vault::lock;
use crate::limits::WATCHED_DIRECTORIES_MAX;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directories of a work tree, watched.
pub struct Watch {
    fd: OwnedFd,
    paths: Mutex<HashMap<i32, Box<[u8]>>>,
    /// Not all of them are, so what it says is worth nothing.
    incomplete: AtomicBool,
}

/// What happened since it was last asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something in these directories, and nowhere else.
    In(HashSet<Box<[u8]>>),
    /// Nobody knows.
    Lost,
}

const EVENTS_BYTES: usize = 64 << 10;

impl Watch {
    /// One that watches nothing yet; none if the system has none to give.
    pub fn start() -> Option<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        Some(Self { fd, paths: Mutex::default(), incomplete: AtomicBool::new(false) })
    }

    /// Whether everything it was asked to watch is watched.
    pub fn is_complete(&self) -> bool {
        !self.incomplete.load(Ordering::Relaxed)
    }

    /// Begins to watch a directory. What happens in it after this returns will be heard.
    pub fn add(&self, directory: BorrowedFd<'_>, path: &[u8]) -> bool {
        let mut paths = lock(&self.paths);
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(&self.fd, opened, flags) {
            Ok(number) if paths.len() < WATCHED_DIRECTORIES_MAX => {
                paths.insert(number, path.into());
                true
            }
            _ => {
                self.incomplete.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Where something happened since the last time.
    pub fn heard(&self) -> Heard {
        let mut paths = lock(&self.paths);
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let (mut heard, mut lost) = (HashSet::new(), false);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    lost = true;
                    break;
                }
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            if let Some(path) = paths.get(&event.wd()) {
                heard.insert(path.clone());
            }
            if event.events().contains(ReadFlags::IGNORED) {
                paths.remove(&event.wd());
            }
        }
        if lost { Heard::Lost } else { Heard::In(heard) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn what_happens_is_heard_and_what_was_lost_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::start().unwrap();
        let fd = fs::File::open(dir.path()).unwrap();
        assert!(watch.add(fd.as_fd(), b"here"));
        assert_eq!(watch.heard(), Heard::In(HashSet::new()));
        let here = || Heard::In(HashSet::from([b"here".as_slice().into()]));
        fs::write(dir.path().join("a"), "1").unwrap();
        assert_eq!(watch.heard(), here());
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_eq!(watch.heard(), here());
        assert_eq!(watch.heard(), Heard::In(HashSet::new()));
        // More than the kernel keeps.
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        for n in 0..most.trim().parse::<usize>().unwrap() / 2 + 10 {
            fs::write(dir.path().join((n % 50).to_string()), "x").unwrap();
        }
        assert_eq!(watch.heard(), Heard::Lost);
        assert!(watch.is_complete());
    }
}
