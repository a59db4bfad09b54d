-- name: insert_tokens
-- New tokens, sorted by name, so that two writers never wait for each other in a ring.
INSERT INTO tokens (id, owner, name, graph, workflow, state, status, visit, context, entered_at, entered_by,
  entered_payload, entered_error, seq, visits, events, parent, paused_at, parent_id, root_id, current_root,
  has_children)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[],
  $9::text[], $10::timestamptz[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[],
  $17::text[], $18::timestamptz[], $19::bigint[], $20::bigint[], $21::bigint[], $22::boolean[]);

-- name: update_tokens
-- Changed tokens; a context that did not change is passed as NULL and not written again.
UPDATE tokens k SET state = n.state, status = n.status, visit = n.visit, context = coalesce(n.context, k.context),
  entered_at = n.entered_at, entered_by = n.entered_by, entered_payload = n.entered_payload,
  entered_error = n.entered_error, seq = n.seq, visits = n.visits, events = n.events, paused_at = n.paused_at,
  late_events = coalesce(n.late_events, k.late_events),
  ended_at = CASE WHEN n.status IN ('completed', 'failed', 'cancelled') THEN coalesce(k.ended_at, clock_timestamp()) END
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::text[], $8::text[],
    $9::text[], $10::bigint[], $11::text[], $12::text[], $13::timestamptz[], $14::int[])
  AS n (id, state, status, visit, context, entered_at, entered_by, entered_payload, entered_error, seq, visits, events,
    paused_at, late_events)
WHERE k.id = n.id;

-- name: update_kin
-- Tokens that got their first children, and children whose parent has left their visit.
UPDATE tokens k SET has_children = n.has_children, current_root = n.current_root
FROM unnest($1::bigint[], $2::boolean[], $3::bigint[]) AS n (id, has_children, current_root) WHERE k.id = n.id;

-- name: insert_tasks
-- New tasks, as they are when nothing has happened to them yet. A retry has the input of what it retries.
INSERT INTO tasks (id, token_id, state, visit, retries, ready_at, held_ready_at, owner, log_seq, expires_at,
  retried_from, saved_bytes, root_id, handler_version, parent_id, policy, input)
SELECT n.id, n.token_id, n.state, n.visit, n.retries, n.ready_at, n.held_ready_at, n.owner, n.log_seq, n.expires_at,
  n.retried_from, n.saved_bytes, n.root_id, n.version, n.parent_id, n.policy,
  CASE WHEN n.retried_from IS NULL THEN n.input ELSE (SELECT o.input FROM tasks o WHERE o.id = n.retried_from) END
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::int[], $6::timestamptz[], $7::timestamptz[],
    $8::text[], $9::bigint[], $10::timestamptz[], $11::bigint[], $12::bigint[], $13::bigint[], $14::int[],
    $15::bigint[], $16::text[], $17::text[])
  AS n (id, token_id, state, visit, retries, ready_at, held_ready_at, owner, log_seq, expires_at, retried_from,
    saved_bytes, root_id, version, parent_id, input, policy);

-- name: update_tasks
-- Changed tasks, and the end of the lease of each that runs no more.
WITH n AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::bigint[], $6::timestamptz[], $7::text[],
      $8::timestamptz[], $9::text[], $10::text[], $11::int[], $12::boolean[], $13::int[], $14::text[],
      $15::bigint[], $16::timestamptz[], $17::bigint[], $18::text[], $19::int[], $20::text[], $21::text[])
    AS n (id, current_state, attempt, failures, generation, ready_at, reason, held_ready_at, supervisor, instance,
      releases, is_suspect, report_attempt, report_digest, log_seq, pause_requested_at, saved_bytes, decisions,
      given_back, result, error)
), ended AS (
  -- An array is looked up in the order of its keys. A join would be planned as a walk through the whole table, which
  -- is nearly empty, and under an old snapshot full of what is gone.
  DELETE FROM leases l WHERE l.task_id = ANY (ARRAY(SELECT n.id FROM n WHERE n.current_state <> 'running'))
)
UPDATE tasks t SET current_state = n.current_state, attempt = n.attempt, failures = n.failures,
  generation = n.generation, ready_at = n.ready_at, watchdog_stop_reason = n.reason, held_ready_at = n.held_ready_at,
  supervisor = n.supervisor, instance = n.instance, releases = n.releases, is_suspect = n.is_suspect,
  report_attempt = n.report_attempt, report_digest = n.report_digest, log_seq = n.log_seq,
  pause_requested_at = n.pause_requested_at, saved_bytes = n.saved_bytes,
  locked_decisions = coalesce(n.decisions, t.locked_decisions), given_back = coalesce(n.given_back, t.given_back),
  result = coalesce(n.result, t.result), error = coalesce(n.error, t.error),
  ended_at = CASE WHEN n.current_state IN ('completed', 'failed', 'expired', 'cancelled')
    THEN coalesce(t.ended_at, clock_timestamp()) END
FROM n WHERE t.id = n.id;

-- name: insert_timers
-- New timers.
INSERT INTO timers (token_id, kind, event, payload, due_at, set_at, is_stopped, root_id)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
  $7::boolean[], $8::bigint[]);

-- name: update_timers
-- Timers that were moved, stopped or set going again.
UPDATE timers m SET due_at = n.due_at, is_stopped = n.is_stopped
FROM unnest($1::bigint[], $2::timestamptz[], $3::boolean[]) AS n (id, due_at, is_stopped) WHERE m.id = n.id;

-- name: delete_timers
-- Timers that fired or whose state was left.
DELETE FROM timers m WHERE m.id = ANY ($1::bigint[]);

-- name: insert_held
-- Events that wait for the end of a pause.
INSERT INTO held_events (token_id, arrival, event, payload, task_id, state, visit, context, schedules, error)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::int[], $8::text[],
  $9::text[], $10::text[]);

