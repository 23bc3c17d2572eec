@0x9f6d3a7b5c21e804;
# What sessions hold, as it is sent and as feeds tell it. The words are explained in bowline.capnp.

const partsMax :UInt16 = 256;
# Parts of one message.

const inlineTextBytesMax :UInt32 = 131072;
# Text of one part that is told together with it. What is longer is content of its own: see `Content`.

struct Message {
  id @0 :Text;
  # The given one, or the one that was made.

  cursor @1 :UInt64;
  # Where in the session's log it was added.

  createdAtMs @2 :UInt64;
  # By the server's clock. Never use it for order.

  body @3 :MessageBody;
  # As it was given, with what became of it since: parts that were added, changed and taken away.

  author @4 :Author;
  # Not told through a share.

  partsAfter @5 :UInt32;
  # The parts told here did not fit all: ask `Session.parts` for those behind this position. 0 if they did.
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

  agent @4 :Text;
  model @5 :Model;
  # Which agent and model it is for, or was made by.

  parentId @6 :Text;
  # Of an assistant's message: the user's message it answers. All of one turn answer the same.

  turnId @7 :Text;
  # The running turn it belongs to; see session.capnp. Once that has ended, it is rejected with `turn-ended`.

  createdAtMs @8 :UInt64;
  completedAtMs @9 :UInt64;
  # When it was begun and ended, by the client's account; 0 for not said. Never used for order.

  finish @10 :Text;
  # Why the model stopped: `stop`, `tool-calls`, `length`, `content-filter`, `error`, …; empty while it has not.

  error @11 :Failure;
  usage @12 :Usage;
  summary @13 :Bool;
  # It sums up what came before: see `Session.context`.

  rest @14 :Text;
  # A JSON object with every other field the message has elsewhere (`mode`, `path`, `system`, `tools`,
  # `format`, …), kept as it is; may be empty.
}

struct Model {
  providerId @0 :Text;
  modelId @1 :Text;
  variant @2 :Text;
}

struct Failure {
  name @0 :Text;
  # What kind; `MessageAbortedError` for a turn that was cut short.

  data @1 :Text;
  # A JSON object that says more; may be empty.
}

struct Usage {
  # What a step cost.

  cost @0 :Float64;
  # In dollars. Sums are exact to a billionth.

  total @1 :UInt64;
  input @2 :UInt64;
  output @3 :UInt64;
  reasoning @4 :UInt64;
  cacheRead @5 :UInt64;
  cacheWrite @6 :UInt64;
  # Tokens. `total` only where a provider tells it.
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
    # Anything else, as a JSON object, with its name in `type`: `agent`, `subtask`, `snapshot`, or whatever a
    # client likes. It is checked to be an object and kept byte for byte.

    reasoning @2 :Text;
    # What was thought.

    tool @3 :Tool;
    file @4 :File;
    stepStart @5 :Text;
    # A step begins; the snapshot of the files before it, if one was taken.

    stepFinish @6 :StepFinish;
    patch @7 :Patch;
    retry @8 :Retry;
    compaction @9 :Compaction;
  }

  id @10 :Text;
  # Any 1 to 128 bytes without spaces and control characters, unique in its message. Leave it empty to have
  # one made.

  rest @11 :Text;
  # A JSON object with every other field the part has elsewhere, kept as it is; may be empty.

  startedAtMs @12 :UInt64;
  endedAtMs @13 :UInt64;
  synthetic @14 :Bool;
  # Nobody said it; it was put there for the model.

  ignored @15 :Bool;
  # The model is not to see it.

  content @16 :Content;
  # Where the text of a text or a thought, the output of a tool or the URL of a file is too long to stand
  # here. It stands here then instead, and the field is empty.

  restContent @17 :Content;
  # The same for `rest`.
}

struct Content {
  # Something long, kept beside the log and read in pieces: see `Session.content` and `Session.upload`.

  hash @0 :Data;
  # SHA-256 of all its bytes; none if there is no such thing.

  bytes @1 :UInt64;
}

struct Tool {
  callId @0 :Text;
  name @1 :Text;
  status @2 :ToolStatus;
  input @3 :Text;
  # A JSON object; may be empty.

  output @4 :Text;
  # What it gave; of one that failed, why.

  title @5 :Text;
  metadata @6 :Text;
  # A JSON object; may be empty.

  compactedAtMs @7 :UInt64;
  # When its output was left out of what the model sees; 0 if it was not. The output stays stored.

  rest @8 :Text;
  # A JSON object with every other field its state has elsewhere (`attachments`, `raw`, …); may be empty.
}

enum ToolStatus {
  # Numbers are stored. A tool goes forward only: from `completed` and `error` nothing leads on.
  pending @0;
  running @1;
  completed @2;
  error @3;
}

struct File {
  mime @0 :Text;
  url @1 :Text;
  # Often a `data:` URL.

  filename @2 :Text;
}

struct StepFinish {
  reason @0 :Text;
  snapshot @1 :Text;
  usage @2 :Usage;
  # Counted in the session's totals.
}

struct Patch {
  hash @0 :Text;
  # The snapshot before the step.

  files @1 :List(Text);
}

