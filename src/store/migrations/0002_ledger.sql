-- 0002_ledger.sql
-- Registration, feeds, compaction: what the ledger keeps beside the ops themselves.

-- Which project a log belongs to: a project's own log to itself, a session's to its project, the root's
-- to none.
ALTER TABLE logs ADD COLUMN project INTEGER;
-- The generation of the object's refs, see OpHeader.capabilityEpoch.
ALTER TABLE logs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;
-- Up to here some ops are gone: those that are left give the state at the floor.
ALTER TABLE logs ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
-- Up to here compaction has looked; it need not look again.
ALTER TABLE logs ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
-- For the root and for projects, whose feeds join many logs: the highest position compacted in any.
ALTER TABLE logs ADD COLUMN wide_floor INTEGER NOT NULL DEFAULT 0;
-- How often something was taken away, in this log or, for the root and for projects, in any beneath.
ALTER TABLE logs ADD COLUMN cuts INTEGER NOT NULL DEFAULT 0;
-- Payload bytes of the ops compaction has not looked at.
ALTER TABLE logs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
-- How many producers ever wrote to it.
ALTER TABLE logs ADD COLUMN producers INTEGER NOT NULL DEFAULT 0;
UPDATE logs SET project = id WHERE id IN (SELECT log FROM projects);
UPDATE logs SET project = (SELECT project FROM sessions WHERE log = logs.id)
 WHERE id IN (SELECT log FROM sessions);
UPDATE logs SET
  bytes = (SELECT coalesce(sum(length(payload)), 0) FROM ops WHERE log = logs.id),
  producers = (SELECT count(*) FROM producers WHERE log = logs.id);

-- The run that registered the epoch; none if it was never registered.
ALTER TABLE producers ADD COLUMN instance BLOB CHECK (instance IS NULL OR length(instance) = 16);
-- Results up to here had been dropped before the epoch began.
ALTER TABLE producers ADD COLUMN inherited INTEGER NOT NULL DEFAULT 0;

ALTER TABLE ops ADD COLUMN project INTEGER;                 -- as in logs, so that a project's feed is one walk
ALTER TABLE ops ADD COLUMN batch BLOB CHECK (batch IS NULL OR length(batch) = 16);
ALTER TABLE ops ADD COLUMN replaces INTEGER;                -- cursor of the op in this log whose effect is gone
UPDATE ops SET project = (SELECT project FROM logs WHERE id = ops.log);
CREATE INDEX ops_by_project ON ops (project, position);
-- What compaction looks for, without a look at the payloads.
CREATE INDEX ops_replacing ON ops (log, cursor, replaces) WHERE replaces IS NOT NULL;

ALTER TABLE sessions ADD COLUMN titled_at INTEGER NOT NULL DEFAULT 0;   -- cursor of the last setTitle
ALTER TABLE sessions ADD COLUMN history_at INTEGER NOT NULL DEFAULT 0;  -- cursor of the last setHistory
ALTER TABLE sessions ADD COLUMN history_age_ms INTEGER NOT NULL DEFAULT 0; -- 0: as the server is set
ALTER TABLE sessions ADD COLUMN history_bytes INTEGER NOT NULL DEFAULT 0;

-- Named subscriptions: how far each feed has been taken in. The server's outbox is the log itself; this is
-- the place in it.
CREATE TABLE subscriptions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  log        INTEGER NOT NULL REFERENCES logs(id), -- of the object whose feed it is
  name       TEXT    NOT NULL,
  place      INTEGER NOT NULL,                     -- everything up to here was acknowledged
  holder     INTEGER NOT NULL,                     -- how often it was taken up; the last one moves it
  used_at_ms INTEGER NOT NULL,
  UNIQUE (log, name)
) STRICT;
