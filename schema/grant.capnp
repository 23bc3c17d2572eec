@0xd3c5a1f7e9b24860;
# Authority: what the holder of an object may do, handing on less of it, and taking it back. The words are
# explained in bowline.capnp.
#
# Every object is held under a *grant*: a record of which object it is, which rights its holder has, until
# when, whom it was made for, and which grant it was derived from. Grants form a tree with the operator's
# own at the top. A grant never has a right its parent lacks, and never outlasts it.
#
# Taking a grant back takes back everything derived from it, at once: when `revoke` has returned, no call
# through any of them succeeds, on any connection, redeemed or derived, and feeds that run under them end
# with `revoked`. There is no way to give it again; make a new one.

using Bowline = import "bowline.capnp";
using Audit = import "audit.capnp";

interface Object {
  # What every object offers besides its own methods. `Root`, `Project`, `Session`, `Share`, `Worktree` and `Snapshot`
  # extend it.

  describe @0 () -> (description :Description);
  # What this object is, and what its holder may do. Needs no right. Safe to repeat.

  attenuate @1 (op :Bowline.OpHeader, narrowing :Narrowing) -> (object :Capability, grant :Data);
  # The same object under a grant of its own, with less authority, to be passed on while this connection
  # lasts. `grant` names it for `revoke`. The op is numbered in this object's log.
  #
  # Needs `delegate`. Safe to repeat: the repeat returns the same object under the same grant.
  # Fails with: `not-permitted` (a right this object lacks; it says which), `narrowing-malformed`,
  # `too-deep`, `too-many-grants`.

  save @2 (op :Bowline.OpHeader, seed :Data, narrowing :Narrowing) -> (ref :Text, grant :Data);
  # A sturdy ref for this object, with less authority or the same, under a grant of its own. The ref is a
  # secret: who has it, has the object.
  #
  # It is what Cap'n Proto calls `Persistent.save`, with `sealedTo` for its `sealFor`. It is no method of that
  # interface because it makes a grant, and so takes an op header and says how much is handed on.
  #
  # Through a share, only what the share was made for can be handed on: reading, and appending if it allows that.
  #
  # `seed`: 32 random bytes, made by you, stored with the op, and as secret as the ref itself. The secret in the
  # ref is made from it, and the server keeps neither: that is how a repeat can return the same ref, and a
  # stolen database redeems nothing.
  #
  # Needs `delegate`. Safe to repeat: the repeat returns the same ref.
  # Fails with: `not-permitted`, `narrowing-malformed`, `too-deep`, `too-many-grants`.

  grants @3 (page :Bowline.Page, objectId :Text) -> (grants :List(GrantInfo), end :Bowline.PageEnd);
  # Every grant ever derived from the one this object is held under, through any object, in the order they
  # were made; without secrets. `objectId`: only those for the project, session or share with this id, see
  # `Description`; empty for all. `page.after` is a grant's `number`. Needs `delegate`. Safe to repeat.

  revoke @4 (op :Bowline.OpHeader, grant :Data) -> (cut :UInt64);
  # Takes a grant back, with everything derived from it, and tells how many grants that cut: 0 if it was
  # revoked already. It must be the one this object is held under, or derived from it. The op is numbered
  # in this object's log.
  #
  # Needs `delegate`. Safe to repeat, unless it was the one this object is held under: then nothing is heard
  # through it any more but `revoked`.
  # Fails with: `grant-not-found` (unknown and not yours look alike).

  bumpEpoch @5 (op :Bowline.OpHeader) -> (epoch :UInt64, cut :UInt64);
  # Makes every ref of this object stale, whoever derived it: all grants for this very object are taken back,
  # with everything derived from them, and ops that carry its former epoch (`OpHeader.capabilityEpoch`) are
  # refused. Whoever reaches the object through another one, as the owner of the project does, goes on, and so
  # do the grant this object is held under and those it was derived from.
  # `epoch` is the object's epoch from now on.
  #
  # Needs `admin`. Safe to repeat.

  audit @6 (filter :Audit.AuditFilter, page :Bowline.Page)
      -> (entries :List(Audit.AuditEntry), end :Bowline.PageEnd, head :Audit.AuditHead);
  # What was done, and refused, under the grant this object is held under and everything derived from it: see
  # audit.capnp. The operator's own root sees all there is. `page.after` is an entry's `number`. A page may be
  # empty and still have a next one: so much is looked at at a time.
  #
  # Needs `delegate`. Safe to repeat. Fails with: `op-header-malformed` (a grant that is not 16 bytes).
}

struct Narrowing {
  # How much of an object's authority to hand on.

  rights @0 :List(Right);
  # Which rights; empty for all this object has, so never send a list that happened to come out empty.

  expiresAtMs @1 :UInt64;
  # When it ends, by the server's clock in milliseconds since 1970. 0 for never, or rather for when the
  # grant it is derived from does.

  label @2 :Text;
  # What it is for, for people; at most 1024 bytes.

