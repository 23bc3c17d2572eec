//! The stable codes under which a caller hears "no", "later" or "reconnect".
//!
//! This is the one table: name, advice and meaning of each code. Errors beside the rules name their
//! code, the wire's door turns the advice into an exception type, and `docs/errors.md` is compared
//! with it by a test. A retired code stays here with a note, because receipts may hold it.

use std::fmt;

/// What a caller should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// The same call will fail again.
    No,
    /// Nothing was decided against it; the same call may succeed after a pause.
    Later,
    /// The connection is of no more use: connect and redeem again, then send the same call.
    Reconnect,
}

impl Advice {
    /// The word used in `docs/errors.md`.
    pub const fn word(self) -> &'static str {
        match self {
            Advice::No => "no",
            Advice::Later => "later",
            Advice::Reconnect => "reconnect",
        }
    }
}

macro_rules! codes {
    ($($variant:ident, $name:literal, $advice:ident, $meaning:literal;)+) => {
        /// A reason with a name that never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)+
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &[Code] = &[$(Code::$variant,)+];

            /// The name on the wire, in receipts and in `docs/errors.md`.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)+ }
            }

            /// What the caller should do.
            pub const fn advice(self) -> Advice {
                match self { $(Code::$variant => Advice::$advice,)+ }
            }

            /// What happened and how to mend it, in a sentence or two for people.
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning,)+ }
            }
        }
    };
}

