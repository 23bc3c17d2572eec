@0xa7e269eb1f01d945;
# One session: a log of what people and agents said and did. The words are explained in bowline.capnp.

using Bowline = import "bowline.capnp";

const partsMax :UInt16 = 256;
# Parts of one message.

interface Session {
  # Authority over one session.

  info @0 () -> (session :SessionInfo);
  # Needs `read`. Safe to repeat.

  append @1 (batch :Bowline.Batch, ops :List(SessionOp)) -> (ack :Bowline.Ack);
  # Adds ops at the end of the log, in order.
  #
  # On return everything `ack` calls applied is on disk. One op's rejection does not undo the ops
  # before it, and the ops behind it are still taken.
  #
  # Batches take effect in the order they were sent, so a client may send the next one before the first
  # is acknowledged.
  #
  # Needs `append`. Safe to repeat, also with a longer batch that begins with the same ops.
  #
  # The call itself fails with: `batch-empty`, `batch-too-long`, `op-header-malformed`,
  # `producer-fenced`, and what any call may fail with; nothing was done then, except with
  # `outcome-unknown`, where something may have been: send the same batch again.
  #
  # What concerns single ops is told inside the ack: see `Bowline.Ack.stopped`, and rejections with
  # `op-malformed`, `op-too-large`, `id-malformed`, `message-exists`. A rejected op uses up its number,
  # so one bad op does not hold up those behind it.

  messages @2 (page :Bowline.Page) -> (messages :List(Message), end :Bowline.PageEnd);
  # The session's messages in the order of the log, a page at a time. Needs `read`. Safe to repeat.
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

    putMessage @2 :MessageBody;
    # Adds a message at the end.
    # Rejected with: `message-exists`.
  }
}

struct MessageBody {
  id @0 :Text;
  # Any 1 to 128 bytes without spaces and control characters, unique in the session. Leave it empty to
  # have one made.

  role @1 :Role;
  parts @2 :List(Part);
  # What the message consists of, in order.

  metadata @3 :Text;
  # A JSON object of the client's own, kept as it is; may be empty.
}

enum Role {
  # Numbers are stored; a retired one stays taken.
  user @0;
  assistant @1;
  system @2;
  tool @3;
}

struct Part {
  union {
    text @0 :Text;
    # Plain text.

    json @1 :Text;
    # Anything else, as a JSON object. It is checked to be one and kept byte for byte.
  }
}

struct Message {
  id @0 :Text;
  # The given one, or the one that was made.

  cursor @1 :UInt64;
  # Where in the session's log it was added.

  createdAtMs @2 :UInt64;
  # By the server's clock. Never use it for order.

  body @3 :MessageBody;
  # As it was given.
}
