-- name: find_token
-- One token by its exact name.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent
FROM tokens k WHERE k.owner = $1 AND lower(k.name) = lower($2) AND k.name = $2;

-- name: list_tokens
-- The tokens that moved last, as the baseline lists them. $1 status, $2 parent (NULL: any), $3 most.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent
FROM tokens k WHERE ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2)
ORDER BY k.entered_at DESC, k.name LIMIT $3;

-- name: page_tokens
-- One page, newest start first; the order never changes, so no page skips or repeats. $4 the id that the last ended on.
SELECT k.id, k.name, k.state, k.status, k.visit, k.context, k.entered_at, k.parent
FROM tokens k WHERE ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2)
  AND ($4::bigint IS NULL OR k.id < $4)
ORDER BY k.id DESC LIMIT $3;

-- name: count_tokens
-- How many tokens the whole list has.
SELECT count(*) AS total FROM tokens k WHERE ($1::text IS NULL OR k.status = $1) AND ($2::text IS NULL OR k.parent = $2);

-- name: token_history
-- Lines of one token's history, oldest first. $2 after which, $3 most (NULL: all).
SELECT h.seq, h.at, h.kind, h.data FROM history h WHERE h.token_id = $1 AND h.seq > $2 ORDER BY h.seq LIMIT $3;

-- name: list_supervisors
-- Every supervisor heard of, with the leases it holds. $1: seconds after which one counts as away.
SELECT s.name, s.instance, s.version, s.states, s.last_seen,
  s.last_seen > clock_timestamp() - $1::float8 * interval '1 second' AS is_live, coalesce(h.running, 0) AS running
FROM supervisors s LEFT JOIN (
  SELECT l.supervisor, coalesce(l.instance, '') AS instance, count(*) AS running FROM leases l GROUP BY 1, 2
) h ON h.supervisor = s.name AND h.instance = s.instance
ORDER BY s.name, s.first_seen, s.instance;

-- name: queue_depths
-- Work by state: ready, delayed, running, the oldest wait, and whether a supervisor seen of late serves the state.
WITH queued AS (
  SELECT t.state, count(*) FILTER (WHERE t.ready_at <= statement_timestamp()) AS depth,
    count(*) FILTER (WHERE t.ready_at > statement_timestamp()) AS delayed, min(t.ready_at) AS oldest
  FROM tasks t WHERE t.ready_at IS NOT NULL GROUP BY t.state
), held AS (
  SELECT t.state, count(*) AS running FROM leases l JOIN tasks t ON t.id = l.task_id GROUP BY t.state
), served AS (
  SELECT DISTINCT unnest(s.states) AS state FROM supervisors s
  WHERE s.last_seen > clock_timestamp() - $1::float8 * interval '1 second'
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
SELECT s.graph, g.structure, g.workflow, g.document FROM settings s LEFT JOIN graphs g ON g.checksum = s.graph
FOR UPDATE OF s;

-- name: has_live_tokens
-- Whether any token can still move.
SELECT EXISTS (SELECT 1 FROM tokens WHERE status IN ('active', 'paused')) AS is_so;

-- name: serve_graph
-- Put a graph on record as the one that new tokens start on.
UPDATE settings SET graph = $1;

-- name: count_history
-- How many lines a token's history has.
SELECT count(*) AS total FROM history h WHERE h.token_id = $1;
