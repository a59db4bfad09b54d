"""The token commands against a real control plane: what they print, and how they end (A-60, BH-060)."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from itertools import count
from pathlib import Path

import pytest
from control.cli.conftest import COMMAND, Ask, Live, environment, launched, lines, stateous
from programs import wait_for

from stateous_control.cli.story import told


def test_start_says_where_the_token_is(live: Live, ask: Ask) -> None:
    name = live.name()
    assert ask("token", "start", name, '{"path": "plain"}') == (0, f"{name}: plain, active\n", "")


def test_starting_again_changes_nothing(live: Live, ask: Ask) -> None:
    name = live.start()
    assert ask("token", "start", name, '{"path": "draft"}') == (0, f"{name}: plain, active\n", "")


def test_a_context_keeps_the_digits_that_were_typed(live: Live, ask: Ask) -> None:
    name = live.name()
    ask("token", "start", name, '{"path": "plain", "n": 12345678901234567890123.50}')
    assert "12345678901234567890123.50" in live.http.get(f"/tokens/{name}").text


def test_a_context_can_come_from_a_file(live: Live, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "context.json").write_text('{"path": "draft"}')
    assert ask("token", "start", live.name(), "--context-file", str(tmp_path / "context.json"))[1].endswith(
        "draft, active\n"
    )


@pytest.mark.parametrize("context", ["[1]", "nope", '{"a": NaN}', '{"a": "\\u0000"}'])
def test_a_context_that_is_no_object_is_a_wrong_command_line(ask: Ask, context: str) -> None:
    code, out, err = ask("token", "start", "x", context)
    assert (code, out) == (64, "")
    assert "the context must be a JSON object" in err


def test_a_refusal_ends_with_76_and_the_control_planes_sentence(ask: Ask) -> None:
    code, out, err = ask("token", "start", "a b")
    assert (code, out) == (76, "")
    assert err.startswith("error: refused (invalid_token_id): a token id")


def test_what_is_not_there_is_refused(ask: Ask) -> None:
    for command in ("show", "history", "watch", "pause", "resume", "cancel"):
        assert ask("token", command, "nobody")[0] == 76


def test_a_name_with_a_slash_cannot_reach_another_path(ask: Ask) -> None:
    """BH-054"""
    assert ask("token", "show", "../health")[0] == 76


@pytest.mark.parametrize("arguments", [["show", "nobody"], ["start", "a b"], ["list", "--limit", "0"], ["show"], ["show", "x", "--nope"],
                                       ["start", "x", "[1]"], ["watch", "nobody"], ["show", "x", "--url", "nonsense"]])  # fmt: skip
def test_with_json_an_error_is_one_json_document_on_stdout(ask: Ask, arguments: list[str]) -> None:
    code, out, err = ask("token", *arguments, "--json")
    assert code in (64, 76)
    assert set(json.loads(out)) == {"error", "code"}
    assert err.startswith("error: ")


def test_with_json_every_answer_is_one_document(live: Live, ask: Ask) -> None:
    name = live.start()
    for arguments in (
        ["show", name],
        ["history", name],
        ["list"],
        ["fire", name, "noted"],
        ["start", name],
        ["watch", name],
    ):
        code, out, _err = ask("token", *arguments, "--json")
        assert code == 0
        json.loads(out)


def test_show_tells_the_context(live: Live, ask: Ask) -> None:
    name = live.start()
    _, out, _ = ask("token", "show", name)
    assert f"{name}: plain, active" in out
    assert '  path = "plain"' in out


def test_history_tells_the_story(live: Live, ask: Ask) -> None:
    name = live.start()
    task = live.claim_of(name, "plain")
    live.report(task, kind="failed", error="it broke")
    _, out, _ = ask("token", "history", name)
    told = [line[15:] for line in lines(out)]
    assert told[:4] == ["started", "__started__ in START", "entered plain", f"task {task} queued for plain"]
    assert told[4:6] == [f"task {task} claimed by sup, attempt 1", f"task {task} failed: it broke"]


def test_fire_moves_a_token_and_a_key_makes_it_once(live: Live, ask: Ask) -> None:
    name = live.start()
    assert ask("token", "fire", name, "noted", "--key", "k")[:2] == (0, f"{name}: plain, completed\n")
    assert ask("token", "fire", name, "noted", "--key", "k")[:2] == (
        0,
        f"duplicate: {name}: plain, completed\n",
    )
    assert ask("token", "fire", name, "noted")[0] == 76


def test_pause_resume_and_cancel_say_what_is_so_now(live: Live, ask: Ask) -> None:
    name = live.start()
    for action, status in (("pause", "paused"), ("resume", "active"), ("cancel", "cancelled")):
        assert ask("token", action, name)[:2] == (0, f"{name}: plain, {status}\n")


def test_a_list_says_how_much_it_leaves_out(live: Live, ask: Ask) -> None:
    """BH-056"""
    for _ in range(3):
        live.start()
    total = json.loads(ask("token", "list", "--json")[1])["total_count"]
    _, out, err = ask("token", "list", "--limit", "2")
    assert len(lines(out)) == 3
    assert f"showing 2 of {total:,}" in err
    cursor = err.split("--cursor ")[1].strip()
    first = {line.split()[0] for line in lines(out)[1:]}
    second = {
        line.split()[0] for line in lines(ask("token", "list", "--limit", "2", "--cursor", cursor)[1])[1:]
    }
    assert second
    assert not first & second


@pytest.mark.parametrize(
    ("outcome", "code"),
    [({"kind": "event", "event": "noted"}, 0), ({"kind": "failed", "error": "broken"}, 1)],
)
def test_a_wait_ends_as_the_token_does(live: Live, ask: Ask, outcome: dict[str, str], code: int) -> None:
    name = live.name()

    def work() -> None:
        deadline = time.monotonic() + 10
        while live.http.get(f"/tokens/{name}").status_code == 404 and time.monotonic() < deadline:
            time.sleep(0.02)
        live.report(live.claim_of(name, "plain"), **outcome)

    worker = threading.Thread(target=work)
    worker.start()
    ended, out, _ = ask("token", "start", name, '{"path": "plain"}', "--wait")
    worker.join()
    assert ended == code
    assert lines(out)[0].endswith("started")
    assert ("completed" if code == 0 else "failed") in lines(out)[-1]


def test_watching_a_cancelled_token_ends_with_1(live: Live, ask: Ask) -> None:
    name = live.start()
    live.http.post(f"/tokens/{name}/cancel")
    assert ask("token", "watch", name)[0] == 1


def test_control_characters_never_reach_the_terminal(live: Live, ask: Ask) -> None:
    name = live.start()
    task = live.claim_of(name, "plain")
    live.http.post(f"/tasks/{task}/note", json={"text": "a\x1b[2Jb\u202ec\x9bd\nline"})
    out = ask("token", "history", name)[1]
    assert "note: a [2Jb c d line" in out


def test_ctrl_c_ends_a_watch_with_130(live: Live) -> None:
    with launched("token", "watch", live.start(), "--url", live.url) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "Traceback" not in (process.stderr.read() if process.stderr else "")


def test_a_reader_that_has_seen_enough_is_no_error(live: Live) -> None:
    """BH-060: ``| head -1`` is silent."""
    live.start()
    command = f"{COMMAND} token list --limit 1000 --url {live.url} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment(), check=False)
    assert lines(done.stdout)[0].startswith("TOKEN")
    assert done.stderr == ""


def test_text_that_the_locale_cannot_show_does_not_break_a_command(live: Live) -> None:
    name = live.name()
    live.http.post("/tokens", json={"token": name, "context": {"path": "plain", "label": "é😀"}})
    done = stateous(
        "token",
        "show",
        name,
        "--url",
        live.url,
        LANG="C",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    assert done.returncode == 0
    assert "label" in done.stdout


def on_a_terminal(*arguments: str, **more: str) -> str:
    """Run a command with a terminal as its stdout, 40 columns wide, and return what it showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *arguments],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment(TERM="xterm", COLUMNS="40", **more),
    ):
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode()


