//! The reader threads and the queue they share.

use super::QueryError;
use crate::store::{Read, Reader, StoreError};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::oneshot;

/// A question, with whoever waits for the answer inside.
type Question = Box<dyn FnOnce(&mut Reader) + Send>;

/// A handle to the reader threads; cheap to clone. They end when the last one is dropped.
#[derive(Clone)]
pub struct Readers {
    shared: Arc<Owner>,
}

/// The readers could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ReadersError {
    /// The database could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no thread.
    #[error("a reader thread could not be started: {0}")]
    Thread(#[from] io::Error),
}

/// Dropped with the last handle; its drop tells the threads to go.
struct Owner(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    wake: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct Inner {
    questions: VecDeque<Question>,
    closed: bool,
}

impl Readers {
    /// Starts `threads` readers on a database that is already open for writing.
    pub fn start(path: &Path, threads: usize, waiting_max: usize) -> Result<Self, ReadersError> {
        let shared =
            Arc::new(Shared { inner: Mutex::default(), wake: Condvar::new(), waiting_max });
        let owner = Arc::new(Owner(shared.clone()));
        for number in 0..threads {
            let mut reader = Reader::open(path)?;
            let shared = shared.clone();
            thread::Builder::new().name(format!("reader-{number}")).spawn(move || {
                while let Some(question) = shared.take() {
                    question(&mut reader);
                }
            })?;
        }
        Ok(Self { shared: owner })
    }

    /// Asks one question of one consistent state.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Read<'_>) -> Result<T, QueryError> + Send + 'static,
    ) -> Result<T, QueryError> {
        let (reply, answer) = oneshot::channel();
        let boxed: Question = Box::new(move |reader| {
            if reply.is_closed() {
                return; // whoever asked is gone
            }
            let mut found = Err(QueryError::Panicked);
            let looked = catch_unwind(AssertUnwindSafe(|| {
                reader.look(|read| {
                    found = question(read);
                    Ok(())
                })
            }));
            let answer = match looked {
                Ok(Ok(())) => found,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(QueryError::Panicked),
            };
            match &answer {
                Err(QueryError::Store(error)) => {
                    tracing::error!(%error, "the store cannot be read")
                }
                Err(QueryError::Panicked) => tracing::error!("a question panicked"),
                _ => {}
            }
            let _ = reply.send(answer);
        });
        self.shared.0.push(boxed)?;
        answer.await.unwrap_or(Err(QueryError::Stopping))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn push(&self, question: Question) -> Result<(), QueryError> {
        let mut inner = self.lock();
        if inner.questions.len() >= self.waiting_max {
            return Err(QueryError::Overloaded);
        }
        inner.questions.push_back(question);
        drop(inner);
        self.wake.notify_one();
        Ok(())
    }

    fn take(&self) -> Option<Question> {
        let mut inner = self.lock();
        loop {
            if inner.closed {
                return None;
            }
            if let Some(question) = inner.questions.pop_front() {
                return Some(question);
            }
            inner = self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::LogId;
    use crate::store::{logs, testing};
    use std::sync::mpsc;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_long_question_holds_up_no_other_and_too_many_are_refused() {
        let (dir, _store) = testing::store();
        let readers = Readers::start(&dir.path().join("bowline.db"), 2, 1).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel::<()>();
        runtime().block_on(async {
            let long = readers.ask(move |_| {
                begun.send(()).unwrap();
                held.recv().unwrap();
                Ok(1)
            });
            let mut long = std::pin::pin!(long);
            assert!(futures::poll!(&mut long).is_pending());
            has_begun.recv().unwrap();

            let head = readers.ask(|read| Ok(logs::get(read, LogId::ROOT)?.head.0)).await;
            assert_eq!(head.unwrap(), 0, "answered while the long one still runs");

            // Block the second thread too, fill the queue of one, and ask once more.
            let (release_too, held_too) = mpsc::channel::<()>();
            let (begun, has_begun) = mpsc::channel::<()>();
            let second = readers.ask(move |_| {
                begun.send(()).unwrap();
                held_too.recv().unwrap();
                Ok(2)
            });
            let mut second = std::pin::pin!(second);
            assert!(futures::poll!(&mut second).is_pending());
            has_begun.recv().unwrap();
            let mut queued = std::pin::pin!(readers.ask(|_| Ok(3)));
            assert!(futures::poll!(&mut queued).is_pending());
            assert!(matches!(readers.ask(|_| Ok(4)).await, Err(QueryError::Overloaded)));

            release.send(()).unwrap();
            release_too.send(()).unwrap();
            assert_eq!(
                (long.await.unwrap(), second.await.unwrap(), queued.await.unwrap()),
                (1, 2, 3)
            );
        });
    }

    #[test]
    fn a_panic_is_one_questions_trouble() {
        let (dir, _store) = testing::store();
        let readers = Readers::start(&dir.path().join("bowline.db"), 1, 8).unwrap();
        runtime().block_on(async {
            let asked = readers.ask(|_| -> Result<(), QueryError> { panic!("on purpose") });
            assert!(matches!(asked.await, Err(QueryError::Panicked)));
            let head = readers.ask(|read| Ok(logs::get(read, LogId::ROOT)?.head.0)).await;
            assert_eq!(head.unwrap(), 0, "the thread and its connection go on");
        });
    }
}
