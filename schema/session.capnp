@0xa7e269eb1f01d945;
# One session: a log of what people and agents said and did; work handed to others; and views of it that were
# published. The words are explained in bowline.capnp.

using Bowline = import "bowline.capnp";
using Feed = import "feed.capnp";
using Grant = import "grant.capnp";
using Message = import "message.capnp";

interface Session extends(Grant.Object) {
  # Authority over one session.

  info @0 () -> (session :SessionInfo);
  # Needs `read`. Safe to repeat.

  append @1 (batch :Bowline.Batch, ops :List(SessionOp)) -> (ack :Bowline.Ack);
  # Adds ops at the end of the log, in order.
  #
  # On return everything `ack` calls applied is on disk. What one op's rejection means to the others is
  # said by `batch.mode`; without a word, nothing.
  #
  # Batches take effect in the order they were sent, so a client may send the next one before the first
  # is acknowledged.
  #
  # Needs `append`. Safe to repeat, also with a longer batch that begins with the same ops.
  #
  # The call itself fails with: `batch-empty`, `batch-too-long`, `op-header-malformed`, `epoch-stale`,
  # `producer-fenced`, `too-many-producers`, and what any call may fail with; nothing was done then, except
  # with `outcome-unknown`, where something may have been: send the same batch again.
  #
  # What concerns single ops is told inside the ack: see `Bowline.Ack.stopped`, and rejections with
  # `op-malformed`, `op-too-large`, `id-malformed`, `dependency-failed`, `dependency-forgotten`,
  # `cursor-conflict`, `batch-undone`, and those named with the ops below. A rejected op uses up its
  # number, so one bad op does not hold up those behind it.

  messages @2 (page :Bowline.Page) -> (messages :List(Message.Message), end :Bowline.PageEnd);
  # The session's messages in the order of the log, a page at a time. Needs `read`. Safe to repeat.

  register @3 (registration :Bowline.Registration) -> (registered :Bowline.Registered);
  # Announces a run of a producer, shuts its predecessors out, and tells where it stands. Nobody has to
  # register before writing; it is for a client that does not know where it stands, or must be sure to be
  # the only one.
  #
  # On return no op under a lower epoch is taken any more. Needs `append`. Safe to repeat: the same
  # instance gets the same epoch.
  # Fails with: `op-header-malformed`, `producer-fenced`, `too-many-producers`, `epoch-stale`.

  writer @4 (producer :WriterDraft) -> (writer :Writer);
  # An object to stream ops through, for a client that has many. Needs `append`. Safe to repeat; each call
  # gives an object of its own. Fails with: `op-header-malformed`.

  feed @5 (wish :Feed.Wish, sink :Feed.Sink) -> (subscription :Feed.Subscription);
  # What happened in this session since a cursor, and from then on whatever happens. See feed.capnp.
  # Needs `read`.

  forgetSubscription @6 (name :Text) -> (existed :Bool);
  # Drops a named subscription of `feed`, and ends the feed that runs under it. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`.

  delegate @7 (op :Bowline.OpHeader, seed :Data, delegation :DelegationDraft)
      -> (session :Session, delegate :Session, ref :Text, grant :Data);
  # Hands work to somebody: a session of its own, or a part of the authority over this one, under a grant that
  # lasts while its holder is heard of.
  #
  # `session` is that session under your own authority: write the task into it without waiting. `delegate` is
  # the same one with the delegate's authority, to be passed on while this connection lasts, and `ref` a sturdy
  # ref for it; `seed` is as in `Object.save`. `grant` names it for `revoke`. The op is numbered in this
  # session's log.
  #
  # However the delegation ends (the delegate says so, its lease runs out, it is revoked or expires),
  # `delegationEnded` is in this session's log, and so in its feeds; from then on nothing under the delegate's
  # grant works any more.
  #
  # Needs `delegate`. Safe to repeat: the repeat returns the same session and the same ref. Where the delegation is
  # over by then, `delegate` is broken with the reason, and the rest is returned all the same.
  # Fails with: `not-permitted` (a right or caveat this object does not have), `narrowing-malformed`, `too-deep`, `too-many-grants`, `session-exists`, `title-too-long`,
  # `id-malformed`.

