-- The base schema. Users' JSON is text, never jsonb: jsonb changes numbers and key order.
-- Words of closed sets are CHECKed; open vocabularies (reasons, history kinds) are not.

CREATE TABLE graphs (
  checksum   text PRIMARY KEY,
  structure  text NOT NULL,
  workflow   text NOT NULL,
  document   text NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now()
);

-- One row: what the control planes of this database share.
CREATE TABLE settings (
  only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  graph           text REFERENCES graphs (checksum),
  seen_at         timestamptz NOT NULL DEFAULT now(),
  no_sweep_before timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO settings DEFAULT VALUES;

CREATE SEQUENCE token_ids;
CREATE SEQUENCE task_ids;

CREATE TABLE tokens (
  id              bigint PRIMARY KEY,
  owner           text NOT NULL DEFAULT 'default',
  name            text NOT NULL,
  graph           text NOT NULL REFERENCES graphs (checksum),
  workflow        text NOT NULL,
  parent          text,
  parent_id       bigint,
  -- The token that a child's family began with; NULL for a token that is nobody's child.
  root_id         bigint,
  -- The same while the parent is in the visit that started the child, then NULL.
  current_root    bigint,
  has_children    boolean NOT NULL DEFAULT false,
  state           text NOT NULL,
  status          text NOT NULL CHECK (status IN ('active', 'paused', 'completed', 'failed', 'cancelled')),
  visit           integer NOT NULL,
  context         text NOT NULL,
  entered_at      timestamptz NOT NULL,
  entered_by      text NOT NULL,
  entered_payload text,
  entered_error   text,
  seq             bigint NOT NULL,
  visits          text NOT NULL,
  events          text NOT NULL,
  paused_at       timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX tokens_name_key ON tokens (owner, lower(name));
-- No index holds entered_at or the state, and half of each page is left free, so that a move of a token is a HOT
-- update: one without it writes to every index.
CREATE INDEX tokens_by_status ON tokens (status, id);
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL;
CREATE INDEX tokens_family ON tokens (current_root) WHERE current_root IS NOT NULL;

CREATE TABLE tasks (
  id             bigint PRIMARY KEY,
  token_id       bigint REFERENCES tokens (id),
  root_id        bigint,
  state          text NOT NULL,
  visit          integer NOT NULL,
  current_state  text NOT NULL DEFAULT 'pending' CHECK (current_state IN
                   ('pending', 'running', 'parked', 'completed', 'failed', 'expired', 'cancelled')),
  watchdog_stop_reason text,
  attempt        integer NOT NULL DEFAULT 0,
  failures       integer NOT NULL DEFAULT 0,
  retries        integer NOT NULL DEFAULT 0,
  generation     bigint NOT NULL DEFAULT 1,
  ready_at       timestamptz,
  held_ready_at  timestamptz,
  supervisor     text,
  instance       text,
  releases       integer NOT NULL DEFAULT 0,
  is_suspect     boolean NOT NULL DEFAULT false,
  report_attempt integer,
  report_digest  text,
  queued_at      timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
-- Exactly the claim's predicate: fresh, retried, woken and resumed work alike.
CREATE INDEX tasks_claimable ON tasks (state, ready_at, id) WHERE ready_at IS NOT NULL;
-- Always empty, or else an alarm: a task is parked and nobody can say why.
CREATE INDEX tasks_unexplained ON tasks (id) WHERE current_state = 'parked' AND watchdog_stop_reason IS NULL;
CREATE INDEX tasks_live_by_token ON tasks (token_id) WHERE current_state IN ('pending', 'running', 'parked');

-- No index on the time, so that a renewal is a HOT update. lock_id is the token whose row is the lock: the root's.
CREATE TABLE leases (
  task_id    bigint PRIMARY KEY,
  lock_id    bigint,
  attempt    integer NOT NULL,
  supervisor text NOT NULL,
  instance   text,
  until      timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE timers (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_id bigint NOT NULL REFERENCES tokens (id),
  root_id  bigint,
  kind     text NOT NULL CHECK (kind IN ('timeout', 'timer')),
  event    text NOT NULL,
  payload  text,
  due_at   timestamptz NOT NULL,
  set_at   timestamptz NOT NULL,
  is_stopped boolean NOT NULL DEFAULT false
);
CREATE INDEX timers_due ON timers (due_at, id) WHERE NOT is_stopped;
CREATE INDEX timers_by_token ON timers (token_id);

CREATE TABLE held_events (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_id  bigint NOT NULL REFERENCES tokens (id),
  arrival   integer NOT NULL,
  event     text NOT NULL,
  payload   text,
  task_id   bigint,
  state     text,
  visit     integer,
  context   text,
  schedules text,
  error     text
);
CREATE INDEX held_events_by_token ON held_events (token_id, arrival);

CREATE TABLE history (
  token_id bigint NOT NULL,
  seq      bigint NOT NULL,
  at       timestamptz NOT NULL,
  kind     text NOT NULL,
  data     text NOT NULL,
  PRIMARY KEY (token_id, seq)
);

CREATE TABLE memory (
  token_id bigint NOT NULL REFERENCES tokens (id),
  state    text NOT NULL,
  key      text NOT NULL,
  value    text NOT NULL,
  PRIMARY KEY (token_id, state, key)
);

CREATE TABLE idempotency_keys (
  token_id bigint NOT NULL REFERENCES tokens (id),
  key      text NOT NULL,
  PRIMARY KEY (token_id, key)
);

-- What a claim's request id brought. Without an instance (baseline) one row a supervisor name.
CREATE TABLE claim_requests (
  supervisor text NOT NULL,
  instance   text NOT NULL DEFAULT '',
  request    text NOT NULL,
  tasks      bigint[] NOT NULL,
  attempts   integer[] NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (supervisor, instance, request)
);

CREATE TABLE supervisors (
  name      text NOT NULL,
  instance  text NOT NULL DEFAULT '',
  version   text,
  states    text[] NOT NULL DEFAULT '{}',
  first_seen timestamptz NOT NULL DEFAULT now(),
  last_seen timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (name, instance)
) WITH (fillfactor = 70);

-- Who else serves this database: with nobody else, nobody needs to be notified.
CREATE TABLE control_planes (
  id      text PRIMARY KEY,
  seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);
