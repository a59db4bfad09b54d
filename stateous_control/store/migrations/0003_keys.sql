-- Keys, and whose everything is. Of a key only a digest is kept; rows stay for ever, so that its name explains the past.

CREATE TABLE keys (
  id           text PRIMARY KEY,
  name         text NOT NULL,
  role         text NOT NULL CHECK (role IN ('supervisor', 'operator', 'viewer', 'admin')),
  owners       text[] NOT NULL CHECK (cardinality(owners) > 0),
  states       text[] CHECK (cardinality(states) > 0),
  digest       bytea NOT NULL CHECK (length(digest) = 32),
  created_at   timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX keys_name_key ON keys (lower(name)) WHERE revoked_at IS NULL;

-- The owner stands on the task too: a claim must not walk past the work of others.
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS owner text NOT NULL DEFAULT 'default';
UPDATE tasks t SET owner = k.owner FROM tokens k WHERE k.id = t.token_id AND k.owner <> 'default';
DROP INDEX tasks_claimable;
CREATE INDEX tasks_claimable ON tasks (owner, state, ready_at, id) WHERE ready_at IS NOT NULL;
-- With a collation of its own, so that nothing but lists can use it: a planner without statistics would take it for
-- the look-up of a name, and walk through everything that the owner has.
CREATE INDEX tokens_by_owner ON tokens (owner COLLATE "C", id);

-- Names of supervisors and request ids of claims mean something within the owners of a key only.
ALTER TABLE claim_requests ADD COLUMN scope text NOT NULL DEFAULT 'default';
ALTER TABLE claim_requests DROP CONSTRAINT claim_requests_pkey, ADD PRIMARY KEY (supervisor, instance, request, scope);
ALTER TABLE supervisors ADD COLUMN scope text NOT NULL DEFAULT 'default';
ALTER TABLE supervisors DROP CONSTRAINT supervisors_pkey, ADD PRIMARY KEY (name, instance, scope);
