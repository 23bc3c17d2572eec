//! Every limit, with its name, its unit and its reason.
//!
//! The constants are defaults or fixed by the format; [`Limits`] holds those an operator may change,
//! by the same name, in the settings file, the environment or a flag.

use crate::model::history::Policy;
use serde::Deserialize;

/// Longest id a client may choose.
pub const ID_BYTES_MAX: usize = 128;
/// Longest title of a session, or name of a project.
pub const TITLE_BYTES_MAX: usize = 1024;
/// Longest `rest` of a project.
pub const PROJECT_REST_BYTES_MAX: usize = 64 << 10;
/// Longest directory of a project; the kernel's own limit for a path.
pub const DIRECTORY_BYTES_MAX: usize = 4096;
/// Longest text `Vat.redeem` looks at; a real ref is about a hundred bytes.
pub const REF_TEXT_BYTES_MAX: usize = 512;
/// Parts of one message.
pub const PARTS_MAX: u32 = 256;
const _: () = assert!(PARTS_MAX == crate::wire::message_capnp::PARTS_MAX as u32);

const _: () = assert!(crate::wire::bowline_capnp::PRODUCER_BYTES == 16);
const _: () = assert!(crate::wire::bowline_capnp::OP_ID_BYTES == 16);

/// Text of one part that is told together with it.
pub const INLINE_TEXT_BYTES_MAX: usize = 128 << 10;
const _: () =
    assert!(INLINE_TEXT_BYTES_MAX == crate::wire::message_capnp::INLINE_TEXT_BYTES_MAX as usize);
/// Parts of one message, with those that were put since.
pub const PARTS_PUT_MAX: u32 = 10_000;
/// Shortest lease of a turn.
pub const TURN_LEASE_MS_MIN: u64 = 1_000;
/// Longest lease of a turn.
pub const TURN_LEASE_MS_MAX: u64 = DAY_MS;
/// Lease of a turn that names none: long enough for a model that thinks before it says something.
pub const TURN_LEASE_MS_DEFAULT: u64 = 60_000;
/// Turns of one session that run or wait.
pub const TURNS_UNDER_WAY_MAX: u64 = 256;
/// Things to do in one list.
pub const TODOS_MAX: u32 = 1_000;
/// Files a turn tells of.
pub const DIFFS_MAX: u32 = 10_000;
/// Checkpoints with a name in one session.
pub const CHECKPOINTS_MAX: u64 = 1_000;
/// Stretches of the path of a conversation: how often it can go back and on.
pub const TIMELINE_SEGMENTS_MAX: usize = 4_096;
/// Directories of one project that are told.
pub const WORKTREES_MAX: u64 = 1_000;
/// Longest content, and longest text of a part.
pub const CONTENT_BYTES_MAX: u64 = 256 << 20;
/// Content is stored and read in pieces of this size.
pub const CONTENT_PIECE_BYTES: usize = 256 << 10;
/// Bytes of one call on an upload.
pub const UPLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of one piece of text as it is written.
pub const DELTA_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(2 * WRITER_BATCH_BYTES <= DELTA_BYTES_MAX);
/// How long an upload that nothing names is kept.
pub const UPLOAD_KEPT_MS: u64 = DAY_MS;
/// Messages that were left behind and are let go of in one step.
pub const LEFT_STEP_MAX: u32 = 64;
/// Automatic checkpoints looked at in one step.
pub const CHECKPOINTS_LOOK_MAX: u32 = 256;
/// Uploads that are let go of in one step.
pub const UPLOADS_STEP_MAX: u32 = 64;
/// Bytes of all rules of one object.
pub const RULES_BYTES_MAX: usize = 64 << 10;
/// Patterns asked about at one time.
pub const PATTERNS_MAX: u32 = 64;

