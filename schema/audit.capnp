@0xb61d0c8f47e2a935;
# The audit trail: who did what, under which grant, in an order that cannot be changed unnoticed. The words
# are explained in bowline.capnp and grant.capnp.
#
# Every entry is chained to the one before it by a hash, so that one that is changed, taken out or put in
# shows. What an entry says about ops, it says with a hash over them: `bowline audit --verify` compares it
# with the history, as far as none of them was compacted; and `bowline verify` compares grants with the ops
# that made and ended them. Whoever wants to be sure that the whole chain was not made anew writes down `AuditHead`
# somewhere else from time to time, and has it looked for with `--expect`.
#
# Changes, redemptions and everything about grants are in the trail when their call returns, and so are refusals
# of single ops. Other refusals are gathered for some seconds. Equal entries that follow one another are counted
# together. Reads are only counted, see
# `GrantInfo.reads`. A crash loses the gathered refusals and the counts of the last seconds, and nothing else.
#
# By policy the oldest entries may go (`audit_age_ms_max`, `audit_entries_max`). An entry then says up to
# where, and with which hash the chain begins now.

using Bowline = import "bowline.capnp";

struct AuditFilter {
  # Which entries. What is left empty does not matter.

  grant @0 :Data;
  # Those under this grant, and those about it.

  derived @1 :Bool;
  # With `grant`: and the same for everything derived from it.

  actor @2 :Text;
  # Those under grants that were made for this actor.

  objectId @3 :Text;
  # Those about the project, session or share with this id.

  fromMs @4 :UInt64;
  untilMs @5 :UInt64;
  # Not before, and before, by the server's clock.

  kinds @6 :List(AuditKind);
}

enum AuditKind {
  # Numbers are stored; a retired one stays taken.
  unknown @0;
  started @1;
  # The server began to run on this data.

  changed @2;
  # Ops were applied to a log.

  redeemed @3;
  # A ref was redeemed; `subject` is its grant.

  claimed @4;
  # A claim was exchanged; `subject` is the new grant.

  attenuated @5;
  saved @6;
  # A grant was made; `subject`.

  revoked @7;
  # A grant was taken back; `subject`.

  epochBumped @8;
  actorRevoked @9;
  rootRotated @10;
  delegated @11;
  delegationEnded @12;
  shareOpened @13;
  shareEnded @14;
  registered @15;
  # A run of a producer announced itself.

  subscriptionTaken @16;
  subscriptionForgotten @17;
  denied @18;
  # Somebody was refused for want of authority: `code` says why, `right` which one was missing, `count` how
  # often. `subject` is the grant whose ref was shown with a wrong secret.

  pruned @19;
  # Entries up to number `count` were let go of, by policy.
}

struct AuditEntry {
  number @0 :UInt64;
  # 1, 2, 3, … without gaps.

  atMs @1 :UInt64;
  # When, by the server's clock; never before the entry in front of it.

  kind @2 :AuditKind;

  grant @3 :Data;
  # Under which grant; empty for a stranger and for the server itself.

  actors @4 :List(Text);
  # Whom that grant was made for, on whose behalf, and so on up the tree; grants without an actor are
  # left out.

  objectKind @5 :Bowline.ObjectKind;
  objectId @6 :Text;
  # What it happened to; an empty id is the server.

  subject @7 :Data;
  # The grant it is about, if it is about one.

  count @8 :UInt64;
  # How many ops, or how often; with `started`, which start it was; with `pruned`, up to which number.

  firstPosition @9 :UInt64;
  # The first of the ops, in the order of the whole server: a place in `Root.feed`. 0 if there are none.

  code @10 :Text;
  right @11 :Text;
  # See `denied`.

  hash @12 :Data;
  # 32 bytes, over this entry and the hash of the one before it.
}

struct AuditHead {
  number @0 :UInt64;
  hash @1 :Data;
  # The newest entry.
}
