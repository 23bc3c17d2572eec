@0xb1c8d2a94e7f3061;
# The files agents work on: states of them that were taken down, and putting them back. The words are explained in
# bowline.capnp.
#
# *Names of calls.* Looking through a work tree takes its time, so the methods that do take no number in a log, for which
# others would have to wait. They take a `name`: 16 bytes that you make, and store before you call. Send the same call
# with the same name again whenever you do not know whether it happened: it happens once, and every sender gets the same
# answer. Another call under that name fails with `op-reused`. A name belongs to one work tree.
#
# *Paths* are bytes, as the file system has them, relative to the work tree, with `/` between steps. No path leads
# outside, whatever it says and wherever links point; `.git` is never touched.
#
# *Nothing is lost.* Before a file is replaced or taken away, its content is in the store. What stands somewhere that
# was not expected there (because somebody has changed it meanwhile) is left alone, and told as a conflict.
#
# *One after the other.* Calls that look at the files of one work tree, or change them, are done in the order in which
# they come. Dropping such a call cancels it, if it has not got to the point of no return.
#
# Any call here may also fail with: `worktree-not-allowed`, `worktree-unreadable`, `worktree-not-found`,
# `snapshot-store-failed`, and those that look at the files with `worktree-too-large` and `cancelled`.

using Bowline = import "bowline.capnp";
using Grant = import "grant.capnp";

interface Worktree extends(Grant.Object) {
  # One directory of a project. It is reached through `Project.worktree`.

  info @0 () -> (worktree :WorktreeInfo);
  # Needs `read`. Safe to repeat.

  track @1 (name :Data, wish :TrackWish, watcher :Watcher) -> (snapshot :Snapshot, info :SnapshotInfo);
  # Takes the present state down. On return it is on disk, and kept until it is removed, or, if no session names it,
  # for as long as `snapshot_age_ms_max` says.
  #
  # It costs as much as what has changed since the last time. `info.skipped` counts what was not taken, and `skipped`
  # names it. `watcher` may be null.
  #
  # Needs `snapshot`. Safe to repeat. Fails with: `op-header-malformed` (the name), `snapshot-budget`.

  snapshots @2 (page :Bowline.Page) -> (snapshots :List(SnapshotInfo), end :Bowline.PageEnd);
  # In the order they were taken; `page.after` is a snapshot's `number`. Needs `read`. Safe to repeat.

  snapshot @3 (id :Text) -> (snapshot :Snapshot);
  # A snapshot of this work tree by its id. Needs `snapshot`. Safe to repeat.
  # Fails with: `id-malformed`, `snapshot-not-found`.

  skipped @4 (after :Data, limit :UInt32) -> (files :List(SkippedFile), next :Data, more :Bool);
  # What was not taken the last time, and why, by path. Needs `snapshot`. Safe to repeat; ask again from `next`.

  restore @5 (name :Data, snapshot :Text, wish :RestoreWish, watcher :Watcher) -> (report :MoveReport);
  # Makes the files what they were when the snapshot was taken. What came since is taken away, unless `wish` says
  # otherwise; all of it is kept, and `unrevert` brings it back.
  #
  # Needs `restore`. Safe to repeat. Fails with: `snapshot-not-found`, `id-malformed`, `path-malformed`,
  # `op-header-malformed`.

  revert @6 (name :Data, patches :List(PatchRef), force :List(Data), watcher :Watcher) -> (report :MoveReport);
  # Undoes what changed between pairs of snapshots, in their order, and nothing else. A file that is not as the last of
  # them left it is a conflict and stays as it is, unless `force` names it.
  #
  # Needs `restore`. Safe to repeat. Fails as `restore`.

  unrevert @7 (name :Data, of :Data, watcher :Watcher) -> (report :MoveReport);
  # Takes back what the call named `of` has done to files (`restore`, `revert`, `Session.revert`, or this one).
  # Needs `restore`. Safe to repeat. Fails with: `snapshot-not-found` (there is no such call, or it was long ago).

  removeSnapshot @8 (id :Text) -> (existed :Bool);
  # Lets go of a snapshot that was taken with `track`. Those of turns stay as long as their sessions. Needs `snapshot`.
  # Safe to repeat. Fails with: `id-malformed`, `not-permitted` (a turn's).

