-- 0006_snapshots.sql
-- Work trees as objects, and what was recorded of their files. The content itself is in a git repository beside the
-- database; here is which trees are wanted, by whom, and in which order they were taken.

CREATE TABLE trees (
  log          INTEGER PRIMARY KEY REFERENCES logs(id),
  id           TEXT    NOT NULL UNIQUE,
  project      INTEGER NOT NULL REFERENCES projects(log),
  directory    TEXT    NOT NULL UNIQUE,
  sandbox      TEXT,                        -- its name, if it was made as one
  opened_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX trees_by_project ON trees (project, log);

CREATE TABLE snapshots (
  log         INTEGER PRIMARY KEY REFERENCES logs(id),
  id          TEXT    NOT NULL UNIQUE,
  worktree    INTEGER NOT NULL REFERENCES trees(log),
  number      INTEGER NOT NULL,             -- cursor in the worktree's log: the order they were taken in
  name        BLOB    NOT NULL,             -- 16 bytes, by the client
  tree        BLOB    NOT NULL,             -- 20 bytes
  base        BLOB,                         -- tree of the one before it
  unknown     BLOB,                         -- list of what was there and was not taken, as a tree
  base_unknown BLOB,                        -- the same of the one before it
  occasion    INTEGER NOT NULL,             -- 0 asked, 1 step, 2 end of a turn
  session     INTEGER,                      -- for a turn: its session, and where it was begun
  turn        INTEGER,
  details     BLOB    NOT NULL,             -- postcard, see model::worktree
  stored_bytes INTEGER NOT NULL,            -- what it took up on disk
  taken_at_ms INTEGER NOT NULL,
  hidden      INTEGER NOT NULL DEFAULT 0,   -- let go of, but what changed up to it is still somebody's work
  UNIQUE (worktree, number),
  UNIQUE (worktree, name)
) STRICT;
CREATE INDEX snapshots_by_session ON snapshots (session) WHERE session IS NOT NULL;

-- Whose turns were at work up to a snapshot: as long as one of them is there, what changed is wanted to undo it.
CREATE TABLE snapshot_actors (
  snapshot INTEGER NOT NULL,
  session  INTEGER NOT NULL,
  PRIMARY KEY (snapshot, session)
) STRICT, WITHOUT ROWID;

-- Calls that took a session's conversation back, so that a repeat is known for one.
CREATE TABLE reverts (
  session INTEGER NOT NULL REFERENCES sessions(log),
  name    BLOB    NOT NULL,                 -- 16 bytes, by the client
  PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

-- Where in a session's log snapshots were taken for it. A fork has those of what it copied.
CREATE TABLE session_snapshots (
  session  INTEGER NOT NULL REFERENCES sessions(log),
  cursor   INTEGER NOT NULL,
  snapshot INTEGER NOT NULL,
  worktree INTEGER NOT NULL,
  number   INTEGER NOT NULL,                -- the snapshot's
  origin   INTEGER NOT NULL,                -- the session it was taken for
  turn     INTEGER NOT NULL,                -- where in that session's log its turn was begun
  PRIMARY KEY (session, cursor)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_snapshots_by_snapshot ON session_snapshots (snapshot);
CREATE INDEX session_snapshots_by_worktree ON session_snapshots (worktree, number);

-- What was put back. The two trees are kept, so that it can be taken back.
CREATE TABLE moves (
  worktree INTEGER NOT NULL REFERENCES trees(log),
  name     BLOB    NOT NULL,                -- 16 bytes, by the client
  at       INTEGER NOT NULL,                -- cursor in the worktree's log
  before   BLOB    NOT NULL,
  after    BLOB    NOT NULL,
  session  INTEGER,
  session_at INTEGER NOT NULL,              -- where in that session's log it is said
  at_ms    INTEGER NOT NULL,
  PRIMARY KEY (worktree, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX moves_in_order ON moves (worktree, at);

-- The files that went along when the conversation was taken back; none if none did. Postcard, see model::worktree.
ALTER TABLE sessions ADD COLUMN files_reverted BLOB;

-- Sessions of all projects by what happened last.
CREATE INDEX logs_by_update_anywhere ON logs (updated_at_ms, id) WHERE project IS NOT NULL;
