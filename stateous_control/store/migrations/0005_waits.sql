-- Waits of routines and signals. What ended a wait is the checkpoint of its step; the row keeps its times.

CREATE TABLE waits (
  task_id    bigint NOT NULL REFERENCES tasks (id),
  step       text NOT NULL,
  occurrence integer NOT NULL,
  parts      text NOT NULL,
  began_at   timestamptz NOT NULL,
  due_at     timestamptz,
  is_open    boolean NOT NULL,
  PRIMARY KEY (task_id, step, occurrence)
);
-- A task is parked on one wait at most.
CREATE UNIQUE INDEX waits_open ON waits (task_id) WHERE is_open;
CREATE INDEX waits_due ON waits (due_at, task_id) WHERE is_open AND due_at IS NOT NULL;

-- Sent to a task or to a token, and taken by one wait at most.
CREATE TABLE signals (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task_id  bigint REFERENCES tasks (id),
  token_id bigint REFERENCES tokens (id),
  name     text NOT NULL,
  payload  text,
  key      text,
  sent_at  timestamptz NOT NULL,
  sent_by  text NOT NULL,
  taken_by bigint,
  CONSTRAINT signals_have_one_address CHECK ((task_id IS NULL) <> (token_id IS NULL))
);
CREATE INDEX signals_of_task ON signals (task_id, name, id) WHERE taken_by IS NULL AND task_id IS NOT NULL;
CREATE INDEX signals_of_token ON signals (token_id, name, id) WHERE taken_by IS NULL AND token_id IS NOT NULL;
CREATE UNIQUE INDEX signals_task_key ON signals (task_id, key) WHERE task_id IS NOT NULL AND key IS NOT NULL;
CREATE UNIQUE INDEX signals_token_key ON signals (token_id, key) WHERE token_id IS NOT NULL AND key IS NOT NULL;
