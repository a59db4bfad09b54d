-- name: find_token
-- One token by its exact name.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent, k.owner,
  (k.status = 'paused' AND EXISTS (SELECT 1 FROM tasks t JOIN tokens m ON m.id = t.token_id
    WHERE t.current_state = 'running' AND (m.id = k.id OR m.current_root = k.id))) AS is_pausing
FROM tokens k WHERE k.owner = $1 AND lower(k.name) = lower($2) AND k.name = $2;

-- name: list_tokens
-- The tokens that moved last, as the baseline lists them. $1 status, $2 parent, $4 owners (NULL: any), $3 most.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent, k.owner,
  (k.status = 'paused' AND EXISTS (SELECT 1 FROM tasks t JOIN tokens m ON m.id = t.token_id
    WHERE t.current_state = 'running' AND (m.id = k.id OR m.current_root = k.id))) AS is_pausing
FROM tokens k WHERE k.graph IS NOT NULL AND ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2)
  AND ($4::text[] IS NULL OR k.owner COLLATE "C" = ANY ($4))
ORDER BY k.entered_at DESC, k.name LIMIT $3;

-- name: page_tokens
-- One page, newest start first; the order never changes, so no page skips or repeats. $4 the id that the last ended on, $5 owners.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent, k.owner,
  (k.status = 'paused' AND EXISTS (SELECT 1 FROM tasks t JOIN tokens m ON m.id = t.token_id
    WHERE t.current_state = 'running' AND (m.id = k.id OR m.current_root = k.id))) AS is_pausing
FROM tokens k WHERE k.graph IS NOT NULL AND ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2)
  AND ($5::text[] IS NULL OR k.owner COLLATE "C" = ANY ($5)) AND k.id < coalesce($4::bigint, 9223372036854775807)
ORDER BY k.id DESC LIMIT $3;

-- name: count_tokens
-- How many tokens the whole list has.
SELECT count(*) AS total FROM tokens k WHERE k.graph IS NOT NULL AND ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2)
  AND ($3::text[] IS NULL OR k.owner COLLATE "C" = ANY ($3));

-- name: token_history
-- Lines of one token's history, oldest first. $2 after which, $3 most (NULL: all).
SELECT h.seq, h.at, h.kind, h.data FROM history h WHERE h.token_id = $1 AND h.seq > $2 ORDER BY h.seq LIMIT $3;

-- name: list_supervisors
-- Every supervisor heard of, with the leases it holds. $1: seconds after which one counts as away, $2 owners.
SELECT s.name, s.instance, s.scope, s.version, s.states, s.first_seen, s.last_seen,
  s.last_seen > clock_timestamp() - $1::float8 * interval '1 second' AS is_live,
  coalesce(sum(h.running), 0)::bigint AS running
FROM supervisors s LEFT JOIN (
  SELECT l.supervisor, coalesce(l.instance, '') AS instance, t.owner, count(*) AS running
  FROM leases l JOIN tasks t ON t.id = l.task_id GROUP BY 1, 2, 3
) h ON h.supervisor = s.name AND h.instance = s.instance AND h.owner = ANY (string_to_array(s.scope, ','))
  AND ($2::text[] IS NULL OR h.owner = ANY ($2))
WHERE $2::text[] IS NULL OR string_to_array(s.scope, ',') && $2
GROUP BY s.name, s.instance, s.scope
ORDER BY s.name, s.first_seen, s.instance, s.scope;

-- name: queue_depths
-- Work by state: ready, delayed, running, the oldest wait, and whether a supervisor seen of late serves the state.
-- $1 seconds after which a supervisor counts as away, $2 owners.
WITH queued AS (
  SELECT t.state, count(*) FILTER (WHERE t.ready_at <= statement_timestamp()) AS depth,
    count(*) FILTER (WHERE t.ready_at > statement_timestamp()) AS delayed, min(t.ready_at) AS oldest
  FROM tasks t WHERE t.ready_at IS NOT NULL AND ($2::text[] IS NULL OR t.owner = ANY ($2)) GROUP BY t.state
), held AS (
  SELECT t.state, count(*) AS running FROM leases l JOIN tasks t ON t.id = l.task_id
  WHERE $2::text[] IS NULL OR t.owner = ANY ($2) GROUP BY t.state
), served AS (
  SELECT DISTINCT unnest(s.states) AS state FROM supervisors s
  WHERE s.last_seen > clock_timestamp() - $1::float8 * interval '1 second'
    AND ($2::text[] IS NULL OR string_to_array(s.scope, ',') && $2)
)
SELECT coalesce(q.state, h.state) AS state, coalesce(q.depth, 0) AS depth, coalesce(q.delayed, 0) AS delayed,
  coalesce(h.running, 0) AS running,
  greatest(0, extract(epoch FROM statement_timestamp() - q.oldest))::float8 AS oldest_wait_s,
  coalesce(q.state, h.state) IN (SELECT state FROM served) AS is_served
FROM queued q FULL JOIN held h ON h.state = q.state ORDER BY 1;

-- name: record_graph
-- Keep a graph's document for good.
INSERT INTO graphs (checksum, structure, workflow, document) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: graph_on_record
-- The graph that new tokens start on, its row locked against others who would change it.
SELECT s.graph, g.document FROM settings s LEFT JOIN graphs g ON g.checksum = s.graph
FOR UPDATE OF s;

-- name: serve_graph
-- Put a graph on record as the one that new tokens start on.
UPDATE settings SET graph = $1;

-- name: count_history
-- How many lines a token's history has.
SELECT count(*) AS total FROM history h WHERE h.token_id = $1;