  lease @9 (path :Data, holder :Text, leaseMs :UInt64) -> (untilMs :UInt64);
  # For agents that want to be told before they get into each other's way: says that `holder` is at work on a file, for
  # 1 second to 1 day. By the same holder again, it is prolonged. It keeps nobody from anything who does not ask, and
  # ends with the server.
  #
  # Needs `snapshot`. Safe to repeat. Fails with: `path-malformed`, `path-leased`, `lease-malformed`, `file-not-found`
  # (a path this object may not be used for; so do the methods that follow).

  release @10 (path :Data, holder :Text) -> (existed :Bool);
  # Gives a lease up. Needs `snapshot`. Safe to repeat.

  leases @11 () -> (leases :List(PathLease));
  # Needs `read`. Safe to repeat.

  stamp @12 (paths :List(Data)) -> (stamps :List(FileStamp));
  # What stands at these paths now, to be asked about later. Needs `snapshot`. Safe to repeat.
  # Fails with: `path-malformed`.

  assertUnchanged @13 (stamps :List(FileStamp)) -> ();
  # Fails with `file-changed` unless everything is as it was stamped; the text says which file is not. Needs
  # `snapshot`. Safe to repeat. Fails with: `path-malformed`.
}

interface Snapshot extends(Grant.Object) {
  # One state of a work tree. It never changes.
  #
  # Where an object may be used for some paths only (`Caveats.paths`), others are left out of everything here.

  info @0 () -> (snapshot :SnapshotInfo);
  # Needs `read`. Safe to repeat.

  patch @1 (since :Text, after :Data, limit :UInt32) -> (changes :List(FileChange), next :Data, more :Bool);
  # What is different from another snapshot of the same work tree: which files, and how. By path; ask again from
  # `next`. `since` is its id; empty for the one that was taken before this one.
  # Needs `read`. Safe to repeat. Fails with: `id-malformed`, `snapshot-not-found`.

  diff @2 (since :Text, context :UInt32, after :Data, limit :UInt32) -> (text :Data, next :Data, more :Bool);
  # The same as unified text, as `git diff` writes it, with so many lines around each change. Needs `read`. Safe to
  # repeat. Fails as `patch`.

  diffFull @3 (since :Text, context :UInt32, after :Data, limit :UInt32)
      -> (changes :List(FileChange), next :Data, more :Bool);
  # The same file by file, with counted lines and the text of each. Needs `read`. Safe to repeat. Fails as `patch`.

  files @4 (after :Data, limit :UInt32) -> (files :List(FileEntry), next :Data, more :Bool);
  # What it holds, by path, directories before what is in them. Needs `read`. Safe to repeat.

  read @5 (path :Data, offset :UInt64, bytesMax :UInt32) -> (data :Data, bytes :UInt64, mode :UInt32);
  # A piece of a file, or where a link leads; `bytes` is how long all of it is. At most 256 KiB at a time.
  # Needs `read`. Safe to repeat. Fails with: `file-not-found`, `path-malformed`.
}

interface Watcher {
  # What you implement to see how far a call is.

  progress @0 (files :UInt64, bytes :UInt64) -> (stop :Bool);
  # Files that were looked at or written, and bytes that were read, so far. Called now and then. Answer `stop` to
  # cancel.
}

struct WorktreeInfo {
  id @0 :Text;
  projectId @1 :Text;
  directory @2 :Text;
  sandbox @3 :Text;
  # The sandbox it is; empty if it is none.

  openedAtMs @4 :UInt64;
  snapshots @5 :UInt64;
  bytes @6 :UInt64;
  # How many there are, and what they took up on disk when they were taken. What they share is counted once, where it
  # came first.

  storeBytes @7 :UInt64;
  # What all snapshots of the project take up now.

  number @8 :UInt64;
  # Among those of the project; for `Page.after`.
}

struct TrackWish {
  large @0 :Bool;
  # Take files however large they are. Without it, those above `snapshot_file_bytes_max` are left out, and told.

  full @1 :Bool;
  # Look at every file, whatever is known.
}

struct SnapshotInfo {
  id @0 :Text;
  number @1 :UInt64;
  # Among those of its work tree.

