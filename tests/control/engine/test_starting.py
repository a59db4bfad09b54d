"""Starts of tokens: once for each key, and many in one transaction. Real PostgreSQL."""

from __future__ import annotations

import asyncio

from control.engine.planes import plane, sql
from control.engine.supervised import code_of, raw
from stateous_contract.codes import Code
from stateous_contract.messages import Start, StartToken


async def test_a_key_starts_one_token_wherever_it_is_sent(database: str) -> None:
    async with plane(database) as one, plane(database) as two:
        started = await asyncio.gather(
            *((one, two)[n % 2].start_token("T", raw({"a": 1, "b": 2}), key="k") for n in range(10))
        )
        assert sum(is_new for _, is_new in started) == 1
        assert (await two.start_token("T", raw({"b": 2, "a": 1}), key="k"))[1] is False
        assert await code_of(one.start_token("T", raw({"a": 1}), key="k")) is Code.KEY_REUSED
        assert await code_of(one.start_token("U", raw({"a": 1, "b": 2}), key="k")) is Code.KEY_REUSED
        assert await code_of(one.supervision.start(Start(routine="T", input=raw(1)), "k")) is Code.KEY_REUSED
        assert (await one.start_token("T", raw({"other": 1})))[1] is False
    assert [row["name"] for row in await sql(database, "SELECT name FROM tokens")] == ["T"]


async def test_a_refused_start_uses_no_key_up(database: str) -> None:
    async with plane(database) as one:
        await one.start_token("T", None)
        assert await code_of(one.start_token("t", None, key="k")) is Code.INVALID_TOKEN_ID
        assert (await one.start_token("U", None, key="k"))[1] is True


async def test_many_starts_are_one_transaction(database: str) -> None:
    """Set-based: a thousand starts cost as many statements as two."""
    costs = []
    async with plane(database) as one:
        for count in (2, 1000):
            before = one.statistics()
            names = [f"T{count}-{n}" for n in range(count)]
            results = await one.start_tokens([StartToken(token=name, key=name) for name in names])
            after = one.statistics()
            assert [(each.token, each.status) for each in results] == [(name, 201) for name in names]
            assert after["write_transactions"] - before["write_transactions"] == 1
            costs.append(after["statements"] - before["statements"])
        again = await one.start_tokens([StartToken(token=name, key=name) for name in names])
        assert {each.status for each in again} == {200}
    # Fresh ids are reserved five hundred at once.
    assert costs[1] - costs[0] <= 4, costs
    assert (await sql(database, "SELECT count(*) AS n FROM tasks"))[0]["n"] == 1002


async def test_one_that_is_refused_stops_no_other(database: str) -> None:
    async with plane(database) as one:
        starts = [StartToken(token="A"), StartToken(token="a"), StartToken(token="B"), StartToken(token="A")]
        results = await one.start_tokens(starts)
    assert [(each.status, each.code) for each in results] == [
        (201, None),
        (422, "invalid_token_id"),
        (201, None),
        (200, None),
    ]
    assert (results[1].error or "").startswith("the token id 'a' is taken by 'A'")
