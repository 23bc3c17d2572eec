//! The one place where durable state changes.
//!
//! A single writer thread owns the only connection that writes. It takes whatever has queued up, from
//! however many connections, into one transaction, and releases the replies after the commit returned,
//! never before. The queue is bounded by number and by bytes; a full one says so at once.
//!
//! *Whether* an op runs is decided here and in `model::ledger`; *what* it does, in `ops`.
//!
//! A commit that reports an error is unknown, not refused: it may be on disk. Its callers hear
//! `outcome-unknown`, the store is opened again and settled, and the ledger answers their repeats.

mod apply;
mod command;
mod live;
mod notes;
mod queue;
mod standing;
mod trail;
mod watch;
mod writer;

pub use crate::model::grant::Fallen;
pub use crate::ops::upload::REFUSED as UPLOAD_REFUSED;
pub use crate::store::streams::StreamKey;
pub use crate::store::subscriptions::{SubscriptionKey, Taken};
pub use command::{
    Acknowledgement, Claiming, Compacting, Freed, Growing, Recording, Registered, Registering,
    Submission, Subscribing, Uploading,
};
pub use live::LiveLog;
pub use notes::Denial;
pub use queue::{Refusal, Submitted};
pub use standing::Standing;
pub use watch::{Spared, TakingIn, Watched};
pub use writer::Fatal;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::feed::Stretch;
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId, SubscriptionName};
use crate::model::ledger::Ack;
use crate::ops::Recorded;
use crate::store::Store;
use command::{Answer, Command};
use live::Live;
use notes::{Denials, Notes};
use queue::Queue;
use standing::Standings;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use watch::Watchtower;

/// A handle to the writer; cheap to clone, and safe to use from any thread.
#[derive(Clone)]
pub struct Engine {
    queue: Arc<Queue>,
    live: Arc<Live>,
    tower: Arc<Watchtower>,
    standings: Arc<Standings>,
    denials: Arc<Denials>,
}

/// The writer's thread, to be joined when the server stops.
pub struct Writer {
    queue: Arc<Queue>,
    thread: thread::JoinHandle<Result<(), Fatal>>,
}

