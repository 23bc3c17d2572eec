//! What waits for the writer: bounded by number and by bytes, and never silently dropped.

use super::command::{Answer, Command};
use crate::limits::{REVOCATION_BYTES_MAX, REVOCATIONS_RESERVED};
use crate::model::code::{Code, Coded};
use crate::model::feed::Ahead;
use crate::model::grant::Fallen;
use crate::model::ledger::Fenced;
use crate::ops::Refused;
use crate::ops::use_ref::UsedUp;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As much is waiting as may wait.
    #[error("the server has as much work waiting as it takes; nothing was done, try again")]
    Overloaded,
    /// The engine is opening its store again.
    #[error("the server is checking its store after a disk error; nothing was done, try again")]
    Recovering,
    /// The engine takes no more work.
    #[error("the server is stopping; nothing was done")]
    Stopping,
    /// The commit reported an error.
    #[error(
        "the disk reported an error during the commit, so it may or may not have been done; send the same again"
    )]
    Unknown,
    /// The store failed before the commit; the log says how.
    #[error("the store could not do it; nothing was done, and the server's log says more")]
    Store,
    /// The producer was taken over.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The place a feed was asked for does not exist.
    #[error(transparent)]
    Ahead(#[from] Ahead),
    /// The grant is not in force.
    #[error(transparent)]
    Fallen(#[from] Fallen),
    /// A ref was used as often as it may be.
    #[error(transparent)]
    UsedUp(#[from] UsedUp),
    /// The rule said no.
    #[error("{}", .0.text)]
    Op(Refused),
    /// The object's epoch is another one by now.
    #[error(
        "the op was made under epoch {got} of this object, which is at {current} now; redeem it again"
    )]
    EpochStale {
        /// The epoch in force.
        current: u64,
        /// The epoch that came.
        got: u64,
    },
    /// One producer too many.
    #[error(
        "{max} producers have written to this log through this object; write under one of them"
    )]
    TooManyProducers {
        /// The most there may be.
        max: u64,
    },
    /// One named subscription too many.
    #[error("this object has {max} named subscriptions; forget one first")]
    TooManySubscriptions {
        /// The most there may be.
        max: u64,
    },
    /// A fault of ours.
    #[error("the server made a mistake; nothing was done, and its log says more")]
    Internal,
}

impl Coded for Refusal {
    fn code(&self) -> Code {
        match self {
            Refusal::Overloaded | Refusal::Recovering => Code::Overloaded,
            Refusal::Stopping => Code::ShuttingDown,
            Refusal::Unknown => Code::OutcomeUnknown,
            Refusal::Store => Code::StorageFailed,
            Refusal::Fenced(fenced) => fenced.code(),
            Refusal::Ahead(ahead) => ahead.code(),
            Refusal::Fallen(fallen) => fallen.code(),
            Refusal::EpochStale { .. } => Code::EpochStale,
            Refusal::UsedUp(used_up) => used_up.code(),
            Refusal::Op(refused) => refused.code,
            Refusal::TooManyProducers { .. } => Code::TooManyProducers,
            Refusal::TooManySubscriptions { .. } => Code::TooManySubscriptions,
            Refusal::Internal => Code::Internal,
        }
    }
}

/// An answer that will come once it is on disk.
#[derive(Debug)]
pub struct Submitted<T> {
    answer: oneshot::Receiver<Result<Answer, Refusal>>,
    /// The part of the answer this command gets.
    of: fn(Answer) -> Option<T>,
}

impl<T> Submitted<T> {
    /// Waits for it. Dropping this wait does not undo the command.
    pub async fn answer(self) -> Result<T, Refusal> {
        // A writer that died without answering may have committed.
        let answer = self.answer.await.unwrap_or(Err(Refusal::Unknown))?;
        (self.of)(answer).ok_or(Refusal::Internal)
    }
}

/// A command and whoever waits for it.
pub(super) struct Job {
    pub(super) command: Command,
    pub(super) bytes: usize,
    reply: oneshot::Sender<Result<Answer, Refusal>>,
}

impl Job {
    pub(super) fn answer(self, answer: Result<Answer, Refusal>) {
        // Who asked may be gone by now; the ledger remembers for them.
        let _ = self.reply.send(answer);
    }
}

pub(super) struct Queue {
    inner: Mutex<Inner>,
    wake: Condvar,
    commands_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    bytes: usize,
    recovering: bool,
    closed: bool,
}

