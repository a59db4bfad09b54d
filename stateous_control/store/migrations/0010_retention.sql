-- What has ended may be forgotten after a while: families of tokens and trees of tasks, leaves first; logs later.

ALTER TABLE tokens ADD COLUMN ended_at timestamptz;
CREATE INDEX tokens_ended ON tokens (ended_at, id) WHERE ended_at IS NOT NULL AND root_id IS NULL;
-- Those that had ended before there was this column.
CREATE INDEX tokens_ended_before ON tokens (id)
  WHERE ended_at IS NULL AND root_id IS NULL AND status IN ('completed', 'failed', 'cancelled');
CREATE INDEX tokens_by_root ON tokens (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX tokens_by_parent ON tokens (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_by_token ON tasks (token_id);
CREATE INDEX signals_by_task ON signals (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX signals_by_token ON signals (token_id) WHERE token_id IS NOT NULL;

-- Tasks that are gone and whose logs are kept: whose they were, and when they ended.
CREATE TABLE gone_tasks (
  task_id  bigint PRIMARY KEY,
  owner    text NOT NULL,
  state    text NOT NULL,
  ended_at timestamptz NOT NULL
);
CREATE INDEX gone_tasks_ended ON gone_tasks (ended_at, task_id);
ALTER TABLE settings ADD COLUMN log_kept_s double precision;

-- The log stays append-only: a line goes only with a task that is gone, after the time for which logs are kept.
CREATE OR REPLACE FUNCTION task_log_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND EXISTS (
    SELECT 1 FROM gone_tasks g, settings s WHERE g.task_id = OLD.task_id
      AND g.ended_at < clock_timestamp() - s.log_kept_s * interval '1 second'
  ) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'task_log is append-only: % is refused', TG_OP;
END $$;
