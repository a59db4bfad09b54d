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
-- It serves the claims of programs that are still running, until there is one that begins with the owner.
ALTER INDEX tasks_claimable RENAME TO tasks_claimable_by_state;

-- Names of supervisors and request ids of claims mean something within the owners of a key only.
ALTER TABLE claim_requests ADD COLUMN scope text NOT NULL DEFAULT 'default';
ALTER TABLE claim_requests DROP CONSTRAINT claim_requests_pkey, ADD PRIMARY KEY (supervisor, instance, request, scope);
ALTER TABLE supervisors ADD COLUMN scope text NOT NULL DEFAULT 'default';
ALTER TABLE supervisors DROP CONSTRAINT supervisors_pkey, ADD PRIMARY KEY (name, instance, scope);