/// One op as encoded. Larger things are cut into several ops by the client.
pub const OP_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Ops in one batch: enough that a commit's cost vanishes, few enough that one batch cannot hold up
/// the writer for long.
pub const BATCH_OPS_MAX: u32 = 1024;
/// Results kept for one producer in one log until it acknowledges them.
pub const WINDOW_OPS_MAX: u64 = 4096;
const _: () = assert!(WINDOW_OPS_MAX >= BATCH_OPS_MAX as u64);
/// What a command without a payload takes up in the queue.
pub const COMMAND_BYTES_LEAST: usize = 128;
/// Named subscriptions kept for one object.
pub const DURABLE_SUBSCRIPTIONS_PER_LOG_MAX: u64 = 1_000;
/// Ops looked at in one step of a compaction, so that it never holds the writer for long.
pub const COMPACTION_STEP_OPS_MAX: u64 = 2_000;
/// Payload bytes looked at in one step; its last op may pass it.
pub const COMPACTION_STEP_BYTES_MAX: u64 = 8 << 20;
/// Commands that take authority back and are queued though the queue is full for others.
pub const REVOCATIONS_RESERVED: usize = 256;
/// Grants in force that were derived from one grant directly.
pub const GRANTS_PER_GRANT_MAX: u64 = 10_000;
/// Tools, and paths, a caveat may name.
pub const CAVEAT_ITEMS_MAX: usize = 64;
/// Bytes of all tools and paths of a caveat. It is copied into every grant derived from it.
pub const CAVEAT_BYTES_MAX: usize = 8 << 10;
/// Named subscriptions kept for one share, among those of the session it shows.
pub const DURABLE_SUBSCRIPTIONS_PER_SHARE_MAX: u64 = 100;
/// Producers that ever wrote through one share, among those of the session it shows.
pub const PRODUCERS_PER_SHARE_MAX: u64 = 1_000;
/// Largest command that takes authority back and is let in though the queue has no bytes left.
pub const REVOCATION_BYTES_MAX: usize = 64 << 10;
/// Shortest lease of a delegation. Below it a busy machine would end delegations that are well.
pub const LEASE_MS_MIN: u64 = 1_000;
/// Longest lease of a delegation.
pub const LEASE_MS_MAX: u64 = 30 * DAY_MS;
/// A heartbeat is written down when it moves the end of a lease by more than this part of it.
pub const LEASE_RENEWAL_PARTS: u64 = 16;
/// How often leases are looked at.
pub const LEASE_LOOK_MS: u64 = 250;
/// Delegations ended in one step, so that it never holds the writer for long.
pub const LEASES_STEP_MAX: u32 = 256;
/// Longest text a delegate leaves behind.
pub const RESULT_BYTES_MAX: usize = 64 << 10;
/// How often refusals and reads are written down.
pub const NOTES_EVERY_MS: u64 = 5_000;
/// Different refusals gathered meanwhile; further ones are counted together.
pub const DENIALS_KEPT_MAX: usize = 1_024;
/// Audit entries looked at for one page.
pub const AUDIT_LOOK_MAX: u32 = 20_000;
/// Audit entries let go of in one step.
pub const AUDIT_PRUNE_STEP: u64 = 5_000;
/// Grants that stand above a grant, at most.
pub const GRANT_DEPTH_MAX: u32 = 64;
/// Ops one op may depend on.
pub const DEPENDENCIES_MAX: u32 = 64;
/// Producers that ever wrote to one log. Each is remembered for ever, in a small row: that is what makes
/// its repeats recognisable.
pub const PRODUCERS_PER_LOG_MAX: u64 = 100_000;

/// Items of one page.
pub const PAGE_ITEMS_MAX: u32 = 1000;
/// Items of a page whose caller named no number.
pub const PAGE_ITEMS_DEFAULT: u32 = 100;
/// A page ends with the item that passes this many bytes.
pub const PAGE_BYTES_MAX: usize = 256 << 10;

/// Events of one call on a sink.
pub const FEED_PAGE_ITEMS_MAX: u32 = 256;
/// Calls on one sink that wait for their return. A few, so that the next page is on its way while one is
/// being processed.
pub const FEED_CALLS_IN_FLIGHT_MAX: usize = 4;
/// Feeds of one connection that are having a page read or sent at one time.
pub const FEED_PAGES_AT_ONCE_MAX: usize = 4;
/// Longest silence of a feed: then `caughtUp` is said again, which also tells whether the peer is alive.
pub const FEED_HEARTBEAT_MS_MAX: u64 = 300_000;
/// Pause of a feed when the readers have no room for its question.
pub const FEED_RETRY_MS: u64 = 50;

