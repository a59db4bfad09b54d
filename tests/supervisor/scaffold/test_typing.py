"""Type checkers read a generated contract without complaint, and complain about routines that break it (A-08)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stateous_contract.canonical import checksum_of
from supervisor.scaffold.kitchen import KITCHEN

from stateous_supervisor.scaffold.document import read_document
from stateous_supervisor.scaffold.folder import init

ROOT = Path(__file__).parents[3]

ROUTINES = """\
import datetime

from contract import AsyncOrderContext, Item, OrderContext, events, states
from stateous_supervisor import on_state

AT = datetime.datetime(2026, 1, 1)


@on_state(states.prepare)
def one(ctx: OrderContext) -> events.ready | events.nothing_new:
    count: int = ctx["n"]
    who: str | None = ctx["who"]
    ctx["n"] = count + 1
    ctx.note(f"{who} {ctx.get('n')} {ctx.memory.get('x')}")
    return events.ready(Item(sku="AB", at=AT)) if count else events.nothing_new()


@on_state(states.prepare)
async def two(ctx: AsyncOrderContext) -> events.ready | None:
    return None


@on_state(states.stuck)
def three(ctx: OrderContext) -> None:
    return None
"""

DURABLE = """\
import asyncio
from typing import Any

from contract import AsyncOrderContext, Item, OrderContext
from stateous_supervisor import (
    AsyncContext,
    Child,
    Context,
    Finished,
    Parked,
    Received,
    Result,
    Signal,
    Sleep,
    Slept,
    TimedOut,
    routine,
)


@routine("work")
def work(ctx: Context[Any], given: int) -> str:
    return str(given)


@routine("work", version=2, timeout="1h")
async def work_again(ctx: AsyncContext[Any], given: dict[str, int]) -> None: ...


def plain(ctx: OrderContext) -> None:
    ctx.sleep_for("nap", "1h")
    got: Received = ctx.wait_for_signal("go")
    perhaps: Received | TimedOut = ctx.wait_for_signal("go", timeout=60)
    kids: list[Child] = [ctx.spawn(work, 3), ctx.spawn(work_again, {"a": 1}), ctx.spawn("else", [], version=2)]
    done: Finished = ctx.wait_for_result(kids[0])
    first: Slept | Received | Finished | TimedOut = ctx.first("one", Sleep(1), Signal("go"), Result(kids[1]))
    size: int = ctx.step("size", lambda: 3)
    word: str = ctx.ask("go", {"size": size}, choices=["yes", "no"], ttl="2h", remind="30m")
    item: Item = ctx.ask("item", schema=Item, ttl=60, occurrence=2)
    anything: Any = ctx.ask("any", schema={"type": "object"})
    ctx.checkpoint("between")
    key: str = ctx.step_key
    try:
        ctx.ask("again")
    except Parked as parked:
        number: int | None = parked.question
        raise


async def awaited(ctx: AsyncOrderContext) -> None:
    async def fetch() -> list[str]:
        return []

    await ctx.sleep_for("nap", 1.5)
    perhaps: Received | TimedOut = await ctx.wait_for_signal("go", timeout=60)
    done: Finished = await ctx.wait_for_result(await ctx.spawn(work, 3))
    size: int = await ctx.step("size", lambda: 3)
    names: list[str] = await ctx.step("fetch", fetch)
    both: tuple[list[str], list[str]] = await asyncio.gather(ctx.step("a", fetch), ctx.step("b", fetch))
    word: str = await ctx.ask("go", {"size": size}, choices=["yes", "no"])
    item: Item = await ctx.ask("item", schema=Item)
    await ctx.checkpoint("between")
"""

DURABLE_MISTAKES = """\
from typing import Any

from contract import AsyncOrderContext, Item, OrderContext
from stateous_supervisor import Context, Received, routine


@routine("work")
def work(ctx: Context[Any], given: int) -> str:
    return str(given)


