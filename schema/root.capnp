@0xc1389152d85cc4f6;
# The server itself and its projects.
#
# A project is a directory somebody works in, with the sessions that belong to it. The words are
# explained in bowline.capnp.

using Bowline = import "bowline.capnp";
using Session = import "session.capnp";
using Feed = import "feed.capnp";
using Grant = import "grant.capnp";
using Message = import "message.capnp";
using Files = import "worktree.capnp";

interface Root extends(Grant.Object) {
  # Authority over the whole server. The operator's sturdy ref for it is in the data directory, in a
  # file only the owner can read.

  openProject @0 (op :Bowline.OpHeader, project :ProjectDraft) -> (project :Project, created :Bool);
  # The project of a directory, made if there is none yet. `created` tells whether this op made it; a
  # repeat hears the same.
  #
  # Two callers who open the same directory get the same project. On return it is on disk. The op is
  # numbered in the root's log, which grows only when a project was made.
  #
  # Needs the right `append`. Safe to repeat.
  # Fails with: `id-malformed`, `directory-malformed`, `name-too-long`, `project-exists` (the id
  # belongs to another directory, or the directory has another id), `op-malformed`, `op-too-large` (`rest`).

  project @1 (id :Text) -> (project :Project);
  # A project by its id. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`, `project-not-found`.

  projects @2 (page :Bowline.Page) -> (projects :List(ProjectInfo), end :Bowline.PageEnd);
  # All projects in the order they were made. Needs `read`. Safe to repeat.

  register @3 (registration :Bowline.Registration) -> (registered :Bowline.Registered);
  # As `Session.register`, for the root's log. Needs `append`. Safe to repeat.

  feed @4 (wish :Feed.Wish, sink :Feed.Sink) -> (subscription :Feed.Subscription);
  # Everything that happens on this server: projects, sessions, and all their ops, in the one order in
  # which they were committed. See feed.capnp. Needs `read`.

  forgetSubscription @5 (name :Text) -> (existed :Bool);
  # Drops a named subscription of `feed`, and ends the feed that runs under it. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`.

  revokeActor @6 (op :Bowline.OpHeader, actor :Text) -> (cut :UInt64);
  # Takes back every grant that was made for an actor, on whatever object, with everything derived from
  # them, as far as they were derived from the grant this root is held under. `cut` tells how many.
  #
  # Needs `admin`. Safe to repeat. Fails with: `narrowing-malformed`.

  rotate @7 (op :Bowline.OpHeader, seed :Data) -> (ref :Text);
  # Replaces the root's own sturdy ref, for instance because the old one was seen by somebody. On return the
  # old one is dead, and so is this object and everything reached through it: redeem the new one. Whatever
  # was derived from the old one (`attenuate`, `save`) goes on. The server keeps the new ref in its file in the
  # data directory. `seed` is as in `Object.save`.
  #
  # Needs `admin`, and the operator's own root: a derived one fails with `not-permitted`. A repeat, through
  # the new root, returns the same ref. Fails with: `narrowing-malformed`.

  shares @8 (page :Bowline.Page) -> (shares :List(Session.ShareInfo), end :Bowline.PageEnd);
  # Everything that was ever published from any session, also of sessions that are gone; without secrets.
  # `page.after` is a share's `number`. Needs `share`. Safe to repeat.

  sharing @9 (id :Text) -> (share :Session.Share);
  # A share by its id, under your own authority: to look at it, and to end it. Needs `share`. Safe to repeat.
  # Fails with: `id-malformed`, `share-not-found`.

  listSessions @10 (filter :Session.SessionFilter, token :Data, limit :UInt32)
      -> (sessions :List(Session.SessionInfo), token :Data, more :Bool);
  # As `Project.listSessions`, over all projects. Needs `read`. Safe to repeat.

  session @11 (id :Text) -> (session :Session.Session);
  # A session of any project by its id. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`, `session-not-found`.