  delegations @8 (page :Bowline.Page) -> (delegations :List(DelegationInfo), end :Bowline.PageEnd);
  # The delegations made from this session, in the order they were made, as far as they were derived from the
  # grant this object is held under. `page.after` is a delegation's `number`. Needs `delegate`. Safe to repeat.

  child @9 (id :Text) -> (session :Session);
  # A session that was made by `delegate` on this one, under the grant this object is held under or one derived
  # from it. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`, `session-not-found`.

  heartbeat @10 () -> (untilMs :UInt64);
  # For a delegate: keeps its lease. On return it lasts until then, by the server's clock; 0 for ever. Call it
  # several times within `leaseMs`: redeeming the ref keeps it, too, but no other call does. It takes no op header: repeating it leads to the
  # same state. Needs no right, but the delegate's own grant: one derived from that does not keep it.
  # Fails with: `delegation-not-found` (this object is not held under a delegate's grant),
  # `delegation-ended`.

  complete @11 (op :Bowline.OpHeader, failed :Bool, result :Text) -> ();
  # For a delegate: says that the work is done, or failed, and in `result`, at most 64 KiB, what came of it.
  # On return the delegator's log says so, and the delegate's grant is spent, with everything derived from it:
  # whoever repeats the call hears `delegation-ended`, which tells how it ended. Like `heartbeat`, it needs the
  # delegate's own grant. The op is numbered in this
  # session's log.
  #
  # Needs no right. Fails with: `delegation-not-found`, `op-too-large`.

  share @12 (op :Bowline.OpHeader, seed :Data, share :ShareDraft)
      -> (share :Share, ref :Text, grant :Data);
  # Publishes a view of this session, for another agent or server. `share` is the view under your own
  # authority, to look at it (`read`), to end it (`share`), to make its refs stale (`admin`) and new ones
  # (`delegate`); `ref` is what you hand out: it lets its holder read, and append
  # where you said so, and nothing else. `seed` is as in `Object.save`. The op is numbered in this session's
  # log.
  #
  # Needs `share`. Safe to repeat. Fails with: `not-permitted`, `narrowing-malformed` (also: a share that is to
  # end at a message and be appended to), `message-not-found` (`upTo`), `too-deep`, `too-many-grants`,
  # `op-reused` (an op of this name has published something).

  shares @13 (page :Bowline.Page) -> (shares :List(ShareInfo), end :Bowline.PageEnd);
  # Every share of this session, ended ones too, without secrets. `page.after` is a share's `number`. Needs
  # `share`. Safe to repeat.

  sharing @14 (id :Text) -> (share :Share);
  # A share of this session by its id, under your own authority. Needs `share`. Safe to repeat.
  # Fails with: `id-malformed`, `share-not-found`.
}

struct DelegationDraft {
  narrowing @0 :Grant.Narrowing;
  # What the delegate may do, for how long, and whom it is. Rights and caveats as for any grant.

  leaseMs @1 :UInt64;
  # The delegation lapses when nothing was heard of the delegate (`heartbeat`) for this long: 1 second to 30
  # days. 0 for no lease: then it ends only by what is said, revoked or expires.

  where :union {
    child @2 :SessionDraft;
    # In a new session, a child of this one, in the same project. That is the default.

    here @3 :Void;
    # In this session.
  }
}

struct DelegationInfo {
  number @0 :UInt64;
  grant @1 :Data;
  sessionId @2 :Text;
  # The session it works in: a child, or this one.

  label @3 :Text;
  actor @4 :Text;
  createdAtMs @5 :UInt64;
  leaseMs @6 :UInt64;
  untilMs @7 :UInt64;
  # When it lapses or expires, unless something is heard of the delegate; 0 for never.

