@0xad265c92320f57fc;
# Bowline's front door, and the words used everywhere behind it. Read this file first.
#
# Point of view: you are the client. "The server" is the process that holds the data.
#
# Words
#   object      something you hold a capability for: a root, a project, a session, a share, a work tree. Holding it is the
#               permission to call it; no method takes a user name or a password.
#   sturdy ref  a string that stands for an object and survives restarts of either side. `Vat.redeem`
#               turns it into a live object. It is a secret: who has it, has the object.
#   log         the ordered ops of one object. The root, every project, session and share have one.
#   cursor      a position in a log. The first op is at 1; cursors have no gaps and never move.
#               Order is the cursor and nothing else: ids and times never decide an order.
#   op          one recorded change, named by whoever asks for it before it is first sent.
#   producer    one writing client with its own numbering of ops, see `OpHeader`.
#   feed        what happened in a log or in several, told to a sink of yours: see feed.capnp.
#   right       what an object lets its holder do: `read` it, `append` to it, `delegate` it, and more to
#               come. Objects reached through an object carry the same rights.
#   grant       the record an object is held under: see grant.capnp.
#   actor       whom a grant is for: a name its maker chose.
#
# Retrying
#   Every method that changes an object takes an op header. Send it again whenever you do not know
#   whether it happened: after a lost connection, a timeout, a crash on either side. It takes effect
#   once, and every sender gets the same answer, including the same object.
#
#   What makes two ops the same: op id, what they say, their conditions (`dependsOn`, `expects`), and the
#   `BatchMode` they are sent in. Not `ackedThrough`, `capabilityEpoch`, `instance` or `batchId`, and not
#   how many ops travel together, except in an atomic batch.
#
#   Some methods change only what the server keeps about a client, and take no header: `register`, `feed`
#   with a name, `forgetSubscription`, `redeem`, `claim` and `heartbeat`; and calls on files have names of their own: see
#   worktree.capnp. Repeating them leads to the same state,
#   apart from the uses of a ref that are counted. They too may fail with `overloaded` and `outcome-unknown`.
#
# Order
#   Calls on one object take effect in the order they were sent, answered or not, and a question sees
#   the changes sent before it on the same object. Calls on different objects have no order, unless one
#   is made on the result of the other.
#
# Errors
#   A failed call carries text of the form `bowline/<code>: <what happened and what to do>`. Some
#   clients put a prefix such as `remote exception: ` in front, so look for `bowline/`. Codes never
#   change their meaning. The exception's type says what to do next:
#     failed         no: the same call will fail again
#     overloaded     later: the same call may succeed after a pause
#     disconnected   reconnect, redeem again, and send the same call again
#   `docs/errors.md` lists every code. The comments below name only what is particular to a method.
#
#   Any call may also fail with: `not-permitted`, `revoked`, `expired`, `epoch-stale` (its refs were made
#   stale), `delegation-ended`, `message-malformed`, `too-many-calls`,
#   `too-many-answers`, `pipeline-too-deep`, `overloaded`, `storage-failed`, `shutting-down`,
#   `connection-ended`, `connection-over`, `internal`; and one that returns an object, with
#   `too-many-objects`, before anything is done.
#
#   Any call that takes an op header may also fail with: `op-header-malformed`, `op-too-large`,
#   `epoch-stale`, `producer-fenced`, `too-many-producers`, `seq-gap`, `seq-forgotten`, `op-reused`,
#   `window-full`, `dependency-failed`, `dependency-forgotten`, `cursor-conflict`, `result-dropped`; and
#   with `outcome-unknown`, where it may have been done and the repeat tells.
#
# Limits
#   `Vat.hello` tells those of the server you talk to.

const protocolVersion :UInt16 = 1;
# Goes up when a client written for the old number would misunderstand the server. New methods and
# fields do not raise it.

const producerBytes :UInt8 = 16;
const opIdBytes :UInt8 = 16;
# Exact lengths of `OpHeader.producer` and of op ids.

interface Vat {
  # What every new connection starts with. It has no authority of its own.

