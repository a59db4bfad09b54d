-- name: observe
-- Say that this control plane lives, begin a grace time if nobody looked for too long, and learn what is due.
-- $1 our id, $2 seconds that count as an outage, $3 grace in seconds.
WITH here AS (
  INSERT INTO control_planes (id, seen_at) VALUES ($1, clock_timestamp())
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
), before AS (
  SELECT seen_at, no_sweep_before FROM settings FOR UPDATE
), seen AS (
  UPDATE settings s SET
    seen_at = greatest(s.seen_at, clock_timestamp()),
    no_sweep_before = CASE
      WHEN b.seen_at < clock_timestamp() - $2::float8 * interval '1 second'
      THEN greatest(s.no_sweep_before, clock_timestamp() + $3::float8 * interval '1 second')
      ELSE s.no_sweep_before END
  FROM before b RETURNING s.no_sweep_before
)
SELECT clock_timestamp() AS now, seen.no_sweep_before > clock_timestamp() AS is_grace,
  (SELECT count(*) FROM control_planes c WHERE c.id <> $1 AND c.seen_at > clock_timestamp() - interval '10 seconds')
    AS others,
  (SELECT array_agg(u.id) FROM (SELECT id FROM tasks
     WHERE current_state = 'parked' AND watchdog_stop_reason IS NULL LIMIT 11) u) AS unexplained,
  -- In the order of an index each, or a plan from when a table was empty would walk through all that is not due.
  (SELECT true FROM timers m WHERE m.due_at <= statement_timestamp() AND NOT m.is_stopped
   ORDER BY m.due_at, m.id LIMIT 1) AS has_timers,
  (SELECT true FROM waits w WHERE w.is_open AND w.due_at IS NOT NULL AND w.due_at <= statement_timestamp()
   ORDER BY w.due_at, w.task_id LIMIT 1) AS has_waits,
  (SELECT true FROM questions q WHERE q.status = 'pending' AND q.expires_at < statement_timestamp()
   ORDER BY q.expires_at, q.id LIMIT 1) AS has_questions,
  (SELECT true FROM tasks t WHERE t.expires_at IS NOT NULL AND t.expires_at < statement_timestamp()
   AND t.current_state IN ('pending', 'running', 'parked') ORDER BY t.expires_at, t.id LIMIT 1) AS has_tasks
FROM seen;

-- name: ended_leases
-- Lock leases that have ended with their locks (a token, of a child its root), passing over what others hold; none
-- after an outage that nobody looked into.
-- $1 most, $2 seconds that count as an outage, $3 tasks to leave out.
SELECT l.task_id, l.lock_id FROM leases l JOIN tokens k ON k.id = l.lock_id
WHERE l.until < clock_timestamp() AND l.task_id <> ALL ($3::bigint[]) AND EXISTS (
  SELECT 1 FROM settings s WHERE s.no_sweep_before <= clock_timestamp()
    AND s.seen_at >= clock_timestamp() - $2::float8 * interval '1 second')
LIMIT $1 FOR NO KEY UPDATE OF k SKIP LOCKED FOR UPDATE OF l SKIP LOCKED;

-- name: due_timers
-- Lock the tokens of timers that are due (of a child its root), oldest first, passing over what others hold.
-- $1 most, $2 timers to leave out.
SELECT m.id, k.id AS lock_id FROM timers m JOIN tokens k ON k.id = coalesce(m.root_id, m.token_id)
WHERE m.due_at <= statement_timestamp() AND NOT m.is_stopped AND m.id <> ALL ($2::bigint[])
ORDER BY m.due_at, m.id LIMIT $1 FOR NO KEY UPDATE OF k SKIP LOCKED;

-- name: unroutable
-- How many tasks wait that no supervisor seen of late serves, by owner, state and version; each counted up to $2.
-- $1 seconds after which a supervisor counts as away. It hops from queue to queue, however long they are.
WITH RECURSIVE queues AS (
  (SELECT t.owner, t.state FROM tasks t WHERE t.ready_at IS NOT NULL ORDER BY t.owner, t.state LIMIT 1)
  UNION ALL
  SELECT n.owner, n.state FROM queues q CROSS JOIN LATERAL (
    SELECT t.owner, t.state FROM tasks t WHERE t.ready_at IS NOT NULL AND (t.owner, t.state) > (q.owner, q.state)
    ORDER BY t.owner, t.state LIMIT 1
  ) n
)
SELECT coalesce(sum(w.waiting), 0)::bigint AS waiting FROM queues q CROSS JOIN LATERAL (
  SELECT count(*) AS waiting FROM (
    SELECT FROM tasks t WHERE t.owner = q.owner AND t.state = q.state AND t.ready_at IS NOT NULL LIMIT $2
  ) one
) w
WHERE NOT EXISTS (
  SELECT 1 FROM supervisors s WHERE q.state = ANY (s.states) AND q.owner = ANY (string_to_array(s.scope, ','))
    AND s.last_seen > clock_timestamp() - $1::float8 * interval '1 second');

-- name: prune
-- Drop what is only remembered for a while: old request ids, control planes that are gone, supervisors long unseen.
WITH requests AS (
  DELETE FROM claim_requests WHERE claimed_at < clock_timestamp() - $1::float8 * interval '1 second'
), planes AS (
  DELETE FROM control_planes WHERE seen_at < clock_timestamp() - interval '1 hour'
)
DELETE FROM supervisors WHERE last_seen < clock_timestamp() - interval '7 days';

-- name: attend
-- Note when supervisors were first and last heard ($6, $7 seconds ago), what they serve, and their version.
INSERT INTO supervisors (name, instance, states, scope, version, first_seen, last_seen)
SELECT a.name, a.instance, string_to_array(a.states, chr(10)), a.scope, a.version,
  clock_timestamp() - a.first_s * interval '1 second', clock_timestamp() - a.last_s * interval '1 second'
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::float8[])
  AS a (name, instance, states, scope, version, first_s, last_s)
ORDER BY a.name, a.instance, a.scope
ON CONFLICT (name, instance, scope) DO UPDATE SET last_seen = greatest(supervisors.last_seen, excluded.last_seen),
  version = coalesce(excluded.version, supervisors.version),
  states = CASE WHEN excluded.states = '{}' THEN supervisors.states ELSE excluded.states END;

-- name: notify
-- Tell the other control planes, outside every write's transaction.
SELECT pg_notify($1, $2);
