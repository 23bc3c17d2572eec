//! The process: data directory, store, engine, sockets, workers, and an orderly end.
//!
//! capnp-rpc's objects cannot leave their thread, so each worker thread runs its own task set and owns
//! the connections it was given. What crosses threads is the [`House`]: engine, readers, limits.

mod connection;
mod identity;
mod listen;
mod worker;

pub use identity::RootRef;
pub use listen::ListenError;

use crate::clock::Clock;
use crate::config::Settings;
use crate::engine::Engine;
use crate::queries::{Readers, ReadersError};
use crate::rpc::{House, KeepRootRef};
use crate::store::data_dir::{DataDir, DataDirError, Holder};
use crate::store::{Store, StoreError};
use crate::upkeep::{audit, compaction, leases};
use crate::worktrees::{Setting, Worktrees};
use listen::Listeners;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;
use worker::Workers;

/// What a running server tells the one who started it.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Where it listens, as people write it.
    pub listening: Vec<String>,
    /// The data directory.
    pub data: PathBuf,
    /// The file with the root's sturdy ref.
    pub root_ref_file: PathBuf,
    /// What became of that file.
    pub root_ref: RootRef,
}

/// Why the server did not start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data directory cannot be held.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The database cannot be used.
    #[error("the database {} cannot be used: {error}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        error: StoreError,
    },
    /// The readers cannot be started.
    #[error(transparent)]
    Readers(#[from] ReadersError),
    /// Nobody could connect.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The root's ref cannot be kept.
    #[error("the root's sturdy ref cannot be kept in {}: {error}", path.display())]
    RootRef {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system gave no thread, signal handler or randomness.
    #[error("the system refused something the server needs: {0}")]
    System(#[from] io::Error),
    /// The writer gave up.
    #[error(
        "the server must stop: {0}. Nothing acknowledged is lost; see to the disk, then start again"
    )]
    Fatal(String),
    /// Something accepted could not be finished in time.
    #[error("the server stopped before everything was finished: {0}")]
    Unfinished(&'static str),
}

impl ServeError {
    /// Whether another server holds the data directory.
    pub fn is_held(&self) -> bool {
        matches!(self, ServeError::DataDir(DataDirError::Held { .. }))
    }
}

/// Writes a rotated root ref into its file. It is on disk in the store already: if the file cannot be
/// written, whoever rotated it has it, and the next start makes another.
fn keep_root_ref(file: PathBuf) -> KeepRootRef {
    Arc::new(move |sturdy_ref| {
        let file = file.clone();
        Box::pin(async move {
            let write = move || identity::write_root_ref(&file, &sturdy_ref);
            match tokio::task::spawn_blocking(write).await {
                Ok(Ok(())) => tracing::info!("the root's sturdy ref was rotated"),
                Ok(Err(error)) => {
                    tracing::error!(%error, "the root's new ref could not be written")
                }
                Err(error) => tracing::error!(%error, "the root's new ref was not written"),
            }
        })
    })
}

/// How far the server is along its way to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Takes calls.
    Serving,
    /// Finishes calls it took.
    Draining,
    /// Ends whatever is left.
    Ending,
}

