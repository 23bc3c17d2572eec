//! The writer's loop: take a group, apply it, commit, reply. And what to do when the disk fails.

use super::apply::{self, Failed};
use super::command::Answer;
use super::live::Live;
use super::queue::{Job, Queue, Refusal};
use super::standing::Standings;
use super::trail::Trail;
use super::watch::{NOBODY, Watchtower};
use crate::clock::Clock;
use crate::limits::{
    COMMIT_FAILURES_MAX, GROUP_BYTES_MAX, GROUP_COMMANDS_MAX, REOPEN_ATTEMPTS_MAX, WAL_BYTES_MAX,
    WAL_LOOK_EVERY,
};
use crate::model::audit::{self, Entry};
use crate::model::code::Coded;
use crate::model::grant::Fallen;
use crate::ops::Cut;
use crate::store::{Store, StoreError, audit as audit_trail, delegations, grants, turns};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Longest pause between two attempts to open the store again.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why the writer gave up. The process must end: what it would answer from now on could be wrong.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The store cannot be opened again after a failed commit.
    #[error("the database could not be opened again after a disk error: {0}")]
    Reopen(StoreError),
    /// Commits go on failing.
    #[error("{COMMIT_FAILURES_MAX} transactions in a row failed, the last one with: {0}")]
    Commits(StoreError),
    /// A fault of ours outside any command.
    #[error("the writer panicked")]
    Panicked,
}

/// How a transaction ended.
enum Ended {
    /// It is on disk, with an answer for each job.
    Committed(Vec<Result<Answer, Refusal>>),
    /// It may be on disk.
    Unknown(StoreError),
    /// It is not on disk: job number `at` could not be done.
    Undone { at: usize, why: Refusal },
    /// It is not on disk: it never began, or could not be written down in the audit trail.
    NotBegun(StoreError),
}

pub(super) fn run(
    mut store: Store,
    queue: &Queue,
    live: &Live,
    tower: &Watchtower,
    standings: &Standings,
    clock: &dyn Clock,
) -> Result<(), Fatal> {
    let mut failures_in_a_row = 0;
    let (mut groups, mut next_look) = (0u64, WAL_LOOK_EVERY);
    while let Some(group) = queue.take_group(GROUP_COMMANDS_MAX, GROUP_BYTES_MAX) {
        groups += 1;
        if groups >= next_look {
            next_look = groups + WAL_LOOK_EVERY;
            if let Err(error) = store.keep_log_short(WAL_BYTES_MAX) {
                tracing::warn!(%error, "the write-ahead log could not be cut");
                // A long read is in the way, and everybody has waited for it: not again so soon.
                next_look = groups + WAL_LOOK_EVERY * 64;
            }
        }
        // One whose command cannot be done is taken out, and the others are tried without it.
        let mut waiting = group;
        while !waiting.is_empty() {
            match transact(&mut store, &waiting, clock.now_ms()) {
                Ended::Committed(answers) => {
                    failures_in_a_row = 0;
                    // Before any reply: when a revocation has returned, nothing under it succeeds.
                    answers.iter().flatten().for_each(|answer| standings.cut(answer.cut()));
                    let grown: Vec<_> =
                        answers.iter().flatten().flat_map(Answer::grown).copied().collect();
                    live.changed(grown.iter().map(|(log, _)| *log));
                    live.changed(answers.iter().flatten().filter_map(Answer::went_on));
                    answers.iter().for_each(|answer| tell_holders(answer, tower));
                    waiting
                        .iter()
                        .filter_map(|job| job.command.compacts())
                        .for_each(|log| tower.compacted(log));
                    let texts: Vec<_> =
                        answers.iter().flatten().filter_map(Answer::grown_text).collect();
                    for (job, answer) in waiting.drain(..).zip(answers) {
                        job.answer(answer);
                    }
                    tower.grew(grown);
                    tower.texts_grew(texts);
                }
                Ended::Undone { at, why } => waiting.remove(at).answer(Err(why)),
                Ended::NotBegun(StoreError::Busy) => {
                    tracing::warn!("another process holds the database's write lock; waiting");
                }
                Ended::NotBegun(error) => {
                    tracing::error!(%error, "a transaction could not be begun");
                    queue.set_recovering(true);
                    answer_all(&mut waiting, &Refusal::Store);
                    recover(&mut store, queue, &mut failures_in_a_row, error, clock)?;
                }
                Ended::Unknown(error) => {
                    tracing::error!(%error, "a commit failed");
                    // Whoever hears "unknown" and asks again at once must not find an open queue.
                    queue.set_recovering(true);
                    // It may have landed, and what it led to may stand in other logs than its own.
                    live.all_may_have_changed();
                    answer_all(&mut waiting, &Refusal::Unknown);
                    recover(&mut store, queue, &mut failures_in_a_row, error, clock)?;
                    live.all_may_have_changed();
                    // What it may have written can be seen from here on.
                    tower.may_have_grown();
                    standings.cut(&fallen(&mut store, standings));
                }
            }
        }
    }
    // Best effort: the next start reads the log all the same.
    if let Err(error) = store.settle() {
        tracing::warn!(%error, "the write-ahead log could not be folded into the database");
    }
    Ok(())
}

