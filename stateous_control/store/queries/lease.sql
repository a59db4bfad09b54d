-- name: renew
-- Renew the leases that this supervisor holds on the attempts that it names; a lease that ended unswept counts as held.
-- $1 tasks, $2 attempts (0: any), $3 supervisor, $4 instance (NULL: judged by name alone), $5 lease in seconds.
-- $6 owners and $7 states of the caller (NULL: all).
WITH named AS (
  SELECT DISTINCT task_id, attempt FROM unnest($1::bigint[], $2::int[]) AS n (task_id, attempt)
), locked AS (
  SELECT held.task_id FROM (SELECT * FROM named ORDER BY task_id) n CROSS JOIN LATERAL (
    SELECT l.task_id FROM leases l
    WHERE l.task_id = n.task_id AND (n.attempt = 0 OR l.attempt = n.attempt) AND l.supervisor = $3
      AND ($4::text IS NULL OR l.instance = $4)
      AND (($6::text[] IS NULL AND $7::text[] IS NULL) OR (
        SELECT ($6 IS NULL OR t.owner = ANY ($6)) AND ($7 IS NULL OR split_part(t.state, '#', 1) = ANY ($7))
        FROM tasks t WHERE t.id = l.task_id))
    FOR NO KEY UPDATE OF l
  ) held
), renewed AS (
  UPDATE leases l SET until = clock_timestamp() + $5::float8 * interval '1 second'
  WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM locked)) RETURNING l.task_id
)
SELECT r.task_id, k.paused_at IS NOT NULL OR t.pause_requested_at IS NOT NULL AS is_paused, clock_timestamp() AS now
FROM renewed r CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.id = r.task_id OFFSET 0) t
LEFT JOIN LATERAL (SELECT k.paused_at FROM tokens k WHERE k.id = t.token_id OFFSET 0) k ON true;

-- name: fates
-- How the tasks stand that a heartbeat could not renew, and the time; those of others are not there.
SELECT moment.now, t.id, t.current_state, t.attempt, t.watchdog_stop_reason
FROM (SELECT clock_timestamp() AS now) moment LEFT JOIN tasks t ON t.id = ANY ($1::bigint[])
  AND ($2::text[] IS NULL OR t.owner = ANY ($2)) AND ($3::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($3));