/// Pages one connection is having read for it; more wait until it has taken what it got. So many calls
/// for pages cannot pile up answers that nobody reads.
pub const PAGES_AT_ONCE_MAX: usize = 8;

/// Acks one connection is having written for it, likewise.
pub const ACKS_AT_ONCE_MAX: usize = 8;
/// Refs one connection is having redeemed at one time; more wait. So strangers cannot fill the readers'
/// queue.
pub const REDEEMS_AT_ONCE_MAX: usize = 4;
/// Refs that stand for nothing before a peer is made to wait for the answer: a typing error is no attack.
pub const WRONG_REFS_FREE: u32 = 8;
/// How long it waits then, twice as long each time.
pub const WRONG_REF_PAUSE_MS: u64 = 50;
/// And how long at most.
pub const WRONG_REF_PAUSE_MS_MAX: u64 = 5_000;
/// How long the last wrong ref is held against a peer.
pub const WRONG_REF_MEMORY_MS: u64 = 60_000;
/// Peers of which that is remembered.
pub const WRONG_REF_PEERS_MAX: usize = 4_096;
/// Ops of one connection on their way to the disk or back.
pub const OPS_IN_FLIGHT_MAX: usize = 64 << 10;
/// Bytes streamed in through one connection that are not on disk yet; `Writer.write` waits beyond.
pub const STREAMED_BYTES_MAX: usize = 4 << 20;
/// Bytes of ops at which a writer begins another batch.
pub const WRITER_BATCH_BYTES: usize = 256 << 10;
/// Batches of one writer on their way to the disk: one that is being committed, and one to go on with.
pub const WRITER_BATCHES_IN_FLIGHT_MAX: u64 = 2;
/// Connections over the Unix socket beyond `connections_max`, so that the owner can always get in.
pub const OWNER_CONNECTIONS_MAX: usize = 16;
/// Longest text of a refusal that is recorded.
pub const REFUSAL_TEXT_BYTES_MAX: usize = 300;

/// Commands taken into one transaction.
pub const GROUP_COMMANDS_MAX: usize = 1024;
/// Payload bytes taken into one transaction; bounds both the commit's latency and the write-ahead log.
pub const GROUP_BYTES_MAX: usize = 8 << 20;
/// Commit errors in a row, each followed by a successful reopening, before the engine gives up.
pub const COMMIT_FAILURES_MAX: u32 = 5;
/// Attempts to reopen the store after a commit error.
pub const REOPEN_ATTEMPTS_MAX: u32 = 5;
/// How long SQLite waits for another process to let go of the write lock before it says so.
pub const BUSY_TIMEOUT_MS: u64 = 2_000;
/// Pages in the write-ahead log before they are moved into the database file (4 KiB each).
pub const WAL_CHECKPOINT_PAGES: u32 = 4_000;

/// Size of the write-ahead log at which the writer waits for readers to let it begin anew.
pub const WAL_BYTES_MAX: u64 = 128 << 20;
/// Transactions between two looks at that size.
pub const WAL_LOOK_EVERY: u64 = 256;