def test_a_terminal_gets_colours_unless_it_wants_none(live: Live) -> None:
    name = live.start()
    arguments = ("token", "history", name, "--url", live.url)
    assert "\x1b[36mentered plain" in on_a_terminal(*arguments)
    assert "\x1b[" not in on_a_terminal(*arguments, NO_COLOR="1")
    assert "\x1b[" not in stateous(*arguments).stdout


def test_supervisors_and_queues_are_listed_with_their_warnings(live: Live, ask: Ask) -> None:
    numbers = count(1)
    for _ in range(2):
        live.start("plain")
    for instance in ("one", "two", "one"):
        body = {
            "supervisor": "twin",
            "instance": instance,
            "states": ["plain"],
            "request": f"r-{instance}",
            "max": 1,
        }
        news = {"User-Agent": f"stateous-supervisor/{next(numbers)}.0"}  # what is news is written at once
        assert live.http.post("/tasks/claim", json=body, headers=news).status_code == 200
    live.start("draft")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        _, out, err = ask("supervisor", "list")
        if "draft" in out and "go by the name twin" in err:
            break
        time.sleep(0.1)
    assert "2 processes go by the name twin" in err
    assert re.search(r"warning: (1 task waits|[2-9] tasks wait) in draft, and nobody serves it", err)
    head = lines(out)[0].split("  ")
    assert [cell.strip() for cell in head if cell.strip()] == [
        "NAME",
        "INSTANCE",
        "VERSION",
        "LAST SEEN",
        "RUNNING",
        "STATES",
    ]
    document = json.loads(ask("supervisor", "list", "--json")[1])
    assert set(document) == {"supervisors", "queues"}


