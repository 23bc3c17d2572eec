@0xa7e269eb1f01d945;
# One session: a log of what people and agents said and did; work handed to others; and views of it that were
# published. The words are explained in bowline.capnp.

using Bowline = import "bowline.capnp";
using Feed = import "feed.capnp";
using Grant = import "grant.capnp";
using Message = import "message.capnp";
using Worktree = import "worktree.capnp";

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

  messages @2 (page :Bowline.Page, reverted :Bool) -> (messages :List(Message.Message), end :Bowline.PageEnd);
  # The session's messages in the order of the log, a page at a time, as far as they belong to the
  # conversation: what was reverted is left out, unless `reverted` asks for what `unrevert` would bring back.
  # Needs `read`. Safe to repeat.

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

  parts @15 (messageId :Text, after :UInt32) -> (parts :List(Message.Part), partsAfter :UInt32);
  # The parts of a message behind a position, as many as fit into a page; see `Message.partsAfter`.
  # Needs `read`. Safe to repeat. Fails with: `id-malformed`, `message-not-found`.

  content @16 (hash :Data, offset :UInt64, bytesMax :UInt32) -> (data :Data, bytes :UInt64);
  # A piece of something long that a part of this session names; `bytes` is how long all of it is. At most
  # 256 KiB at a time, also if more is asked for. Needs `read`. Safe to repeat.
  # Fails with: `content-not-found`.

  upload @17 (content :Message.Content) -> (upload :Upload, offset :UInt64);
  # To hand over something long before a part names it. `offset` is how much of it is there already: begun
  # uploads are kept for a day, and go on where they ended. Needs `append`. Safe to repeat.
  # Fails with: `content-malformed`, `content-too-large`.

  beginTurn @18 (op :Bowline.OpHeader, turn :Message.TurnDraft) -> (turn :Turn, id :Text, state :Message.TurnState);
  # One run of an agent: stores what it is to answer, and gives an object to write the answer through. What
  # was reverted is left behind first; see `setHead`. As the op `beginTurn`. Needs `turn`. Safe to repeat.
  # Fails with: `session-busy`, `turn-exists`, `too-many-turns`, `lease-malformed`, `message-exists`,
  # `op-malformed`, `id-malformed`, `too-many-checkpoints`.

  turn @19 (id :Text) -> (turn :Turn);
  # A turn by its id, to go on with it after a lost connection, or to abort it. Needs `turn`. Safe to repeat.
  # Fails with: `id-malformed`, `turn-not-found`.

  turns @20 (page :Bowline.Page) -> (turns :List(TurnInfo), end :Bowline.PageEnd);
  # All turns in the order they were begun. `page.after` is a turn's `cursor`. Needs `read`. Safe to repeat.

  todos @21 () -> (todos :List(Message.Todo), cursor :UInt64);
  # The list as it stands in the conversation, and where in the log it was set; reverting takes it back, too.
  # Needs `read`. Safe to repeat.

  fork @22 (op :Bowline.OpHeader, fork :ForkDraft) -> (session :Session, id :Text);
  # A session of its own that begins with a copy of this conversation: messages, parts and metadata, under new
  # ids; not with rules, todos, shares or turns. Its `SessionInfo.forkedFrom` says where it left, and the op in
  # this session's log that it did. All in one transaction, whatever happens.
  #
  # Needs `append` and `read`. Safe to repeat. Fails with: `session-exists`, `message-not-found`, `id-malformed`,
  # `title-too-long`, `not-permitted` (an object that may see only its own messages), `session-busy` (a turn
  # that runs would be copied; leave before it).

  children @23 (page :Bowline.Page) -> (sessions :List(SessionInfo), end :Bowline.PageEnd);
  # Sessions whose parent this one is, in the order they were made; `page.after` is a session's `cursor`. They
  # tell what was handed to whom. Needs `delegate`. Safe to repeat.

  context @24 (page :Bowline.Page) -> (messages :List(Message.Message), end :Bowline.PageEnd);
  # What a model is to be shown: if the conversation was summed up, the message that asked for it, the summary,
  # the kept tail, and everything that came since, also while it was being summed up; otherwise all of it.
  # Outputs of tools that were left out (`pruneOutputs`) are empty, here and beside; `messages` and `parts` have
  # them. Pages only forward. Needs `read`. Safe to repeat.

  plan @25 (limits :ContextLimits) -> (plan :ContextPlan);
  # What the rules say about the size of the context: whether it is to be summed up, which tail is kept then,
  # and which outputs of tools can be left out. It changes nothing. Needs `read`. Safe to repeat.

  checkpoints @26 (page :Bowline.Page) -> (checkpoints :List(CheckpointInfo), end :Bowline.PageEnd);
  # Places the conversation can go back to; `page.after` is a checkpoint's `cursor`. Needs `read`. Safe to
  # repeat.

  diffs @27 (turnId :Text, page :Bowline.Page) -> (diffs :List(Message.FileDiff), end :Bowline.PageEnd);
  # What a turn did to files; `page.after` counts from 1. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`, `turn-not-found`.

  permits @28 (permission :Text, patterns :List(Text)) -> (action :Message.Action, rule :Message.Rule);
  # What the rules of server, project, session and delegate say about a permission, or about a tool: those that
  # change files (`edit`, `write`, `apply_patch`, `multiedit`) share `edit`. It is `deny` if any of the patterns
  # is denied, `allow` if all are allowed, otherwise `ask`; and the rule that decided, if one did. A delegate's
  # rules can only make it stricter. Needs `read`. Safe to repeat.

  revert @29 (name :Data, head :Message.Head, force :List(Data), watcher :Worktree.Watcher)
      -> (report :Worktree.MoveReport);
  # As the op `setHead`, and the files go along: what the turns beyond have done to the work tree is undone, or done
  # again. Files that somebody else (another session, a person) has changed since are conflicts and stay as they are,
  # unless `force` names them. Conversation and files move together: if one cannot, neither does, and after a crash
  # both are as they were, or both are as they were to be.
  #
  # What is known of the files, snapshots tell: see `Turn.snapshot`. A session without any goes back without files.
  # `name` names the call: see worktree.capnp. `head` may not be a checkpoint.
  #
  # Needs `turn` and `restore`. Safe to repeat. Fails with: `session-busy`, `message-not-found`, `part-not-found`,
  # `op-malformed`, `op-header-malformed`, and what a work tree may fail with.

  storage @30 () -> (bytes :UInt64, snapshots :UInt64);
  # What the snapshots that were taken for this session took up on disk, and how many there are. Needs `read`. Safe to
  # repeat.
}

