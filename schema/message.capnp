@0x9f6d3a7b5c21e804;
# What sessions hold, as it is sent and as feeds tell it. The words are explained in bowline.capnp.

const partsMax :UInt16 = 256;
# Parts of one message.

struct Message {
  id @0 :Text;
  # The given one, or the one that was made.

  cursor @1 :UInt64;
  # Where in the session's log it was added.

  createdAtMs @2 :UInt64;
  # By the server's clock. Never use it for order.

  body @3 :MessageBody;
  # As it was given.

  author @4 :Author;
  # Not told through a share.
}

struct Author {
  # Under which authority something was done.

  grant @0 :Data;
  # The grant; see grant.capnp.

  actors @1 :List(Text);
  # Whom that grant was made for, then on whose behalf: the actor of the grant it was derived from, and so on
  # up the tree. Grants without an actor are left out, so this is empty for the operator.
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

struct HistoryPolicy {
  # What the server may compact. The state is always kept: what a message says, the title. Compacted is
  # the way there: ops whose effect a later op has replaced.

  ageMsMax @0 :UInt64;
  # Ops older than this may go. 0 leaves it to the server, 0xffffffffffffffff keeps them for ever.

  bytesMax @1 :UInt64;
  # The oldest ops may go while all ops together are larger than this. 0 leaves it to the server,
  # 0xffffffffffffffff keeps them for ever.
}
