"""Hosts as real child processes: how they start, what they may break, and how they end (A-05, A-21, A-25, A-26)."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest
from interpreters import interpreters, version_of
from msgspec import Raw
from supervisor.doubles import until
from supervisor.folders import PLAIN, make_folder

from stateous_supervisor.agent import host_process, loading, shortage
from stateous_supervisor.agent.host import HostEnded, HostUnusable
from stateous_supervisor.agent.host_process import ProcessHost, ProcessHosts
from stateous_supervisor.agent.shortage import Kills
from stateous_supervisor.link.frames import Outcome, Run

GRANT = b'{"task":1,"token":"t","state":"plain","visit":1,"attempt":1,"context":{},"memory":{},"entered_by":{"name":"__started__"}}'


def hosting(
    folder: Path,
    main: Callable[[ProcessHost, list[str]], Awaitable[None]],
    *,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
) -> None:
    printed: list[str] = []
    hosts = ProcessHosts(
        python,
        folder,
        printed=lambda _, line: printed.append(line),
        environment=dict(os.environ) if environment is None else environment,
    )

    async def run() -> None:
        with anyio.fail_after(30):
            async with hosts.open(1) as host:
                await main(host, printed)

    anyio.run(run)


async def nothing(_: ProcessHost, __: list[str]) -> None:
    pass


async def outcome(host: ProcessHost) -> Outcome:
    host.send([Run(grant=Raw(GRANT), lease_s=60.0)])
    while True:
        for message in await host.receive():
            if isinstance(message, Outcome):
                return message


def test_a_folder_is_loaded_and_a_routine_runs(tmp_path: Path) -> None:
    async def main(host: ProcessHost, _: list[str]) -> None:
        assert [(r.state, r.name, r.is_async) for r in host.routines] == [("plain", "plain", True)]
        assert (await outcome(host)).event == "noted"

    hosting(make_folder(tmp_path), main)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import os\nos._exit(3)\n", "its import ended the host: exit code 3"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            "its import ended the host: killed by SIGSEGV",
        ),
        ("import time\ntime.sleep(600)\n", "did not end its import within 1 s"),
    ],
    ids=["exit", "crash", "hang"],
)
def test_a_file_that_kills_or_hangs_its_host_is_left_out_and_named_a_05(
    tmp_path: Path, text: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "FILE_S", 1.0)

    async def main(host: ProcessHost, _: list[str]) -> None:
        assert [r.state for r in host.routines] == ["plain"]
        ((file, said),) = [(Path(broken.file).name, broken.error) for broken in host.broken]
        assert (file, said) == ("bad.py", error)
        assert (await outcome(host)).event == "noted"

    hosting(make_folder(tmp_path, plain=PLAIN, bad=text), main)


def test_two_such_files_are_both_left_out_a_05(tmp_path: Path) -> None:
    async def main(host: ProcessHost, _: list[str]) -> None:
        assert [Path(broken.file).name for broken in host.broken] == ["bad1.py", "bad2.py"]
        assert [r.state for r in host.routines] == ["plain"]

    hosting(
        make_folder(tmp_path, plain=PLAIN, bad1="import os\nos._exit(0)\n", bad2="import os\nos._exit(0)\n"),
        main,
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import os; os._exit(7)", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
    ],
)
def test_the_end_of_a_host_names_signal_or_exit_code_a_23(tmp_path: Path, body: str, reason: str) -> None:
    async def main(host: ProcessHost, _: list[str]) -> None:
        began = anyio.current_time()
        with pytest.raises(HostEnded) as ended:
            await outcome(host)

        assert ended.value.reason == reason
        assert anyio.current_time() - began < 2.0

    hosting(make_folder(tmp_path, plain=PLAIN.replace("return events.noted()", body)), main)


def test_a_host_whose_child_keeps_the_link_open_is_seen_to_die(tmp_path: Path) -> None:
    body = "import os, time\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n    os._exit(5)"

    async def main(host: ProcessHost, _: list[str]) -> None:
        with pytest.raises(HostEnded, match="exit code 5"):
            await outcome(host)

    hosting(make_folder(tmp_path, plain=PLAIN.replace("return events.noted()", body)), main)


def test_what_a_host_started_ends_with_it_a_48(tmp_path: Path) -> None:
    start = "import os, subprocess\nsleeper = subprocess.Popen(['sleep', '1000'])\nos.write(1, b'%d\\n' % sleeper.pid)\n"
    pids: list[int] = []

    async def main(_: ProcessHost, printed: list[str]) -> None:
        await until(lambda: printed)
        pids.append(int(printed[0]))

    hosting(make_folder(tmp_path, plain=start + PLAIN), main)

    with suppress(psutil.NoSuchProcess):
        sleeper = psutil.Process(pids[0])
        anyio.run(until, lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE, 30.0)


def test_raw_output_of_a_host_reaches_the_log_line_by_line_a_21(tmp_path: Path) -> None:
    start = "import os\nos.write(1, b'one\\ntwo\\n')\nos.system('echo three >&2')\n"

    async def main(_: ProcessHost, printed: list[str]) -> None:
        await until(lambda: len(printed) >= 3)

        assert printed == ["one", "two", "three"]

    hosting(make_folder(tmp_path, plain=start + PLAIN), main)


def test_output_without_end_neither_blocks_nor_grows_a_21(tmp_path: Path) -> None:
    start = "import os\nfor _ in range(100): os.write(1, b'x' * 65536)\n"

    async def main(host: ProcessHost, printed: list[str]) -> None:
        assert (await outcome(host)).event == "noted"
        assert all(len(line) <= host_process.LINE_BYTES_MAX for line in printed)

    hosting(make_folder(tmp_path, plain=start + PLAIN), main)


def test_what_systemd_gave_the_service_is_not_handed_down_a_26(tmp_path: Path) -> None:
    """Neither in `os.environ` nor in what the kernel shows of a process's first environment."""
    start = "import os\nfound = open('/proc/self/environ').read() + str(os.environ)\nos.write(1, f'{found.count(\"=secret\")} {found.count(\"secret\")}\\n'.encode())\n"
    ours = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY"]
    ours += ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "STATEOUS_TOKEN", "STATEOUS_TOKEN_FILE"]
    ours += ["STATEOUS_KEY", "STATEOUS_DATABASE_URL"]
    environment = os.environ | dict.fromkeys((*ours, "MINE", "LISTEN_PORT"), "secret")

    async def main(_: ProcessHost, printed: list[str]) -> None:
        await until(lambda: printed)

        assert printed == ["2 4"]

    hosting(make_folder(tmp_path, plain=start + PLAIN), main, environment=environment)


