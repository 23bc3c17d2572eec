@0xe2b8f3b1c6f0a94d;
# Feeds: what happened, from any point on, without gaps. The words are explained in bowline.capnp.
#
# You give a sink, an object of yours, and the server calls it: first with the history after the place you
# name, a page at a time, then `caughtUp`, then with whatever happens, as it happens. Calls on the sink come
# in order. The server sends a few of them ahead and then waits for the first to return, so a sink that takes
# its time holds up nobody but itself.
#
# *Places.* Every event has a place in the feed; places only grow. In a session's feed it is the cursor in
# the session's log. In a project's or the server's feed, which join many logs, it is a number given to
# every op on the server in the order of commits; a project's feed has only some of them.
#
# *Resuming.* Keep the place you have processed, and ask for a feed from there after a lost connection:
# no event is missing and none comes twice. Or give the subscription a name: then the server keeps the
# place for you, moved on whenever a call on your sink has returned. It may lag a few calls, so after a crash
# of either side some events come again, with the same places as before: drop what you have processed
# already. Names belong to the object, and are shared by all who may read it.
#
# *Gaps.* Old history may have been compacted. If something after your place is gone, `gap` comes first,
# and then what is kept up to the floor: those events give the state at the floor, and are followed by the
# full history.
#
# *Grants.* Events about grants, delegations and shares (who was given what, and what was taken back) are told
# only to who holds the object with the right `delegate`.
#
# *Asking.* `feed` fails with: `cursor-ahead` (the place lies after the end of the history: the server's data
# was replaced by an older copy, or the place is another object's), `too-many-subscriptions`, `id-malformed`
# (the name), `op-header-malformed` (`skipProducer` is not 16 bytes), `message-malformed` (no sink). Each call
# begins a feed of its own, unless it names one.

using Bowline = import "bowline.capnp";
using Message = import "message.capnp";
using Grant = import "grant.capnp";

struct Wish {
  # Which feed somebody wants.

  after @0 :UInt64;
  # The place after which to begin; 0 begins with the history. With a name that is known already, the
  # kept place counts, and not this one.

  name @1 :Text;
  # Makes the subscription durable under this name, unique for the object it is asked of: 1 to 128 bytes
  # without spaces and control characters. Empty for a feed that ends with its connection. Whoever asks
  # under the same name again takes the subscription over; the feed that ran under it ends with
  # `subscription-taken`, and what it acknowledges from then on does not count.

  kinds @2 :List(EventKind);
  # Only events of these kinds. Empty for all. A kind this server does not know matches nothing.

  skipProducer @3 :Data;
  # Leave out the events of this producer, usually the caller's own. 16 bytes or none.

  texts @4 :Bool;
  # Tell the texts of open parts as they come, with `grown`. Only in the feed of a session or a share.
}

interface Sink {
  # What you implement. A call that fails ends the subscription.

  events @0 (page :EventPage) -> ();
  # Something happened. Return when you have processed the page, or have it safely: that is what moves a
  # named subscription on.

  caughtUp @1 (place :UInt64) -> ();
  # You have everything up to here, and nothing more has happened yet. It comes after the history and
  # whenever you have caught up again, and while nothing happens every five minutes, or three times in the
  # server's `idle_ms_max` if that is more often: a feed that is silent for longer is dead.

  gap @2 (after :UInt64, floor :UInt64) -> ();
  # Some of the history after `after`, where you are, is gone. Forget what you built from earlier events:
  # those that follow, up to `floor`, give the whole state at `floor`. It can come in the middle of a feed.

  grown @4 (texts :List(Grown)) -> ();
  # Open parts have more text. It has no place of its own: when the part is closed, an event brings all of it.
  # After a lost connection it comes from the beginning of the part; go by the offsets.

  ended @3 (reason :Bowline.Refusal) -> ();
  # The server ends the feed; no more calls come. The reasons: `shutting-down` (ask again once it is back),
  # `subscription-taken`, `sink-failed` (an earlier call on this sink did), `revoked`, `expired`,
  # `epoch-stale`, `delegation-ended`, `share-ended`, `storage-failed`, `internal`.
}

struct Grown {
  messageId @0 :Text;
  partId @1 :Text;
  offset @2 :UInt64;
  text @3 :Text;
  # What stands from this byte on.
}

interface Subscription {
  # A feed that runs. Drop it to end the feed; a named one can be taken up again.

