//! Worker threads, each with its own task set and the connections it was given.

use super::{Phase, connection};
use crate::limits::{WORKER_BACKLOG_MAX, WORKER_STACK_BYTES};
use crate::rpc::{House, Peer};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet, LocalSet};
use tracing::Instrument;

/// A connection on its way to a worker.
pub(super) enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// A place among the connections of the server and of one worker; given back when dropped.
pub(super) struct Ticket {
    all: Arc<AtomicUsize>,
    worker: Arc<AtomicUsize>,
    at: usize,
    /// Which of all connections since the start, for the log.
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        self.worker.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Entrance {
    sockets: mpsc::Sender<(Socket, Ticket)>,
    connections: Arc<AtomicUsize>,
}

/// Where connections are handed to workers.
#[derive(Clone)]
pub(super) struct Door {
    entrances: Vec<Entrance>,
    connections: Arc<AtomicUsize>,
    numbers: Arc<AtomicU64>,
}

impl Door {
    /// A place for one more connection, on the worker that has the fewest.
    pub(super) fn admit(&self, connections_max: usize) -> Option<Ticket> {
        let load = |at: &usize| self.entrances[*at].connections.load(Ordering::Relaxed);
        let at = (0..self.entrances.len()).min_by_key(load)?;
        let worker = self.entrances[at].connections.clone();
        worker.fetch_add(1, Ordering::Relaxed);
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let ticket = Ticket { all: self.connections.clone(), worker, at, number };
        (before < connections_max).then_some(ticket)
    }

    /// Hands a connection over. One whose worker cannot keep up is closed.
    pub(super) fn hand_over(&self, socket: io::Result<Socket>, ticket: Ticket) {
        match socket {
            Err(error) => tracing::warn!(%error, "a connection could not be handed over"),
            Ok(socket) => {
                let entrance = &self.entrances[ticket.at];
                if entrance.sockets.try_send((socket, ticket)).is_err() {
                    tracing::warn!("a worker is too busy for one more connection; it was closed");
                }
            }
        }
    }
}

/// The worker threads.
pub(super) struct Workers {
    door: Door,
    ended: watch::Receiver<usize>,
    count: usize,
}

impl Workers {
    pub(super) fn start(
        count: usize,
        house: &House,
        phases: &watch::Receiver<Phase>,
    ) -> io::Result<Self> {
        let connections = Arc::new(AtomicUsize::new(0));
        let (ended, all_ended) = watch::channel(0);
        let mut entrances = Vec::new();
        for number in 0..count {
            let (sockets, mine) = mpsc::channel(WORKER_BACKLOG_MAX);
            let (house, phases, ended) = (house.clone(), phases.clone(), ended.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .stack_size(WORKER_STACK_BYTES)
                .spawn(move || {
                    LocalSet::new().block_on(&runtime, work(Rc::new(house), mine, phases));
                    ended.send_modify(|count| *count += 1);
                })?;
            entrances.push(Entrance { sockets, connections: Arc::new(AtomicUsize::new(0)) });
        }
        let door = Door { entrances, connections, numbers: Arc::default() };
        Ok(Self { door, ended: all_ended, count })
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Waits until every worker has gone.
    pub(super) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended == self.count).await;
    }
}

/// Serves connections until the server drains, then waits for those that are left.
async fn work(
    house: Rc<House>,
    mut sockets: mpsc::Receiver<(Socket, Ticket)>,
    mut phases: watch::Receiver<Phase>,
) {
    let mut connections = JoinSet::new();
    let mut draining = phases.clone();
    loop {
        tokio::select! {
            Some((socket, ticket)) = sockets.recv() => {
                let (house, phases) = (house.clone(), phases.clone());
                let span = tracing::info_span!("connection", number = ticket.number);
                let served = async move {
                    let served = serve(house, socket, phases).await;
                    drop(ticket);
                    served
                };
                connections.spawn_local(served.instrument(span));
            }
            Some(ended) = connections.join_next() => report(ended),
            _ = draining.wait_for(|phase| *phase != Phase::Serving) => break,
        }
    }
    sockets.close();
    loop {
        tokio::select! {
            ended = connections.join_next() => match ended {
                Some(ended) => report(ended),
                None => return,
            },
            _ = phases.wait_for(|phase| *phase == Phase::Ending) => return,
        }
    }
}

async fn serve(house: Rc<House>, socket: Socket, phases: watch::Receiver<Phase>) -> io::Result<()> {
    match socket {
        Socket::Tcp(stream) => {
            let peer = stream.peer_addr().map_or(Peer::Unknown, |from| Peer::Address(from.ip()));
            let (reader, writer) = TcpStream::from_std(stream)?.into_split();
            connection::serve(house, reader, writer, peer, phases).await;
        }
        Socket::Unix(stream) => {
            let stream = UnixStream::from_std(stream)?;
            let peer = stream.peer_cred().map_or(Peer::Unknown, |user| Peer::User(user.uid()));
            let (reader, writer) = stream.into_split();
            connection::serve(house, reader, writer, peer, phases).await;
        }
    }
    Ok(())
}

fn report(ended: Result<io::Result<()>, JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a connection could not be taken up"),
        // The panic itself is in the log already, from the hook.
        Err(error) => tracing::error!(%error, "a method panicked; its connection was dropped"),
    }
}