  end @8 :Feed.DelegationEnd;
  endedAtMs @9 :UInt64;
  result @10 :Text;
}

struct ShareDraft {
  append @0 :Bool;
  # Whether messages may be added through it.

  upTo @1 :Text;
  # The id of the last message that is shown; empty for the whole session, as it grows.

  toolOutputs @2 :Bool;
  # Whether what tools gave is shown. Without it, parts in JSON of the type `tool` keep only which tool was
  # called, with what, and how it went; messages of the role `tool` keep no other parts.

  reasoning @3 :Bool;
  # Whether parts in JSON of the type `reasoning` are shown.
  #
  # Parts of a type the server does not know, and metadata, are shown only with both: nobody knows what they
  # hold.

  narrowing @4 :Grant.Narrowing;
  # When the ref ends, how often it may be redeemed, whom it is for, and so on. Its rights must be empty:
  # `append` says them.
}

struct ShareInfo {
  number @0 :UInt64;
  id @1 :Text;
  sessionId @2 :Text;
  # The session it shows, also if that is gone.

  title @3 :Text;
  # The session's; empty if that is gone.

  append @4 :Bool;
  upTo @5 :UInt64;
  # The cursor of the last message that is shown; 0 for the whole session.

  toolOutputs @6 :Bool;
  reasoning @7 :Bool;
  createdAtMs @8 :UInt64;
  endedAtMs @9 :UInt64;
  # When it was ended with `unpublish`; 0 while it was not.

  cursor @10 :UInt64;
  # Where the shown log ends: the place to read and to follow from. 0 if the session is gone.

  epoch @11 :UInt64;
  # The share's epoch, for `OpHeader.capabilityEpoch`. `Object.bumpEpoch` moves it on, and makes all refs
  # handed out before stale; make a new one with `Object.save`.
}

interface Share extends(Grant.Object) {
  # A published view of a session. Its cursors are those of the session's log, so whoever loses the connection
  # redeems its ref again and goes on where it was.
  #
  # It shows messages and the title, and nothing about grants, producers or other objects. In its events the
  # producer, its numbers, the project and the author are left out. Places and cursors are those of the session's
  # log, so a share that ends at a message still shows that more was said, though not what.
  #
  # After `unpublish` every ref handed out for it is dead (`revoked`), and whoever reaches it under the owner's
  # authority hears `share-ended`, except from `info` and what every object offers; feeds end with it.
  #
  # Its holders have at most 1,000 producers and 100 named subscriptions, of those the session has.

  info @0 () -> (share :ShareInfo);
  # Needs `read`. Safe to repeat.

  read @1 (page :Bowline.Page) -> (messages :List(Message.Message), end :Bowline.PageEnd);
  # As `Session.messages`, as far as it is shown. Needs `read`. Safe to repeat.
  # Fails with: `share-ended`, `session-not-found`.

  feed @2 (wish :Feed.Wish, sink :Feed.Sink) -> (subscription :Feed.Subscription);
  # As `Session.feed`, as far as it is shown: `messagePut`, `messageRemoved` and `titleSet`. Names of
  # subscriptions belong to the share. Needs `read`. Fails with: `share-ended`, and as any feed.

  appendOps @3 (batch :Bowline.Batch, ops :List(SessionOp)) -> (ack :Bowline.Ack);
  # As `Session.append`, with the same rules: the producer numbers its ops in the session's log. Only
  # `putMessage`, and `removeMessage` of messages that were added under the same grant, are accepted; others
  # are rejected with `not-permitted`. `capabilityEpoch` is the share's. Needs `append`, and a share that was made
  # for that. Safe to repeat. Fails with: `share-ended`, and as `Session.append`.

  register @4 (registration :Bowline.Registration) -> (registered :Bowline.Registered);
  # As `Session.register`. Needs `append`. Safe to repeat. Fails with: `share-ended`, and as that.

  forgetSubscription @5 (name :Text) -> (existed :Bool);
  # As `Session.forgetSubscription`. Needs `read`. Safe to repeat.