  takenAtMs @2 :UInt64;
  hash @3 :Text;
  # The git tree it is: two snapshots with the same one hold the same.

  worktreeId @4 :Text;
  occasion @5 :Occasion;
  sessionId @6 :Text;
  # The session it was taken for; empty if for none.

  files @7 :UInt64;
  bytes @8 :UInt64;
  # What it holds.

  storedBytes @9 :UInt64;
  # What it took up on disk.

  skipped @10 :List(SkippedCount);
  atWork @11 :UInt32;
  # How many turns were at work since the one before it.
}

enum Occasion {
  # Numbers are stored.
  asked @0;
  step @1;
  # A step of a turn.

  turnEnd @2;
}

enum SkipReason {
  # Numbers are stored.
  ignored @0;
  # A rule of git's says so.

  tooLarge @1;
  unreadable @2;
  special @3;
  # A socket, a pipe, a device.

  repository @4;
  # A `.git`: the files of nested repositories are taken, their history is not.

  tooDeep @5;
  own @6;
  # The server's own data.
}

struct SkippedCount {
  reason @0 :SkipReason;
  count @1 :UInt64;
}

struct SkippedFile {
  path @0 :Data;
  reason @1 :SkipReason;
  bytes @2 :UInt64;
}

struct RestoreWish {
  paths @0 :List(Data);
  # Only these, and what is beneath them; empty for everything.

  keepNew @1 :Bool;
  # Leave alone what the snapshot does not have.
}

struct PatchRef {
  # What changed from one snapshot to another one.

  from @0 :Text;
  to @1 :Text;
  paths @2 :List(Data);
  # Only these, and what is beneath them; empty for everything.
}

struct MoveReport {
  done @0 :UInt64;
  # Paths that were changed.

  conflicts @1 :List(Conflict);
  # Those that were not; at most 10,000 are named, and 512 KiB of them. Paths this object may not be used for are left
  # alone, and not told.

  conflictCount @2 :UInt64;
}

struct Conflict {
  path @0 :Data;
  reason @1 :ConflictReason;
}

enum ConflictReason {
  # Numbers are stored.
  changed @0;
  # It is not as it was left: somebody has changed it since.

  unreadable @1;
  notEmpty @2;
  # A directory holds things no snapshot does.

  noDirectory @3;
  # The directory it is to stand in is not there, or is a link.

  forbidden @4;
  # The system does not let the server.

  shared @5;
  # Several sessions were at work when it changed, and nothing tells which of them did it.

  notTaken @6;
  # Something stood there that was not taken down (ignored, too large), so nobody knows what it was like.
}

struct PathLease {
  path @0 :Data;
  holder @1 :Text;
  untilMs @2 :UInt64;
}

struct FileStamp {
  path @0 :Data;
  mode @1 :UInt32;
  # 0 if nothing stands there, or nothing that can be read.

  hash @2 :Data;
  # Of its content, as git names it; none for a directory.
}

struct FileChange {
  path @0 :Data;
  status @1 :FileStatus;
  oldMode @2 :UInt32;
  newMode @3 :UInt32;
  # As git has them, with all permissions; 0 where there is nothing.

  additions @4 :UInt64;
  deletions @5 :UInt64;
  patch @6 :Data;
  # Unified text, from the first `@@` on.

  binary @7 :Bool;
  tooLong @8 :Bool;
  # Too long to be compared line by line.

  directory @9 :Bool;
}

enum FileStatus {
  added @0;
  deleted @1;
  modified @2;
}

struct FileEntry {
  path @0 :Data;
  mode @1 :UInt32;
  hash @2 :Data;
}

struct SandboxInfo {
  # A work tree of its own for an agent: a branch, and a directory the server keeps.

  name @0 :Text;
  branch @1 :Text;
  directory @2 :Text;
  start @3 :Text;
  # The commit it began at.

  head @4 :Text;
  unmerged @5 :UInt64;
  # Commits that are nowhere else.

  uncommitted @6 :UInt64;
  # Files with changes that are not committed.

  missing @7 :Bool;
  # Its directory is gone.
}

struct KeptCommit {
  # Commits of a sandbox that was discarded.

  reference @0 :Text;
  commit @1 :Text;
}
