-- What has ended may be forgotten after a while: families of tokens and trees of tasks, leaves first; logs later.

ALTER TABLE tokens ADD COLUMN ended_at timestamptz;

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
