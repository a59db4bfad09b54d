"""The loop that writes: many in one commit, and a disk that refuses (A-41)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from supervisor.doubles import Lines, simulate, until

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.outbox import Batch, Found, GrantRow, Outbox, WriteFailed, in_memory


class Disk:
    """An outbox that can refuse."""

    is_in_memory = True
    next_id = 1
    found = Found([], [], [], [], is_copied=False, earlier=[])

    def __init__(self) -> None:
        self.commits: list[Batch] = []
        self.is_full = False

    def commit(self, batch: Batch) -> None:
        if self.is_full:
            raise WriteFailed("database or disk is full")
        self.commits.append(batch)


def grant(task: int) -> GrantRow:
    return GrantRow(task, 1, "s", "t", Identity("box", "i"))


def journaling(main: Callable[[Journal, Disk, Lines], Awaitable[None]]) -> None:
    async def run(_: object) -> None:
        disk, lines = Disk(), Lines()
        journal = Journal(disk, lines.log())  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.run)
            await main(journal, disk, lines)
            tasks.cancel_scope.cancel()

    simulate(run)


def test_what_many_want_written_is_one_commit() -> None:
    async def main(journal: Journal, disk: Disk, _: Lines) -> None:
        async with anyio.create_task_group() as writers:
            for task in range(10):
                journal.batch.grants.append(grant(task))
                writers.start_soon(journal.flush)

        assert [len(batch.grants) for batch in disk.commits] == [10]

    journaling(main)


def test_a_callback_comes_after_its_rows_are_on_disk() -> None:
    async def main(journal: Journal, disk: Disk, _: Lines) -> None:
        seen: list[int] = []
        journal.batch.grants.append(grant(1))
        journal.write_soon(lambda: seen.append(len(disk.commits)))

        await until(lambda: seen)

        assert seen == [1]

    journaling(main)


def test_while_the_disk_refuses_a_grant_waits_and_then_goes_on_a_41() -> None:
    async def main(journal: Journal, disk: Disk, lines: Lines) -> None:
        disk.is_full = True
        journal.batch.grants.append(grant(1))
        async with anyio.create_task_group() as writers:
            writers.start_soon(journal.flush)
            await until(lambda: lines.of("outbox.failed"))
            assert not journal.is_writable
            disk.is_full = False

        assert journal.is_writable
        assert [row.task for batch in disk.commits for row in batch.grants] == [1]
        assert lines.of("outbox.mended")

    journaling(main)


def test_while_the_disk_refuses_an_outcome_is_sent_all_the_same_a_41() -> None:
    async def main(journal: Journal, disk: Disk, _: Lines) -> None:
        disk.is_full = True
        sent: list[str] = []
        journal.batch.grants_over.append((1, 1))
        journal.write_soon(lambda: sent.append("sent"))

        await until(lambda: sent)

        assert disk.commits == []

    journaling(main)


def test_rows_that_waited_keep_their_order() -> None:
    async def main(journal: Journal, disk: Disk, lines: Lines) -> None:
        disk.is_full = True
        journal.batch.grants.append(grant(1))
        journal.write_soon()
        await until(lambda: lines.of("outbox.failed"))
        journal.batch.grants.append(grant(2))
        disk.is_full = False

        await journal.flush()

        assert [row.task for batch in disk.commits for row in batch.grants] == [1, 2]

    journaling(main)


def test_a_full_disk_is_told_once_a_41() -> None:
    async def main(journal: Journal, disk: Disk, lines: Lines) -> None:
        disk.is_full = True
        journal.batch.grants.append(grant(1))
        journal.write_soon()
        await anyio.sleep(60)

        assert len(lines.of("outbox.failed")) == 1

    journaling(main)


def test_message_ids_rise_across_restarts() -> None:
    outbox: Outbox = in_memory()
    outbox.next_id = 7
    journal = Journal(outbox, Lines().log())

    assert [journal.new_id(), journal.new_id()] == [7, 8]
    outbox.close()
