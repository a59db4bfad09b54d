-- name: find_leaves
-- Lock tokens (or with $2 trees of routines) that ended long ago, each only after its children and its retries.
-- $1 seconds kept, $2 whether routines are meant, $3 most. What somebody holds is passed over.
WITH roots AS MATERIALIZED (
  (SELECT k.id FROM tokens k WHERE k.ended_at < clock_timestamp() - $1::float8 * interval '1 second'
     AND k.root_id IS NULL AND (k.graph IS NULL) = $2
     AND NOT EXISTS (SELECT 1 FROM tasks t JOIN tasks r ON r.retried_from = t.id WHERE t.token_id = k.id)
   ORDER BY k.ended_at, k.id LIMIT $3)
  UNION ALL
  (SELECT k.id FROM tokens k WHERE k.ended_at IS NULL AND k.root_id IS NULL
     AND k.status IN ('completed', 'failed', 'cancelled') AND (k.graph IS NULL) = $2
     AND NOT EXISTS (SELECT 1 FROM tasks t JOIN tasks r ON r.retried_from = t.id WHERE t.token_id = k.id)
     AND k.entered_at < clock_timestamp() - $1::float8 * interval '1 second' LIMIT $3)
), members AS MATERIALIZED (
  SELECT r.id FROM roots r
  UNION ALL SELECT k.id FROM roots r JOIN tokens k ON k.root_id = r.id
)
SELECT k.id FROM members m JOIN tokens k ON k.id = m.id
WHERE k.status IN ('completed', 'failed', 'cancelled')
  AND NOT EXISTS (SELECT 1 FROM tokens c WHERE c.parent_id = k.id)
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.token_id = k.id AND t.current_state IN ('pending', 'running', 'parked'))
ORDER BY k.id LIMIT $3 FOR UPDATE OF k SKIP LOCKED;

-- name: forget_lines
-- Forget at most $2 lines of the history of these tokens, the newest first, so that what is left begins at 1; and as
-- many checkpoints of their tasks.
WITH lines AS (
  DELETE FROM history h WHERE h.ctid = ANY (ARRAY(
    SELECT h.ctid FROM history h WHERE h.token_id = ANY ($1::bigint[]) ORDER BY h.token_id, h.seq DESC LIMIT $2))
  RETURNING 1
), steps AS (
  DELETE FROM checkpoints c WHERE c.ctid = ANY (ARRAY(
    SELECT c.ctid FROM tasks t JOIN checkpoints c ON c.task_id = t.id WHERE t.token_id = ANY ($1::bigint[]) LIMIT $2))
  RETURNING 1
)
SELECT (SELECT count(*) FROM lines) + (SELECT count(*) FROM steps) AS rows;

-- name: forget_tasks
-- Forget at most $2 tasks of these tokens, leaves of their trees first, once their checkpoints are gone.
WITH leaving AS MATERIALIZED (
  SELECT t.id, t.owner, t.state, t.ended_at FROM tasks t WHERE t.token_id = ANY ($1::bigint[])
    AND NOT EXISTS (SELECT 1 FROM tasks c WHERE c.parent_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.task_id = t.id)
  LIMIT $2
), kept AS (
  INSERT INTO gone_tasks (task_id, owner, state, ended_at)
  SELECT l.id, l.owner, l.state, coalesce(l.ended_at, clock_timestamp()) FROM leaving l
), b AS (DELETE FROM questions q WHERE q.task_id = ANY (ARRAY(SELECT id FROM leaving))
), c AS (DELETE FROM waits w WHERE w.task_id = ANY (ARRAY(SELECT id FROM leaving))
), d AS (DELETE FROM signals s WHERE s.task_id = ANY (ARRAY(SELECT id FROM leaving))
), e AS (DELETE FROM start_keys s WHERE s.task_id = ANY (ARRAY(SELECT id FROM leaving))
), f AS (DELETE FROM tasks t WHERE t.id = ANY (ARRAY(SELECT id FROM leaving))
)
SELECT count(*) AS tasks FROM leaving;

-- name: forget_tokens
-- Forget those of these tokens that have neither history nor tasks any more.
WITH leaves AS MATERIALIZED (
  SELECT k.id FROM tokens k WHERE k.id = ANY ($1::bigint[])
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.token_id = k.id)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.token_id = k.id)
), a AS (DELETE FROM signals s WHERE s.token_id = ANY (ARRAY(SELECT id FROM leaves))
), b AS (DELETE FROM start_keys s WHERE s.token_id = ANY (ARRAY(SELECT id FROM leaves))
), c AS (DELETE FROM timers m WHERE m.token_id = ANY (ARRAY(SELECT id FROM leaves))
), d AS (DELETE FROM memory m WHERE m.token_id = ANY (ARRAY(SELECT id FROM leaves))
), e AS (DELETE FROM idempotency_keys i WHERE i.token_id = ANY (ARRAY(SELECT id FROM leaves))
), f AS (DELETE FROM held_events h WHERE h.token_id = ANY (ARRAY(SELECT id FROM leaves))
), g AS (DELETE FROM tokens t WHERE t.id = ANY (ARRAY(SELECT id FROM leaves))
)
SELECT count(*) AS tokens FROM leaves;

-- name: keep_logs
-- Say for how long logs are kept after the end of their task; what guards the log goes by it.
UPDATE settings SET log_kept_s = $1 WHERE log_kept_s IS DISTINCT FROM $1;

-- name: forget_logs
-- Forget the logs of tasks that are gone and ended long ago. $1 most tasks, $2 most lines; the time is the one on record.
WITH over AS MATERIALIZED (
  SELECT g.task_id FROM gone_tasks g
  WHERE g.ended_at < (SELECT clock_timestamp() - s.log_kept_s * interval '1 second' FROM settings s)
  ORDER BY g.ended_at, g.task_id LIMIT $1 FOR UPDATE SKIP LOCKED
), lines AS (
  DELETE FROM task_log g WHERE g.ctid = ANY (ARRAY(
    SELECT g.ctid FROM task_log g WHERE g.task_id = ANY (ARRAY(SELECT task_id FROM over)) LIMIT $2))
  RETURNING g.task_id
)
SELECT o.task_id, (SELECT count(*) FROM lines) AS lines FROM over o;

-- name: forget_gone
-- Forget tasks whose logs are gone too.
DELETE FROM gone_tasks g WHERE g.task_id = ANY ($1::bigint[])
  AND NOT EXISTS (SELECT 1 FROM task_log l WHERE l.task_id = g.task_id);