/// Whoever has lost a named subscription is told at once.
fn tell_holders(answer: &Result<Answer, Refusal>, tower: &Watchtower) {
    match answer {
        Ok(Answer::Taken { stretch, taken }) => tower.held_by(*stretch, taken.key, taken.holder),
        Ok(Answer::Forgotten { stretch, key: Some(key) }) => tower.held_by(*stretch, *key, NOBODY),
        _ => {}
    }
}

/// The grants that are held and, by what the store says after trouble, stand no more. One that cannot be
/// looked up is taken for fallen: its holder can redeem again.
fn fallen(store: &mut Store, standings: &Standings) -> Vec<Cut> {
    let held = standings.keys();
    let tx = store.begin().ok();
    let why = |key| match tx.as_ref().map(|tx| grants::in_force(tx, key)) {
        Some(Ok(Ok(_))) => None,
        Some(Ok(Err(why))) => Some((key, why)),
        Some(Err(_)) | None => Some((key, Fallen::Revoked)),
    };
    held.into_iter().filter_map(why).collect()
}

fn answer_all(waiting: &mut Vec<Job>, refusal: &Refusal) {
    for job in waiting.drain(..) {
        job.answer(Err(refusal.clone()));
    }
}

/// Many jobs, one transaction. Refusals write nothing, so they need no undoing; a job that fails in
/// the middle undoes the whole, and the others are run again without it.
fn transact(store: &mut Store, jobs: &[Job], now_ms: u64) -> Ended {
    let tx = match store.begin() {
        Ok(tx) => tx,
        Err(error) => return Ended::NotBegun(error),
    };
    let mut answers = Vec::with_capacity(jobs.len());
    let mut trail = Trail::default();
    for (at, job) in jobs.iter().enumerate() {
        let ran =
            catch_unwind(AssertUnwindSafe(|| apply::run(&tx, now_ms, &job.command, &mut trail)));
        answers.push(match ran {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Failed::Refused(refusal))) => {
                let denied = matches!(refusal, Refusal::Fallen(_));
                if let Some((granted, log)) = job.command.under().filter(|_| denied) {
                    trail.note(Entry {
                        granted: Some(granted),
                        log,
                        count: 1,
                        code: refusal.code().name().to_owned(),
                        ..Entry::new(audit::Kind::Denied)
                    });
                }
                Err(refusal)
            }
            Ok(Err(Failed::Store(error))) => {
                tracing::error!(%error, "a command failed in the store");
                return Ended::Undone { at, why: Refusal::Store };
            }
            Ok(Err(Failed::WroteAndRefused)) => {
                tracing::error!("a rule wrote before it refused; its batch was undone");
                return Ended::Undone { at, why: Refusal::Internal };
            }
            Err(_) => {
                tracing::error!("a rule panicked; its batch was undone");
                return Ended::Undone { at, why: Refusal::Internal };
            }
        });
    }
    if let Err(error) = audit_trail::append(&tx, trail.finish(), now_ms) {
        return Ended::NotBegun(error);
    }
    match tx.commit() {
        Ok(()) => Ended::Committed(answers),
        Err(error) => Ended::Unknown(error),
    }
}

/// Opens the store again, so that what is answered next is true. The queue takes no work meanwhile.
fn recover(
    store: &mut Store,
    queue: &Queue,
    failures_in_a_row: &mut u32,
    error: StoreError,
    clock: &dyn Clock,
) -> Result<(), Fatal> {
    // A full disk is trouble that passes, and reads go on meanwhile. Any other is counted.
    if !matches!(error, StoreError::Full | StoreError::Busy) {
        *failures_in_a_row += 1;
    }
    if *failures_in_a_row == COMMIT_FAILURES_MAX {
        return Err(Fatal::Commits(error));
    }
    *store = reopen(store.path(), queue)?;
    // Nobody could be heard meanwhile.
    let begun = store.begin().and_then(|tx| {
        delegations::begin_anew(&tx, clock.now_ms())?;
        turns::begin_anew(&tx, clock.now_ms())?;
        tx.commit()
    });
    if let Err(error) = begun {
        tracing::warn!(%error, "leases could not be begun anew");
    }
    queue.set_recovering(false);
    tracing::info!("the database is open again; callers may repeat their calls");
    Ok(())
}

/// Opens the store again and makes sure that what it now shows is on disk.
fn reopen(path: &Path, queue: &Queue) -> Result<Store, Fatal> {
    let mut pause = Duration::from_millis(50);
    let mut attempts = 0;
    loop {
        // After a failed sync the kernel may have dropped pages it still shows us. Moving everything
        // into the database file, with syncs that succeed, leaves nothing to believe.
        let error = match Store::open(path).and_then(|store| store.settle().map(|()| store)) {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        tracing::error!(%error, "the database could not be opened again yet");
        // It may take long; nobody is kept waiting for it.
        queue.refuse_all(&Refusal::Recovering);
        // Room comes back, and so does a lock; a disk that fails otherwise is given a few chances.
        let passes = matches!(error, StoreError::Full | StoreError::Busy) && !queue.is_closed();
        attempts += u32::from(!passes);
        if attempts == REOPEN_ATTEMPTS_MAX {
            return Err(Fatal::Reopen(error));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(REOPEN_PAUSE_MAX);
    }
}
