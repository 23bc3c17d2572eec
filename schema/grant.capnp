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

interface Object {
  # What every object offers besides its own methods. `Root`, `Project` and `Session` extend it.

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
  # `seed`: 32 random bytes, made by you, stored with the op, and as secret as the ref itself. The secret in the
  # ref is made from it, and the server keeps neither: that is how a repeat can return the same ref, and a
  # stolen database redeems nothing.
  #
  # Needs `delegate`. Safe to repeat: the repeat returns the same ref.
  # Fails with: `not-permitted`, `narrowing-malformed`, `too-deep`, `too-many-grants`.

  grants @3 (page :Bowline.Page) -> (grants :List(GrantInfo), end :Bowline.PageEnd);
  # Every grant ever derived from the one this object is held under, through any object, in the order they
  # were made; without secrets. `page.after` is a grant's `number`. Needs `delegate`. Safe to repeat.

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
}

enum Right {
  # Numbers are stored; a retired one stays taken.
  read @0;
  append @1;
  turn @2;
  snapshot @3;
  restore @4;
  share @5;
  delegate @6;
  admin @7;
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
  # Which project or session; empty for the server.

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
  # How often its ref may be redeemed, 0 for any number, and, where that is limited, how often it was.

  lastUsedAtMs @15 :UInt64;
  # When its ref was last redeemed, to the minute; 0 for never.

  claim @16 :Bool;
}

enum GrantState {
  live @0;
  revoked @1;
  expired @2;
  usedUp @3;
  # Its ref cannot be redeemed any more; what was redeemed goes on.
}