impl Engine {
    /// Starts the writer on a store. `on_fatal` is called on the writer's thread if it has to give up.
    pub fn start(
        store: Store,
        limits: &Limits,
        clock: Arc<dyn Clock>,
        on_fatal: impl FnOnce(&Fatal) + Send + 'static,
    ) -> io::Result<(Engine, Writer)> {
        let queue = Arc::new(Queue::new(limits.queue_commands_max, limits.queue_bytes_max));
        let of_writer = queue.clone();
        let live = Arc::new(Live::default());
        let to_announce = live.clone();
        let tower = Watchtower::start()?;
        let to_wake = tower.clone();
        let standings = Arc::new(Standings::default());
        let to_cut = standings.clone();
        let thread = thread::Builder::new().name("writer".into()).spawn(move || {
            let run =
                || writer::run(store, &of_writer, &to_announce, &to_wake, &to_cut, clock.as_ref());
            let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Fatal::Panicked));
            // Nobody may wait for a writer that is gone.
            of_writer.close();
            of_writer.refuse_all(&Refusal::Stopping);
            to_wake.close();
            if let Err(fatal) = &ended {
                on_fatal(fatal);
            }
            ended
        })?;
        let denials = Arc::default();
        let engine = Engine { queue: queue.clone(), live, tower, standings, denials };
        Ok((engine, Writer { queue, thread }))
    }

    /// Hands a batch to the writer. It is queued, or refused, when this returns, so the order of calls
    /// is the order of effects; the answer comes once it is on disk.
    pub fn submit(&self, submission: Submission) -> Submitted<Ack> {
        self.queue.push(Command::Append(submission), Answer::ack)
    }

    /// Announces a run of a producer.
    pub fn register(&self, registering: Registering) -> Submitted<Registered> {
        self.queue.push(Command::Register(registering), Answer::registered)
    }

    /// Takes a named subscription up.
    pub fn subscribe(&self, subscribing: Subscribing) -> Submitted<Taken> {
        self.queue.push(Command::Subscribe(subscribing), Answer::taken)
    }

    /// Moves a named subscription on; answers whether it is still its holder's.
    pub fn acknowledge(&self, acknowledgement: Acknowledgement) -> Submitted<bool> {
        self.queue.push(Command::Acknowledge(acknowledgement), Answer::done)
    }

    /// Drops a named subscription; answers whether there was one.
    pub fn forget(
        &self,
        grant: GrantKey,
        stretch: Stretch,
        name: SubscriptionName,
    ) -> Submitted<bool> {
        self.queue.push(Command::Forget { grant, stretch, name }, Answer::forgotten)
    }

    /// What a sweep over all logs leaves alone, so that nobody has to begin anew.
    pub fn spare(&self) -> Spared {
        self.tower.spare()
    }

    /// Counts one more use of a ref, if it may still be used.
    pub fn redeem(&self, grant: GrantKey) -> Submitted<bool> {
        self.queue.push(Command::Redeem(grant), Answer::done)
    }

    /// Exchanges a claim for a grant of its own.
    pub fn claim(&self, claiming: Claiming) -> Submitted<GrantId> {
        self.queue.push(Command::Claim(claiming), Answer::claimed)
    }

    /// Something is heard of a delegate; answers until when its lease lasts now, 0 for ever.
    pub fn heartbeat(&self, grant: GrantKey) -> Submitted<u64> {
        self.queue.push(Command::Heartbeat(grant), Answer::until)
    }

    /// Adds to the text of an open part; answers how long it is then.
    pub fn grow(&self, growing: Growing) -> Submitted<u64> {
        self.queue.push(Command::Grow(growing), Answer::length)
    }

    /// Takes a piece of something long; answers how much of it is there then, or [`UPLOAD_REFUSED`] if it is
    /// not what it was said to be.
    pub fn upload(&self, uploading: Uploading) -> Submitted<u64> {
        self.queue.push(Command::Upload(uploading), Answer::until)
    }

    /// Something is heard of a turn; answers until when its lease lasts now.
    pub fn turn_heartbeat(&self, grant: GrantKey, session: LogId, turn: Cursor) -> Submitted<u64> {
        self.queue.push(Command::TurnHeartbeat { grant, session, turn }, Answer::until)
    }

    /// Lets a piece of what only an automatic checkpoint leads to go; answers 1 if there is more.
    pub fn drop_left(&self, session: LogId, checkpoint: Cursor) -> Submitted<u64> {
        self.queue.push(Command::DropLeft { session, checkpoint }, Answer::ended)
    }

    /// Lets uploads go that were not touched since and that nothing names; answers how many.
    pub fn let_go(&self, before_ms: u64) -> Submitted<u64> {
        self.queue.push(Command::LetGo { before_ms }, Answer::until)
    }

    /// Writes down what was done to the files of a work tree.
    pub fn record(&self, recording: Recording) -> Submitted<Recorded> {
        self.queue.push(Command::Record(recording), Answer::recorded)
    }

    /// Ends delegations and turns whose time has come; answers how many.
    pub fn end_due(&self) -> Submitted<u64> {
        self.queue.push(Command::EndDue, Answer::ended)
    }

    /// Lets old audit entries go; answers whether there were any.
    pub fn prune(&self, through: u64) -> Submitted<bool> {
        self.queue.push(Command::Prune { through }, Answer::done)
    }

    /// Somebody was refused for want of authority. It is written down with others, see
    /// [`Engine::write_notes`].
    pub fn deny(&self, denial: Denial) {
        self.denials.add(denial, 1);
    }

    /// Writes down what was refused and read since the last time. What cannot be written down now stays for
    /// the next time.
    pub async fn write_notes(&self) -> Result<(), Refusal> {
        let notes = Notes { denials: self.denials.take(), uses: self.standings.take_uses() };
        if notes.is_empty() {
            return Ok(());
        }
        let written = self.queue.push(Command::Note(notes.clone()), Answer::done).answer().await;
        match written {
            // It may have been written; counting twice would be worse than not at all.
            Ok(_) | Err(Refusal::Unknown) => Ok(()),
            Err(refusal) => {
                notes.denials.iter().for_each(|(denial, count)| self.denials.add(*denial, *count));
                self.standings.give_back(&notes.uses);
                Err(refusal)
            }
        }
    }

    /// Compacts a piece of a log.
    pub fn compact(&self, compacting: Compacting) -> Submitted<Freed> {
        self.queue.push(Command::Compact(compacting), Answer::freed)
    }

    /// A stretch of history to be told about, for as long as the result is kept.
    pub fn watch(&self, stretch: Stretch) -> Arc<Watched> {
        self.tower.watch(stretch)
    }

    /// Whether a grant still stands, for as long as the result is kept. Ask the store once you hold it.
    pub fn stand(&self, grant: GrantKey) -> Arc<Standing> {
        self.standings.hold(grant)
    }

    /// What is known about a log without asking the store, for as long as the result is kept.
    pub fn hold(&self, log: LogId) -> Arc<LiveLog> {
        self.live.hold(log)
    }
}

impl Writer {
    /// Takes no more work, finishes what was taken, and waits for the last commit.
    pub fn finish(self) -> Result<(), Fatal> {
        self.queue.close();
        self.thread.join().unwrap_or(Err(Fatal::Panicked))
    }
}