codes! {
    RefMalformed, "ref-malformed", No,
        "The text is not a sturdy ref, or a character was lost in copying. Copy it again.";
    RefRefused, "ref-refused", No,
        "The sturdy ref stands for nothing here: it is unknown, expired or revoked, or belongs to another server. Ask whoever gave it for a new one.";
    Revoked, "revoked", No,
        "The grant behind this ref or object was revoked. Ask its owner for a new one.";
    NotPermitted, "not-permitted", No,
        "The object held does not carry the right this call needs.";
    Expired, "expired", No,
        "The grant behind this ref or object has ended, as it was made to. Ask its owner for a new one.";
    UsedUp, "used-up", No,
        "This ref was redeemed as often as it may be, or this claim was exchanged by somebody else. Ask its owner for a new one.";
    Sealed, "sealed", No,
        "This ref is sealed to somebody. Redeem it together with a ref of that actor's own, see `Vat.redeem`.";
    DelegationEnded, "delegation-ended", No,
        "The delegation this object is held under is over: completed, failed, or lapsed because nothing was heard of the delegate. Ask whoever delegated for a new one.";
    DelegationNotFound, "delegation-not-found", No,
        "This object is not held under the grant of a delegate.";
    ShareNotFound, "share-not-found", No,
        "There is no share with this id within the object asked.";
    ShareEnded, "share-ended", No,
        "The share was ended with `unpublish`. Publish the session again if it is to be seen.";
    GrantNotFound, "grant-not-found", No,
        "There is no such grant, or it was not derived from the one this object is held under.";
    NarrowingMalformed, "narrowing-malformed", No,
        "What is to be handed on makes no sense: the label, the actor, a tool or a path is too long or holds characters that have no place there, a right is unknown, a time has passed, a lease is too short or too long, or the seed is not 32 bytes. The text says which.";
    TooManyGrants, "too-many-grants", Later,
        "As many grants in force are derived from this one as the server allows. Revoke some.";
    TooDeep, "too-deep", No,
        "As many grants stand above this one as the server allows. Derive from one that stands higher.";
    IdMalformed, "id-malformed", No,
        "An id is empty, too long, or holds a space or control character.";
    WorktreeNotFound, "worktree-not-found", No,
        "There is no such worktree, or the directory is none of the project's. Open the project there first (`openProject`), then ask for its worktree.";
    WorktreeNotAllowed, "worktree-not-allowed", No,
        "The directory lies outside those the operator allows worktrees in. Start the server with `--worktree-root` for a directory above it.";
    WorktreeUnreadable, "worktree-unreadable", No,
        "The directory of the worktree is not there, or the server may not read it.";
    WorktreeTooLarge, "worktree-too-large", No,
        "The worktree has more files than the server looks at. Let git ignore what need not be undone, or raise `worktree_files_max`.";
    SnapshotNotFound, "snapshot-not-found", No,
        "There is no such snapshot of this worktree, or it was let go of.";
    SnapshotBudget, "snapshot-budget", Later,
        "The snapshots of this project take up as much as they may, and all of them are wanted. Remove sessions or snapshots, or raise `snapshot_bytes_max`.";
    SnapshotStoreFailed, "snapshot-store-failed", Later,
        "The snapshots could not be read or written; the server's log says more. Files are as they were.";
    FileNotFound, "file-not-found", No,
        "The snapshot has no file at this path, or the path lies outside of what this object may be used for.";
    FileChanged, "file-changed", No,
        "A file is not as it was when it was stamped. Read it again before you write.";
    PathMalformed, "path-malformed", No,
        "A path is not relative to the worktree, is empty or too long, or has steps like `..`.";
    PathLeased, "path-leased", Later,
        "Somebody else holds a lease of the file; the text says who, and until when.";
    Cancelled, "cancelled", No,
        "The call was cancelled by its caller. Files are as they were.";
    SandboxNotFound, "sandbox-not-found", No,
        "The project has no sandbox of this name.";
    SandboxExists, "sandbox-exists", No,
        "There is a sandbox of this name, or a branch that stands in its way.";
    SandboxUnmerged, "sandbox-unmerged", No,
        "The sandbox has commits that are nowhere else, or changes that are not committed. Merge or commit them, or say `discard`: commits are kept under a reference, and files in a snapshot.";
    SandboxMalformed, "sandbox-malformed", No,
        "The project is in no git repository, or one without a commit, or the name or revision makes no sense. The text says which.";
    DirectoryMalformed, "directory-malformed", No,
        "A project's directory is not an absolute path, is too long, or holds a control character.";
    NameTooLong, "name-too-long", No,
        "A project's name is longer than the server takes.";
    TitleTooLong, "title-too-long", No,
        "A session's title is longer than the server takes.";
    ProjectExists, "project-exists", No,
        "The chosen id belongs to another directory, or the directory already has another id.";
    ProjectNotFound, "project-not-found", No,
        "There is no project with this id.";
    SessionExists, "session-exists", No,
        "The chosen session id is taken.";
    SessionNotFound, "session-not-found", No,
        "The project has no session with this id.";
    MessageExists, "message-exists", No,
        "The session has a message with the chosen id.";
    MessageNotFound, "message-not-found", No,
        "The session has no message with this id.";
    MessageMalformed, "message-malformed", No,
        "The call's parameters could not be read: a text is not UTF-8, or the structure is damaged or nested too deeply.";
    OpHeaderMalformed, "op-header-malformed", No,
        "The op header is incomplete: producer and op id are 16 bytes each, epoch and seq start at 1.";
    OpMalformed, "op-malformed", No,
        "An op says nothing, has an unknown kind or role, too many parts, or JSON that is not an object.";
    OpTooLarge, "op-too-large", No,
        "One op is larger than the server takes. Cut it into several.";
    BatchEmpty, "batch-empty", No,
        "A batch holds no ops.";
    BatchTooLong, "batch-too-long", No,
        "A batch holds more ops than the server takes at once. Cut it into several.";
    SeqGap, "seq-gap", No,
        "Ops before this one are missing. Continue at the number the server expects.";
    OpReused, "op-reused", No,
        "The server knows another op under this number. Two clients share a producer id, or the op was changed after it was first sent.";
    SeqForgotten, "seq-forgotten", No,
        "A client that took over a producer repeats numbers its predecessor acknowledged, so the server cannot tell whether they were the same ops. Look what is there, then go on from the number it expects.";
    BatchRegrouped, "batch-regrouped", No,
        "An atomic batch was sent again with other ops around it. Send it as it was, and new ops in another batch.";
    BatchUndone, "batch-undone", No,
        "Another op of the same atomic batch was rejected, so this one did not happen either.";
    DependencyFailed, "dependency-failed", No,
        "An op this one depends on was rejected.";
    DependencyForgotten, "dependency-forgotten", No,
        "The result of an op this one depends on was acknowledged and dropped, so the server cannot tell whether it was rejected. Depend only on ops whose results are not acknowledged.";
    CursorConflict, "cursor-conflict", No,
        "The log does not end where the op expects it to: somebody else has written. Look what is there, then send a new op.";
    EpochStale, "epoch-stale", No,
        "The object's epoch has changed since the op, or the ref, was made. An op: redeem the object again, and send it with the new epoch if it still makes sense. A ref: ask its owner for a new one.";
    TooManyProducers, "too-many-producers", No,
        "As many producers as the server allows have written to this log. Write under one that exists.";
    ProducerFenced, "producer-fenced", No,
        "Another client has taken over this producer with a higher epoch. Stop writing.";
    WindowFull, "window-full", No,
        "Too many results of this producer wait to be acknowledged. Send `ackedThrough`, then the rest.";
    ResultDropped, "result-dropped", No,
        "This op was decided, and its result was acknowledged and dropped. Look the object up by its id.";
    Overloaded, "overloaded", Later,
        "The server has as much work waiting as it takes. Nothing was done; send the same call after a pause.";
    OutcomeUnknown, "outcome-unknown", Later,
        "The disk reported trouble in the middle of a commit, so it may or may not have been done. Send the same call again: the ledger knows.";
    StorageFailed, "storage-failed", Later,
        "The store could not do it, for instance because the disk is full. Nothing was done. The server's log says more.";
    TooManyConnections, "too-many-connections", Later,
        "The server serves as many connections as it is set to.";
    TooManyObjects, "too-many-objects", Later,
        "This connection holds as many live objects as the server allows. Release some.";
    TooManyCalls, "too-many-calls", Later,
        "This connection has as many calls in flight as the server allows. Wait for answers.";
    TooManyAnswers, "too-many-answers", Later,
        "This connection holds as many unreleased answers as the server allows. Release some.";
    PipelineTooDeep, "pipeline-too-deep", Later,
        "Too many calls are chained on an answer that is not there yet. Wait for it, then go on.";
    CursorAhead, "cursor-ahead", No,
        "The place asked for lies after the end of the history. The server's data was replaced by an older copy, or the place belongs to another object.";
    SubscriptionTaken, "subscription-taken", No,
        "Another client has taken up the subscription of this name, or it was forgotten.";
    SinkFailed, "sink-failed", No,
        "A call on the sink failed, so its feed ended. See to the sink, then ask for the feed again.";
    TooManySubscriptions, "too-many-subscriptions", Later,
        "As many feeds run through this connection, or as many named subscriptions are kept for this object, as the server allows. End or forget some.";
    SessionBusy, "session-busy", Later,
        "A turn runs in this session, and what was asked for cannot be done beside it. Wait for its end, abort it, or ask for the new turn to be queued.";
    TurnExists, "turn-exists", No,
        "The session has a turn with the chosen id.";
    TurnNotFound, "turn-not-found", No,
        "The session has no turn with this id, or the message does not belong to it.";
    TurnEnded, "turn-ended", No,
        "The turn is over; the text says how. Nothing more can be said in it: begin another.";
    TooManyTurns, "too-many-turns", Later,
        "As many turns run and wait in this session as the server allows.";
    TooManyCheckpoints, "too-many-checkpoints", No,
        "The session has as many checkpoints with a name as the server allows, or its conversation has gone back and on as often. Go on in a fork.";
    LeaseMalformed, "lease-malformed", No,
        "The lease of a turn is too short or too long.";
    PartNotFound, "part-not-found", No,
        "The message has no part with this id.";
    PartClosed, "part-closed", No,
        "The part is not open: its text is complete.";
    TooManyParts, "too-many-parts", No,
        "The message has as many parts as the server allows.";
    ToolEnded, "tool-ended", No,
        "The tool has completed or failed already, or never ran. Its state stays as it is.";
    CheckpointNotFound, "checkpoint-not-found", No,
        "The session has no checkpoint of this name.";
    DeltaGap, "delta-gap", No,
        "The text does not reach that far yet. Go on where it ends: see `Turn.partWriter`.";
    DeltaConflict, "delta-conflict", No,
        "Another text stands where this one was to go. Two clients write the same part, or it was changed after it was first sent.";
    ContentNotFound, "content-not-found", No,
        "No part of this session names such content, and it was not uploaded to it. Upload it first: see `Session.upload`.";
    ContentMalformed, "content-malformed", No,
        "What was uploaded is not what it was said to be: the hash is not 32 bytes or not the right one, or it is longer than was said. Send it again.";
    ContentTooLarge, "content-too-large", No,
        "The content, or the text of a part, is longer than the server takes.";
    ContentGap, "content-gap", No,
        "Bytes before these are missing. Go on where the server says.";
    RulesMalformed, "rules-malformed", No,
        "There are too many rules, or one is too long or holds a control character.";
    TokenMalformed, "token-malformed", No,
        "The token is not one that this list gave. Begin anew without one.";
    ShuttingDown, "shutting-down", Reconnect,
        "The server is stopping. The call was not taken; send it again once the server is back.";
    ConnectionEnded, "connection-ended", Reconnect,
        "The server gave the connection up, and says why: a message was too large or took too long, the peer was silent too long, or it broke the protocol.";
    ConnectionOver, "connection-over", Reconnect,
        "The connection this object came from has ended.";
    Internal, "internal", No,
        "A fault of the server's own; its log says more. A change may have been done: its repeat tells.";
}

impl Code {
    /// Whether the same intent may succeed later: a refusal that was recorded stands, but a new op, or the
    /// same one where it was not reached, may find things changed.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Code::CursorConflict
                | Code::BatchUndone
                | Code::DependencyFailed
                | Code::DependencyForgotten
                | Code::SeqGap
                | Code::WindowFull
                | Code::BatchRegrouped
        ) || !matches!(self.advice(), Advice::No)
    }

    /// The code of this name, if this version knows it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// The text of an exception with this code.
    pub fn text(self, what: impl fmt::Display) -> String {
        format!("bowline/{self}: {what}")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error that has a code. Its `Display` is the text for people.
pub trait Coded: fmt::Display {
    /// Under which code a caller hears of it.
    fn code(&self) -> Code;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_plain() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
        }
    }
}