interface Turn {
  # A run of an agent that is under way. Its ops stand in the session's log, and can be written with
  # `Session.append` as well, a batch at a time.
  #
  # It ends by `finish`, whoever calls it, or when its lease runs out because nothing was heard of it: any call
  # here but `info`, any piece of text and any op that names it keeps it. It is aborted as well when the grant it
  # was begun under is taken back, lapses or expires. However it ends, tools that still ran are closed as interrupted and
  # open texts as far as they came, in the same transaction. After that it answers `turn-ended`.

  info @0 () -> (turn :TurnInfo);
  # Needs `read`. Safe to repeat.

  addMessage @1 (op :Bowline.OpHeader, message :Message.MessageBody) -> (id :Text);
  # A step of it: another message of the assistant, which answers the turn's own. Needs `turn`. Safe to repeat.
  # Fails with: `turn-ended`, `message-exists`, and as the op `putMessage`.

  putPart @2 (op :Bowline.OpHeader, part :Message.PartPut) -> (writer :PartWriter, id :Text);
  # As the op `putPart`, into the newest message of the turn if none is named. `writer` is for a part that is
  # open. Needs `turn`. Safe to repeat. Fails with: `turn-ended`, and as that op.

  partWriter @3 (messageId :Text, partId :Text) -> (writer :PartWriter, offset :UInt64);
  # To go on with an open part; `offset` is how long its text is. Needs `turn`. Safe to repeat.
  # Fails with: `turn-ended`, `part-not-found`, `part-closed`, `id-malformed`.

  heartbeat @4 () -> (untilMs :UInt64);
  # Keeps the lease, and tells until when. It takes no op header: repeating it leads to the same state. Needs
  # `turn`. Fails with: `turn-ended`.

  finish @5 (op :Bowline.OpHeader, end :Message.TurnEnd) -> ();
  # Ends it, in one transaction: the last parts, what still ran, totals and summary. Needs `turn`. Safe to
  # repeat. Fails with: `turn-ended` (it says how it ended), and as the op `endTurn`.
  #
  # If snapshots were taken of it, another one is taken once it has ended, however it ends, and what it did to files is
  # told from them where `end` does not.

  snapshot @6 (name :Data, watcher :Worktree.Watcher)
      -> (snapshot :Worktree.Snapshot, info :Worktree.SnapshotInfo);
  # Takes the files of the session's work tree down: call it before a step does anything to them, and after. What
  # changes in between is this turn's work. `info.id` is what the parts `stepStart`, `stepFinish` and `patch` name.
  # `name` names the call: see worktree.capnp.
  #
  # Needs `turn` and `snapshot`. Safe to repeat. Fails with: `turn-ended`, `session-busy` (it waits),
  # `worktree-not-found`, `op-header-malformed`, `snapshot-budget`, and what a work tree may fail with.
}

