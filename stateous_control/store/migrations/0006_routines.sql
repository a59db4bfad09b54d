-- Routines without a graph, and children of tasks. What has no token on the wire has a row of `tokens` without a graph and
-- with a name that no token can have: the one lock of its tree (ADR 6).

ALTER TABLE tokens ALTER COLUMN graph DROP NOT NULL;
ALTER TABLE tasks
  ADD COLUMN parent_id bigint REFERENCES tasks (id),
  ADD COLUMN input     text,
  ADD COLUMN result    text,
  ADD COLUMN error     text,
  ADD COLUMN ended_at  timestamptz;

-- What a start's idempotency key began.
CREATE TABLE start_keys (
  owner   text NOT NULL,
  key     text NOT NULL,
  digest  text NOT NULL,
  task_id bigint NOT NULL REFERENCES tasks (id),
  PRIMARY KEY (owner, key)
);
CREATE INDEX start_keys_by_task ON start_keys (task_id);