  hello @0 () -> (server :ServerInfo);
  # Who is there. Needs no right. Safe to repeat.

  redeem @1 (ref :Text, as :Text) -> (object :Capability, kind :ObjectKind, epoch :UInt64);
  # Turns a sturdy ref into the live object it stands for. Call on `object` without waiting: calls
  # pipelined on it travel in the same round trip.
  #
  # Safe to repeat; each call gives an object of its own. Dropping the object gives nothing up: the
  # ref can be redeemed again. All objects of a connection end with the connection.
  #
  # `object` is a `Root`, a `Project`, a `Session`, a `Share`, a `Worktree` or a `Snapshot`, as `kind` says. `epoch` is the object's epoch
  # now, for `OpHeader.capabilityEpoch`.
  #
  # `as`: for a ref that is sealed to an actor, a ref of that actor's own; otherwise empty. It counts if it is
  # good, if its grant was made for that actor, and if whoever made it stands where the sealed ref was made or
  # above: a name given by anybody else is not that actor's. It is not redeemed by this, and not counted.
  #
  # Fails with: `ref-malformed` (typing error; the server looked nothing up), `ref-refused` (whatever is wrong
  # with a ref, to a stranger it looks alike); and, told only to who shows the right secret, `revoked`,
  # `expired`, `used-up`, `epoch-stale` (the object's refs were made stale with `bumpEpoch`),
  # `delegation-ended`, `sealed`. Every redemption is in the audit trail when this returns.

  claim @2 (ref :Text, seed :Data) -> (ref :Text);
  # Exchanges a ref that was saved as a claim for one that can be redeemed, with the same authority. Only the
  # first to do so gets one. `seed`: 32 random bytes, made by you and stored before you call, and as secret as
  # the ref: who repeats the call with the same seed, after a lost answer, gets the same ref.
  #
  # Needs no right but the claim itself. Fails with: `ref-malformed`, `ref-refused`, `used-up` (somebody was
  # quicker), `revoked`, `expired`, `epoch-stale`, `narrowing-malformed` (the seed).
}

enum ObjectKind {
  # Numbers are stored; a retired one stays taken.
  root @0;
  project @1;
  session @2;
  share @3;
  worktree @4;
  snapshot @5;
}

struct ServerInfo {
  version @0 :Text;
  # Of the program, for people.

  protocol @1 :UInt16;
  # See `protocolVersion`.

  realm @2 :Data;
  # 16 bytes that name this server's data. They stay the same when it moves to another address.

  incarnation @3 :UInt64;
  # Goes up by one at every start. A change tells that live objects are gone and refs must be
  # redeemed again.

  limits @4 :Limits;

  nowMs @5 :UInt64;
  # The server's clock, in milliseconds since 1970: what all times in grants are compared with.
}

struct Limits {
  # What one connection may ask for. A call beyond a limit is refused and breaks no other, unless it
  # says here that the connection ends.

  frameBytesMax @0 :UInt64;
  # A larger message ends the connection.

  opPayloadBytesMax @1 :UInt64;
  # One op, as encoded in the message.

  batchOpsMax @2 :UInt32;
  # Ops in one batch.

  pageItemsMax @3 :UInt32;
  # A page never holds more, whatever is asked for.

  callsInFlightMax @4 :UInt32;
  # Calls waiting for their answer.

  pipelineDepthMax @5 :UInt32;
  # Calls on the result of a call on the result of … none of which has been answered yet.

  objectsMax @6 :UInt32;
  # Live objects held through one connection.

  windowOpsMax @7 :UInt32;
  # Ops of one producer in one log whose results were not yet acknowledged with `ackedThrough`.

  pageBytesMax @8 :UInt64;
  # A page ends with the item that passes this many bytes.

  answersUnfinishedMax @9 :UInt32;
  # Answers that hold objects, and that the client has not finished with.

  callBytesInFlightMax @10 :UInt64;
  # The messages of the calls waiting for their answer, together; one call is always let in.

  capsPerMessageMax @11 :UInt32;
  # Capabilities among the parameters of one call. More end the connection.