/// Capabilities named in one message.
pub const CAPS_PER_MESSAGE_MAX: u32 = 64;
/// Pointers followed inside one message.
pub const NESTING_MAX: i32 = 32;
/// Words a reader may look at in one message, as a multiple of its own size: reading a field twice counts
/// twice, and a message that points to one thing many times does not get far.
pub const TRAVERSAL_FACTOR: usize = 8;
/// Words a reader may always look at.
pub const TRAVERSAL_WORDS_MIN: usize = 1024;
/// Bytes of a message that only lets go of something.
pub const FINISH_BYTES_MAX: usize = 1024;
/// Calls of ours that one peer leaves unanswered, of feeds for instance; more end the connection.
pub const QUESTIONS_MAX: usize = 16_384;
/// Messages that let go of a capability while a waiting call may name it; more end the connection.
pub const RELEASES_HELD_BACK_MAX: usize = 16_384;
/// Steps from an answer to the capability meant in it.
pub const PATH_STEPS_MAX: u32 = 16;
/// How often answers that are not there yet may stand among the parameters of calls.
pub const NAMED_PENDING_MAX: usize = 4096;
/// Promises of a peer's that we hold at one time.
pub const PROMISES_MAX: usize = 4096;
/// Largest message from a peer that holds no object; room for any ref, and for little else.
pub const STRANGER_FRAME_BYTES_MAX: usize = 64 << 10;
/// First allocation for an incoming message; it grows as bytes really arrive.
pub const FRAME_FIRST_BYTES: usize = 16 << 10;
/// Segments of one message; Cap'n Proto's own limit.
pub const SEGMENTS_MAX: usize = 512;
/// Refused calls whose numbers are remembered, so that calls pipelined on them are refused alike.
pub const REFUSED_REMEMBERED_MAX: usize = 64 << 10;

/// Stack of a worker thread. Reserved, not committed. Chains of pipelined calls never form inside
/// capnp-rpc (see `transport::admission`), but promises among parameters still nest there, at up to
/// 12 KiB a level in a debug build.
pub const WORKER_STACK_BYTES: usize = 64 << 20;
/// Connections waiting for a worker to pick them up.
pub const WORKER_BACKLOG_MAX: usize = 128;
/// Connections beyond the limit that are being told so at one time.
pub const TURNED_AWAY_MAX: usize = 64;

/// Paths of which a snapshot says that something stood there that it did not take.
pub const UNKNOWN_RECORDED_MAX: usize = 100_000;
/// Bytes of objects in one pack as it is written; more makes several packs.
pub const PACK_BODY_BYTES_MAX: usize = 32 << 20;
/// Longest content of which pieces are cut from memory.
pub const BLOB_CACHE_BYTES_MAX: u64 = 32 << 20;
/// Files from this length on are never held in memory as a whole.
pub const STREAMED_FILE_BYTES_LEAST: u64 = 16 << 20;
/// Directories within directories of a work tree.
pub const WORKTREE_DEPTH_MAX: usize = 512;
/// Bytes of one file of ignore rules that are read.
pub const RULES_FILE_BYTES_MAX: u64 = 1 << 20;
/// Directories of one work tree that are watched; beyond that all of it is looked at.
pub const WATCHED_DIRECTORIES_MAX: usize = 200_000;
/// Even a watched work tree is looked at as a whole after so long: not everything is heard.
pub const UNWATCHED_NS_MAX: i64 = 300_000_000_000;
/// Longest file that is compared line by line.
pub const DIFF_FILE_BYTES_MAX: u64 = 1 << 20;
/// Packs of one store before they are put together.
pub const PACKS_MAX: usize = 64;
/// Work that waits for one work tree; more is answered `overloaded`.
pub const WORKTREE_JOBS_MAX: usize = 256;
/// Work trees in use at one time; more are answered `overloaded`.
pub const WORKTREES_OPEN_MAX: usize = 256;
/// A work tree nobody has asked for so long is let go of.
pub const WORKTREE_IDLE_MS: u64 = 600_000;
/// Conflicts, files with an owner and other paths that are recorded of one call; the rest is counted.
pub const PATHS_RECORDED_MAX: usize = 10_000;
/// And bytes of all of them.
pub const PATHS_RECORDED_BYTES_MAX: usize = 512 << 10;
/// Pairs of snapshots whose difference is undone in one call.
pub const PATCHES_MAX: u32 = 64;
/// Bytes of a file that are read in one call.
pub const FILE_PIECE_BYTES_MAX: usize = 256 << 10;
/// Files, changes and other paths in one page.
pub const PATHS_PAGE_MAX: usize = 1_000;
/// Snapshots that are let go of in one step.
pub const SNAPSHOTS_STEP_MAX: u32 = 1_000;
/// Snapshots that are looked at to undo the work of one session.
pub const INTERVALS_MAX: u64 = 100_000;
/// Paths of one work tree that somebody holds a lease of.
pub const PATH_LEASES_MAX: usize = 10_000;
/// Time between two looks whether turns have ended whose files are not taken down yet.
pub const TURN_CLOSING_LOOK_MS: u64 = 1_000;

