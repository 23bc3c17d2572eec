-- 0004_authority.sql
-- Caveats, why a grant ended, delegation with leases, shares, and the audit trail.

-- Why it was taken back, see model::grant::Fallen; says nothing while it stands.
ALTER TABLE grants ADD COLUMN why INTEGER NOT NULL DEFAULT 0;
-- Its ref is dead if nobody has used it by then.
ALTER TABLE grants ADD COLUMN unused_until_ms INTEGER;
-- Whose own ref must be shown with it; none for nobody's.
ALTER TABLE grants ADD COLUMN sealed_to TEXT;
-- Only messages written under it may be read or removed.
ALTER TABLE grants ADD COLUMN own_messages INTEGER NOT NULL DEFAULT 0;
-- Tools that may be named, and paths that may be touched: lists in postcard, none for all.
ALTER TABLE grants ADD COLUMN tools BLOB;
ALTER TABLE grants ADD COLUMN paths BLOB;
-- Answers given under it. Changes are in the audit trail.
ALTER TABLE grants ADD COLUMN reads INTEGER NOT NULL DEFAULT 0;

-- The session it was made for, by delegating.
ALTER TABLE sessions ADD COLUMN parent INTEGER;

-- Work handed to somebody under a grant of its own. Not a projection: leases move without ops.
CREATE TABLE delegations (
  granted     INTEGER PRIMARY KEY REFERENCES grants(id), -- the delegate's grant
  log         INTEGER NOT NULL REFERENCES logs(id),      -- the session that delegated, and is told how it ends
  lease_ms    INTEGER NOT NULL,                          -- 0 for none
  until_ms    INTEGER,                                   -- lapses or expires then; none for never
  end         INTEGER NOT NULL DEFAULT 0,                -- how it ended, see model::delegation::End
  ended_at_ms INTEGER,
  result      TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX delegations_by_log ON delegations (log, granted);
CREATE INDEX delegations_due ON delegations (until_ms) WHERE end = 0 AND until_ms IS NOT NULL;

-- Published views of sessions.
CREATE TABLE shares (
  log           INTEGER PRIMARY KEY REFERENCES logs(id), -- its own log
  id            TEXT    NOT NULL UNIQUE,
  session       INTEGER NOT NULL,                        -- the log it shows; the session may be gone
  session_id    TEXT    NOT NULL,
  project       INTEGER NOT NULL,
  append        INTEGER NOT NULL,
  up_to         INTEGER NOT NULL,                        -- cursor of the last message shown; 0 for all
  tool_outputs  INTEGER NOT NULL,
  reasoning     INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  ended_at_ms   INTEGER
) STRICT;
CREATE INDEX shares_by_session ON shares (session, log);
CREATE INDEX shares_by_project ON shares (project, log);

-- The share a producer first came through, if it did: guests have a part of the places in a log.
ALTER TABLE producers ADD COLUMN share INTEGER;
CREATE INDEX producers_by_share ON producers (share) WHERE share IS NOT NULL;

-- Who did what. Rows are added and never changed; retention takes the oldest away, and a row says so.
CREATE TABLE audit (
  number   INTEGER PRIMARY KEY,               -- 1, 2, 3, … without gaps
  at_ms    INTEGER NOT NULL,                  -- never falls
  kind     INTEGER NOT NULL,                  -- see model::audit::Kind
  granted  INTEGER REFERENCES grants(id),     -- under which authority; none for strangers and ourselves
  log      INTEGER REFERENCES logs(id),       -- the object it happened to
  subject  INTEGER REFERENCES grants(id),     -- the grant it is about
  count    INTEGER NOT NULL,                  -- ops, or how often
  position INTEGER NOT NULL,                  -- of the first op; 0 without ops
  code     TEXT    NOT NULL,                  -- of a refusal, or empty
  missing  INTEGER NOT NULL,                  -- the right that was missing, as a bit
  digest   BLOB    NOT NULL,                  -- over the ops; empty without
  hash     BLOB    NOT NULL CHECK (length(hash) = 32) -- over this row and the hash before it
) STRICT;
CREATE INDEX audit_by_grant ON audit (granted, number) WHERE granted IS NOT NULL;
CREATE INDEX audit_by_subject ON audit (subject, number) WHERE subject IS NOT NULL;
CREATE INDEX audit_by_log ON audit (log, number) WHERE log IS NOT NULL;
