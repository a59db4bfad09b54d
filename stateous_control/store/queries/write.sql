-- name: insert_tokens
-- New tokens, sorted by name, so that two writers never wait for each other in a ring.
INSERT INTO tokens (id, owner, name, graph, workflow, state, status, visit, context, entered_at, entered_by,
  entered_payload, entered_error, seq, visits, events, parent, paused_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[],
  $9::text[], $10::timestamptz[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[],
  $17::text[], $18::timestamptz[]);

-- name: update_tokens
-- Changed tokens; a context that did not change is passed as NULL and not written again.
UPDATE tokens k SET state = n.state, status = n.status, visit = n.visit, context = coalesce(n.context, k.context),
  entered_at = n.entered_at, entered_by = n.entered_by, entered_payload = n.entered_payload,
  entered_error = n.entered_error, seq = n.seq, visits = n.visits, events = n.events, paused_at = n.paused_at
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::text[], $6::timestamptz[], $7::text[], $8::text[],
    $9::text[], $10::bigint[], $11::text[], $12::text[], $13::timestamptz[])
  AS n (id, state, status, visit, context, entered_at, entered_by, entered_payload, entered_error, seq, visits, events,
    paused_at)
WHERE k.id = n.id;

-- name: insert_tasks
-- New tasks, as they are when nothing has happened to them yet.
INSERT INTO tasks (id, token_id, state, visit, retries, ready_at, held_ready_at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::int[], $5::int[], $6::timestamptz[],
  $7::timestamptz[]);

-- name: update_tasks
-- Changed tasks, and the end of the lease of each that runs no more.
WITH n AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::int[], $5::bigint[], $6::timestamptz[], $7::text[],
      $8::timestamptz[], $9::text[], $10::text[], $11::int[], $12::boolean[], $13::int[], $14::text[])
    AS n (id, current_state, attempt, failures, generation, ready_at, reason, held_ready_at, supervisor, instance,
      releases, is_suspect, report_attempt, report_digest)
), over AS (
  SELECT l.task_id FROM n JOIN leases l ON l.task_id = n.id WHERE n.current_state <> 'running'
  ORDER BY l.task_id FOR UPDATE OF l
), ended AS (
  DELETE FROM leases l USING over WHERE l.task_id = over.task_id
)
UPDATE tasks t SET current_state = n.current_state, attempt = n.attempt, failures = n.failures,
  generation = n.generation, ready_at = n.ready_at, watchdog_stop_reason = n.reason, held_ready_at = n.held_ready_at,
  supervisor = n.supervisor, instance = n.instance, releases = n.releases, is_suspect = n.is_suspect,
  report_attempt = n.report_attempt, report_digest = n.report_digest
FROM n WHERE t.id = n.id;

-- name: insert_timers
-- New timers.
INSERT INTO timers (token_id, kind, event, payload, due_at, set_at, is_stopped)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
  $7::boolean[]);

-- name: update_timers
-- Timers that were moved, stopped or set going again.
UPDATE timers m SET due_at = n.due_at, is_stopped = n.is_stopped
FROM unnest($1::bigint[], $2::timestamptz[], $3::boolean[]) AS n (id, due_at, is_stopped) WHERE m.id = n.id;

-- name: delete_timers
-- Timers that fired or whose state was left.
DELETE FROM timers m USING unnest($1::bigint[]) AS n (id) WHERE m.id = n.id;

-- name: insert_held
-- Events that wait for the end of a pause.
INSERT INTO held_events (token_id, arrival, event, payload, task_id, state, visit, context, schedules, error)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::int[], $8::text[],
  $9::text[], $10::text[]);

-- name: delete_held
-- Held events that were applied or dropped.
DELETE FROM held_events h USING unnest($1::bigint[]) AS n (id) WHERE h.id = n.id;

-- name: insert_history
-- New lines of history.
INSERT INTO history (token_id, seq, at, kind, data)
SELECT n.token_id, n.seq, $5, n.kind, n.data
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS n (token_id, seq, kind, data);

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