-- name: delete_held
-- Held events that were applied or dropped.
DELETE FROM held_events h WHERE h.id = ANY ($1::bigint[]);

-- name: insert_history
-- New lines of tokens' histories ($1 … $4), and of tasks' logs ($6 … $9).
WITH logged AS (
  INSERT INTO task_log (task_id, sequence_num, at, kind, data)
  SELECT n.task_id, n.seq, $5, n.kind, n.data
  FROM unnest($6::bigint[], $7::bigint[], $8::text[], $9::text[]) AS n (task_id, seq, kind, data)
)
INSERT INTO history (token_id, seq, at, kind, data)
SELECT n.token_id, n.seq, $5, n.kind, n.data
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS n (token_id, seq, kind, data);

-- name: insert_questions
-- Questions that were asked.
INSERT INTO questions (id, task_id, key, occurrence, data, schema, choices, status, attempt, asked_by, asked_at,
  expires_at, remind_s, answer, answered_by, answered_at, cause, notify_at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::int[], $10::text[], $11::timestamptz[], $12::timestamptz[], $13::int[], $14::text[], $15::text[],
  $16::timestamptz[], $17::text[], $18::timestamptz[]);

-- name: update_questions
-- Questions that were answered, ended or asked again, or that people were told of.
UPDATE questions q SET status = n.status, answer = n.answer, answered_by = n.answered_by, answered_at = n.answered_at,
  cause = n.cause, tellings = n.tellings, notify_at = n.notify_at, notify_tries = n.notify_tries, data = n.data,
  schema = n.schema, choices = n.choices, attempt = n.attempt, asked_by = n.asked_by, asked_at = n.asked_at,
  expires_at = n.expires_at
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::int[],
    $8::timestamptz[], $9::int[], $10::text[], $11::text[], $12::text[], $13::int[], $14::text[], $15::timestamptz[],
    $16::timestamptz[])
  AS n (id, status, answer, answered_by, answered_at, cause, tellings, notify_at, notify_tries, data, schema, choices,
    attempt, asked_by, asked_at, expires_at)
WHERE q.id = n.id;

-- name: insert_checkpoints
-- Values of steps that were passed. One that stands already is a fault of ours: it was looked for under the lock.
INSERT INTO checkpoints (task_id, version, step, occurrence, seq, value, stored_at)
SELECT n.*, $7 FROM unnest($1::bigint[], $2::int[], $3::text[], $4::int[], $5::bigint[], $6::text[])
  AS n (task_id, version, step, occurrence, seq, value);

-- name: copy_saved
-- Give a retried task what the one before it had passed and been told, but for children whose result it had not taken
-- or that had none: they are started again, and waited for anew, also where the wait for them had timed out. Checkpoints are numbered by the log of their task; these end at 0, before
-- the first that the new task writes. $1 from, $2 to.
WITH n AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS n (old_id, new_id)
), passed AS (
  INSERT INTO checkpoints (task_id, version, step, occurrence, seq, value, stored_at)
  SELECT n.new_id, c.version, c.step, c.occurrence, c.seq - max(c.seq) OVER (PARTITION BY n.new_id), c.value, c.stored_at
  FROM n JOIN checkpoints c ON c.task_id = n.old_id
  WHERE NOT EXISTS (
    SELECT FROM tasks child WHERE child.parent_id = n.old_id AND (
      c.value = '{"task":' || child.id || '}' AND (child.current_state <> 'completed' OR NOT EXISTS (
        SELECT FROM checkpoints r WHERE r.task_id = n.old_id AND r.version = c.version
          AND r.value LIKE '{"outcome":"result","task":' || child.id || ',%'))
      OR c.value LIKE '{"outcome":"result","task":' || child.id || ',%' AND child.current_state <> 'completed'
      OR c.step = 'result:' || child.id AND c.value NOT LIKE '{"outcome":"result",%'))
)
INSERT INTO questions (id, task_id, key, occurrence, data, schema, choices, status, attempt, asked_by, asked_at,
  expires_at, remind_s, answer, answered_by, answered_at, tellings)
SELECT nextval('question_ids'), n.new_id, q.key, q.occurrence, q.data, q.schema, q.choices, q.status, 0,
  q.asked_by, q.asked_at, q.expires_at, q.remind_s, q.answer, q.answered_by, q.answered_at, q.tellings
FROM n JOIN questions q ON q.task_id = n.old_id WHERE q.status = 'answered';

-- name: set_memory
-- Keys of memory that were set; each key once.
INSERT INTO memory (token_id, state, key, value) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
ON CONFLICT (token_id, state, key) DO UPDATE SET value = excluded.value;

-- name: delete_memory
-- Keys of memory that were deleted.
DELETE FROM memory m USING unnest($1::bigint[], $2::text[], $3::text[]) AS n (token_id, state, key)
WHERE m.token_id = n.token_id AND m.state = n.state AND m.key = n.key;

-- name: clear_memory
-- All memory of tokens that ended.
DELETE FROM memory m USING unnest($1::bigint[]) AS n (token_id) WHERE m.token_id = n.token_id;

-- name: insert_keys
-- Idempotency keys that are used up from now on.
INSERT INTO idempotency_keys (token_id, key) SELECT * FROM unnest($1::bigint[], $2::text[]);

-- name: insert_start_keys
-- Idempotency keys of starts, with what they began.
INSERT INTO start_keys (owner, key, digest, task_id, token_id)
SELECT n.owner, n.key, n.digest, CASE WHEN n.is_token THEN NULL ELSE n.id END, CASE WHEN n.is_token THEN n.id END
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::boolean[]) AS n (owner, key, digest, id, is_token);
