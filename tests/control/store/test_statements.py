"""The named statements: each has a purpose, each is used, each fits the schema."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg

import stateous_control
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
