//! Work trees in use: what happens to their files, and what is recorded of it, in one order.
//!
//! Each has a thread of its own while somebody needs it. A job there looks at files, changes them, has the engine write
//! down what was done, and takes it back if that is refused, before the next one begins: so there are no locks that could
//! be left behind, and nobody sees half of it. What has begun is finished, whether its caller still waits or not.
//!
//! Which rights somebody has, the wire's door has asked; whether a grant still stands, the engine asks once more.

mod desk;
mod error;
mod keeping;
mod leases;
mod moving;
mod reading;
mod roots;
mod sandboxes;
mod tracking;
mod turns;
mod worker;

pub use desk::{Ask, Desk};
pub use error::Trouble;
pub use moving::{Patch, Report, Restore};
pub use reading::{Difference, Listed, Told};
pub use sandboxes::Kept;
pub use tracking::Track;
pub use turns::RevertSession;

use crate::clock::Clock;
use crate::engine::{Engine, Recording};
use crate::limits::{Limits, WORKTREES_OPEN_MAX};
use crate::model::ids::{GrantKey, LogId};
use crate::model::infos::ProjectKey;
use crate::model::worktree::{Actor, WorktreeKey};
use crate::ops::{OpenWorktree, Record, Recorded};
use crate::queries::Readers;
use crate::snapshot::vault::{Vault, lock};
use leases::PathLeases;
use roots::Roots;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Semaphore;
use worker::Worker;

/// What there is to know before work trees can be used.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The server's own directory.
    pub data: PathBuf,
    /// Directories beneath which work trees may lie.
    pub roots: Vec<PathBuf>,
    /// Whether to be told by the kernel where something happens.
    pub watching: bool,
    /// How much of everything.
    pub limits: Limits,
}

/// A handle to all of them; cheap to clone, and safe to use from any thread.
#[derive(Clone)]
pub struct Worktrees {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    readers: Readers,
    clock: Arc<dyn Clock>,
    setting: Setting,
    roots: Roots,
    threads: Arc<rayon::ThreadPool>,
    workers: Mutex<HashMap<LogId, Worker>>,
    vaults: Mutex<HashMap<LogId, Weak<Vault>>>,
    leases: Mutex<HashMap<LogId, PathLeases>>,
    /// Turns of which snapshots were taken and that have not been closed.
    running: Mutex<HashSet<(Actor, LogId)>>,
    /// Questions about what snapshots hold that are answered at one time.
    reading: Arc<Semaphore>,
    collecting: Mutex<()>,
    closed: AtomicBool,
}

/// Stack of a thread that goes through directories within directories.
const STACK_BYTES: usize = 16 << 20;

/// Questions about what snapshots hold that are answered at one time.
const READS_AT_ONCE_MAX: usize = 4;

impl Worktrees {
    /// Makes ready for them.
    pub fn start(
        engine: Engine,
        readers: Readers,
        clock: Arc<dyn Clock>,
        setting: Setting,
    ) -> io::Result<Self> {
        let threads = rayon::ThreadPoolBuilder::new()
            .thread_name(|number| format!("walker-{number}"))
            .stack_size(STACK_BYTES)
            .build()
            .map_err(io::Error::other)?;
        let roots = Roots::new(&setting);
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                readers,
                clock,
                setting,
                roots,
                threads: Arc::new(threads),
                workers: Mutex::default(),
                vaults: Mutex::default(),
                leases: Mutex::default(),
                running: Mutex::default(),
                reading: Arc::new(Semaphore::new(READS_AT_ONCE_MAX)),
                collecting: Mutex::default(),
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// The work tree of a directory, known from now on.
    pub async fn open(
        &self,
        grant: GrantKey,
        project: ProjectKey,
        directory: String,
    ) -> Result<WorktreeKey, Trouble> {
        self.inner.roots.check(Path::new(&directory), false)?;
        self.known(grant, project, directory, None).await
    }

    async fn known(
        &self,
        grant: GrantKey,
        project: ProjectKey,
        directory: String,
        sandbox: Option<String>,
    ) -> Result<WorktreeKey, Trouble> {
        let record = Record::OpenWorktree(OpenWorktree { project, directory, sandbox });
        let recording = Recording { grant: Some(grant), record };
        match self.inner.engine.record(recording).answer().await? {
            Recorded::Worktree(key) => Ok(key),
            _ => Err(Trouble::Impossible),
        }
    }

    /// The work tree of a session, known from now on.
    pub async fn of_session(
        &self,
        grant: GrantKey,
        session: LogId,
    ) -> Result<WorktreeKey, Trouble> {
        let (project, known, directory) = self.inner.readers.session_worktree(session).await?;
        match known {
            Some(key) => Ok(key),
            None => self.open(grant, project, directory).await,
        }
    }

    /// Does something at a work tree, when its turn has come.
    pub async fn at<T: Send + 'static>(
        &self,
        key: &WorktreeKey,
        job: impl FnOnce(&mut Desk) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.inner.hand_to(
            key,
            Box::new(move |desk| {
                let done = desk.and_then(job);
                let _ = reply.send(done);
            }),
        )?;
        answer.await.unwrap_or(Err(Trouble::Stopping))
    }

    /// No more work is taken; what has begun is finished.
    pub async fn finish(&self) {
        let inner = self.inner.clone();
        let waited = tokio::task::spawn_blocking(move || {
            inner.closed.store(true, Ordering::Release);
            let workers: Vec<Worker> =
                lock(&inner.workers).drain().map(|(_, worker)| worker).collect();
            workers.into_iter().for_each(Worker::finish);
        });
        if waited.await.is_err() {
            tracing::error!("a thread of a worktree could not be joined");
        }
    }
}

impl Inner {
    /// The store of a project's snapshots.
    fn vault(&self, project: LogId) -> Result<Arc<Vault>, Trouble> {
        let mut vaults = lock(&self.vaults);
        if let Some(vault) = vaults.get(&project).and_then(Weak::upgrade) {
            return Ok(vault);
        }
        let vault = Arc::new(Vault::open(&self.home(project).join("vault.git"))?);
        vaults.insert(project, Arc::downgrade(&vault));
        Ok(vault)
    }

    /// Where the server keeps what belongs to a project's files.
    fn home(&self, project: LogId) -> PathBuf {
        self.setting.data.join("snapshots").join(project.0.to_string())
    }

    fn home_of(&self, key: &WorktreeKey) -> PathBuf {
        self.home(key.project).join(format!("worktree-{}", key.log.0))
    }

    fn hand_to(self: &Arc<Self>, key: &WorktreeKey, job: worker::Job) -> Result<(), Trouble> {
        let mut workers = lock(&self.workers);
        if self.closed.load(Ordering::Acquire) {
            return Err(Trouble::Stopping);
        }
        if !workers.contains_key(&key.log) {
            if workers.len() >= WORKTREES_OPEN_MAX {
                return Err(Trouble::Overloaded);
            }
            workers.insert(key.log, Worker::start(self.clone(), key.clone())?);
        }
        match workers.get(&key.log) {
            Some(worker) => worker.hand(job),
            None => Err(Trouble::Stopping),
        }
    }

    /// Waits for something that is written down or looked up elsewhere. Never on a thread that others wait for.
    fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        futures::executor::block_on(answer)
    }
}