  setRules @12 (op :Bowline.OpHeader, rules :List(Message.Rule)) -> ();
  # What any agent may do without asking, where no project or session says otherwise. In place of the rules
  # there were. Needs `admin`. Safe to repeat. Fails with: `rules-malformed`.
}

struct ProjectDraft {
  directory @0 :Text;
  # Absolute path of the worktree, on the machine the agent works on, at most 4096 bytes without control
  # characters. It is a name here: the server does not look at the directory. Slashes at its end do not
  # count.

  id @1 :Text;
  # Any 1 to 128 bytes without spaces and control characters. Leave it empty to have one made.

  name @2 :Text;
  # For people, at most 1024 bytes; may be empty. An existing project keeps the name it has.

  remote @3 :Text;
  # URL of the repository's origin, as git has it; empty if there is none. Two clones of one remote are one
  # project, however the URL is written. A remote on the same machine (`file:`, a path) does not count.

  rootCommit @4 :Text;
  # Hash of the first commit that has no parent; empty if there is none. It tells the project where there is no
  # remote. A directory that is known already stays with its project when a remote appears.

  rest @5 :Text;
  # A JSON object with every other field the project has elsewhere, at most 64 KiB, kept as it is; may be empty. An
  # existing project keeps the one it has.
}

struct ProjectInfo {
  id @0 :Text;
  directory @1 :Text;
  name @2 :Text;
  createdAtMs @3 :UInt64;
  # Milliseconds since 1970, by the server's clock. Never use it for order: see `cursor`.

  cursor @4 :UInt64;
  # Where in the root's log the project was made.

  sessionCount @5 :UInt64;

  worktrees @6 :List(Worktree);
  # The directories it was opened in, `directory` first.

  rules @7 :List(Message.Rule);
  remote @8 :Text;
  # As it is compared: host and path.

  rest @9 :Text;
  # As it was given when the project was made.
}

struct Worktree {
  directory @0 :Text;
  openedAtMs @1 :UInt64;
  # When it was first opened.
}

interface Project extends(Grant.Object) {
  # Authority over one project and its sessions.

  info @0 () -> (project :ProjectInfo);
  # Needs `read`. Safe to repeat.

  createSession @1 (op :Bowline.OpHeader, session :Session.SessionDraft) -> (session :Session.Session);
  # Makes a session. On return it is on disk. The op is numbered in the project's log.
  #
  # Call on `session` without waiting: a session can be made and filled in one round trip.
  #
  # Needs `append`. Safe to repeat: the repeat returns the same session.
  # Fails with: `id-malformed`, `title-too-long`, `session-exists`, `project-not-found`.

  session @2 (id :Text) -> (session :Session.Session);
  # A session of this project by its id. Needs `read`. Safe to repeat.
  # Fails with: `id-malformed`, `session-not-found`.

  sessions @3 (page :Bowline.Page) -> (sessions :List(Session.SessionInfo), end :Bowline.PageEnd);
  # The project's sessions in the order they were made. Needs `read`. Safe to repeat.

  register @4 (registration :Bowline.Registration) -> (registered :Bowline.Registered);
  # As `Session.register`, for the project's log. Needs `append`. Safe to repeat.

  feed @5 (wish :Feed.Wish, sink :Feed.Sink) -> (subscription :Feed.Subscription);
  # What happens in this project and in all its sessions, in the order in which it was committed. See
  # feed.capnp. Needs `read`.

  forgetSubscription @6 (name :Text) -> (existed :Bool);
  # As `Root.forgetSubscription`. Needs `read`. Safe to repeat.

  shares @7 (page :Bowline.Page) -> (shares :List(Session.ShareInfo), end :Bowline.PageEnd);
  # As `Root.shares`, of this project's sessions. Needs `share`. Safe to repeat.

  sharing @8 (id :Text) -> (share :Session.Share);
  # As `Root.sharing`, of this project's sessions. Needs `share`. Safe to repeat.