  unpublish @6 (op :Bowline.OpHeader) -> (cut :UInt64);
  # Ends the share: every grant for it is taken back, whoever derived it, and `cut` tells how many. The op is
  # numbered in the share's own log, and the session's log says so, too. Needs `share`; for a share that was not
  # made under this grant or one derived from it, `admin`. Safe to repeat; there is no way back.
  # Fails with: `not-permitted`.
}

struct WriterDraft {
  # Who streams, and from which number on.

  producer @0 :Data;
  producerEpoch @1 :UInt32;
  ackedThrough @2 :UInt64;
  firstSeq @3 :UInt64;
  capabilityEpoch @4 :UInt64;
  instance @5 :Data;
  # As in `Bowline.Batch`. The ops of a stream stand for themselves (`BatchMode.each`): one that was first
  # sent in a chain or an atomic batch is not the same op here.
}

interface Writer {
  # Ops in a stream. The server cuts it into batches as it comes and commits them while the next ops are
  # still on their way, so the link can be kept full; it stops taking more in when the disk falls behind.
  #
  # It is an object of its own because a streaming call that fails takes every later call on the same
  # object with it. Nothing is lost then: make another writer, and go on from the last ack.

  write @0 (op :SessionOp) -> stream;
  # The next op, under the next number. The return says only that more may be sent; what became of the op
  # is told by `flush`, and an op that cannot be applied is rejected there without stopping the stream.
  # Needs `append`. To repeat it, make a new writer at its number.
  #
  # The stream as a whole fails, and every later call on it, with: `op-header-malformed` (an op id that is
  # not 16 bytes), `epoch-stale`, `producer-fenced`, `too-many-producers`, `revoked`, `overloaded`,
  # `too-many-calls`, `outcome-unknown`, `storage-failed`.

  flush @1 (ackedThrough :UInt64) -> (ack :Bowline.Ack);
  # What became of the ops written since the last flush. Everything the ack calls applied is on disk.
  # Needs `append`.
  #
  # `ackedThrough` is as in `Bowline.OpHeader`, for the ops written from here on. Flush at least once in
  # `windowOpsMax` ops: after a full window the stream stops, and `ack.stopped` says so. After a stop the
  # ops that follow are not looked at; make a new writer at `nextExpectedSeq`.
}

struct SessionDraft {
  id @0 :Text;
  # Any 1 to 128 bytes without spaces and control characters, unique on the server. Leave it empty to
  # have one made.

  title @1 :Text;
  # For people, at most 1024 bytes; may be empty.
}

struct SessionInfo {
  id @0 :Text;
  projectId @1 :Text;
  title @2 :Text;
  createdAtMs @3 :UInt64;
  # By the server's clock. Never use it for order: see `cursor`.

  cursor @4 :UInt64;
  # Where in the project's log the session was made.

  head @5 :UInt64;
  # Where the session's own log ends. 0 while it is empty.
}

struct SessionOp {
  opId @0 :Data;
  # See `Bowline.OpHeader.opId`.

  union {
    unset @1 :Void;
    # An op that says nothing: rejected with `op-malformed`.

    putMessage @2 :Message.MessageBody;
    # Adds a message at the end.
    # Rejected with: `message-exists`.

    removeMessage @3 :Text;
    # Takes the message with this id away. The id can be used again.
    # Rejected with: `message-not-found`.

    setTitle @4 :Text;
    # Gives the session another title, at most 1024 bytes.
    # Rejected with: `title-too-long`.

    setHistory @5 :Message.HistoryPolicy;
    # How much history to keep of this session, in place of the server's own setting.
  }

  dependsOn @6 :List(UInt64);
  # As in `Bowline.OpHeader`.

  expects :union {
    anything @7 :Void;
    cursor @8 :UInt64;
    # As in `Bowline.OpHeader`. Within a batch the ops before it have moved the cursor already, also in an
    # atomic one that is undone in the end.
  }
}
