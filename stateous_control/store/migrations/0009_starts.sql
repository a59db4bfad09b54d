-- Keys of starts are of tokens too; those of tokens and of tasks are one space, so that a key never begins both.
DROP TABLE token_start_keys;
ALTER TABLE start_keys ALTER COLUMN task_id DROP NOT NULL, ADD COLUMN token_id bigint REFERENCES tokens (id),
  ADD CONSTRAINT start_keys_began_one_thing CHECK ((task_id IS NULL) <> (token_id IS NULL));
