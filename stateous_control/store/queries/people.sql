-- name: find_task
-- One task with all that people ask about it. $1 id, $2 owners and $3 states of the caller (NULL: all), $4 seconds
-- after which a supervisor counts as away.
SELECT t.id, t.state, t.visit, t.current_state, t.watchdog_stop_reason, t.attempt, t.failures, t.retries, t.generation,
  t.ready_at, t.releases, t.is_suspect, t.queued_at, t.pause_requested_at, t.expires_at, t.log_seq, t.handler_version,
  t.retried_from, t.owner, t.given_back, t.locked_decisions, t.parent_id, t.input, t.result, t.error, t.ended_at, t.policy, k.name AS token, k.status AS steered, l.supervisor, l.instance,
  l.until,
  (t.ready_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM supervisors s WHERE t.state = ANY (s.states)
    AND t.owner = ANY (string_to_array(s.scope, ','))
    AND s.last_seen > clock_timestamp() - $4::float8 * interval '1 second')) AS is_unroutable,
  (SELECT q.id FROM questions q WHERE q.task_id = t.id AND q.status = 'pending') AS question,
  (SELECT r.id FROM tasks r WHERE r.retried_from = t.id) AS retried_as
FROM tasks t JOIN tokens k ON k.id = t.token_id LEFT JOIN leases l ON l.task_id = t.id
WHERE t.id = $1 AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3));

-- name: page_tasks
-- One page of tasks, newest first; the order never changes. $1 current_state, $2 token, $3 state, $4 kind of reason,
-- $5 owners (NULL: any), $6 the id that the last page ended on, $7 most, $8 seconds after which a supervisor is away.
SELECT t.id, t.state, t.visit, t.current_state, t.watchdog_stop_reason, t.attempt, t.failures, t.retries, t.generation,
  t.ready_at, t.releases, t.is_suspect, t.queued_at, t.pause_requested_at, t.expires_at, t.log_seq, t.handler_version,
  t.retried_from, t.owner, t.given_back, NULL AS locked_decisions, t.parent_id, NULL AS input, NULL AS result, t.error,
  t.ended_at, t.policy, k.name AS token, k.status AS steered, l.supervisor, l.instance,
  l.until,
  (t.ready_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM supervisors s WHERE t.state = ANY (s.states)
    AND t.owner = ANY (string_to_array(s.scope, ','))
    AND s.last_seen > clock_timestamp() - $8::float8 * interval '1 second')) AS is_unroutable,
  (SELECT q.id FROM questions q WHERE q.task_id = t.id AND q.status = 'pending') AS question,
  (SELECT r.id FROM tasks r WHERE r.retried_from = t.id) AS retried_as
FROM tasks t JOIN tokens k ON k.id = t.token_id LEFT JOIN leases l ON l.task_id = t.id
WHERE ($1::text IS NULL OR t.current_state = $1) AND ($2::text IS NULL OR k.name = $2)
  AND ($3::text IS NULL OR $3 IN (t.state, split_part(t.state, '#', 1))) AND ($4::text IS NULL OR split_part(t.watchdog_stop_reason, ':', 1) = $4)
  AND ($5::text[] IS NULL OR t.owner = ANY ($5)) AND t.id < coalesce($6::bigint, 9223372036854775807)
ORDER BY t.id DESC LIMIT $7;

-- name: count_tasks
-- How many tasks the whole list has. Without a join: with no filter this is a walk through one narrow index.
SELECT count(*) AS total FROM tasks t
WHERE ($1::text IS NULL OR t.current_state = $1) AND ($2::text IS NULL OR t.token_id IN (SELECT k.id FROM tokens k WHERE k.name = $2))
  AND ($3::text IS NULL OR $3 IN (t.state, split_part(t.state, '#', 1))) AND ($4::text IS NULL OR split_part(t.watchdog_stop_reason, ':', 1) = $4)
  AND ($5::text[] IS NULL OR t.owner = ANY ($5));

-- name: place_of_task
-- Where a task stands: its owner and its token's name; both never change.
SELECT t.id, t.owner, k.name AS token FROM tasks t JOIN tokens k ON k.id = t.token_id
WHERE t.id = $1 AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3));

-- name: place_of_log
-- Whether a task's log is there for the caller, also after the task. $2 owners and $3 states of the caller (NULL: all).
SELECT t.id FROM tasks t
WHERE t.id = $1 AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3))
UNION ALL
SELECT g.task_id FROM gone_tasks g
WHERE g.task_id = $1 AND ($2::text[] IS NULL OR g.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(g.state, '#', 1) = ANY ($3));

-- name: task_of_question
-- The task that a question belongs to; it never changes.
SELECT q.task_id FROM questions q JOIN tasks t ON t.id = q.task_id
WHERE q.id = $1 AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3));

-- name: page_log
-- The newest lines of a task's log before line $2 (NULL: the newest of all), newest first; at most $3, of $4 bytes.
SELECT p.sequence_num, p.at, p.kind, p.data FROM (
  SELECT g.sequence_num, g.at, g.kind, g.data,
    sum(octet_length(g.data)) OVER newest_first AS bytes, row_number() OVER newest_first AS place
  FROM (
    SELECT * FROM task_log WHERE task_id = $1 AND ($2::bigint IS NULL OR sequence_num < $2)
    ORDER BY sequence_num DESC LIMIT $3
  ) g WINDOW newest_first AS (ORDER BY g.sequence_num DESC)
) p WHERE p.place = 1 OR p.bytes <= $4::bigint ORDER BY p.sequence_num DESC;