def test_names_that_begin_alike_are_told_whole_everywhere(live: Live, ask: Ask) -> None:
    """BH-033: two hosts whose names are equal in the first 63 characters, and more than letters in one of them."""
    same = "h" * 63
    names = [f"{same}-one.example", f"{same}-zwei.bücher.שלום"]
    for name in names:
        live.start("plain")
        body = {"supervisor": name, "instance": "i", "states": ["plain"], "request": "r"}
        assert live.http.post("/tasks/claim", json=body).status_code == 200
    wait_for(
        lambda: all(name in ask("supervisor", "list")[1] for name in names), within_s=30, what="both names"
    )
    listed = json.loads(ask("supervisor", "list", "--json")[1])["supervisors"]["entries"]
    assert {each["name"] for each in listed} >= set(names)


@pytest.mark.parametrize(
    "text", ["'", '" OR 1=1--', "id;select pg_sleep(5)", "%", "$1", "\\", "../x", "x" * 900]
)
def test_a_cursor_that_no_list_gave_is_refused(live: Live, text: str) -> None:
    """BH-054, BH-056"""
    headers = {"Accept": "application/vnd.stateous.v1+json"}
    response = live.http.get("/tokens", params={"cursor": text}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_argument")
    assert "SELECT" not in response.text.upper().replace(text.upper(), "")


@pytest.mark.parametrize("text", ["' OR 1=1--", "%", "_", "a';select pg_sleep(5);--"])
def test_a_parent_is_only_ever_compared(live: Live, text: str) -> None:
    """BH-054"""
    response = live.http.get("/tokens", params={"parent": text})
    assert (response.status_code, response.json()) == (200, [])


def test_many_are_started_from_a_file_and_what_is_wrong_is_named(
    live: Live, ask: Ask, tmp_path: Path
) -> None:
    name = live.start()
    file = tmp_path / "starts.jsonl"
    lines_of = [{"token": f"{name}-{n}", "context": {"path": "plain"}} for n in range(700)]
    lines_of += [{"token": name}, {"token": "a b"}]
    file.write_text("\n".join(json.dumps(line) for line in lines_of) + "\n\n")
    code, out, err = ask("token", "start-many", str(file))
    assert (code, out) == (1, "700 started, 1 were there, 1 refused\n")
    assert "a b: a token id starts with" in err
    assert ask("token", "start-many", str(file), "--json")[0] == 1
    file.write_text('{"token": "x"}\n[1]\n')
    code, _, err = ask("token", "start-many", str(file))
    assert code == 78
    assert "line 2 is no JSON object" in err


def test_a_key_makes_a_start_once(live: Live, ask: Ask) -> None:
    name = live.start()
    context = '{"path": "plain"}'
    for expected in (0, 0):
        assert ask("token", "start", f"{name}-k", context, "--idempotency-key", name)[0] == expected
    assert ask("token", "start", f"{name}-k", "--idempotency-key", name)[0] == 76


@pytest.mark.parametrize(("due", "shown"), [("2026-11-30T23:59:00Z", "23:59:00"), ("2026-12-01T01:35:44Z", "2026-12-01 01:35:44")])  # fmt: skip
def test_a_timer_of_another_day_is_shown_with_its_day(due: str, shown: str) -> None:
    entry = {
        "seq": 5,
        "at": "2026-11-30T01:35:44Z",
        "kind": "timer_set",
        "data": {"event": "timeout", "due_at": due},
    }

    assert told(entry) == f"01:35:44  #5   timer set: timeout at {shown}"