  listSessions @9 (filter :Session.SessionFilter, token :Data, limit :UInt32)
      -> (sessions :List(Session.SessionInfo), token :Data, more :Bool);
  # The project's sessions, the one something happened in last first. Hand `token` in again for the next page.
  # Nothing is skipped: a session in which something happens while pages are read comes again at the end.
  # Needs `read`. Safe to repeat. Fails with: `token-malformed`.

  removeSession @10 (op :Bowline.OpHeader, id :Text) -> (removed :UInt64);
  # Takes a session away for good, with its children, and theirs: messages, history, todos, turns. Every grant
  # for them is taken back, and their shares end. `removed` tells how many sessions went. All in one
  # transaction.
  #
  # Needs `admin`. Safe to repeat; there is no way back. Fails with: `id-malformed`, `session-not-found`.

  setRules @11 (op :Bowline.OpHeader, rules :List(Message.Rule)) -> ();
  # As `Root.setRules`, for this project. Needs `admin`. Safe to repeat. Fails with: `rules-malformed`.

  worktree @12 (directory :Text) -> (worktree :Files.Worktree, id :Text);
  # The files of a directory the project was opened in; empty for its first. The directory must lie beneath one the
  # operator allows. On return it is known for good, and the project's log says so the first time. It takes no op
  # header: repeating it leads to the same state.
  #
  # Needs `snapshot`. Fails with: `worktree-not-found`, `worktree-not-allowed`, `worktree-unreadable`.

  worktrees @13 (page :Bowline.Page) -> (worktrees :List(Files.WorktreeInfo), end :Bowline.PageEnd);
  # Those that are known, in the order they were opened, sandboxes among them; `page.after` is a work tree's `number`.
  # Needs `read`. Safe to repeat.

  openedWorktree @14 (id :Text) -> (worktree :Files.Worktree);
  # One of them by its id. Needs `snapshot`. Safe to repeat. Fails with: `id-malformed`, `worktree-not-found`.

  createSandbox @15 (name :Data, sandbox :Text, from :Text)
      -> (sandbox :Files.SandboxInfo, worktree :Files.Worktree);
  # A work tree of its own for an agent, so that several do not get into each other's way: a branch `bowline/<name>` of
  # the project's repository, checked out in a directory the server keeps. `sandbox` is made into a name of `a` to `z`,
  # digits and `-`; `from` is what it begins at, empty for the repository's HEAD. No hook or filter of the repository
  # is run. `name` names the call: see worktree.capnp.
  #
  # Needs `restore`, and an object that may be used for all paths; so do the methods that follow. Safe to repeat, as
  # long as the sandbox is there. Fails with: `sandbox-malformed`, `sandbox-exists`, `worktree-not-found`,
  # `worktree-not-allowed`, `op-header-malformed`.

  sandboxes @16 () -> (sandboxes :List(Files.SandboxInfo));
  # Needs `read`. Safe to repeat. Fails with: `sandbox-malformed`.

  resetSandbox @17 (sandbox :Text, to :Text, discard :Bool) -> (kept :List(Files.KeptCommit));
  # Puts a sandbox back to a commit, or to where it began. Commits that are nowhere else and changes that are not
  # committed are refused with `sandbox-unmerged`, unless `discard` says that they may go: then the commits are kept
  # under references, and the files in a snapshot.
  #
  # Needs `restore`. Safe to repeat. Fails with: `sandbox-not-found`, `sandbox-unmerged`, `sandbox-malformed`.

  removeSandbox @18 (sandbox :Text, discard :Bool) -> (existed :Bool, kept :List(Files.KeptCommit));
  # Takes a sandbox away, with the same care. Its snapshots stay. Needs `restore`. Safe to repeat. Fails with:
  # `sandbox-unmerged`, `sandbox-malformed`.

  storage @19 () -> (bytes :UInt64, snapshots :UInt64);
  # What the snapshots of the project take up on disk, and how many there are. Needs `read`. Safe to repeat.
}