interface PartWriter {
  # The text of an open part, as it comes. Not numbered like ops: every piece says where it belongs, so sending
  # any of it again does no harm.
  #
  # It is an object of its own because a streaming call that fails takes every later call on the same object
  # with it. Nothing is lost then: `Turn.partWriter` says where to go on.

  delta @0 (offset :UInt64, text :Text) -> stream;
  # The text from this byte on, at most 256 KiB. What is there already must be the same. The return says only that more may be
  # sent; `flush` says that it is on disk. Needs `turn`.
  #
  # The stream fails, with every later call on it, with: `delta-gap` (the text is not that long yet),
  # `delta-conflict` (something else stands there), `content-too-large`, `op-too-large`, `turn-ended`, `part-closed`,
  # `part-not-found`, `revoked`, `overloaded`, `outcome-unknown`, `storage-failed`.

  flush @1 () -> (offset :UInt64);
  # On return everything that was sent before is on disk: the text up to `offset`. Needs `turn`.
}

interface Upload {
  # Something long on its way.

  write @0 (offset :UInt64, data :Data) -> stream;
  # The bytes from `offset` on, at most 1 MiB; what is there already is skipped. Needs `append`. The stream
  # fails with: `content-gap`, `content-malformed` (it is longer than was said), and what any stream may fail
  # with.

  finish @1 () -> (offset :UInt64);
  # On return it is on disk, if `offset` is all of it. Needs `append`. Fails with: `content-malformed` (the hash
  # is not that of what came; it has to be sent again).
}

struct TurnInfo {
  id @0 :Text;
  cursor @1 :UInt64;
  # Where in the session's log it was begun.

  messageId @2 :Text;
  # What it answers.

  state @3 :Message.TurnState;
  beganAtMs @4 :UInt64;
  endedAtMs @5 :UInt64;
  untilMs @6 :UInt64;
  # When its lease runs out, unless something is heard of it; 0 if it does not run.

  leaseMs @7 :UInt64;
  reason @8 :Text;
  retry @9 :Message.TurnRetry;
  # Set while it waits before it tries again.

  summary @10 :Message.Summary;
  usage @11 :Message.Usage;
  # Of its steps.
}

struct ForkDraft {
  id @0 :Text;
  # As in `SessionDraft`.

  title @1 :Text;
  # Empty for the title of this one with `(fork #1)` behind it, or the next number.

  before @2 :Text;
  # The message before which it leaves; empty for all of it.
}

struct CheckpointInfo {
  cursor @0 :UInt64;
  name @1 :Text;
  messageId @2 :Text;
  # The last message then; empty if there was none.

  createdAtMs @3 :UInt64;
  automatic @4 :Bool;
  # Made because something was left behind. It goes, with what only it still knows, when the history does: see
  # `Message.HistoryPolicy`.
}

struct ContextLimits {
  # What is known about a model. All in tokens; 0 for not said.

  context @0 :UInt64;
  input @1 :UInt64;
  output @2 :UInt64;
  reserved @3 :UInt64;
  # Kept free of input; 0 for the smaller of 20,000 and `output`.

  preserveRecent @4 :UInt64;
  # For the kept tail; 0 for a quarter of what is usable, at least 2,000 and at most 15,000.

  tailTurns @5 :UInt32;
  # Turns in the kept tail at most; 0 for any number.

  auto @6 :Bool;
  # Whether summing up by itself is wanted at all.
}

struct ContextPlan {
  usable @0 :UInt64;
  used @1 :UInt64;
  # As the newest finished step since the summary told, or estimated at four characters to a token.

  overflow @2 :Bool;
  # It is to be summed up.

  tailStartId @3 :Text;
  # Where the kept tail would begin; empty if nothing is kept.

  prunable @4 :List(Message.PartRef);
  # Outputs of tools that can be left out with the op `pruneOutputs`; none unless it is worth it.

  prunableTokens @5 :UInt64;
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
  # For people, at most 1024 bytes. Empty for `New session - ` and the time, or `Child session - ` if it has a
  # parent.

  parentId @2 :Text;
  # A session of the same project this one was made for; empty for none. `delegate` names itself.

  createdAtMs @3 :UInt64;
  # When it was made, by the client's account; 0 for now.

  changes @4 :List(Message.SessionChange);
  # Everything else that is to be known about it from the start.
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

  parentId @6 :Text;
  slug @7 :Text;
  # Two words for people to tell sessions apart by; not unique.