def plain(ctx: OrderContext) -> None:
    ctx.spawn(work, "3")  # wrong: not what the routine takes
    ctx.sleep_for("nap")  # wrong: for how long
    got: Received = ctx.wait_for_signal("go", timeout=60)  # wrong: it may time out
    text: str = ctx.step("size", lambda: 3)  # wrong: not what the function returns
    number: int = ctx.ask("go", choices=["yes", "no"])  # wrong: not of the choices' type
    word: str = ctx.ask("item", schema=Item)  # wrong: not the schema's type
    ctx.ask("go", ttl=None)  # wrong: a question has an end


async def awaited(ctx: AsyncOrderContext) -> None:
    size: int = ctx.step("size", lambda: 3)  # wrong: it is to be awaited
    text: str = await ctx.step("size", lambda: 3)  # wrong: not what the function returns
    number: int = await ctx.ask("go", choices=["yes"])  # wrong: not of the choices' type
"""

MISTAKES = """\
import datetime

from contract import AsyncOrderContext, Item, OrderContext, events, states
from stateous_supervisor import on_state


@on_state(states.class_)  # wrong: the state may not emit it
def one(ctx: OrderContext) -> events.nothing_new:
    return events.nothing_new()


@on_state(states.class_)  # wrong: the same, async
async def two(ctx: AsyncOrderContext) -> events.nothing_new:
    return events.nothing_new()


@on_state(states.stuck)  # wrong: it may emit nothing
def three(ctx: OrderContext) -> events.ready | None:
    return None


@on_state(states.class_)
def four(ctx: OrderContext) -> events.ready:
    ctx["nn"]  # wrong: no such key
    ctx["n"] = "many"  # wrong: not the type of the key
    text: str = ctx["n"]  # wrong: not the type of the key
    return events.ready(text)  # wrong: not the payload


def five() -> None:
    Item(sku="AB", at="noon")  # wrong: not the type of the field
    Item(at=datetime.datetime(2026, 1, 1))  # wrong: a field is missing
    states.prepared  # wrong: no such state
    events.read  # wrong: no such event
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_mypy_accepts_the_contract_and_finds_each_mistake_in_a_routine(tmp_path: Path) -> None:
    init(tmp_path, read_document(KITCHEN), checksum_of(KITCHEN), "http://127.0.0.1:1")
    (tmp_path / "routines.py").write_text(ROUTINES)
    (tmp_path / "mistakes.py").write_text(MISTAKES)

    found = checked(tmp_path)

    wrong = {number for number, line in enumerate(MISTAKES.splitlines(), 1) if "# wrong" in line}
    assert found == {("mistakes.py", line) for line in wrong}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_mypy_knows_what_durable_calls_give_in_both_kinds_of_routine(tmp_path: Path) -> None:
    init(tmp_path, read_document(KITCHEN), checksum_of(KITCHEN), "http://127.0.0.1:1")
    (tmp_path / "durable.py").write_text(DURABLE)
    (tmp_path / "mistakes.py").write_text(DURABLE_MISTAKES)

    found = checked(tmp_path)

    wrong = {number for number, line in enumerate(DURABLE_MISTAKES.splitlines(), 1) if "# wrong" in line}
    assert found == {("mistakes.py", line) for line in wrong}


@pytest.mark.slow
@pytest.mark.parametrize("example", ["sdlc", "approval", "deploy"])
def test_the_routines_of_the_examples_are_typed(tmp_path: Path, example: str) -> None:
    shutil.copytree(ROOT / "examples" / example, tmp_path, dirs_exist_ok=True)

    assert checked(tmp_path) == set()


def checked(folder: Path) -> set[tuple[str, int]]:
    """Return file and line of every error that mypy --strict finds."""
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    files = [path.name for path in sorted(folder.glob("*.py"))]
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "mypy.ini",
        "--cache-dir",
        str(ROOT / ".mypy_cache/contract"),
    ]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = re.findall(r"^(.+?):(\d+): error: ", done.stdout, re.MULTILINE)
    return {(name, int(line)) for name, line in lines}
