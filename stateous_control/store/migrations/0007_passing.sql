-- A step costs one statement (ADR 37). What the function needs beside its arguments it says itself: it is called without
-- a transaction around it, and its plan must not depend on statistics (ADR 15).

CREATE FUNCTION pass_points(
  _tasks bigint[], _attempts integer[], _versions integer[], _steps text[], _occurrences integer[], _made text[],
  _lines text[], _holder text, _process text, _owners text[]
) RETURNS TABLE (place bigint, is_pausing boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '400ms'
AS $$
#variable_conflict use_column
DECLARE
  _locked bigint[];
BEGIN
  -- Whoever holds a token does not keep the others waiting: what is not locked is left to the rules.
  SELECT array_agg(k.id) INTO _locked FROM (
    SELECT k.id FROM tokens k
    WHERE k.id = ANY (ARRAY(
        SELECT t.token_id FROM unnest(_tasks) AS n (id) JOIN tasks t ON t.id = n.id WHERE t.root_id IS NULL
      )) AND (_owners IS NULL OR k.owner = ANY (_owners))
    ORDER BY k.id FOR NO KEY UPDATE OF k SKIP LOCKED
  ) k;
  IF _locked IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
  WITH n AS MATERIALIZED (
    SELECT * FROM unnest(_tasks::bigint[], _attempts::int[], _versions::int[], _steps::text[], _occurrences::int[], _made::text[], _lines::text[])
      WITH ORDINALITY AS n (task_id, attempt, version, step, occurrence, value, line, place)
  ), counted AS MATERIALIZED (
    SELECT n.task_id, min(n.attempt) AS attempt, min(n.version) AS version, count(*) AS points,
      sum(octet_length(n.value) + octet_length(n.step) + 40) AS bytes
    FROM n LEFT JOIN LATERAL (
      SELECT true AS stands FROM checkpoints c WHERE c.task_id = n.task_id AND c.version = n.version AND c.step = n.step
        AND c.occurrence = n.occurrence
    ) c ON true
    GROUP BY n.task_id
    HAVING min(n.attempt) = max(n.attempt) AND min(n.version) = max(n.version) AND count(c.stands) = 0
      AND count(DISTINCT (n.step, n.occurrence)) = count(*)
  ), moved AS (
    UPDATE tasks t SET log_seq = t.log_seq + c.points, saved_bytes = t.saved_bytes + c.bytes
    FROM counted c CROSS JOIN tokens k
    WHERE k.id = ANY (_locked) AND t.id = c.task_id AND t.token_id = k.id AND t.root_id IS NULL AND t.current_state = 'running'
      AND t.attempt = c.attempt AND t.handler_version = c.version AND t.supervisor = _holder AND t.instance = _process
    RETURNING t.id, t.log_seq - c.points AS before, t.pause_requested_at IS NOT NULL OR k.status = 'paused' AS is_pausing
  ), passed AS MATERIALIZED (
    SELECT n.*, m.is_pausing, m.before + row_number() OVER (PARTITION BY n.task_id ORDER BY n.place) AS seq
    FROM n JOIN moved m ON m.id = n.task_id
  ), kept AS (
    INSERT INTO checkpoints (task_id, version, step, occurrence, seq, value, stored_at)
    SELECT p.task_id, p.version, p.step, p.occurrence, p.seq, p.value, clock_timestamp() FROM passed p
  ), logged AS (
    INSERT INTO task_log (task_id, sequence_num, at, kind, data)
    SELECT p.task_id, p.seq, clock_timestamp(), 'checkpoint_written', p.line FROM passed p
  )
  SELECT p.place, p.is_pausing FROM passed p;
END $$;
