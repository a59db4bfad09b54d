"""What survives on disk: kill -9, damage, foreign files, a copied box (A-35, A-40, A-42)."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stateous_supervisor.agent import outbox_file as outboxes
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.outbox import (
    Batch,
    ClaimRow,
    Envelope,
    GrantRow,
    Outbox,
    WriteFailed,
)
from stateous_supervisor.agent.outbox_file import open_outbox

BOX = Identity("box", "i1")


def grant(task: int) -> GrantRow:
    return GrantRow(task, 1, "s", "t", BOX)


def report(number: int, task: int, body: bytes | None = None) -> Envelope:
    text = body if body is not None else b'{"task":%d,"attempt":1,"kind":"report","outcome":"waiting"}' % task
    return Envelope(number, task, 1, "s", "t", BOX, "report", text)


@contextmanager
def opened(folder: Path) -> Iterator[Outbox]:
    outbox = open_outbox(folder)
    try:
        yield outbox
    finally:
        outbox.close()


def test_a_new_outbox_is_empty_and_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    with opened(tmp_path / "a/b") as outbox:
        assert not any(outbox.found)

    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(claims=[ClaimRow("r1", BOX)], grants=[grant(1)], messages=[report(1, 2)]))

    with opened(tmp_path) as outbox:
        assert outbox.found.claims == [ClaimRow("r1", BOX)]
        assert outbox.found.grants == [grant(1)]
        assert outbox.found.messages == [report(1, 2)]


def test_what_is_over_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(claims=[ClaimRow("r1", BOX)], grants=[grant(1)], messages=[report(1, 2)]))
        outbox.commit(Batch(claims_over=["r1"], grants_over=[(1, 1)], messages_over=[1]))

    with opened(tmp_path) as outbox:
        assert not any(outbox.found)


def test_an_attempt_that_was_let_go_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(grants=[grant(1), grant(2)], messages=[report(1, 1), report(2, 2)]))
        outbox.commit(Batch(attempts_over=[(1, 1)]))

    with opened(tmp_path) as outbox:
        assert [row.task for row in outbox.found.grants] == [2]
        assert [row.task for row in outbox.found.messages] == [2]


def test_messages_come_in_the_order_in_which_they_were_made_a_36(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(messages=[report(2, 2), report(1, 1)]))
        outbox.commit(Batch(messages=[report(3, 3)]))

    with opened(tmp_path) as outbox:
        assert [envelope.id for envelope in outbox.found.messages] == [1, 2, 3]
        assert outbox.next_id == 4


def test_a_second_agent_is_refused_with_a_sentence_a_42(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(Fault) as caught:
        open_outbox(tmp_path)

    assert caught.value.exit_code is Exit.HELD_BY_ANOTHER
    assert f"process {os.getpid()}" in caught.value.sentence


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Fault) as caught:
        open_outbox(tmp_path / "file" / "state")

    assert caught.value.exit_code is Exit.NO_STATE_FOLDER


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b'{"task":9,"attempt":1,"kind":"report"}',
        b'{"task":1,"attempt":1,"kind":"note"}',
        b"[" * 99_999,
    ],
)
def test_a_damaged_record_is_set_aside_and_the_rest_is_found_a_40(tmp_path: Path, body: bytes) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(messages=[report(1, 1, body), report(2, 2)]))

    with opened(tmp_path) as outbox:
        assert [envelope.task for envelope in outbox.found.messages] == [2]
        assert outbox.found.aside[0].startswith("report of task 1 attempt 1: ")

    with closing(sqlite3.connect(tmp_path / outboxes.FILE)) as database:
        assert database.execute("SELECT body FROM aside").fetchall() == [(body,)]


@pytest.mark.parametrize(
    "text", [b"not a database at all, but long enough to look like one", b"SQLite format 3\0" + b"\1" * 4096]
)
def test_a_damaged_file_is_set_aside_and_a_new_one_made_a_40(tmp_path: Path, text: bytes) -> None:
    (tmp_path / outboxes.FILE).write_bytes(text)

    with opened(tmp_path) as outbox:
        outbox.commit(Batch(grants=[grant(1)]))

    assert (tmp_path / f"{outboxes.FILE}.aside-1").read_bytes() == text
    assert outbox.found.aside


def test_somebody_elses_database_is_set_aside_whole_a_40(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / outboxes.FILE)) as foreign:
        foreign.execute("CREATE TABLE theirs (a)")
        foreign.commit()

    with opened(tmp_path) as outbox:
        assert "is not an outbox" in outbox.found.aside[0]

    with closing(sqlite3.connect(tmp_path / f"{outboxes.FILE}.aside-1")) as foreign:
        assert foreign.execute("SELECT count(*) FROM theirs").fetchone() == (0,)


def test_a_file_of_zero_bytes_is_an_outbox_without_records_bh_032(tmp_path: Path) -> None:
    (tmp_path / outboxes.FILE).touch()

    with opened(tmp_path) as outbox:
        assert not any(outbox.found)
        outbox.commit(Batch(messages=[report(1, 1)]))

    with opened(tmp_path) as outbox:
        assert [envelope.task for envelope in outbox.found.messages] == [1]


def test_an_outbox_of_a_later_version_is_kept_whole_for_it_bh_032(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(messages=[report(1, 1)]))
    with closing(sqlite3.connect(tmp_path / outboxes.FILE)) as later:
        later.execute("PRAGMA user_version = 99")

    with opened(tmp_path) as outbox:
        assert "is not an outbox of version" in outbox.found.aside[0]
        assert outbox.found.messages == []

    with closing(sqlite3.connect(tmp_path / f"{outboxes.FILE}.aside-1")) as later:
        assert later.execute("SELECT count(*) FROM messages").fetchone() == (1,)


def test_a_copied_file_is_told_by_its_inode_bh_010(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as outbox:
        outbox.commit(Batch(grants=[grant(1)]))
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    with opened(tmp_path / "b") as outbox:
        assert outbox.found.is_copied


def test_a_file_from_another_machine_is_told_by_its_id_bh_010(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(grants=[grant(1)]))
    (tmp_path / "machine-id").write_text("another\n")
    monkeypatch.setattr(outboxes, "MACHINE_ID", tmp_path / "machine-id")

    with opened(tmp_path) as outbox:
        assert outbox.found.is_copied


def test_a_copy_becomes_its_finders_own_once_it_was_seen(tmp_path: Path) -> None:
    with opened(tmp_path / "a"):
        pass
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with opened(tmp_path / "b"):
        pass

    with opened(tmp_path / "b") as outbox:
        assert not outbox.found.is_copied


def test_a_commit_that_fails_writes_nothing_of_it(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        with pytest.raises(WriteFailed):
            outbox.commit(Batch(grants=[grant(1)], messages=[report(1, 1)._replace(kind=None)]))  # type: ignore[arg-type]
        outbox.commit(Batch(grants=[grant(2)]))

    with opened(tmp_path) as outbox:
        assert [row.task for row in outbox.found.grants] == [2]


CHILD = """
    import sys
    from pathlib import Path
    from stateous_supervisor.agent.assignment import Identity
    from stateous_supervisor.agent.outbox import Batch, Envelope, GrantRow
    from stateous_supervisor.agent.outbox_file import open_outbox

    outbox = open_outbox(Path(sys.argv[1]))
    box = Identity("box", "i1")
    for task in range(1, 1_000_000):
        outbox.commit(Batch(grants=[GrantRow(task, 1, "s", "t", box)]))
        body = b'{"task":%d,"attempt":1,"kind":"report","outcome":"waiting"}' % task
        outbox.commit(Batch(messages=[Envelope(task, task, 1, "s", "t", box, "report", body)], grants_over=[(task, 1)]))
        print(task, flush=True)