/// The limits an operator may change. Every field is a setting of the same name under `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections served at one time; one more is told `too-many-connections` and closed.
    pub connections_max: usize,
    /// Largest incoming message. A peer that announces more loses its connection.
    pub frame_bytes_max: usize,
    /// Time a message may take from its first byte to its last.
    pub frame_ms_max: u64,
    /// Calls of one connection that wait for their answer.
    pub calls_in_flight_max: usize,
    /// Bytes of the messages of those calls; one call is always let in.
    pub call_bytes_in_flight_max: usize,
    /// Answers of one connection whose capabilities the client has not released yet.
    pub answers_unfinished_max: usize,
    /// Calls on the result of a call on the result of … none of them answered.
    pub pipeline_depth_max: u32,
    /// Live objects held through one connection.
    pub objects_max: usize,
    /// Feeds running through one connection.
    pub subscriptions_max: usize,
    /// Bytes waiting to be sent to one peer before no more is read from it.
    pub backlog_bytes_max: usize,
    /// Time a peer may take to read anything at all while bytes wait for it.
    pub stall_ms_max: u64,
    /// Silence after which a connection is closed.
    pub idle_ms_max: u64,
    /// Time after which a connection that holds no object is closed, whatever it says.
    pub stranger_idle_ms_max: u64,
    /// Commands waiting for the writer; one more is answered `overloaded`.
    pub queue_commands_max: usize,
    /// Payload bytes of those commands.
    pub queue_bytes_max: usize,
    /// Questions waiting for a reader; one more is answered `overloaded`.
    pub queue_reads_max: usize,
    /// Ops older than this may be compacted, as far as later ones have replaced them; 0 keeps them for ever.
    pub history_age_ms_max: u64,
    /// The oldest ops of a log may be compacted while all together are larger than this; 0 keeps them.
    pub history_bytes_max: u64,
    /// Time between two sweeps over all logs for history to compact; 0 never sweeps.
    pub history_sweep_ms: u64,
    /// A named subscription not used for this long holds no history back any more.
    pub subscription_idle_ms_max: u64,
    /// Audit entries older than this are let go of; 0 keeps them for ever.
    pub audit_age_ms_max: u64,
    /// The oldest audit entries are let go of beyond this number; 0 keeps them.
    pub audit_entries_max: u64,
    /// Files of one work tree; one with more is not taken down.
    pub worktree_files_max: u64,
    /// Larger files are left out of snapshots, unless they are asked for.
    pub snapshot_file_bytes_max: u64,
    /// What the snapshots of one project may take up on disk; more are refused. 0 for any amount.
    pub snapshot_bytes_max: u64,
    /// Snapshots no session names are let go of when they are older than this; 0 keeps them for ever.
    pub snapshot_age_ms_max: u64,
    /// Time given to accepted calls when the server is told to stop.
    pub shutdown_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            frame_bytes_max: 8 << 20,
            frame_ms_max: 60_000,
            calls_in_flight_max: 1024,
            call_bytes_in_flight_max: 32 << 20,
            answers_unfinished_max: 4096,
            pipeline_depth_max: 64,
            objects_max: 10_000,
            subscriptions_max: 1_000,
            backlog_bytes_max: 4 << 20,
            stall_ms_max: 30_000,
            idle_ms_max: 3_600_000,
            stranger_idle_ms_max: 60_000,
            queue_commands_max: 16_384,
            queue_bytes_max: 64 << 20,
            queue_reads_max: 16_384,
            history_age_ms_max: 30 * DAY_MS,
            history_bytes_max: 0,
            history_sweep_ms: 600_000,
            subscription_idle_ms_max: 30 * DAY_MS,
            audit_age_ms_max: 365 * DAY_MS,
            audit_entries_max: 10_000_000,
            worktree_files_max: 2_000_000,
            snapshot_file_bytes_max: 10 << 20,
            snapshot_bytes_max: 50 << 30,
            snapshot_age_ms_max: 30 * DAY_MS,
            shutdown_ms_max: 10_000,
        }
    }
}