  status @0 () -> (place :UInt64, acknowledged :UInt64, caughtUp :Bool, ended :Bowline.Refusal);
  # `place`: sent up to here. `acknowledged`: the sink has returned for everything up to here. `ended`: why
  # the feed is over; not set while it runs. Needs `read`. Safe to repeat.
}

struct EventPage {
  events @0 :List(Event);

  through @1 :UInt64;
  # Everything up to this place that you wished for has been sent now. It can be greater than the place of
  # the last event, where events were left out at your wish; resume from here.
}

enum EventKind {
  unknown @0;
  projectOpened @1;
  sessionCreated @2;
  messagePut @3;
  messageRemoved @4;
  titleSet @5;
  historySet @6;
  grantMade @7;
  grantRevoked @8;
  epochBumped @9;
  actorRevoked @10;
  rootRotated @11;
  delegated @12;
  delegationEnded @13;
  shareOpened @14;
  shareEnded @15;
  sessionUpdated @16;
  todosSet @17;
  messageSet @18;
  partPut @19;
  partRemoved @20;
  turnBegan @21;
  turnEnded @22;
  turnRetried @23;
  turnStarted @24;
  headSet @25;
  checkpointMade @26;
  outputsPruned @27;
  forked @28;
  sessionRemoved @29;
  rulesSet @30;
  checkpointDropped @31;
  worktreeOpened @32;
  snapshotTaken @33;
  snapshotNoted @34;
  filesMoved @35;
  turnMeasured @36;
  snapshotsDropped @37;
}

struct Event {
  place @0 :UInt64;
  # In this feed.

  cursor @1 :UInt64;
  # In the log of the object it happened to.

  projectId @2 :Text;
  sessionId @3 :Text;
  # That object: the session if there is one, otherwise the project, otherwise the server.

  producer @4 :Data;
  seq @5 :UInt64;
  opId @6 :Data;
  batchId @7 :Data;
  # The op behind it, as its producer named it. `batchId` is empty if the batch had no name. `producer` is not
  # the producer's id, with which others could write in its name, but a name made from it: the same for all
  # its ops.

  atMs @8 :UInt64;
  # When it was committed, by the server's clock. Never use it for order.

  union {
    unknown @9 :Void;
    # Something this version of the schema has no word for.

    projectOpened @10 :ProjectOpened;
    sessionCreated @11 :SessionCreated;
    messagePut @12 :Message.Message;
    messageRemoved @13 :Text;
    # Its id.

    titleSet @14 :Text;
    historySet @15 :Message.HistoryPolicy;
    grantMade @16 :GrantMade;
    grantRevoked @17 :GrantRevoked;
    epochBumped @18 :EpochBumped;
    actorRevoked @19 :ActorRevoked;
    rootRotated @20 :RootRotated;
    delegated @22 :Delegated;
    delegationEnded @23 :DelegationEnded;
    shareOpened @24 :ShareOpened;
    shareEnded @25 :Text;
    # Its id.

    sessionUpdated @26 :List(Message.SessionChange);
    todosSet @27 :List(Message.Todo);
    messageSet @28 :Message.MessageBody;
    partPut @29 :Message.PartPut;
    partRemoved @30 :Message.PartRef;
    turnBegan @31 :TurnBegan;
    turnEnded @32 :TurnEnded;
    turnRetried @33 :Message.TurnRetry;
    turnStarted @34 :Text;
    # A turn that was queued runs now; its id.

    headSet @35 :HeadSet;
    checkpointMade @36 :CheckpointMade;
    outputsPruned @37 :List(Message.PartRef);
    forked @38 :Forked;
    sessionRemoved @39 :Text;
    # Its id; told in the project's log.

    rulesSet @40 :List(Message.Rule);
    checkpointDropped @41 :UInt64;
    # Where it had been made.

    worktreeOpened @42 :WorktreeOpened;
    snapshotTaken @43 :SnapshotTaken;
    # Of a work tree; told in its log.

    snapshotNoted @44 :SnapshotTaken;
    # For a turn; told in its session's log.

    filesMoved @45 :FilesMoved;
    turnMeasured @46 :TurnMeasured;
    snapshotsDropped @47 :UInt32;
    # How many.
  }

  author @21 :Message.Author;
  # Who did it, and on whose behalf; also for a message, which has none of its own here. `delegationEnded` is
  # told under the delegate's grant, whoever ended it. Not told through a share.
}