  actor @3 :Text;
  # Whom it is for: any name you use for that agent or person, at most 128 bytes without spaces and control
  # characters. It may be empty.

  usesMax @4 :UInt32;
  # How often its ref may be redeemed; 0 for as often as that of the grant it is derived from. After that
  # `redeem` fails with `used-up`; what was redeemed before goes on.

  claim @5 :Bool;
  # For `save`: the ref cannot be redeemed. Whoever is the first to show it to `Vat.claim` gets a ref of its own in
  # exchange, and from then on it is worth nothing. Use it where a ref travels through chats and logs.

  expiresIfUnusedAtMs @6 :UInt64;
  # For `save`: a ref that nobody has redeemed (or exchanged) by then is dead. 0 for no such time. It says
  # nothing about refs derived from it.

  tools @7 :List(Text);
  # At most 64, and 8 KiB together with the paths. Only these tools may be named in tool parts of messages; empty for those the object has. See `Caveats`.

  noTools @8 :Bool;
  # None at all; `tools` must be empty then.

  paths @9 :List(Data);
  # Only files at or below these paths, relative to the worktree, without `.` and `..`; empty for those the
  # object has. At most 64, and 8 KiB together with the tools.

  onlyOwnMessages @10 :Bool;
  # Only messages that were written under this very grant, or one derived from it, may be read or removed,
  # and nothing else about the session be changed.

  sealedTo @11 :Text;
  # For `save`: the ref can be redeemed only together with a ref of this actor's own, see `Vat.redeem`. A copy
  # of it alone is worth nothing.
}

struct Caveats {
  # What an object may be used for within its rights. Like rights, they are only ever narrowed: what is
  # derived has the caveats of what it was derived from, and perhaps more.

  usesMax @0 :UInt32;
  expiresIfUnusedAtMs @1 :UInt64;
  sealedTo @2 :Text;
  # As in `Narrowing`. These three are about its ref, and not handed down (`usesMax` is).

  toolsLimited @3 :Bool;
  tools @4 :List(Text);
  # If limited, only these tools. A tool part is one whose JSON has `"type": "tool"`; its `"tool"` says which
  # one. A message that names another one, or has the role `tool` and parts that name none, is rejected with
  # `not-permitted`; and so is one with JSON that not all readers understand alike.

  pathsLimited @5 :Bool;
  paths @6 :List(Data);
  # If limited, only files at or below these.

  onlyOwnMessages @7 :Bool;
}

enum Right {
  # Numbers are stored; a retired one stays taken. Each method says which one it needs.
  read @0;
  # Look at it, and follow it.

  append @1;
  # Add to it.

  turn @2;
  # Run turns in it.

  snapshot @3;
  # Take the files of a work tree down, and reach what was taken.

  restore @4;
  # Put them back; make, reset and remove sandboxes.

  share @5;
  # Publish it, see what was published, and end it.

  delegate @6;
  # Hand on less, see what was handed on and done with it, and take it back.

  admin @7;
  # Make all refs of it stale; end what others published; on the root, take back what an actor has.
}

struct Description {
  kind @0 :Bowline.ObjectKind;
  rights @1 :List(Right);
  expiresAtMs @2 :UInt64;
  # 0 for never.

  label @3 :Text;
  actor @4 :Text;
  grant @5 :Data;
  # The grant it is held under.

  depth @6 :UInt32;
  # How many grants stand above that one.

  caveats @7 :Caveats;
  objectId @8 :Text;
  # Which project, session or share; empty for the server.
}

struct GrantInfo {
  number @0 :UInt64;
  # In the order they were made. For `Page.after`.

  grant @1 :Data;
  parent @2 :Data;
  # The grant it was derived from.

  depth @3 :UInt32;
  kind @4 :Bowline.ObjectKind;
  objectId @5 :Text;
  # Which project, session or share; empty for the server.

  rights @6 :List(Right);
  expiresAtMs @7 :UInt64;
  label @8 :Text;
  actor @9 :Text;
  saved @10 :Bool;
  # Whether there is a ref for it.

  createdAtMs @11 :UInt64;
  state @12 :GrantState;
  usesMax @13 :UInt32;
  uses @14 :UInt32;
  # How often its ref may be redeemed, 0 for any number, and how often it was.

  lastUsedAtMs @15 :UInt64;
  # When its ref was last redeemed, or an object held under it last called, to within some seconds; 0 for
  # never.

  claim @16 :Bool;

  reads @17 :UInt64;
  # How many answers and feed pages were given under it, to within some seconds. Changes are not counted here:
  # they are in the audit trail.

  caveats @18 :Caveats;

  endedAtMs @19 :UInt64;
  # When it ceased to stand; 0 while it does.
}

enum GrantState {
  live @0;
  revoked @1;
  expired @2;
  usedUp @3;
  # Its ref cannot be redeemed any more; what was redeemed goes on.

  stale @4;
  # Taken back by `bumpEpoch`.

  ended @5;
  # The delegation it was made for is over: see `Session.delegations`.
}
