-- How often a task was given back without fault, and how many events a token refused after its end.

ALTER TABLE tasks ADD COLUMN given_back integer NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN late_events integer NOT NULL DEFAULT 0;