def test_the_end_of_a_host_says_that_memory_ran_out_a_23(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter([Kills("/unit", 3), Kills("/unit", 4)])
    monkeypatch.setattr(shortage, "kills", lambda: next(counted))

    async def main(host: ProcessHost, _: list[str]) -> None:
        with pytest.raises(HostEnded) as ended:
            await outcome(host)

        assert ended.value.reason == "killed by SIGKILL, out of memory"

    killed = PLAIN.replace("return events.noted()", "import os; os.kill(os.getpid(), 9)")
    hosting(make_folder(tmp_path, plain=killed), main)


def test_a_host_is_ended_before_its_agent_where_memory_runs_out_a_23(tmp_path: Path) -> None:
    start = "import os\nos.write(1, open('/proc/self/oom_score_adj').read().encode())\n"

    async def main(_: ProcessHost, printed: list[str]) -> None:
        await until(lambda: printed)

        assert int(printed[0]) >= int(Path("/proc/self/oom_score_adj").read_text()) + 200

    hosting(make_folder(tmp_path, plain=start + PLAIN), main)


def test_a_host_gets_no_descriptor_of_the_agents_a_26(tmp_path: Path) -> None:
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    start = "import os\nfound = os.popen(f'ls -l /proc/{os.getpid()}/fd').read()\nos.write(1, found.encode() + b'\\nend\\n')\n"

    async def main(_: ProcessHost, printed: list[str]) -> None:
        await until(lambda: "end" in printed)

        assert "socket:" in "".join(printed)
        assert "secret" not in "".join(printed)

    try:
        hosting(make_folder(tmp_path / "f", plain=start + PLAIN), main)
    finally:
        os.close(secret)


def script(folder: Path, text: str) -> str:
    file = folder / "python"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def unusable(folder: Path, python: str) -> str:
    with pytest.raises(HostUnusable) as caught:
        hosting(make_folder(folder / "f"), nothing, python=python)
    return caught.value.sentence


def test_an_interpreter_that_is_not_there_is_a_sentence_a_25(tmp_path: Path) -> None:
    assert (
        unusable(tmp_path, str(tmp_path / "none"))
        == f"python: {tmp_path}/none cannot be started: no such file or directory"
    )


def test_an_interpreter_without_the_sdk_gets_the_pip_line_a_25(tmp_path: Path) -> None:
    python = script(tmp_path, "#!/bin/sh\necho 'No module named stateous_supervisor.host' >&2\nexit 1\n")

    sentence = unusable(tmp_path, python)

    assert "No module named stateous_supervisor.host" in sentence
    assert f"'{python} -m pip install stateous-supervisor==" in sentence


def test_an_interpreter_that_is_too_old_gets_no_pip_line_a_25(tmp_path: Path) -> None:
    said = "Unknown option: -P\nusage: python [option] ...\nTry `python -h' for more information."
    python = script(tmp_path, f'#!/bin/sh\ncat >&2 <<"END"\n{said}\nEND\nexit 2\n')

    sentence = unusable(tmp_path, python)

    assert sentence == f"python: {python} is older than Python 3.11, the least that routines run under"


def test_a_real_interpreter_that_is_too_old_is_known_by_what_it_says_a_25(tmp_path: Path) -> None:
    old = [python for python in interpreters() if (version_of(python) or (3, 11)) < (3, 11)]
    if not old:
        pytest.skip("no Python before 3.11 on this machine")

    assert "is older than Python 3.11" in unusable(tmp_path, old[0])


def test_an_interpreter_that_says_nothing_is_given_up_a_25(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "HELLO_S", 0.5)

    assert "did not greet within 0.5 s" in unusable(tmp_path, script(tmp_path, "#!/bin/sh\nexec sleep 60\n"))


def test_an_sdk_of_another_protocol_is_named_a_25(tmp_path: Path) -> None:
    child = f"""
        #!{sys.executable}
        import json, socket, sys, time
        sock = socket.socket(fileno=int(sys.argv[5]))
        body = json.dumps([{{"kind": "hello", "protocol": 99, "sdk": "9.9"}}]).encode()
        sock.sendall(len(body).to_bytes(4, "big") + body)
        time.sleep(60)
    """

    sentence = unusable(tmp_path, script(tmp_path, textwrap.dedent(child).lstrip()))

    assert "it speaks link protocol 99 (SDK 9.9), this agent 1" in sentence


def test_a_host_that_reads_nothing_is_stalled_and_the_agent_never_waits(tmp_path: Path) -> None:
    body = "import os, signal\n    if ctx.task == 1:\n        os.kill(os.getpid(), signal.SIGSTOP)\n    return events.noted()"

    async def main(host: ProcessHost, _: list[str]) -> None:
        host.send([Run(grant=Raw(GRANT), lease_s=60.0)])
        await until(lambda: psutil.Process(host.pid).status() == psutil.STATUS_STOPPED)
        big = Raw(GRANT.replace(b'"task":1', b'"task":2')[:-1] + b',"x":"' + b"x" * 1_000_000 + b'"}')
        began = anyio.current_time()
        for _round in range(12):
            host.send([Run(grant=big, lease_s=60.0)])

        assert host.is_stalled
        assert anyio.current_time() - began < 1.0
        psutil.Process(host.pid).resume()
        await until(lambda: not host.is_stalled)

    hosting(make_folder(tmp_path, plain=PLAIN.replace("return events.noted()", body)), main)