  dependenciesMax @12 :UInt32;
  # Ops one op may name in `dependsOn`.

  producersPerLogMax @13 :UInt32;
  # Producers that ever wrote to one log; each is remembered for ever.

  subscriptionsMax @14 :UInt32;
  # Feeds running through one connection.

  durableSubscriptionsPerLogMax @15 :UInt32;
  # Named subscriptions kept for one object.
}

struct OpHeader {
  # Names one change, so that it can be sent any number of times and happens once.
  #
  # A producer numbers its ops 1, 2, 3, … separately in every log it writes to, and stores an op with
  # its number before sending it. The server takes them in that order only.

  producer @0 :Data;
  # 16 random bytes, made once by the client, kept, and shown to nobody: whoever knows them and may append
  # can write in its name.

  producerEpoch @1 :UInt32;
  # Starts at 1. A client that takes over a producer (a second process, a restored backup) uses a
  # higher number than its predecessor: either the one `register` gave it, or one of its own choice. From
  # its registration or its first op on, the predecessor is refused with `producer-fenced`. A successor
  # that goes back to numbers whose results the predecessor acknowledged hears `seq-forgotten`: the server
  # no longer knows whether they were the same ops.

  seq @2 :UInt64;
  # The op's number, from 1, without gaps, per producer and log.

  opId @3 :Data;
  # 16 bytes that name the op itself and no other: best a UUIDv7, whose first bytes grow with time. Random
  # ones do as well, but the server keeps the ids made of them in order, and finding a place for one that
  # may belong anywhere costs more the longer the log is. An object made by the op without an id of its own gets
  # one derived from this, so a repeat cannot make a second object, and a client can know the id
  # before it sends: `prj_`, `ses_`, `msg_` or `shr_`, then these bytes in lower-case base32hex (RFC 4648)
  # without padding.

  ackedThrough @4 :UInt64;
  # The results of all ops up to this number are safely with the client; the server may drop them.
  # A repeat of such an op is still recognised, but answered without its result. 0 drops nothing, and no
  # op acknowledges itself.

  capabilityEpoch @5 :UInt64;
  # The object's epoch when the op was made, as `Vat.redeem` told it. If the object has another epoch by
  # now, nothing is done or looked up, and the call fails with `epoch-stale`: redeem the object again,
  # and decide whether the op still makes sense. 0 does not care. It is no part of the op: a repeat may
  # carry a newer one.

  dependsOn @6 :List(UInt64);
  # Earlier numbers of the same producer in the same log. If one of those ops was rejected, this one is
  # rejected with `dependency-failed`; if its result has been acknowledged and dropped before, with
  # `dependency-forgotten`: whoever acknowledged it knows what became of it. At most `dependenciesMax`, or
  # the op is rejected with `op-malformed`.

  expects :union {
    anything @7 :Void;
    cursor @8 :UInt64;
    # Apply the op only if the log ends exactly here, 0 for an empty log. Otherwise it is rejected with
    # `cursor-conflict`, which tells where the log ended.
  }

  instance @9 :Data;
  # The run of the producer that sends, as it registered, or none. If another run holds the epoch, the
  # call fails with `producer-fenced`. Two processes that work from one copied state can only be told apart
  # by this.
}

struct Batch {
  # Consecutive ops of one producer for one log.

  producer @0 :Data;
  producerEpoch @1 :UInt32;
  ackedThrough @2 :UInt64;
  # As in `OpHeader`.

  firstSeq @3 :UInt64;
  # The number of the first op; the others follow without gaps.

  capabilityEpoch @4 :UInt64;
  # As in `OpHeader`.

  mode @5 :BatchMode;
  # What one op's rejection means to the others.

  batchId @6 :Data;
  # A name for the batch, 16 bytes or none. It is kept with the ops and given back in feeds.

  instance @7 :Data;
  # As in `OpHeader`.
}

enum BatchMode {
  each @0;
  # The ops stand for themselves, apart from what `dependsOn` says.

  chain @1;
  # Each op depends on the one before it in the batch: after the first rejection all are rejected with
  # `dependency-failed`.