"""


@pytest.mark.parametrize("kept", [1, 50, 300])
def test_kill_9_loses_nothing_that_was_said_to_be_written_a_35(tmp_path: Path, kept: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = 0
        for line in child.stdout:
            told = int(line)
            if told >= kept:
                break
        child.send_signal(signal.SIGKILL)
        told = max([told, *(int(line) for line in child.stdout if line.endswith("\n"))])

    with opened(tmp_path) as outbox:
        written = [envelope.task for envelope in outbox.found.messages]
        held = [row.task for row in outbox.found.grants]

    assert written == list(range(1, len(written) + 1))
    assert len(written) >= told
    assert held in ([], [len(written) + 1])


ROWS = {
    "claims": ("INSERT INTO claims VALUES (?, 'box', 'i1')", b"\xff\xfe"),
    "grants": ("INSERT INTO grants VALUES (7, 1, 's', 't', 'box', ?)", b"\xff"),
    "messages": ("INSERT INTO messages VALUES (7, 'seven', 1, 's', 't', 'box', 'i1', 'report', ?)", b"{}"),
}


@pytest.mark.parametrize("table", ROWS)
def test_a_row_that_is_none_of_ours_is_set_aside_and_the_rest_is_found_a_40(
    tmp_path: Path, table: str
) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(claims=[ClaimRow("r1", BOX)], grants=[grant(1)], messages=[report(1, 2)]))
    with closing(sqlite3.connect(tmp_path / outboxes.FILE)) as database:
        statement, value = ROWS[table]
        database.execute(statement, (value,))
        database.commit()

    with opened(tmp_path) as outbox:
        found = outbox.found
        assert (found.claims, found.grants, found.messages) == (
            [ClaimRow("r1", BOX)],
            [grant(1)],
            [report(1, 2)],
        )
        assert len(found.aside) == 1

    with opened(tmp_path) as outbox:
        assert outbox.found.earlier == found.aside
        assert outbox.found.aside == []


def test_what_a_damaged_file_still_holds_is_saved_a_40(tmp_path: Path) -> None:
    """Pages in its middle are gone; records on both sides of them are found, also those only in the log of writes."""
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(messages=[report(number, number) for number in range(1, 2_001)]))
        outbox._make_room()
        outbox.commit(Batch(messages=[report(3_000, 3_000)], grants=[grant(5)]))
        for ending in ("", "-wal"):
            shutil.copy(tmp_path / f"{outboxes.FILE}{ending}", tmp_path / f"kept{ending}")
    for ending in ("", "-wal"):
        (tmp_path / f"kept{ending}").replace(tmp_path / f"{outboxes.FILE}{ending}")
    with (tmp_path / outboxes.FILE).open("r+b") as file:
        file.seek(file.seek(0, os.SEEK_END) // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8192)

    with opened(tmp_path) as outbox:
        tasks = [envelope.task for envelope in outbox.found.messages]
        assert "aside-1" in outbox.found.aside[0]
        assert (tasks[0], tasks[-1]) == (1, 3_000)
        assert 1_000 < len(tasks) < 2_001
        assert tasks == sorted(tasks)

    with opened(tmp_path) as outbox:
        assert [envelope.task for envelope in outbox.found.messages] == tasks
        assert outbox.found.earlier == [f"{outboxes.FILE}.aside-1: a file"]


def test_a_copy_holds_no_grant_and_no_claim_from_the_first_look_on_a_42(tmp_path: Path) -> None:
    """An agent that dies right after its start leaves nothing that the next one could take for its own."""
    with opened(tmp_path / "a") as outbox:
        outbox.commit(Batch(claims=[ClaimRow("r1", BOX)], grants=[grant(1)], messages=[report(1, 2)]))
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    with opened(tmp_path / "b") as outbox:
        assert (outbox.found.is_copied, len(outbox.found.grants)) == (True, 1)

    with opened(tmp_path / "b") as outbox:
        assert (outbox.found.claims, outbox.found.grants) == ([], [])
        assert outbox.found.messages == [report(1, 2)]


def test_an_outbox_that_says_who_owns_it_is_not_written_to_be_opened_a_41(tmp_path: Path) -> None:
    """So that an agent starts on a full disk, and delivers what it has."""
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(messages=[report(1, 2)]))
    before = (tmp_path / outboxes.FILE).read_bytes()

    with opened(tmp_path) as outbox:
        assert not (tmp_path / f"{outboxes.FILE}-wal").stat().st_size

    assert (tmp_path / outboxes.FILE).read_bytes() == before


def test_only_the_newest_records_stay_set_aside(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.commit(Batch(aside=[(f"no {number}", report(number, 1)) for number in range(1, 301)]))

    with opened(tmp_path) as outbox:
        assert len(outbox.found.earlier) == 100
        assert outbox.found.earlier[-1] == "report of task 1 attempt 1: no 300"


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_file_that_is_no_longer_there_takes_no_writes_bh_031(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as outbox:
        file = tmp_path / outboxes.FILE
        if change == "removed":
            file.unlink()
        else:
            shutil.copy(file, tmp_path / "copy")
            (tmp_path / "copy").replace(file)

        with pytest.raises(WriteFailed, match=f"{outboxes.FILE} was removed or replaced"):
            outbox.commit(Batch(grants=[grant(1)]))
