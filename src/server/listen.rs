//! Sockets: bind them, accept from them, hand the connections to workers.

use super::worker::{Door, Socket};
use crate::config::Settings;
use crate::limits::{OWNER_CONNECTIONS_MAX, TURNED_AWAY_MAX};
use crate::model::code::Code;
use crate::transport::turned_away;
use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a connection that is turned away may take to hear why.
const TURNING_AWAY: Duration = Duration::from_secs(1);
/// Pause after a failed accept, which usually means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Nobody could connect.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// On TCP.
    #[error("cannot listen on tcp {address}: {error}; choose another with --tcp, or --tcp off")]
    Tcp {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// On a Unix socket.
    #[error("cannot listen on unix {}: {error}; choose another with --unix, or --unix off", path.display())]
    Unix {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

pub(super) struct Listeners {
    tcp: Option<(TcpListener, SocketAddr)>,
    unix: Option<(UnixListener, SocketFile)>,
}

/// Removes the socket when the server ends in order.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Accepts until it is dropped.
pub(super) struct Accepting {
    _tasks: JoinSet<()>,
    _socket_file: Option<SocketFile>,
}

impl Listeners {
    pub(super) async fn bind(settings: &Settings) -> Result<Self, ListenError> {
        let tcp = match settings.tcp {
            None => None,
            Some(address) => {
                let trouble = |error| ListenError::Tcp { address, error };
                let listener = TcpListener::bind(address).await.map_err(trouble)?;
                let bound = listener.local_addr().map_err(trouble)?;
                Some((listener, bound))
            }
        };
        let unix = match &settings.unix {
            None => None,
            Some(path) => {
                let trouble = |error| ListenError::Unix { path: path.clone(), error };
                Some(bind_unix(path).map_err(trouble)?)
            }
        };
        Ok(Self { tcp, unix })
    }

    /// Where clients can connect, as people write it.
    pub(super) fn addresses(&self) -> Vec<String> {
        let unix = self.unix.as_ref().map(|(_, file)| format!("unix:{}", file.0.display()));
        let tcp = self.tcp.as_ref().map(|(_, address)| format!("tcp:{address}"));
        unix.into_iter().chain(tcp).collect()
    }

    /// The address that goes into refs.
    pub(super) fn ref_address(&self) -> String {
        self.tcp.as_ref().map_or_else(|| "localhost".to_owned(), |(_, address)| address.to_string())
    }

    /// Hands every connection to a worker, as long as the result is kept.
    pub(super) fn accept_into(self, door: Door, connections_max: usize) -> Accepting {
        let mut tasks = JoinSet::new();
        let turning = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        if let Some((listener, _)) = self.tcp {
            let (door, turning) = (door.clone(), turning.clone());
            tasks.spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            // Small calls must not wait for more bytes to travel with.
                            let _ = stream.set_nodelay(true);
                            match door.admit(connections_max) {
                                Some(ticket) => {
                                    door.hand_over(stream.into_std().map(Socket::Tcp), ticket)
                                }
                                None => turn_away(stream, &turning),
                            }
                        }
                        Err(error) => pause(&error).await,
                    }
                }
            });
        }
        let mut socket_file = None;
        if let Some((listener, file)) = self.unix {
            socket_file = Some(file);
            tasks.spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            match door.admit(connections_max + OWNER_CONNECTIONS_MAX) {
                                Some(ticket) => {
                                    door.hand_over(stream.into_std().map(Socket::Unix), ticket)
                                }
                                None => turn_away(stream, &turning),
                            }
                        }
                        Err(error) => pause(&error).await,
                    }
                }
            });
        }
        Accepting { _tasks: tasks, _socket_file: socket_file }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Tells one connection too many why it is closed, if not too many are being told already.
fn turn_away(mut stream: impl AsyncWrite + Unpin + Send + 'static, turning: &Arc<Semaphore>) {
    let Ok(permit) = turning.clone().try_acquire_owned() else { return };
    tracing::warn!("a connection was turned away: as many are served as may be");
    tokio::spawn(async move {
        let told = async {
            stream.write_all(&turned_away(Code::TooManyConnections)).await?;
            stream.shutdown().await
        };
        let _ = tokio::time::timeout(TURNING_AWAY, told).await;
        drop(permit);
    });
}

/// Binds a Unix socket, in place of one that a killed server left behind. The data directory's lock is
/// held, so no living server of ours listens there; anything that is not a socket is left alone.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((listener, SocketFile(path.to_owned())))
}
