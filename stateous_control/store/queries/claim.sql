-- name: take_turns
-- Let claims that repeat one request id go one after the other; keys sorted.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key;

-- name: remembered
-- What earlier claims with these request ids brought; without an instance, what the supervisor's newest id brought.
SELECT w.number, r.request, r.tasks, r.attempts
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS w (number, supervisor, instance, request)
CROSS JOIN LATERAL (
  SELECT c.request, c.tasks, c.attempts FROM claim_requests c
  WHERE w.instance <> '' AND c.supervisor = w.supervisor AND c.instance = w.instance AND c.request = w.request
    AND c.scope = $5
  UNION ALL
  SELECT c.request, c.tasks, c.attempts FROM claim_requests c
  WHERE w.instance = '' AND c.supervisor = w.supervisor AND c.instance = '' AND c.scope = $5
) r;

-- name: grant_again
-- Renew the leases of an earlier answer that are still held on that attempt, and read the grants afresh.
-- $6 owners and $7 states of the caller (NULL: all).
WITH named AS (
  SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[]) AS n (task_id, attempt, supervisor, instance)
), locked AS (
  SELECT held.task_id FROM (SELECT * FROM named ORDER BY task_id) n CROSS JOIN LATERAL (
    SELECT l.task_id FROM leases l JOIN tasks t ON t.id = l.task_id
    WHERE l.task_id = n.task_id AND l.attempt = n.attempt AND l.supervisor = n.supervisor
      AND coalesce(l.instance, '') = n.instance
      AND t.owner = ANY ($6::text[]) AND ($7::text[] IS NULL OR split_part(t.state, '#', 1) = ANY ($7))
    FOR NO KEY UPDATE OF l
  ) held
), renewed AS (
  UPDATE leases l SET until = clock_timestamp() + $5::float8 * interval '1 second'
  WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM locked)) RETURNING l.task_id
)
SELECT t.id, t.token_id, t.state, t.visit, t.attempt, t.generation, t.is_suspect, t.ready_at,
  t.handler_version, t.saved_bytes, t.input, k.name, k.owner, k.context, k.entered_by, k.entered_payload,
  k.entered_error, k.seq,
  (SELECT string_agg(to_json(m.key)::text || ':' || m.value, ',' ORDER BY m.key)
   FROM memory m WHERE m.token_id = t.token_id AND m.state = split_part(t.state, '#', 1)) AS memory
FROM renewed CROSS JOIN LATERAL (SELECT * FROM tasks t WHERE t.id = renewed.task_id OFFSET 0) t
CROSS JOIN LATERAL (SELECT * FROM tokens k WHERE k.id = t.token_id OFFSET 0) k
ORDER BY t.id;

