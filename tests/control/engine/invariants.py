"""What no history may ever show, whatever raced, whoever died: each is a statement that finds no row."""

from __future__ import annotations

from control.engine.planes import sql
from control.engine.supervised import check_whole

SAID = """(SELECT token_id, seq, kind, data::jsonb ->> 'task' AS task, data::jsonb ->> 'attempt' AS attempt FROM history)"""
ENDS = "('task_done', 'task_cancelled', 'task_expired')"
FAULTS = {
    "a task ended twice": """SELECT task_id FROM task_log WHERE kind IN ('completed', 'failed', 'expired', 'cancelled')
      GROUP BY task_id HAVING count(*) > 1""",
    "a task ended twice in the history": f"""SELECT task FROM {SAID} h WHERE kind IN {ENDS} GROUP BY task HAVING count(*) > 1""",
    "something happened to a task after its end": f"""SELECT h.task FROM {SAID} h JOIN {SAID} e ON e.task = h.task
      WHERE e.kind IN {ENDS} AND h.seq > e.seq AND h.kind IN ('task_claimed', 'task_parked', 'task_retrying', 'task_resumed')""",
    "an attempt was claimed twice": f"""SELECT task, attempt FROM {SAID} h WHERE kind = 'task_claimed'
      GROUP BY task, attempt HAVING count(*) > 1""",
    "the history has a gap": """SELECT k.id FROM tokens k JOIN history h ON h.token_id = k.id GROUP BY k.id
      HAVING min(h.seq) <> 1 OR max(h.seq) <> count(*) OR max(h.seq) <> k.seq""",
    "history and row disagree on what is done": f"""SELECT t.id FROM tasks t WHERE (t.current_state = 'completed')
      <> EXISTS (SELECT 1 FROM {SAID} h WHERE h.token_id = t.token_id AND h.task = t.id::text AND h.kind = 'task_done')""",
    "a token entered its states another time than it was given tasks": """SELECT k.id FROM tokens k
      WHERE (SELECT count(*) FROM history h WHERE h.token_id = k.id AND h.kind = 'entered')
      <> (SELECT count(*) FROM tasks t WHERE t.token_id = k.id)""",
    "a token moved without its task's end": """SELECT t.token_id FROM tasks t
      WHERE t.current_state IN ('pending', 'running', 'parked') GROUP BY t.token_id HAVING count(*) > 1""",
    "history and row disagree on how a token ended": """SELECT k.id FROM tokens k
      WHERE (SELECT array_agg(h.kind) FROM history h WHERE h.token_id = k.id AND h.kind IN ('completed', 'failed', 'cancelled'))
      IS DISTINCT FROM CASE WHEN k.status IN ('completed', 'failed', 'cancelled') THEN ARRAY[k.status] END""",
}


async def check_histories(url: str) -> None:
    """Look for every fault, and for what is half done."""
    await check_whole(url)
    for fault, statement in FAULTS.items():
        assert await sql(url, statement) == [], fault
