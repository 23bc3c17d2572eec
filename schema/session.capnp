@0xa7e269eb1f01d945;
# One session: a log of what people and agents said and did. The words are explained in bowline.capnp.

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