-- name: pick
-- Lock the oldest ready tasks of the named queues with their tokens, passing over what others hold.
-- $1 states, $2 most of each, $3 oldest ready_at looked at, $4 most in all, $5 bytes of context and memory in all,
-- $6 owners: a queue is an owner's tasks of one state.
WITH wanted AS MATERIALIZED (
  SELECT s.owner, s.state, s.since, least(s.most, $4) AS most
  FROM unnest($1::text[], $2::int[], $3::timestamptz[], $6::text[]) AS s (state, most, since, owner)
  WHERE cardinality($1) = 1
  UNION ALL
  SELECT owner, state, since, count(*)::int AS most FROM (
    SELECT s.owner, s.state, s.since
    FROM unnest($1::text[], $2::int[], $3::timestamptz[], $6::text[]) AS s (state, most, since, owner)
    CROSS JOIN LATERAL (
      SELECT t.ready_at, t.id FROM tasks t
      WHERE t.owner = s.owner AND t.state = s.state AND t.ready_at >= s.since AND t.ready_at <= statement_timestamp()
      ORDER BY t.ready_at, t.id LIMIT s.most
    ) ready
    WHERE cardinality($1) > 1 ORDER BY ready.ready_at, ready.id LIMIT $4
  ) oldest GROUP BY owner, state, since
), picked AS MATERIALIZED (
  SELECT p.* FROM wanted w CROSS JOIN LATERAL (
    SELECT t.id, t.token_id, coalesce(t.root_id, t.token_id) AS lock_id, t.state, t.visit, t.attempt, t.generation,
      t.is_suspect, t.ready_at, t.handler_version, t.saved_bytes, t.input, k.name, k.owner, k.context, k.entered_by,
      k.entered_payload, k.entered_error, k.seq
    FROM tasks t JOIN tokens k ON k.id = t.token_id
    WHERE t.owner = w.owner AND t.state = w.state AND t.ready_at >= w.since AND t.ready_at <= statement_timestamp()
    ORDER BY t.ready_at, t.id LIMIT w.most
    FOR NO KEY UPDATE OF t, k SKIP LOCKED
  ) p
), complete AS MATERIALIZED (
  SELECT p.*, (SELECT string_agg(to_json(m.key)::text || ':' || m.value, ',' ORDER BY m.key)
    FROM memory m WHERE m.token_id = p.token_id AND m.state = split_part(p.state, '#', 1)) AS memory
  FROM picked p
), weighed AS (
  SELECT c.*, row_number() OVER oldest_first AS place,
    sum(400 + octet_length(c.context) + coalesce(octet_length(c.entered_payload), 0)
      + coalesce(octet_length(c.memory), 0) + coalesce(octet_length(c.input), 0) + least(c.saved_bytes, 524288)) OVER oldest_first AS bytes
  FROM complete c WINDOW oldest_first AS (ORDER BY c.ready_at, c.id)
)
SELECT w.id, w.token_id, w.lock_id, w.state, w.visit, w.attempt, w.generation, w.is_suspect, w.ready_at,
  w.handler_version, w.saved_bytes, w.name, w.owner, w.context, w.entered_by, w.entered_payload, w.entered_error,
  w.seq, w.memory, w.input
FROM weighed w WHERE w.place = 1 OR w.bytes <= $5::bigint
ORDER BY w.ready_at, w.id;

-- name: ready_states
-- The states of the queues among these that have ready work, whether or not somebody holds it at this moment.
SELECT s.state, s.owner FROM unnest($1::text[], $2::text[]) AS s (state, owner)
WHERE EXISTS (
  SELECT 1 FROM tasks t WHERE t.owner = s.owner AND t.state = s.state AND t.ready_at <= statement_timestamp());