  directory @8 :Text;
  path @9 :Text;
  agent @10 :Text;
  model @11 :Message.Model;
  version @12 :Text;
  metadata @13 :Text;
  rest @14 :Text;
  rules @15 :List(Message.Rule);
  # As they were set; see `Message.SessionChange`.

  updatedAtMs @16 :UInt64;
  # When something last happened in it.

  archived @17 :Bool;
  archivedAtMs @18 :Int64;
  usage @19 :Message.Usage;
  # Of all its steps.

  summary @20 :Message.Summary;
  status @21 :Status;
  revert @22 :Message.Revert;
  # Set while something is reverted that `unrevert` can bring back.

  forkedFrom @23 :ForkedFrom;
  todoCount @24 :UInt32;
}

struct ForkedFrom {
  sessionId @0 :Text;
  # Empty if it is no fork.

  cursor @1 :UInt64;
  # Where that session's log ended then.

  messageId @2 :Text;
  # The last message that was copied; empty if there was none.
}

struct Status {
  union {
    idle @0 :Void;
    busy @1 :Void;
    retry @2 :Message.TurnRetry;
  }

  turns @3 :UInt32;
  # That run.

  queued @4 :UInt32;
}

struct SessionFilter {
  directory @0 :Text;
  # Only sessions with exactly this one; empty for any.

  path @1 :Text;
  # Only sessions at this path or below; then `directory` counts only for sessions without a path. Empty for
  # any.

  roots @2 :Bool;
  # Only sessions without a parent.

  start @3 :UInt64;
  # Only sessions something happened in at this time or later.

  search @4 :Text;
  # Only sessions with this in their title; letters from `a` to `z` in any case.

  archived @5 :Archived;
}

enum Archived {
  leaveOut @0;
  include @1;
  only @2;
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

    update @9 :List(Message.SessionChange);
    # Changes what is known about the session, all of it at once.
    # Rejected with: `title-too-long`, `rules-malformed`.

    setTodos @10 :List(Message.Todo);
    # The whole list of things to do, in place of the one there was. At most 1,000.

    setMessage @11 :Message.MessageBody;
    # Changes everything about a message but its parts, which must be left out, its id, its role and the turn
    # it belongs to. While that turn runs, it has to be named (`turnId`). Of a message whose turn was aborted,
    # `error` and `finish` stay as they are.
    # Rejected with: `message-not-found`, `session-busy` (it belongs to a turn that runs), `turn-ended`,
    # `turn-not-found`. Needs `turn` as well if it names a turn.

    putPart @12 :Message.PartPut;
    # Adds a part to a message, or puts another in its place. A tool goes forward only.
    # Rejected with: `message-not-found`, `turn-ended`, `turn-not-found`, `tool-ended` (it is completed or
    # failed already, or never ran), `content-not-found`, `too-many-parts`. Needs `turn` as well if it names a turn.

    removePart @13 :Message.PartRef;
    # Rejected with: `message-not-found`, `part-not-found`, `session-busy` (it belongs to a turn that runs).

    beginTurn @14 :Message.TurnDraft;
    # As `Session.beginTurn`. Needs `turn` as well.

    endTurn @15 :Message.TurnEnd;
    # As `Turn.finish`. Rejected with: `turn-ended`, `turn-not-found`, `message-not-found`. Needs `turn` as well.

    retryTurn @16 :Message.TurnRetry;
    # Says that a turn waits; the next op that names it says that it goes on. Needs `turn` as well.

    setHead @17 :Message.Head;
    # Says where the conversation ends: undo, redo, revert, unrevert. Messages, parts and todos beyond are not
    # shown any more, but kept: `end` brings them back. When the next turn begins, they are left behind, and a
    # checkpoint is made from which they can still be reached.
    # Rejected with: `session-busy`, `message-not-found`, `part-not-found`, `checkpoint-not-found`,
    # `too-many-checkpoints` (it has gone back and on too often). Where there
    # is nothing to undo or redo, nothing changes. Needs `turn` as well.

    checkpoint @18 :Text;
    # Gives this place in the conversation a name, to come back to. Names need not be unique: the newest counts.
    # They do not begin with `@`, which is for those the server makes.
    # Rejected with: `session-busy`, `title-too-long`, `op-malformed`, `too-many-checkpoints`. Needs `turn` as well.

    pruneOutputs @19 :List(Message.PartRef);
    # Leaves the outputs of these tools out of what the model sees; they stay stored. See `Session.plan`.
    # Rejected with: `message-not-found`, `part-not-found`, `tool-ended` (not completed).
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
