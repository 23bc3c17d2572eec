-- 0003_grants.sql
-- Grants form a tree: whoever holds one can hand on less of it, and take back what was handed on.

-- The grant it was derived from; none for the root's own.
ALTER TABLE grants ADD COLUMN parent INTEGER REFERENCES grants(id);
-- How many grants stand above it.
ALTER TABLE grants ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
-- Whom it was made for, in its maker's words.
ALTER TABLE grants ADD COLUMN actor TEXT NOT NULL DEFAULT '';
-- When it ends by itself; none if it does not.
ALTER TABLE grants ADD COLUMN expires_at_ms INTEGER;
-- Whether there is a ref for it. One that was only attenuated can be held, but not redeemed.
ALTER TABLE grants ADD COLUMN saved INTEGER NOT NULL DEFAULT 1;
-- How often its ref may be redeemed, and how often it was; only counted where it matters.
ALTER TABLE grants ADD COLUMN uses_max INTEGER;
ALTER TABLE grants ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
-- When its ref was last redeemed, to the minute.
ALTER TABLE grants ADD COLUMN last_used_at_ms INTEGER;
-- A ref that cannot be redeemed, only exchanged once for one that can.
ALTER TABLE grants ADD COLUMN claim INTEGER NOT NULL DEFAULT 0;
CREATE INDEX grants_by_parent ON grants (parent);
CREATE INDEX grants_by_object ON grants (object_log);
CREATE INDEX grants_by_actor ON grants (actor) WHERE actor != '';