-- name: give
-- Hand out locked tasks: running, one more attempt, a lease, a line of history, and what each request id brought.
-- $1..$7 and $17 tasks, $8 $9 tokens and their last line, $10..$14 request ids, $15 lease in seconds, $16 the callers'
-- scope, $18..$20 request ids to forget.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::bigint[], $7::text[],
      $17::bigint[])
    AS g (task_id, token_id, attempt, supervisor, instance, seq, line, lock_id)
), moment AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), started AS (
  UPDATE tasks t SET current_state = 'running', watchdog_stop_reason = NULL, attempt = g.attempt,
    generation = t.generation + 1, ready_at = NULL, supervisor = g.supervisor, instance = nullif(g.instance, ''),
    log_seq = t.log_seq + 1
  FROM given g WHERE t.id = g.task_id RETURNING t.id, t.log_seq, g.line
), recorded AS (
  INSERT INTO task_log (task_id, sequence_num, at, kind, data)
  SELECT s.id, s.log_seq, now, 'claimed', s.line FROM started s, moment
), leased AS (
  INSERT INTO leases (task_id, lock_id, attempt, supervisor, instance, until)
  SELECT g.task_id, g.lock_id, g.attempt, g.supervisor, nullif(g.instance, ''),
    now + $15::float8 * interval '1 second' FROM given g, moment
), numbered AS (
  UPDATE tokens k SET seq = n.seq FROM unnest($8::bigint[], $9::bigint[]) AS n (token_id, seq) WHERE k.id = n.token_id
), logged AS (
  INSERT INTO history (token_id, seq, at, kind, data)
  SELECT g.token_id, g.seq, now, 'task_claimed', g.line FROM given g, moment
), asked AS MATERIALIZED (
  SELECT * FROM unnest($10::text[], $11::text[], $12::text[], $13::int[], $14::int[])
    AS a (supervisor, instance, request, first, last)
), superseded AS (
  DELETE FROM claim_requests r USING asked a
  WHERE a.instance = '' AND r.supervisor = a.supervisor AND r.instance = a.instance AND r.request <> a.request
    AND r.scope = $16
), forgotten AS (
  -- Each by its whole key: under an old snapshot the dead rows of one instance lie side by side, and stay.
  DELETE FROM claim_requests r WHERE r.ctid = ANY (ARRAY(
    SELECT (SELECT c.ctid FROM claim_requests c WHERE c.supervisor = f.supervisor AND c.instance = f.instance
      AND c.request = f.request AND c.scope = $16)
    FROM unnest($18::text[], $19::text[], $20::text[]) AS f (supervisor, instance, request)))
)
INSERT INTO claim_requests (supervisor, instance, request, scope, tasks, attempts, claimed_at)
SELECT a.supervisor, a.instance, a.request, $16, ($1::bigint[])[a.first:a.last], ($3::int[])[a.first:a.last], now
FROM asked a, moment
ON CONFLICT (supervisor, instance, request, scope)
DO UPDATE SET tasks = excluded.tasks, attempts = excluded.attempts, claimed_at = excluded.claimed_at;

-- name: saved_checkpoints
-- The first checkpoints of these tasks, of their version, up to $3 bytes each. `is_more` marks a task that has others.
SELECT p.task_id, p.seq, p.step, p.occurrence, p.value, p.bytes > $3::bigint AS is_more
FROM unnest($1::bigint[], $2::int[]) AS n (id, version) CROSS JOIN LATERAL (
  SELECT c.task_id, c.seq, c.step, c.occurrence, c.value,
    sum(octet_length(c.step) + octet_length(c.value) + 40) OVER (ORDER BY c.seq) AS bytes
  FROM checkpoints c WHERE c.task_id = n.id AND c.version = n.version
) p WHERE p.bytes - octet_length(p.step) - octet_length(p.value) - 40 <= $3::bigint
ORDER BY p.task_id, p.seq;

-- name: saved_answers
-- The first answers that these tasks were given, up to $2 bytes each; asking again brings what is left out.
SELECT p.task_id, p.key, p.occurrence, p.answer FROM unnest($1::bigint[]) AS n (id) CROSS JOIN LATERAL (
  SELECT q.id, q.task_id, q.key, q.occurrence, q.answer,
    sum(octet_length(q.key) + octet_length(q.answer) + 40) OVER (ORDER BY q.id) AS bytes
  FROM questions q WHERE q.task_id = n.id AND q.status = 'answered'
) p WHERE p.bytes <= $2::bigint
ORDER BY p.id;

-- name: forget
-- Drop the older request id of supervisors without an instance, whose newest id brought nothing.
DELETE FROM claim_requests r USING unnest($1::text[], $2::text[]) AS a (supervisor, request)
WHERE r.supervisor = a.supervisor AND r.instance = '' AND r.request <> a.request AND r.scope = $3;

-- name: still_given
-- What one request id brought and is still held on that attempt.
SELECT l.task_id, l.attempt FROM claim_requests r
CROSS JOIN LATERAL unnest(r.tasks, r.attempts) AS g (task_id, attempt)
JOIN leases l ON l.task_id = g.task_id AND l.attempt = g.attempt AND l.supervisor = r.supervisor
  AND coalesce(l.instance, '') = r.instance
WHERE r.supervisor = $1 AND r.instance = $2 AND r.request = $3 AND r.scope = $4;