-- name: count_log
-- How many lines a task's log has.
SELECT count(*) AS total FROM task_log WHERE task_id = $1;

-- name: page_checkpoints
-- Checkpoints of one version of a task after $3, in order; at most $4, of $5 bytes.
SELECT p.step, p.occurrence, p.seq, p.value, p.stored_at, p.found FROM (
  SELECT c.*, count(*) OVER () AS found, sum(octet_length(c.value)) OVER in_order AS bytes, row_number() OVER in_order AS place
  FROM (
    SELECT * FROM checkpoints WHERE task_id = $1 AND version = $2 AND seq > $3 ORDER BY seq LIMIT $4
  ) c WINDOW in_order AS (ORDER BY c.seq)
) p WHERE p.place = 1 OR p.bytes <= $5::bigint ORDER BY p.seq;

-- name: count_checkpoints
-- How many checkpoints one version of a task has.
SELECT count(*) AS total FROM checkpoints WHERE task_id = $1 AND version = $2;

-- name: find_question
-- One question. $1 id, $2 owners and $3 states of the caller (NULL: all).
SELECT q.*, t.state, t.generation, t.owner, k.name AS token
FROM questions q JOIN tasks t ON t.id = q.task_id JOIN tokens k ON k.id = t.token_id
WHERE q.id = $1 AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3));

-- name: page_questions
-- One page of questions, newest first. $1 status, $2 task, $3 token, $4 owners (NULL: any), $5 the id that the last page
-- ended on; at most $6, of $7 bytes.
SELECT p.* FROM (
  SELECT f.*, row_number() OVER newest_first AS place, count(*) OVER () AS found,
    sum(octet_length(f.data) + coalesce(octet_length(f.schema), 0) + coalesce(octet_length(f.choices), 0)
      + coalesce(octet_length(f.answer), 0)) OVER newest_first AS bytes
  FROM (
    SELECT q.*, t.state, t.generation, t.owner, k.name AS token
    FROM questions q JOIN tasks t ON t.id = q.task_id JOIN tokens k ON k.id = t.token_id
    WHERE ($1::text IS NULL OR q.status = $1) AND ($2::bigint IS NULL OR q.task_id = $2)
      AND ($3::text IS NULL OR k.name = $3) AND ($4::text[] IS NULL OR t.owner = ANY ($4))
      AND q.id < coalesce($5::bigint, 9223372036854775807)
    ORDER BY q.id DESC LIMIT $6
  ) f WINDOW newest_first AS (ORDER BY f.id DESC)
) p WHERE p.place = 1 OR p.bytes <= $7::bigint ORDER BY p.id DESC;

-- name: count_questions
-- How many questions the whole list has.
SELECT count(*) AS total FROM questions q
WHERE ($1::text IS NULL OR q.status = $1) AND ($2::bigint IS NULL OR q.task_id = $2)
  AND ($3::text IS NULL OR q.task_id IN (SELECT t.id FROM tasks t JOIN tokens k ON k.id = t.token_id WHERE k.name = $3))
  AND ($4::text[] IS NULL OR EXISTS (SELECT 1 FROM tasks t WHERE t.id = q.task_id AND t.owner = ANY ($4)));

-- name: due_questions
-- Lock the open questions whose time is over by their family's lock, passing over what others hold.
-- $1 most, $2 tasks to leave out.
SELECT q.task_id, q.id AS question_id, k.id AS lock_id
FROM questions q JOIN tasks t ON t.id = q.task_id JOIN tokens o ON o.id = t.token_id
JOIN tokens k ON k.id = coalesce(o.root_id, o.id)
WHERE q.status = 'pending' AND q.expires_at < statement_timestamp() AND q.task_id <> ALL ($2::bigint[])
ORDER BY q.expires_at, q.id LIMIT $1 FOR NO KEY UPDATE OF k SKIP LOCKED;

-- name: due_tasks
-- Lock the tasks whose time is over by their family's lock, passing over what others hold. $1 most, $2 tasks to leave out.
SELECT t.id AS task_id, NULL::bigint AS question_id, k.id AS lock_id
FROM tasks t JOIN tokens o ON o.id = t.token_id JOIN tokens k ON k.id = coalesce(o.root_id, o.id)
WHERE t.expires_at < statement_timestamp() AND t.expires_at IS NOT NULL
  AND t.current_state IN ('pending', 'running', 'parked') AND t.id <> ALL ($2::bigint[])
ORDER BY t.expires_at, t.id LIMIT $1 FOR NO KEY UPDATE OF k SKIP LOCKED;

-- name: take_notices
-- Take the questions that people must be told of now; who takes one and dies leaves it due again after a pause.
-- $1 most, $2 seconds of the first pause, doubled for each delivery in vain.
WITH taken AS MATERIALIZED (
  SELECT q.id FROM questions q
  WHERE q.status = 'pending' AND q.notify_at <= statement_timestamp()
  ORDER BY q.notify_at, q.id LIMIT $1 FOR UPDATE SKIP LOCKED
), noted AS (
  UPDATE questions q SET notify_tries = q.notify_tries + 1,
    notify_at = clock_timestamp() + $2::float8 * 2 ^ least(q.notify_tries, 10) * interval '1 second'
  FROM taken WHERE q.id = taken.id RETURNING q.*
)
SELECT n.*, t.state, t.generation, t.owner, k.name AS token
FROM noted n JOIN tasks t ON t.id = n.task_id JOIN tokens k ON k.id = t.token_id;
