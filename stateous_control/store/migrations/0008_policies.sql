-- The policy of retries that a task was made with, beyond their number, as JSON; NULL is the control plane's own.
ALTER TABLE tasks ADD COLUMN policy text;

-- Which token an idempotency key of a start began, and with what.
CREATE TABLE token_start_keys (
  owner    text NOT NULL,
  key      text NOT NULL,
  digest   text NOT NULL,
  token_id bigint NOT NULL REFERENCES tokens (id),
  PRIMARY KEY (owner, key)
);
CREATE INDEX token_start_keys_by_token ON token_start_keys (token_id);
