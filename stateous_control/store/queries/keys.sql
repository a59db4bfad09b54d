-- name: live_keys
-- Every key that may be used now, and whether there ever was one; without a live key one row with nothing else in it.
SELECT ever.is_any, k.id, k.name, k.role, k.owners, k.states, k.digest,
  extract(epoch FROM k.expires_at - clock_timestamp())::float8 AS left_s
FROM (SELECT EXISTS (SELECT 1 FROM keys) AS is_any) ever
LEFT JOIN keys k ON k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp());

-- name: list_keys
-- All keys, newest first, without their digests.
SELECT k.id, k.name, k.role, k.owners, k.states, k.created_at, k.expires_at, k.revoked_at, k.last_used_at,
  CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= clock_timestamp() THEN 'expired'
    ELSE 'live' END AS status
FROM keys k ORDER BY k.created_at DESC, k.id;

-- name: insert_key
-- A new key; nothing comes back where a live one has this name. $7 seconds until it expires (NULL: never).
INSERT INTO keys (id, name, role, owners, states, digest, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::float8 * interval '1 second')
ON CONFLICT (lower(name)) WHERE revoked_at IS NULL DO NOTHING
RETURNING id, expires_at;

-- name: revoke_keys
-- Revoke the live key of this name or id.
UPDATE keys SET revoked_at = clock_timestamp() WHERE revoked_at IS NULL AND (lower(name) = lower($1) OR id = $1)
RETURNING id, name;

-- name: own_tasks
-- The tasks among these that belong to the owner beside them.
SELECT t.id FROM unnest($1::bigint[], $2::text[]) AS n (task_id, owner)
JOIN tasks t ON t.id = n.task_id AND t.owner = n.owner;

-- name: use_keys
-- Note that keys were used just now.
UPDATE keys k SET last_used_at = clock_timestamp() FROM unnest($1::text[]) AS n (id) WHERE k.id = n.id;