/// Runs the server until `stop` says so. `ready` is called once clients can connect.
pub async fn run(
    settings: Settings,
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(&Ready),
    mut stop: mpsc::Receiver<()>,
) -> Result<(), ServeError> {
    let pid = std::process::id();
    let started_at_ms = clock.now_ms();
    let mut data = DataDir::hold(&settings.data, pid, started_at_ms)?;
    let path = data.database().map_err(|error| DataDirError::Io {
        path: settings.data.clone(),
        what: "making the database file",
        error,
    })?;
    let store_error = |error| ServeError::Store { path: path.clone(), error };
    let mut store = Store::open(&path).map_err(store_error)?;
    let me = identity::establish(&mut store, started_at_ms).map_err(|error| match error {
        identity::Error::Store(error) => store_error(error),
        identity::Error::System(error) => ServeError::System(error),
    })?;

    let listeners = Listeners::bind(&settings).await?;
    let root_ref_file = data.root_ref();
    let root_ref = identity::keep_root_ref(
        &mut store,
        &me,
        &root_ref_file,
        &listeners.ref_address(),
        started_at_ms,
    )
    .map_err(|error| match error {
        identity::Error::Store(error) => store_error(error),
        identity::Error::System(error) => {
            ServeError::RootRef { path: root_ref_file.clone(), error }
        }
    })?;

    let limits = settings.limits.clone();
    let readers = Readers::start(&path, settings.workers.max(2), limits.queue_reads_max)?;
    let (fatal, mut on_fatal) = mpsc::channel(1);
    let (sweep_clock, lease_clock, house_clock) = (clock.clone(), clock.clone(), clock.clone());
    let (engine, writer) = Engine::start(store, &limits, clock, move |why| {
        let _ = fatal.try_send(why.to_string());
    })?;
    let setting = Setting {
        data: settings.data.clone(),
        roots: settings.worktree_roots.clone(),
        watching: settings.watch_worktrees,
        limits: limits.clone(),
    };
    let worktrees =
        Worktrees::start(engine.clone(), readers.clone(), house_clock.clone(), setting)?;
    let house = House {
        engine,
        readers,
        worktrees: worktrees.clone(),
        realm: me.realm,
        verifier_key: me.verifier_key,
        incarnation: me.incarnation,
        limits: limits.clone(),
        address: listeners.ref_address(),
        clock: house_clock,
        strangers: Arc::default(),
        keep_root_ref: keep_root_ref(root_ref_file.clone()),
    };

    let (phase, phases) = watch::channel(Phase::Serving);
    let workers = Workers::start(settings.workers, &house, &phases)?;
    let listening = listeners.addresses();
    data.sign(&Holder { pid, since_ms: started_at_ms, listening: listening.clone() })?;
    // Before anybody can ask: what a crash left under way for too long is over.
    leases::end_due(&house.engine, &house.readers, lease_clock.as_ref()).await;
    let accepting = listeners.accept_into(workers.door(), limits.connections_max);
    let sweeping = {
        let (engine, readers) = (house.engine.clone(), house.readers.clone());
        let limits = limits.clone();
        tokio::spawn(async move {
            compaction::keep_sweeping(engine, readers, &limits, sweep_clock.as_ref()).await;
        })
    };
    let sweeping = AbortOnDropHandle::new(sweeping);
    let ending = {
        let (engine, readers) = (house.engine.clone(), house.readers.clone());
        tokio::spawn(async move {
            leases::keep_ending(engine, readers, lease_clock.as_ref()).await;
        })
    };
    let ending = AbortOnDropHandle::new(ending);
    let keeping = {
        let worktrees = worktrees.clone();
        tokio::spawn(async move {
            worktrees.recover().await;
            tokio::join!(worktrees.keep_closing(), worktrees.keep_within_bounds());
        })
    };
    let keeping = AbortOnDropHandle::new(keeping);
    let noting = AbortOnDropHandle::new(tokio::spawn(audit::keep_noting(house.engine.clone())));
    ready(&Ready { listening, data: data.path().to_owned(), root_ref_file, root_ref });

    tokio::select! {
        _ = stop.recv() => {}
        Some(why) = on_fatal.recv() => return Err(ServeError::Fatal(why)),
    }

    tracing::info!("stopping: finishing the calls that were accepted");
    drop((accepting, sweeping, ending, keeping, noting));
    let engine = house.engine.clone();
    drop(house);
    let _ = phase.send(Phase::Draining);
    let grace = Duration::from_millis(limits.shutdown_ms_max);
    let finish = async {
        let drained = tokio::time::timeout(grace, workers.ended()).await.is_ok();
        let _ = phase.send(Phase::Ending);
        if !drained {
            tracing::warn!("some connections did not end in time and were dropped");
            workers.ended().await;
        }
        worktrees.finish().await;
        if let Err(refusal) = engine.write_notes().await {
            tracing::warn!(%refusal, "the last refusals and reads could not be written down");
        }
        // The writer may be in the middle of a commit; it is not to be waited for on this thread.
        tokio::task::spawn_blocking(move || writer.finish()).await
    };
    tokio::select! {
        _ = stop.recv() => Err(ServeError::Unfinished("told twice to stop")),
        Some(why) = on_fatal.recv() => Err(ServeError::Fatal(why)),
        // Twice the grace: once for the connections, once for the last commit.
        finished = tokio::time::timeout(grace * 2, finish) => match finished {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(fatal))) => Err(ServeError::Fatal(fatal.to_string())),
            Ok(Err(_)) => Err(ServeError::Unfinished("the writer could not be joined")),
            Err(_) => Err(ServeError::Unfinished("the last commit did not return in time")),
        },
    }
}
