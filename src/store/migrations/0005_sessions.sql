-- 0005_sessions.sql
-- Sessions as agents use them: what is known about each, parts that change, turns, a timeline, and long content.

-- The session it was is gone; nothing reaches it any more.
ALTER TABLE logs ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;
-- When the last op of a log was written, so that what happened last can be listed first.
ALTER TABLE logs ADD COLUMN updated_at_ms INTEGER NOT NULL DEFAULT 0;
UPDATE logs SET updated_at_ms = coalesce((SELECT at_ms FROM ops WHERE log = logs.id ORDER BY cursor DESC LIMIT 1), 0);
CREATE INDEX logs_by_update ON logs (project, updated_at_ms, id);

-- The directories a project was opened in, and what else it is known by: its remote, or its first commit.
CREATE TABLE worktrees (
  directory    TEXT    PRIMARY KEY,
  project      INTEGER NOT NULL REFERENCES projects(log),
  cursor       INTEGER NOT NULL,            -- in the root's log, where it was first opened
  opened_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX worktrees_by_project ON worktrees (project, cursor);
INSERT INTO worktrees SELECT directory, log, cursor, created_at_ms FROM projects;
CREATE TABLE repositories (
  name    TEXT    PRIMARY KEY,              -- 'remote:<host>/<path>' or 'root:<commit>'
  project INTEGER NOT NULL REFERENCES projects(log)
) STRICT, WITHOUT ROWID;
CREATE INDEX repositories_by_project ON repositories (project);

-- What agents may do without asking, as the server or a project says.
CREATE TABLE rulesets (
  log   INTEGER PRIMARY KEY REFERENCES logs(id),
  at    INTEGER NOT NULL,                   -- cursor of the op that said so
  rules BLOB    NOT NULL                    -- postcard, see model::permission
) STRICT;

-- What a session can be looked for by stands in columns of its own, the rest in one piece.
ALTER TABLE sessions ADD COLUMN slug TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN directory TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN path TEXT;                        -- none if that was not said
ALTER TABLE sessions ADD COLUMN archived_at_ms INTEGER;
ALTER TABLE sessions ADD COLUMN details BLOB;                     -- postcard, see model::session; none if nothing was said
ALTER TABLE sessions ADD COLUMN forked_from BLOB;
ALTER TABLE sessions ADD COLUMN timeline BLOB;                    -- postcard, see model::timeline; none while it is the log
ALTER TABLE sessions ADD COLUMN cost_nano INTEGER NOT NULL DEFAULT 0; -- billionths of a dollar
ALTER TABLE sessions ADD COLUMN tokens_input INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_output INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_reasoning INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_cache_read INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN tokens_cache_write INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_by_parent ON sessions (parent, log) WHERE parent IS NOT NULL;

ALTER TABLE messages ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;       -- cursor of the turn it belongs to; 0 for none
ALTER TABLE messages ADD COLUMN summing_up INTEGER NOT NULL DEFAULT 0; -- a finished summary
ALTER TABLE messages ADD COLUMN info BLOB;                             -- what was said of it since; none if nothing was
ALTER TABLE messages ADD COLUMN info_at INTEGER NOT NULL DEFAULT 0;    -- cursor of the op that said so
CREATE INDEX messages_summing_up ON messages (session, cursor) WHERE summing_up = 1;
CREATE INDEX messages_by_turn ON messages (session, turn, cursor) WHERE turn > 0;

-- Parts that were put after their message was, or in the place of one it came with.
CREATE TABLE parts (
  session  INTEGER NOT NULL REFERENCES sessions(log),
  message  INTEGER NOT NULL,                -- cursor
  position INTEGER NOT NULL,                -- order in the message, from 1; those it came with first
  id       TEXT    NOT NULL,
  status   INTEGER NOT NULL,                -- of a tool, see model::content; 0 for anything else
  added    INTEGER NOT NULL,                -- cursor of the op that first put it
  at       INTEGER NOT NULL,                -- cursor of the op that last did
  content  BLOB,                            -- as the wire has it; none if it was taken away
  PRIMARY KEY (session, message, position),
  UNIQUE (session, message, id)
) STRICT;
CREATE INDEX parts_under_way ON parts (session, message) WHERE status IN (1, 2);

-- Texts that are still coming. Not a projection: pieces come without ops, and become one when the part is
-- closed.
CREATE TABLE streams (
  session  INTEGER NOT NULL REFERENCES sessions(log),
  message  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  turn     INTEGER NOT NULL,                -- cursor
  bytes    INTEGER NOT NULL,                -- how long the text is
  PRIMARY KEY (session, message, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX streams_by_turn ON streams (session, turn);
CREATE TABLE deltas (
  session  INTEGER NOT NULL,
  message  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  offset   INTEGER NOT NULL,
  text     TEXT    NOT NULL,
  PRIMARY KEY (session, message, position, offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
  session     INTEGER NOT NULL REFERENCES sessions(log),
  cursor      INTEGER NOT NULL,             -- where it was begun
  id          TEXT    NOT NULL,
  message     TEXT    NOT NULL,             -- what it answers
  state       INTEGER NOT NULL,             -- see model::turn::State
  granted     INTEGER NOT NULL,             -- under which authority it was begun
  lease_ms    INTEGER NOT NULL,
  began_at_ms INTEGER NOT NULL,
  ended_at_ms INTEGER,
  reason      TEXT    NOT NULL DEFAULT '',
  retry_at    INTEGER NOT NULL DEFAULT 0,   -- cursor of the op that last said so
  additions   INTEGER NOT NULL DEFAULT 0,
  deletions   INTEGER NOT NULL DEFAULT 0,
  files       INTEGER NOT NULL DEFAULT 0,
  usage       BLOB,                         -- postcard, see model::usage; none if no step has cost anything
  PRIMARY KEY (session, cursor),
  UNIQUE (session, id)
) STRICT;
CREATE INDEX turns_under_way ON turns (session, state, cursor) WHERE state IN (0, 1);
CREATE INDEX turns_with_files ON turns (session, cursor) WHERE additions + deletions + files > 0;
CREATE INDEX turns_by_grant ON turns (granted) WHERE state IN (0, 1);
-- When a running turn is given up, and what it waits for. Not a projection: leases move without ops, and
-- whatever is heard of a turn says that it waits no more.
CREATE TABLE turn_leases (
  session  INTEGER NOT NULL REFERENCES sessions(log),
  turn     INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  retry    BLOB,                            -- postcard; none unless it waits
  PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_leases_due ON turn_leases (until_ms);

CREATE TABLE diffs (
  session  INTEGER NOT NULL REFERENCES sessions(log),
  turn     INTEGER NOT NULL,
  position INTEGER NOT NULL,
  diff     BLOB    NOT NULL,                -- postcard, see model::session::FileDiff
  PRIMARY KEY (session, turn, position)
) STRICT;

-- Every list of things to do there was: going back brings an older one back.
CREATE TABLE todos (
  session INTEGER NOT NULL REFERENCES sessions(log),
  cursor  INTEGER NOT NULL,
  list    BLOB    NOT NULL,                 -- postcard
  PRIMARY KEY (session, cursor)
) STRICT;

CREATE TABLE checkpoints (
  session       INTEGER NOT NULL REFERENCES sessions(log),
  cursor        INTEGER NOT NULL,
  name          TEXT    NOT NULL,
  automatic     INTEGER NOT NULL,
  path          BLOB    NOT NULL,           -- postcard, see model::timeline
  message       TEXT    NOT NULL,           -- the last one then
  created_at_ms INTEGER NOT NULL,
  PRIMARY KEY (session, cursor)
) STRICT;

-- Long content beside the log, in pieces. One that is not whole yet belongs to the session it is uploaded to.
CREATE TABLE contents (
  id            INTEGER PRIMARY KEY,
  hash          BLOB    NOT NULL CHECK (length(hash) = 32), -- SHA-256
  bytes         INTEGER NOT NULL,
  received      INTEGER NOT NULL,
  session       INTEGER,                    -- who uploads it; none once it is whole
  touched_at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX contents_whole ON contents (hash) WHERE session IS NULL;
CREATE UNIQUE INDEX contents_coming ON contents (session, hash) WHERE session IS NOT NULL;
CREATE TABLE content_pieces (
  content INTEGER NOT NULL REFERENCES contents(id),
  offset  INTEGER NOT NULL,
  data    BLOB    NOT NULL,
  PRIMARY KEY (content, offset)
) STRICT;
-- Sessions that have uploaded it, and may name it.
CREATE TABLE uploaded (
  content INTEGER NOT NULL REFERENCES contents(id),
  session INTEGER NOT NULL,
  PRIMARY KEY (content, session)
) STRICT, WITHOUT ROWID;
-- Which ops name it.
CREATE TABLE content_names (
  content INTEGER NOT NULL REFERENCES contents(id),
  log     INTEGER NOT NULL,
  cursor  INTEGER NOT NULL,
  PRIMARY KEY (content, log, cursor)
) STRICT, WITHOUT ROWID;
CREATE INDEX content_names_by_op ON content_names (log, cursor);
