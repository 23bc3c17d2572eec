//! Bytes on their way to the peer.
//!
//! capnp-rpc flushes after every message, which costs a system call each. Here a message is only put
//! down; a task of its own picks up whatever lies there after everybody else had a turn.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// A buffer that grew beyond this for one burst is given back.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// What waits to be written on one connection.
#[derive(Default)]
pub struct Outbound {
    waiting: RefCell<Vec<u8>>,
    in_write: Cell<usize>,
    state: Cell<State>,
    wake: Notify,
    progress: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// Nothing is added any more; the rest is being written.
    Closing,
    /// Nothing is written any more.
    Over,
}

impl Outbound {
    /// Puts a message down to be written. Nothing happens once the connection is over.
    pub fn put<A: capnp::message::Allocator>(&self, message: &capnp::message::Builder<A>) {
        if self.state.get() == State::Over {
            return;
        }
        // Writing into memory cannot fail.
        let _ = capnp::serialize::write_message(&mut *self.waiting.borrow_mut(), message);
        self.wake.notify_one();
    }

    /// Bytes the peer has not taken yet.
    pub fn backlog_bytes(&self) -> usize {
        self.waiting.borrow().len() + self.in_write.get()
    }

    /// Waits until at most `bytes_max` wait for the peer, or nothing will ever be written again. The
    /// stall limit of [`Outbound::drive`] bounds the wait.
    pub async fn room(&self, bytes_max: usize) {
        loop {
            let progress = self.progress.notified();
            if self.backlog_bytes() <= bytes_max || self.is_over() {
                return;
            }
            progress.await;
        }
    }

    /// Lets the writer end once all is written.
    pub fn close(&self) {
        if self.state.get() == State::Open {
            self.state.set(State::Closing);
            self.wake.notify_one();
        }
    }

    /// Whether nothing is written any more.
    pub fn is_over(&self) -> bool {
        self.state.get() == State::Over
    }

    /// Writes until [`Outbound::close`], or until the peer takes nothing for `stall`.
    pub async fn drive(&self, io: impl AsyncWrite + Unpin, stall: Duration) -> io::Result<()> {
        let ended = self.write_until_closed(io, stall).await;
        self.state.set(State::Over);
        self.waiting.take();
        self.in_write.set(0);
        self.progress.notify_waiters();
        ended
    }

    async fn write_until_closed(
        &self,
        mut io: impl AsyncWrite + Unpin,
        stall: Duration,
    ) -> io::Result<()> {
        let mut writing = Vec::new();
        loop {
            if self.waiting.borrow().is_empty() {
                if self.state.get() == State::Closing {
                    return within(stall, io.shutdown()).await;
                }
                self.wake.notified().await;
                // Whoever is ready now may add to the same write.
                tokio::task::yield_now().await;
            }
            std::mem::swap(&mut writing, &mut *self.waiting.borrow_mut());
            let mut at = 0;
            self.in_write.set(writing.len());
            while at < writing.len() {
                match within(stall, io.write(&writing[at..])).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => at += written,
                }
                self.in_write.set(writing.len() - at);
                self.progress.notify_waiters();
            }
            if writing.capacity() > KEPT_BYTES_MAX {
                writing = Vec::new();
            }
            writing.clear();
        }
    }
}

async fn within<T>(stall: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(stall, step).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    /// Counts writes.
    #[derive(Clone, Default)]
    struct Counting(Rc<RefCell<Vec<usize>>>);

    impl AsyncWrite for Counting {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.borrow_mut().push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }

    fn message() -> capnp::message::Builder<capnp::message::HeapAllocator> {
        let mut message = capnp::message::Builder::new_default();
        message.init_root::<crate::wire::bowline_capnp::page::Builder<'_>>().set_after(1);
        message
    }

    #[test]
    fn messages_put_down_together_are_written_together() {
        block_on(async {
            let out = Rc::new(Outbound::default());
            let io = Counting::default();
            let writes = io.0.clone();
            let driver = tokio::task::spawn_local({
                let out = out.clone();
                async move { out.drive(io, Duration::from_secs(1)).await }
            });
            tokio::task::yield_now().await;
            for _ in 0..100 {
                out.put(&message());
            }
            out.close();
            driver.await.unwrap().unwrap();
            assert_eq!(writes.borrow().len(), 1);
            assert_eq!(out.backlog_bytes(), 0);
        });
    }

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        block_on(async {
            let (near, _far) = tokio::io::duplex(16);
            let out = Outbound::default();
            out.put(&message());
            out.put(&message());
            let error = out.drive(near, Duration::from_secs(30)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(out.is_over());
            out.put(&message());
            assert_eq!(out.backlog_bytes(), 0, "nothing is kept for a connection that is over");
            out.room(0).await;
        });
    }
}