  atomic @2;
  # All or nothing: if one op is rejected, the others are rejected with `batch-undone`. Such a batch must
  # be repeated as it was; one that mixes ops decided before with new ones stops with `batch-regrouped`.
}

struct Registration {
  # One run of a producer announces itself to a log.

  producer @0 :Data;
  # As in `OpHeader`.

  instance @1 :Data;
  # 16 random bytes, made anew by every run (every process) of the producer.

  epoch @2 :UInt32;
  # 0 lets the server choose the next epoch. Any other number claims exactly that one, and fails with
  # `producer-fenced` if the log has seen a higher one, or the same from another instance. Ops under the
  # claimed epoch that carry the same `instance` can be sent along without waiting: if the claim fails, so
  # do they.

  ackedThrough @3 :UInt64;
  capabilityEpoch @4 :UInt64;
  # As in `OpHeader`.
}

struct Registered {
  epoch @0 :UInt32;
  # The epoch this run writes under.

  nextExpectedSeq @1 :UInt64;
  # The number the server takes next: one more than the highest it has decided.

  floor @2 :UInt64;
  # Results of ops from this number on are still kept.

  cursor @3 :UInt64;
  # Where the log ends now.

  serverIncarnation @4 :UInt64;
}

struct Ack {
  # What became of a batch. When you hold it, everything it says is on disk.

  cursor @0 :UInt64;
  # Where the log ends now.

  outcomes @1 :List(Outcome);
  # One for each op that was decided, in order. It is shorter than the batch only where the batch
  # stopped at `stopped`: the ops after that were not looked at.

  nextExpectedSeq @2 :UInt64;
  # The number the server takes next from this producer.

  floor @3 :UInt64;
  # Results of ops from this number on are still kept.

  serverIncarnation @4 :UInt64;
  # See `ServerInfo.incarnation`.

  stopped @5 :Refusal;
  # Not set when every op was decided. Otherwise why the batch stopped, with nothing decided about
  # the ops that have no outcome:
  #   `seq-gap`      ops before this batch are missing: continue at `nextExpectedSeq`
  #   `op-reused`    the server knows another op under that number
  #   `seq-forgotten`  a successor repeats numbers its predecessor acknowledged: see `producerEpoch`
  #   `window-full`  too many results wait for `ackedThrough`: acknowledge, then send the rest
  #   `batch-regrouped`  an atomic batch was repeated with other ops around it: see `BatchMode`

  firstSeq @6 :UInt64;
  # The number of the op the first outcome is about.
}

struct Outcome {
  cursor @0 :UInt64;
  # Where in the log the op is. 0 where it is nowhere: it was rejected, it changed nothing, or its
  # result has been dropped.

  union {
    applied @1 :Void;
    # This call did it.

    duplicate @2 :Void;
    # An earlier call did it; this is its recorded result.

    duplicateDropped @3 :Void;
    # An earlier call decided it; the result was acknowledged and is no longer kept.

    rejected @4 :Refusal;
    # It will never happen under this number; the number is used up. A repeat hears the same.
  }
}

struct Refusal {
  code @0 :Text;
  # As in `docs/errors.md`, without the `bowline/`.

  text @1 :Text;
  # For people.

  cursor @2 :UInt64;
  # With `cursor-conflict`: where the log ended. Otherwise 0.

  retryable @3 :Bool;
  # Whether the same intent may succeed later: as a new op under a new number if this one was rejected, as
  # the same op if the batch stopped before it. Where it is false, the op itself is wrong.
}

struct Page {
  # Which part of a list to return.

  after @0 :UInt64;
  # Start after this cursor; 0 starts at the beginning (or, newest first, at the end).

  limit @1 :UInt32;
  # The most items wanted; 0 leaves it to the server. A page may hold fewer: it is also limited by
  # bytes.

  newestFirst @2 :Bool;
  # Go backwards. `after` then means: older than this.
}

struct PageEnd {
  next @0 :UInt64;
  # Pass it as `after` to get the next page.

  more @1 :Bool;
  # Whether there is one now.
}
