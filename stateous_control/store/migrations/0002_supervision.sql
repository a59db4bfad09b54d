-- Supervision: checkpoints, questions, the audit log of tasks, pause and expiry. Values of users are text, as before.

ALTER TABLE tasks
  ADD COLUMN pause_requested_at timestamptz,
  ADD COLUMN expires_at         timestamptz,
  ADD COLUMN log_seq            bigint NOT NULL DEFAULT 0,
  ADD COLUMN handler_version    integer NOT NULL DEFAULT 1,
  ADD COLUMN saved_bytes        bigint NOT NULL DEFAULT 0,
  ADD COLUMN locked_decisions   text,
  ADD COLUMN retried_from       bigint REFERENCES tasks (id);

-- One immutable value for each step that was passed; `seq` is the line of the log that tells of it.
CREATE TABLE checkpoints (
  task_id    bigint NOT NULL REFERENCES tasks (id),
  version    integer NOT NULL,
  step       text NOT NULL,
  occurrence integer NOT NULL,
  seq        bigint NOT NULL,
  value      text NOT NULL,
  stored_at  timestamptz NOT NULL,
  PRIMARY KEY (task_id, version, step, occurrence)
);
CREATE UNIQUE INDEX checkpoints_in_order ON checkpoints (task_id, version, seq);

CREATE SEQUENCE question_ids;
CREATE TABLE questions (
  id          bigint PRIMARY KEY,
  task_id     bigint NOT NULL REFERENCES tasks (id),
  key         text NOT NULL,
  occurrence  integer NOT NULL,
  data        text NOT NULL,
  schema      text,
  choices     text,
  status      text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'answered', 'expired', 'closed')),
  attempt     integer NOT NULL,
  asked_by    text,
  asked_at    timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz NOT NULL,
  answer      text,
  answered_by text,
  answered_at timestamptz,
  cause       text,
  remind_s    integer,
  tellings    integer NOT NULL DEFAULT 0,
  notify_at   timestamptz,
  notify_tries integer NOT NULL DEFAULT 0,
  UNIQUE (task_id, key, occurrence),
  CONSTRAINT questions_answered_has_answer CHECK (status <> 'answered' OR answer IS NOT NULL),
  CONSTRAINT questions_answered_has_time CHECK (status <> 'answered' OR answered_at IS NOT NULL),
  CONSTRAINT questions_closed_has_cause CHECK (status <> 'closed' OR cause IS NOT NULL)
);
-- A parked task waits for one answer at most.
CREATE UNIQUE INDEX questions_open ON questions (task_id) WHERE status = 'pending';
CREATE INDEX questions_expiring ON questions (expires_at, id) WHERE status = 'pending';
CREATE INDEX questions_to_tell ON questions (notify_at, id) WHERE status = 'pending' AND notify_at IS NOT NULL;

-- What happened to each task, numbered without a gap. It has no foreign key: it outlives its task.
CREATE TABLE task_log (
  task_id      bigint NOT NULL,
  sequence_num bigint NOT NULL,
  at           timestamptz NOT NULL,
  kind         text NOT NULL,
  data         text NOT NULL,
  PRIMARY KEY (task_id, sequence_num)
);
CREATE FUNCTION task_log_refuses() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'task_log is append-only: % is refused', TG_OP; END $$;
CREATE TRIGGER task_log_keeps_rows BEFORE UPDATE OR DELETE ON task_log
  FOR EACH ROW EXECUTE FUNCTION task_log_refuses();
CREATE TRIGGER task_log_keeps_all BEFORE TRUNCATE ON task_log
  FOR EACH STATEMENT EXECUTE FUNCTION task_log_refuses();
-- ALWAYS: they hold for the owner, and in sessions that replicate.
ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_rows;
ALTER TABLE task_log ENABLE ALWAYS TRIGGER task_log_keeps_all;
