-- name: read_waits
-- The waits that these tasks are parked on ($1), and those of a task, step and occurrence ($2 … $4).
SELECT w.task_id, w.step, w.occurrence, w.parts, w.began_at, w.is_open
FROM unnest($1::bigint[]) AS n (task_id) JOIN waits w ON w.task_id = n.task_id AND w.is_open
UNION
SELECT w.task_id, w.step, w.occurrence, w.parts, w.began_at, w.is_open
FROM unnest($2::bigint[], $3::text[], $4::int[]) AS n (task_id, step, occurrence)
JOIN waits w ON w.task_id = n.task_id AND w.step = n.step AND w.occurrence = n.occurrence;

-- name: read_signals
-- The oldest signal of each name that each task may take ($1 tasks, $2 their tokens, $3 names), and those that were sent
-- with a key ($4 tasks, $5 tokens, $6 keys).
SELECT s.id, s.task_id, s.token_id, s.name, s.payload, s.key, s.sent_at, s.sent_by, s.taken_by FROM (
  SELECT coalesce(a.id, b.id) AS id FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS n (task_id, token_id, name)
  CROSS JOIN LATERAL (VALUES (1), (2)) AS address (number)
  LEFT JOIN LATERAL (
    SELECT s.id FROM signals s
    WHERE address.number = 1 AND s.task_id = n.task_id AND s.name = n.name AND s.taken_by IS NULL
    ORDER BY s.id LIMIT 1
  ) a ON true
  LEFT JOIN LATERAL (
    SELECT s.id FROM signals s
    WHERE address.number = 2 AND s.token_id = n.token_id AND s.name = n.name AND s.taken_by IS NULL
    ORDER BY s.id LIMIT 1
  ) b ON true
  UNION SELECT s.id FROM unnest($4::bigint[], $6::text[]) AS n (task_id, key)
    JOIN signals s ON s.task_id = n.task_id AND s.key = n.key
  UNION SELECT s.id FROM unnest($5::bigint[], $6::text[]) AS n (token_id, key)
    JOIN signals s ON s.token_id = n.token_id AND s.key = n.key
) wanted JOIN signals s ON s.id = wanted.id ORDER BY s.id;

-- name: count_signals
-- How many signals are kept for these tasks and tokens, counted up to $3.
SELECT n.task_id, n.token_id, (SELECT count(*) FROM (
    SELECT FROM signals s WHERE s.taken_by IS NULL AND s.task_id = n.task_id LIMIT $3
  ) one) + (SELECT count(*) FROM (
    SELECT FROM signals s WHERE s.taken_by IS NULL AND s.token_id = n.token_id LIMIT $3
  ) one) AS kept
FROM unnest($1::bigint[], $2::bigint[]) AS n (task_id, token_id);

-- name: write_waits
-- Waits that tasks parked on, or were woken from; their beginning stands for ever.
INSERT INTO waits (task_id, step, occurrence, parts, began_at, due_at, is_open)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::text[], $5::timestamptz[], $6::timestamptz[],
  $7::boolean[]) AS n (task_id, step, occurrence, parts, began_at, due_at, is_open)
ON CONFLICT (task_id, step, occurrence)
DO UPDATE SET parts = excluded.parts, due_at = excluded.due_at, is_open = excluded.is_open;

-- name: insert_signals
-- Signals that were sent; one that ended a wait at once is taken already.
INSERT INTO signals (task_id, token_id, name, payload, key, sent_at, sent_by, taken_by)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[],
  $8::bigint[]);

-- name: take_signals
-- Signals that ended a wait.
UPDATE signals s SET taken_by = n.taken_by FROM unnest($1::bigint[], $2::bigint[]) AS n (id, taken_by)
WHERE s.id = n.id;

-- name: due_waits
-- Lock the waits that time has ended by their family's lock, passing over what others hold. $1 most, $2 tasks to leave out.
SELECT w.task_id, k.id AS lock_id
FROM waits w JOIN tasks t ON t.id = w.task_id JOIN tokens o ON o.id = t.token_id
JOIN tokens k ON k.id = coalesce(o.root_id, o.id)
WHERE w.is_open AND w.due_at IS NOT NULL AND w.due_at <= statement_timestamp() AND w.task_id <> ALL ($2::bigint[])
ORDER BY w.due_at, w.task_id LIMIT $1 FOR NO KEY UPDATE OF k SKIP LOCKED;