const DAY_MS: u64 = 86_400_000;

/// A limit outside the range that makes sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits.{name} is {value}; it must be between {least} and {most}")]
pub struct OutOfRange {
    name: &'static str,
    value: u64,
    least: u64,
    most: u64,
}

impl Limits {
    /// What history the server lets go of, where a session has no wish of its own.
    pub fn history(&self) -> Policy {
        let bound = |max: u64| Some(max).filter(|max| *max > 0);
        Policy {
            age_ms_max: bound(self.history_age_ms_max),
            bytes_max: bound(self.history_bytes_max),
        }
    }

    /// Whether every limit lets the server work and keeps it bounded.
    pub fn check(&self) -> Result<(), OutOfRange> {
        const HOUR_MS: u64 = 3_600_000;
        const GIB: u64 = 1 << 30;
        // A frame must hold the largest op with its envelope, and a queue the largest frame.
        let frame_least = 2 * OP_PAYLOAD_BYTES_MAX as u64;
        let frame = self.frame_bytes_max as u64;
        let table = [
            ("connections_max", self.connections_max as u64, 1, 100_000),
            ("frame_bytes_max", frame, frame_least, GIB / 2),
            ("frame_ms_max", self.frame_ms_max, 100, HOUR_MS),
            ("calls_in_flight_max", self.calls_in_flight_max as u64, 1, 65_536),
            ("call_bytes_in_flight_max", self.call_bytes_in_flight_max as u64, frame, 4 * GIB),
            ("answers_unfinished_max", self.answers_unfinished_max as u64, 16, 1 << 20),
            ("pipeline_depth_max", self.pipeline_depth_max.into(), 4, 1024),
            ("objects_max", self.objects_max as u64, 1, 10_000_000),
            ("subscriptions_max", self.subscriptions_max as u64, 1, 1_000_000),
            ("backlog_bytes_max", self.backlog_bytes_max as u64, 64 << 10, 4 * GIB),
            ("stall_ms_max", self.stall_ms_max, 100, HOUR_MS),
            ("idle_ms_max", self.idle_ms_max, 1_000, 1000 * HOUR_MS),
            ("stranger_idle_ms_max", self.stranger_idle_ms_max, 100, 1000 * HOUR_MS),
            ("queue_commands_max", self.queue_commands_max as u64, 1, 1 << 20),
            ("queue_bytes_max", self.queue_bytes_max as u64, frame, 16 * GIB),
            ("queue_reads_max", self.queue_reads_max as u64, 1, 1 << 20),
            ("history_age_ms_max", self.history_age_ms_max, 0, 36_500 * DAY_MS),
            ("history_bytes_max", self.history_bytes_max, 0, 1 << 50),
            ("history_sweep_ms", self.history_sweep_ms, 0, 365 * DAY_MS),
            ("subscription_idle_ms_max", self.subscription_idle_ms_max, 0, 36_500 * DAY_MS),
            ("audit_age_ms_max", self.audit_age_ms_max, 0, 36_500 * DAY_MS),
            ("audit_entries_max", self.audit_entries_max, 0, 1 << 50),
            ("worktree_files_max", self.worktree_files_max, 1, 1 << 40),
            ("snapshot_file_bytes_max", self.snapshot_file_bytes_max, 0, 1 << 50),
            ("snapshot_bytes_max", self.snapshot_bytes_max, 0, 1 << 50),
            ("snapshot_age_ms_max", self.snapshot_age_ms_max, 0, 36_500 * DAY_MS),
            ("shutdown_ms_max", self.shutdown_ms_max, 100, HOUR_MS),
        ];
        for (name, value, least, most) in table {
            if !(least..=most).contains(&value) {
                return Err(OutOfRange { name, value, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_a_silly_value_is_named() {
        assert_eq!(Limits::default().check(), Ok(()));
        let silly = Limits { calls_in_flight_max: 0, ..Limits::default() };
        let text = silly.check().unwrap_err().to_string();
        assert!(text.contains("limits.calls_in_flight_max is 0"), "{text}");
    }
}