impl Queue {
    pub(super) fn new(commands_max: usize, bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), wake: Condvar::new(), commands_max, bytes_max }
    }

    /// Queues a command, or answers it at once.
    pub(super) fn push<T>(&self, command: Command, of: fn(Answer) -> Option<T>) -> Submitted<T> {
        let (reply, answer) = oneshot::channel();
        let answer = Submitted { answer, of };
        let job = Job { bytes: command.bytes(), command, reply };
        let refusal = {
            let mut inner = self.lock();
            // Who must take something back must get in, and get it done.
            let reserve = match job.command.takes_back() {
                true => REVOCATIONS_RESERVED,
                false if job.command.redeems() => REVOCATIONS_RESERVED / 2,
                false => 0,
            };
            let small = reserve > 0 && job.bytes <= REVOCATION_BYTES_MAX;
            let full = inner.jobs.len() >= self.commands_max + reserve
                || (inner.bytes + job.bytes > self.bytes_max && !inner.jobs.is_empty() && !small);
            match (inner.closed, inner.recovering, full) {
                (true, _, _) => Refusal::Stopping,
                (_, true, _) => Refusal::Recovering,
                (_, _, true) => Refusal::Overloaded,
                _ => {
                    inner.bytes += job.bytes;
                    inner.jobs.push_back(job);
                    drop(inner);
                    self.wake.notify_one();
                    return answer;
                }
            }
        };
        job.answer(Err(refusal));
        answer
    }

    /// Waits for work and takes as much of it as fits into one transaction; none once the queue is
    /// closed and empty.
    pub(super) fn take_group(&self, commands_max: usize, bytes_max: usize) -> Option<Vec<Job>> {
        let mut inner = self.lock();
        while inner.jobs.is_empty() {
            if inner.closed {
                return None;
            }
            inner = self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let mut bytes = 0;
        let fits = |job: &&Job| {
            bytes += job.bytes;
            bytes <= bytes_max
        };
        let count = inner.jobs.iter().take(commands_max).take_while(fits).count().max(1);
        let group: Vec<_> = inner.jobs.drain(..count).collect();
        inner.bytes -= group.iter().map(|job| job.bytes).sum::<usize>();
        Some(group)
    }

    /// While the store is being opened again, new work is refused at once.
    pub(super) fn set_recovering(&self, recovering: bool) {
        self.lock().recovering = recovering;
    }

    /// Whether no more work is taken.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Takes no more work.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    /// Answers what waits with a refusal: none of it was begun.
    pub(super) fn refuse_all(&self, refusal: &Refusal) {
        let jobs = {
            let mut inner = self.lock();
            inner.bytes = 0;
            std::mem::take(&mut inner.jobs)
        };
        for job in jobs {
            job.answer(Err(refusal.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock, and the queue is whole between any two statements.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::Submission;
    use super::*;
    use crate::model::conditions::Conditions;
    use crate::model::ids::{GrantKey, LogId, OpId, ProducerId};
    use crate::model::ledger::{Ack, BatchHeader, Mode};
    use crate::ops::{Op, Refused, Sent};

    fn batch(bytes: usize) -> Command {
        let nothing = Err(Refused { code: Code::OpMalformed, text: String::new() });
        let sent = vec![0; bytes];
        let sent = Sent { bytes: &sent, beside: &[], mode: Mode::Each };
        let op = Op::new(OpId([0; 16]), sent, Conditions::default(), nothing);
        let header = BatchHeader::plain(ProducerId([0; 16]), 1, 1);
        Command::Append(Submission::plain(GrantKey(1), LogId::ROOT, header, vec![op]))
    }

    fn push(queue: &Queue, bytes: usize) -> Submitted<Ack> {
        queue.push(batch(bytes), Answer::ack)
    }

    fn refused(mut submitted: Submitted<Ack>) -> Option<Refusal> {
        submitted.answer.try_recv().ok().map(|answer| answer.unwrap_err())
    }

    #[test]
    fn a_full_queue_says_so_at_once() {
        let queue = Queue::new(2, 1000);
        let (_a, _b) = (push(&queue, 1), push(&queue, 1));
        assert_eq!(refused(push(&queue, 1)), Some(Refusal::Overloaded));

        let queue = Queue::new(100, 1000);
        let _a = push(&queue, 600);
        assert_eq!(refused(push(&queue, 600)), Some(Refusal::Overloaded), "by bytes");
        assert_eq!(queue.take_group(10, 1000).unwrap().len(), 1);
        assert_eq!(refused(push(&queue, 5000)), None, "one large batch is always let in");
    }

    #[test]
    fn a_group_is_bounded_by_number_and_by_bytes() {
        let queue = Queue::new(100, 10_000);
        let _waiting: Vec<_> = [10, 10, 10, 500, 500, 2000, 1].map(|n| push(&queue, n)).into();
        let take = || queue.take_group(4, 1000).unwrap().iter().map(|job| job.bytes).collect();
        let groups: [Vec<usize>; 4] = [take(), take(), take(), take()];
        assert_eq!(groups, [vec![10, 10, 10, 500], vec![500], vec![2000], vec![1]]);
    }

    #[test]
    fn a_closed_queue_gives_out_what_it_took_and_takes_no_more() {
        let queue = Queue::new(10, 1000);
        let _a = push(&queue, 1);
        queue.close();
        assert_eq!(refused(push(&queue, 1)), Some(Refusal::Stopping));
        assert!(queue.take_group(10, 1000).is_some());
        assert!(queue.take_group(10, 1000).is_none());
    }

    #[test]
    fn while_recovering_new_work_is_refused_and_old_work_waits() {
        let queue = Queue::new(10, 1000);
        let waiting = push(&queue, 1);
        queue.set_recovering(true);
        assert_eq!(refused(push(&queue, 1)), Some(Refusal::Recovering));
        queue.set_recovering(false);
        assert_eq!(refused(push(&queue, 1)), None);
        queue.refuse_all(&Refusal::Recovering);
        assert_eq!(refused(waiting), Some(Refusal::Recovering));
        assert_eq!(queue.lock().bytes, 0, "and the room is free again");
    }
}
