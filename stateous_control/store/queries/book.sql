-- name: lock_tokens
-- Lock the tokens that these tasks, ids and names lead to, in id order; for a child the root of its family, whose row
-- is the lock of all of it. This is the one lock that everything else stands on. The ids are those of roots.
WITH wanted AS (
  SELECT coalesce(t.root_id, t.token_id) AS id FROM unnest($1::bigint[]) AS n (task_id) JOIN tasks t ON t.id = n.task_id
  UNION SELECT n.id FROM unnest($2::bigint[]) AS n (id)
  UNION SELECT coalesce(k.root_id, k.id) FROM unnest($3::text[], $4::text[]) AS n (owner, name)
    JOIN tokens k ON k.owner = n.owner AND lower(k.name) = lower(n.name)
)
SELECT k.id, k.owner, k.name, k.graph, k.workflow, k.state, k.status, k.visit, k.context, k.entered_at, k.entered_by,
  k.entered_payload, k.entered_error, k.seq, k.visits, k.events, k.parent, k.parent_id, k.root_id,
  k.current_root IS NOT NULL AS is_current, k.has_children, k.paused_at, k.late_events
FROM wanted w JOIN tokens k ON k.id = w.id ORDER BY k.id FOR NO KEY UPDATE OF k;

-- name: lock_children
-- Lock the children of locked roots in id order: those of the visits that are under way, and those that were named.
-- $1 tasks, $2 $3 owners and names, $4 roots. Only claims hold a child without its root, and they wait for nobody.
WITH wanted AS (
  SELECT k.id FROM unnest($4::bigint[]) AS n (id) JOIN tokens k ON k.current_root = n.id
  UNION SELECT t.token_id FROM unnest($1::bigint[]) AS n (task_id) JOIN tasks t ON t.id = n.task_id
    WHERE t.root_id = ANY ($4::bigint[])
  UNION SELECT k.id FROM unnest($2::text[], $3::text[]) AS n (owner, name)
    JOIN tokens k ON k.owner = n.owner AND lower(k.name) = lower(n.name) WHERE k.root_id IS NOT NULL
)
SELECT k.id, k.owner, k.name, k.graph, k.workflow, k.state, k.status, k.visit, k.context, k.entered_at, k.entered_by,
  k.entered_payload, k.entered_error, k.seq, k.visits, k.events, k.parent, k.parent_id, k.root_id,
  k.current_root IS NOT NULL AS is_current, k.has_children, k.paused_at, k.late_events
FROM wanted w JOIN tokens k ON k.id = w.id ORDER BY k.id FOR NO KEY UPDATE OF k;

-- name: taken_names
-- Which of these names tokens have, by owner.
SELECT k.owner, lower(k.name) AS name FROM unnest($1::text[], $2::text[]) AS n (owner, name)
JOIN tokens k ON k.owner = n.owner AND lower(k.name) = n.name;

-- name: read_tasks
-- The live tasks of the locked tokens, the tasks that were named whatever became of them, and the time by now.
WITH found AS (
  -- OFFSET 0: each token is looked up by itself, also by a plan from when the table was small.
  SELECT t.* FROM unnest($1::bigint[]) AS n (token_id) CROSS JOIN LATERAL (
    SELECT * FROM tasks t WHERE t.token_id = n.token_id AND t.current_state IN ('pending', 'running', 'parked') OFFSET 0
  ) t
  UNION ALL
  SELECT t.* FROM unnest($2::bigint[]) AS n (id) CROSS JOIN LATERAL (
    SELECT * FROM tasks t WHERE t.id = n.id AND t.current_state NOT IN ('pending', 'running', 'parked') OFFSET 0
  ) t
)
SELECT moment.now, t.id, t.token_id, t.state, t.visit, t.current_state, t.attempt, t.failures, t.retries, t.generation,
  t.ready_at, t.watchdog_stop_reason, t.held_ready_at, t.supervisor, t.instance, t.releases, t.is_suspect,
  t.report_attempt, t.report_digest, t.pause_requested_at, t.expires_at, t.log_seq, t.handler_version, t.saved_bytes,
  t.retried_from, t.given_back, t.parent_id, t.result, t.error, t.ended_at, t.policy
FROM (SELECT clock_timestamp() AS now) moment LEFT JOIN found t ON true;

