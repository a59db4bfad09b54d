-- Indexes of tables that may be large by now. Each statement is a transaction of its own and keeps nobody waiting; what
-- an earlier try left half made is dropped, and what is there already stays as it is (ADR 42).

UPDATE tasks t SET owner = k.owner FROM tokens k WHERE k.id = t.token_id AND k.owner <> 'default' AND t.owner = 'default';

CREATE INDEX CONCURRENTLY tasks_claimable ON tasks (owner, state, ready_at, id) WHERE ready_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS tasks_claimable_by_state;
CREATE INDEX CONCURRENTLY tasks_expiring ON tasks (expires_at, id)
  WHERE expires_at IS NOT NULL AND current_state IN ('pending', 'running', 'parked');
CREATE INDEX CONCURRENTLY tasks_parked ON tasks (id) WHERE current_state = 'parked';
-- A task is retried once; what is retried again is the retry.
CREATE UNIQUE INDEX CONCURRENTLY tasks_retried_from ON tasks (retried_from) WHERE retried_from IS NOT NULL;
CREATE INDEX CONCURRENTLY tasks_by_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX CONCURRENTLY tasks_by_token ON tasks (token_id);

-- With a collation of its own, so that nothing but lists can use it: a planner without statistics would take it for
-- the look-up of a name, and walk through everything that the owner has.
CREATE INDEX CONCURRENTLY tokens_by_owner ON tokens (owner COLLATE "C", id);
CREATE INDEX CONCURRENTLY tokens_ended ON tokens (ended_at, id) WHERE ended_at IS NOT NULL AND root_id IS NULL;
-- Those that had ended before there was this column.
CREATE INDEX CONCURRENTLY tokens_ended_before ON tokens (id)
  WHERE ended_at IS NULL AND root_id IS NULL AND status IN ('completed', 'failed', 'cancelled');
CREATE INDEX CONCURRENTLY tokens_by_root ON tokens (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX CONCURRENTLY tokens_by_parent ON tokens (parent_id) WHERE parent_id IS NOT NULL;

CREATE INDEX CONCURRENTLY signals_by_task ON signals (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX CONCURRENTLY signals_by_token ON signals (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX CONCURRENTLY start_keys_by_token ON start_keys (token_id) WHERE token_id IS NOT NULL;
