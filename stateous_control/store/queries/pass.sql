-- name: pass_points
-- Write checkpoints of attempts that run, where nothing speaks against it, and say which were written. $1 … $6 the points
-- with their attempts, $7 their lines for the log, $8 supervisor, $9 instance, $10 the owners that exist for the caller.
-- A point that stands, an attempt that is over, a child of a graph, and a token that somebody holds are left alone: the
-- rules say what becomes of those.
SELECT p.place, p.is_pausing FROM pass_points($1::bigint[], $2::int[], $3::int[], $4::text[], $5::int[], $6::text[],
  $7::text[], $8::text, $9::text, $10::text[]) AS p;