-- name: read_questions
-- Lock questions: the open ones of tasks ($1), those of an id ($2), those of a task, key and occurrence ($3 … $5).
WITH wanted AS (
  SELECT q.id FROM unnest($1::bigint[]) AS n (task_id) JOIN questions q ON q.task_id = n.task_id
    AND q.status = 'pending'
  UNION SELECT n.id FROM unnest($2::bigint[]) AS n (id)
  UNION SELECT q.id FROM unnest($3::bigint[], $4::text[], $5::int[]) AS n (task_id, key, occurrence)
    JOIN questions q ON q.task_id = n.task_id AND q.key = n.key AND q.occurrence = n.occurrence
)
SELECT q.id, q.task_id, q.key, q.occurrence, q.data, q.schema, q.choices, q.status, q.attempt, q.asked_by, q.asked_at,
  q.expires_at, q.remind_s, q.answer, q.answered_by, q.answered_at, q.cause, q.tellings, q.notify_at, q.notify_tries
FROM wanted w JOIN questions q ON q.id = w.id ORDER BY q.id FOR NO KEY UPDATE OF q;

-- name: read_checkpoints
-- The checkpoints that stand at these places; version 0 stands for the version that the task is of.
SELECT c.task_id, c.version, c.step, c.occurrence, c.seq, c.value
FROM unnest($1::bigint[], $2::int[], $3::text[], $4::int[]) AS n (task_id, version, step, occurrence)
JOIN checkpoints c ON c.task_id = n.task_id AND c.step = n.step AND c.occurrence = n.occurrence
  AND c.version = CASE n.version WHEN 0 THEN (SELECT t.handler_version FROM tasks t WHERE t.id = n.task_id)
    ELSE n.version END;

-- name: read_start_keys
-- What these idempotency keys of starts began.
SELECT s.owner, s.key, s.digest, coalesce(s.task_id, s.token_id) AS began FROM unnest($1::text[], $2::text[]) AS n (owner, key)
JOIN start_keys s ON s.owner = n.owner AND s.key = n.key;

-- name: read_retries
-- The tasks that retry these tasks.
SELECT t.id, t.retried_from FROM unnest($1::bigint[]) AS n (id) JOIN tasks t ON t.retried_from = n.id;

-- name: reserve_question_ids
-- Fresh question ids.
SELECT nextval('question_ids') AS id FROM generate_series(1, $1::int);

-- name: read_leases
-- When the leases of these tasks end.
SELECT l.task_id, l.until FROM leases l WHERE l.task_id = ANY ($1::bigint[]);

-- name: read_timers
-- The timers of the locked tokens.
SELECT m.id, m.token_id, m.kind, m.event, m.payload, m.due_at, m.set_at
FROM timers m WHERE m.token_id = ANY ($1::bigint[]) ORDER BY m.due_at, m.id;

-- name: read_held
-- The events that are held back for the locked tokens.
SELECT h.id, h.token_id, h.arrival, h.event, h.payload, h.task_id, h.state, h.visit, h.context, h.schedules, h.error
FROM held_events h WHERE h.token_id = ANY ($1::bigint[])
ORDER BY h.token_id, h.arrival;

-- name: read_memory_keys
-- Which of these keys of memory are set.
SELECT m.token_id, m.state, m.key FROM unnest($1::bigint[], $2::text[], $3::text[]) AS n (token_id, state, key)
JOIN memory m ON m.token_id = n.token_id AND m.state = n.state AND m.key = n.key;

-- name: read_keys
-- Which of these idempotency keys were used.
SELECT i.token_id, i.key FROM unnest($1::bigint[], $2::text[]) AS n (token_id, key)
JOIN idempotency_keys i ON i.token_id = n.token_id AND i.key = n.key;

-- name: reserve_task_ids
-- Fresh task ids; ids that are never used leave a gap and nothing else.
SELECT nextval('task_ids') AS id FROM generate_series(1, $1::int);

-- name: reserve_token_ids
-- Fresh token ids.
SELECT nextval('token_ids') AS id FROM generate_series(1, $1::int);

-- name: graph_documents
-- The documents of these graphs.
SELECT g.checksum, g.document FROM graphs g WHERE g.checksum = ANY ($1::text[]);