struct Retry {
  attempt @0 :UInt32;
  error @1 :Text;
  # A JSON object.

  atMs @2 :UInt64;
}

struct Compaction {
  auto @0 :Bool;
  overflow @1 :Bool;
  tailStartId @2 :Text;
  # The message from which on everything is kept; empty if nothing before this one is.
}

struct PartPut {
  # A part to be added to a message, or to stand in the place of the one with the same id.

  messageId @0 :Text;
  part @1 :Part;
  open @2 :Bool;
  # Its text is still to come, through `Session.partWriter`. It stays open until it is put again without this;
  # then the text that came is kept, unless the part brings one. Only in a running turn.

  turnId @3 :Text;
  # As in `MessageBody`. May be empty for a part that is not open.
}

struct PartRef {
  messageId @0 :Text;
  partId @1 :Text;
}

struct Todo {
  content @0 :Text;
  status @1 :Text;
  # `pending`, `in_progress`, `completed`, `cancelled`, or anything else.

  priority @2 :Text;
  # `high`, `medium`, `low`, or anything else.

  rest @3 :Text;
  # A JSON object with every other field; may be empty.
}

struct Rule {
  # What an agent may do without asking. The last rule that matches counts.

  permission @0 :Text;
  pattern @1 :Text;
  # `*` stands for any text and `?` for any character.

  action @2 :Action;
}

enum Action {
  # Numbers are stored.
  ask @0;
  allow @1;
  deny @2;
}

struct FileDiff {
  file @0 :Text;
  status @1 :Text;
  # `added`, `deleted` or `modified`.

  additions @2 :UInt64;
  deletions @3 :UInt64;
  patch @4 :Text;
  # Unified text; may be empty.

  rest @5 :Text;
  # A JSON object with every other field; may be empty.
}

struct SessionChange {
  # One thing about a session that is to be different.

  union {
    unset @0 :Void;
    title @1 :Text;
    metadata @2 :Text;
    # A JSON object in place of the one there was; empty for none.

    addRules @3 :List(Rule);
    # Behind those there are.

    setRules @4 :List(Rule);
    # In place of those there are.

    archivedAtMs @5 :Int64;
    # Put away, at this time; any number.

    unarchive @6 :Void;
    agent @7 :Text;
    model @8 :Model;
    directory @9 :Text;
    path @10 :Text;
    # Where in the worktree, without a slash at either end; empty for its root.

    version @11 :Text;
    # Of the client that wrote it.

    rest @12 :Text;
    # A JSON object with every other field it has elsewhere, in place of the one there was; empty for none.

    summary @13 :Summary;
    # What came of the work, where a client knows better than the turns say.
  }
}

struct Summary {
  additions @0 :UInt64;
  deletions @1 :UInt64;
  files @2 :UInt64;
}

struct TurnDraft {
  # See `Session.beginTurn`.

  id @0 :Text;
  # Any 1 to 128 bytes without spaces and control characters, unique in the session. Leave it empty to have
  # one made.

  message @1 :MessageBody;
  # What it answers: a user's message, with the agent and the model it is for. It is stored before anything
  # runs. Its `turnId` must be empty.

  leaseMs @2 :UInt64;
  # The turn is aborted when nothing was heard of it for this long: 1 second to 1 day; 0 for a minute.

  ifBusy @3 :IfBusy;
}

enum IfBusy {
  # What becomes of a turn while another one runs in the session.

  refuse @0;
  # It is rejected with `session-busy`.

  queue @1;
  # Its message is stored at once, and it begins when those before it have ended: `turnStarted` says so. Its
  # lease begins then, too.

  beside @2;
  # It runs beside them.
}

struct TurnEnd {
  # See `Turn.finish`.

  turnId @0 :Text;
  state @1 :TurnState;
  # `completed`, `failed` or `aborted`.

  message @2 :MessageBody;
  # What there is to say about the last message of the turn (its `id`, or the newest if that is empty):
  # `finish`, `error`, `usage`, `completedAtMs`. `parts` are put into it: the last ones, such as `stepFinish`
  # and `patch`.

  reason @3 :Text;
  # Why it failed or was aborted, for people, at most 64 KiB.

  summary @4 :Summary;
  diffs @5 :List(FileDiff);
  # What it did to files.
}

enum TurnState {
  # Numbers are stored. From the last three nothing leads on.
  queued @0;
  streaming @1;
  completed @2;
  failed @3;
  aborted @4;
}

struct TurnRetry {
  # A turn waits before it tries again.

  turnId @0 :Text;
  attempt @1 :UInt32;
  message @2 :Text;
  nextAtMs @3 :UInt64;
}

struct Revert {
  messageId @0 :Text;
  partId @1 :Text;
  # May be empty: then the whole message.
}

struct Head {
  # Where a session's conversation is to end.

  union {
    end @0 :Void;
    # Where it ended before anything was reverted.

    before @1 :Revert;
    # Before a message, or a part of one. A message of an assistant goes with its whole turn, unless something
    # of the same message stands before the part.

    checkpoint @2 :Text;
    # As it was at a checkpoint.

    undo @3 :Void;
    # Before the newest message of a user that is still there.

    redo @4 :Void;
    # One step of `undo` back.
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
