-- 0001_foundation.sql
-- Who this store is. Exactly one row.
CREATE TABLE meta (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  realm        BLOB    NOT NULL CHECK (length(realm) = 16),       -- names the data, wherever it runs
  verifier_key BLOB    NOT NULL CHECK (length(verifier_key) = 32),-- keys the hashes of ref secrets
  incarnation  INTEGER NOT NULL,                                  -- starts counted so far
  created_at_ms INTEGER NOT NULL
) STRICT;

-- Every object with a history has a log: the root (1), each project, each session.
CREATE TABLE logs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: a stale handle must not reach another log
  head INTEGER NOT NULL DEFAULT 0           -- cursor of the last op
) STRICT;
INSERT INTO logs (id) VALUES (1);

-- Recorded authority. The secret of a sturdy ref is not here, only a keyed hash of it.
CREATE TABLE grants (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  public_id     BLOB    NOT NULL UNIQUE CHECK (length(public_id) = 16),
  verifier      BLOB    NOT NULL CHECK (length(verifier) = 32),
  object_kind   INTEGER NOT NULL,           -- 0 root, 1 project, 2 session
  object_log    INTEGER NOT NULL REFERENCES logs(id),
  rights        INTEGER NOT NULL,           -- bits, see model::rights
  label         TEXT    NOT NULL,
  created_at_ms INTEGER NOT NULL,
  revoked_at_ms INTEGER                     -- set once, never cleared
) STRICT;

-- One row per writing client and log, for ever: what makes a repeat recognisable.
CREATE TABLE producers (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  log           INTEGER NOT NULL REFERENCES logs(id),
  producer      BLOB    NOT NULL CHECK (length(producer) = 16),
  epoch         INTEGER NOT NULL,
  high          INTEGER NOT NULL,           -- last seq decided
  acked_through INTEGER NOT NULL,           -- results up to here were dropped
  UNIQUE (log, producer)
) STRICT;

-- What was decided about ops whose results are not acknowledged yet, one row per batch.
CREATE TABLE receipts (
  producer  INTEGER NOT NULL REFERENCES producers(id),
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  receipts  BLOB    NOT NULL,               -- postcard, see store/receipts.rs
  PRIMARY KEY (producer, first_seq)
) STRICT, WITHOUT ROWID;

-- The history: everything that happened, in order. All other tables but the ledger's and the grants'
-- can be made again from this one.
CREATE TABLE ops (
  position INTEGER PRIMARY KEY,               -- order over all logs
  log      INTEGER NOT NULL REFERENCES logs(id),
  cursor   INTEGER NOT NULL,                  -- order in the log: 1, 2, 3, …
  producer INTEGER NOT NULL REFERENCES producers(id),
  seq      INTEGER NOT NULL,
  op_id    BLOB    NOT NULL CHECK (length(op_id) = 16),
  granted  INTEGER NOT NULL REFERENCES grants(id), -- under which authority
  at_ms    INTEGER NOT NULL,
  kind     INTEGER NOT NULL,                  -- what it says, see ops::Kind
  version  INTEGER NOT NULL,                  -- how the payload is written
  payload  BLOB    NOT NULL,
  UNIQUE (log, cursor)
) STRICT;

CREATE TABLE projects (
  log           INTEGER PRIMARY KEY REFERENCES logs(id),
  id            TEXT    NOT NULL UNIQUE,
  directory     TEXT    NOT NULL UNIQUE,
  name          TEXT    NOT NULL,
  cursor        INTEGER NOT NULL UNIQUE,      -- where in the root's log it was made
  created_at_ms INTEGER NOT NULL,
  session_count INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE sessions (
  log           INTEGER PRIMARY KEY REFERENCES logs(id),
  id            TEXT    NOT NULL UNIQUE,
  project       INTEGER NOT NULL REFERENCES projects(log),
  title         TEXT    NOT NULL,
  cursor        INTEGER NOT NULL,             -- where in the project's log it was made
  created_at_ms INTEGER NOT NULL,
  UNIQUE (project, cursor)
) STRICT;

-- Which ops of a session are messages. What they say stays in the op.
CREATE TABLE messages (
  session INTEGER NOT NULL REFERENCES sessions(log),
  cursor  INTEGER NOT NULL,
  id      TEXT    NOT NULL,
  role    INTEGER NOT NULL,                   -- 0 user, 1 assistant, 2 system, 3 tool
  PRIMARY KEY (session, cursor),
  UNIQUE (session, id)
) STRICT, WITHOUT ROWID;
