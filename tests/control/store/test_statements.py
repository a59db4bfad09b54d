"""The named statements: each has a purpose, each is used, each fits the schema."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg

import stateous_control
from stateous_control.store.pool import Mode
from stateous_control.store.statements import statements

ROOM = Path(stateous_control.__file__).parent


def test_each_statement_says_what_it_does() -> None:
    assert len(statements.found) > 40
    assert [
        found.name for found in statements.found.values() if not found.purpose.endswith((".", ".)"))
    ] == []


def test_each_statement_is_used_and_each_used_name_exists() -> None:
    used = set()
    for file in ROOM.rglob("*.py"):
        used |= set(re.findall(r"\bstatements\.([a-z_]+)", file.read_text()))
    assert used - {"found", "import"} == set(statements.found)


async def test_each_statement_fits_the_schema(database: str) -> None:
    connection = await asyncpg.connect(database)
    for found in statements.found.values():
        await connection.prepare(found.text)
    await connection.close()


async def test_a_name_is_found_by_its_index_also_before_there_are_statistics(database: str) -> None:
    """Many tokens of one owner came since the plan was made: any other index would walk through all of them."""
    connection = await asyncpg.connect(database)
    await connection.execute(Mode.WRITE.value)
    await connection.execute("PREPARE q AS " + statements.lock_tokens)
    none = "ARRAY[]::bigint[]"
    plan = await connection.fetch(f"EXPLAIN EXECUTE q({none}, {none}, ARRAY['default'], ARRAY['T'])")
    await connection.close()
    text = "\n".join(row[0] for row in plan)
    assert "tokens_name_key" in text, text
    assert "tokens_by_owner" not in text