struct WorktreeOpened {
  id @0 :Text;
  directory @1 :Text;
  sandbox @2 :Text;
}

struct SnapshotTaken {
  id @0 :Text;
  number @1 :UInt64;
  hash @2 :Text;
}

struct FilesMoved {
  # Files were put back.

  name @0 :Data;
  # The call that did it.

  done @1 :UInt64;
  conflicts @2 :UInt64;
}

struct TurnMeasured {
  # What a turn did to files, from its snapshots.

  summary @0 :Message.Summary;
  files @1 :UInt32;
}

struct TurnBegan {
  # Its message follows as `messagePut`.

  id @0 :Text;
  queued @1 :Bool;
  messageId @2 :Text;
  leaseMs @3 :UInt64;
  leftBehind @4 :UInt64;
  # What had been reverted is not part of the conversation any more: from this cursor on. 0 if nothing was.
}

struct TurnEnded {
  # However it ended. In the same moment, and right behind it, come `partPut` for each part that changed with it
  # (the last ones, tools that were interrupted, texts that were open), `messageSet` for what is said of the
  # last message, and `turnStarted` if a turn has waited for it.

  id @0 :Text;
  state @1 :Message.TurnState;
  reason @2 :Text;
  summary @3 :Message.Summary;
  files @4 :UInt32;
  # How many diffs `Session.diffs` has.

  lapsed @5 :Bool;
  # Nobody ended it: nothing was heard of it any more, or the grant it was begun under is gone.
}

struct HeadSet {
  revert @0 :Message.Revert;
  # Where the conversation ends now: before this. Not set if it ends where its log does.

  checkpoint @1 :UInt64;
  # The checkpoint it went back to, by the cursor it was made at; 0 for none.

  files @2 :Bool;
  # The files went along.
}

struct CheckpointMade {
  name @0 :Text;
  # An automatic one is called `@` and its cursor.

  automatic @1 :Bool;
}

struct Forked {
  sessionId @0 :Text;
  before @1 :Text;
  # The message before which it left; empty for all of it.
}

struct Delegated {
  # Work was handed to somebody; see `Session.delegate`.

  grant @0 :Data;
  # The delegate's.

  sessionId @1 :Text;
  # The child session that was made for it; empty if it works in this one.

  rights @2 :List(Grant.Right);
  expiresAtMs @3 :UInt64;
  leaseMs @4 :UInt64;
  label @5 :Text;
  actor @6 :Text;
}

struct DelegationEnded {
  # A delegation is over. It is told in the log of the session that delegated, and, where the delegate itself
  # ended it in a child session, there too.

  grant @0 :Data;
  sessionId @1 :Text;
  end @2 :DelegationEnd;
  result @3 :Text;
  # What the delegate said at the end.
}

enum DelegationEnd {
  # Numbers are stored; a retired one stays taken.
  running @0;
  completed @1;
  failed @2;
  # Said by the delegate itself.

  lapsed @3;
  # Its lease ran out: it did not say anything for too long.

  revoked @4;
  expired @5;
}

struct ShareOpened {
  # The session was published; see `Session.share`.

  id @0 :Text;
  grant @1 :Data;
  # The grant behind the ref that was made with it.
}

struct RootRotated {
  grant @0 :Data;
  former @1 :Data;
}

struct EpochBumped {
  epoch @0 :UInt64;
  cut @1 :UInt64;
}

struct ActorRevoked {
  actor @0 :Text;
  cut @1 :UInt64;
}

struct GrantMade {
  # Somebody was handed a part of this object's authority; see grant.capnp. The words are as there.

  grant @0 :Data;
  parent @1 :Data;
  rights @2 :List(Grant.Right);
  expiresAtMs @3 :UInt64;
  label @4 :Text;
  actor @5 :Text;
  saved @6 :Bool;
}

struct GrantRevoked {
  grant @0 :Data;
  cut @1 :UInt64;
  # How many grants stand no more: this one, and those derived from it.
}

struct ProjectOpened {
  id @0 :Text;
  directory @1 :Text;
  name @2 :Text;
}

struct SessionCreated {
  id @0 :Text;
  title @1 :Text;
  parentId @2 :Text;
  # The session it was made for; empty if there is none.

  forkedFrom @3 :Text;
  # The session it was copied from; empty if it was not.
}
