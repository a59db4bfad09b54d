"""Routine hosts as child processes: how one is started, watched and ended, and what its end was.

`PYTHON -P -m stateous_supervisor.host --link FD [--skip FILE]… FOLDER`, in a session of its own, with one
descriptor besides the standard ones. What it and its children print belongs to no task and goes to the log
line by line. When it ends, its whole process group ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

import stateous_supervisor
from stateous_supervisor.agent import cores, dumps, shortage
from stateous_supervisor.agent.dumps import Hang
from stateous_supervisor.agent.host import HostEnded, HostUnusable
from stateous_supervisor.agent.link_end import LinkEnd, LinkEnded
from stateous_supervisor.agent.loading import LoadStopped, load
from stateous_supervisor.link.frames import (
    DUMP_SIGNAL,
    FAULT_CODE,
    FAULT_MARK,
    BrokenFile,
    Frame,
    Hello,
    Loaded,
    RoutineFacts,
    ToAgent,
)

END_S: Final = 2.0
OUTPUT_S: Final = 0.2
DUMP_S: Final = 0.15
TAIL_LINES: Final = 20
LINE_BYTES_MAX: Final = 8_192
TOO_OLD: Final = "Unknown option: -P"  # what a Python before 3.11 says to how hosts are started
# What systemd gives to the service, and what opens a control plane or its database, is not for routines. Each
# stands for all names that begin so.
WITHHELD: Final = (
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "CREDENTIALS_DIRECTORY",
    "LISTEN_FD",
    "LISTEN_PID",
    "STATEOUS_TOKEN",
    "STATEOUS_KEY",
    "STATEOUS_DATABASE_URL",
)

Printed = Callable[[int, str], None]


class ProcessHost:
    """A host in a child process, with its folder loaded."""

    has_pulse = True

    def __init__(
        self,
        generation: int,
        child: _Child,
        folder: Path,
        greeting: tuple[Hello, Loaded],
        broken: Sequence[BrokenFile],
    ) -> None:
        hello, loaded = greeting
        self.generation = generation
        self.pid = child.process.pid
        self.python = hello.python
        self.routines: Sequence[RoutineFacts] = loaded.routines
        self.broken: Sequence[BrokenFile] = [*broken, *loaded.broken]
        self.faults: Sequence[str] = loaded.faults
        self._child = child
        self._folder = folder

    @property
    def is_stalled(self) -> bool:
        return self._child.link.is_stalled

    async def hang(self) -> Hang | None:
        """Return where the host hangs, by what Python writes about it when signalled (A-22)."""
        return dumps.read(await self._child.dump(), self._folder.resolve())

    def send(self, messages: Sequence[Frame]) -> None:
        self._child.link.send(messages)

    def kill(self) -> None:
        self._child.kill()

    async def receive(self) -> Sequence[ToAgent]:
        try:
            return await self._child.link.receive()
        except LinkEnded as ended:
            raise HostEnded(await self._child.ending(str(ended))) from None


class ProcessHosts:
    """Starts hosts for one folder.

    Args:
        python: the interpreter, a path or a name on PATH.
        folder: whose files are loaded.
        printed: takes a line that a host printed, with its generation.
        environment: of the hosts; what they must not have is taken out.
    """

    can_add = True

    def __init__(
        self, python: str, folder: Path, *, printed: Printed, environment: Mapping[str, str]
    ) -> None:
        self._python = python
        self._folder = folder
        self._printed = printed
        self._environment = {k: v for k, v in environment.items() if not k.startswith(WITHHELD)}

    @asynccontextmanager
    async def open(self, generation: int) -> AsyncIterator[ProcessHost]:
        """Start a host and load the folder; again without a file that hung or killed the one before."""
        broken: list[BrokenFile] = []
        while True:
            async with self._spawn(generation, [file.file for file in broken]) as child:
                try:
                    greeting = await load(child.link)
                except LoadStopped as stopped:
                    broken.append(await self._blame(child, stopped, broken))
                    continue
                yield ProcessHost(generation, child, self._folder, greeting, broken)
                return

    async def _blame(self, child: _Child, stopped: LoadStopped, broken: Sequence[BrokenFile]) -> BrokenFile:
        """Return which file is to be left out the next time.

        Raises:
            HostUnusable: it is nothing that leaving out a file would mend.
        """
        reason = stopped.reason
        if reason is None:
            reason = "its import ended the host: " + await child.ending("it closed its link")
        if stopped.file is None:
            raise HostUnusable(self._explain(stopped.reason, child))
        if stopped.file in [file.file for file in broken]:
            raise HostUnusable(f"{stopped.file}: {reason}, although it was to be left out")
        return BrokenFile(file=stopped.file, line=None, error=reason)

    def _explain(self, reason: str | None, child: _Child) -> str:
        """Return the sentence about an interpreter that gives no host (A-25)."""
        if TOO_OLD in child.tail:
            return f"python: {self._python} is older than Python 3.11, the least that routines run under"
        said = [line for line in child.tail if line.strip()]
        found = reason or (
            said[-1].strip() if said else f"it ended with exit code {child.process.returncode}"
        )
        mend = f"{self._python} -m pip install stateous-supervisor=={stateous_supervisor.__version__}"
        return f"python: {self._python} cannot run the routine host: {found}; '{mend}' mends it"

    @asynccontextmanager
    async def _spawn(self, generation: int, skip: Sequence[str]) -> AsyncIterator[_Child]:
        ours, theirs = socket.socketpair()
        try:
            process = await self._start(theirs, skip)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child = _Child(process, LinkEnd(ours))
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.link.serve)
            tasks.start_soon(child.watch)
            tasks.start_soon(child.read_output, lambda line: self._printed(generation, line))
            try:
                yield child
            except Exception as error:  # kept as it is: a task group would wrap it
                failure = error
            finally:
                await child.end()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _start(self, theirs: socket.socket, skip: Sequence[str]) -> Process:
        skips = [word for file in skip for word in ("--skip", file)]
        link = str(theirs.fileno())
        command = [
            self._python,
            "-P",
            "-m",
            "stateous_supervisor.host",
            "--link",
            link,
            *skips,
            str(self._folder),
        ]
        try:
            process = await anyio.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise HostUnusable(f"python: {self._python} cannot be started: {why}") from None
        cores.give_back(process.pid)
        return process


class _Child:
    """The process of one host: its link, its output and its end."""

    def __init__(self, process: Process, link: LinkEnd) -> None:
        self.process = process
        self.link = link
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._kills = shortage.kills()
        self._output_over = anyio.Event()
        self._dump: list[str] | None = None

    async def watch(self) -> None:
        """See the process's death even where somebody else still has its end of the link."""
        await self.process.wait()
        self.link.finish()

    async def read_output(self, printed: Callable[[str], None]) -> None:
        pending = b""
        stdout = self.process.stdout
        assert stdout is not None
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                pending += await stdout.receive()
                *lines, pending = pending.split(b"\n")
                if len(pending) > LINE_BYTES_MAX:
                    lines.append(pending)
                    pending = b""
                for line in lines:
                    self._say(line, printed)
        if pending:
            self._say(pending, printed)
        self._output_over.set()

    def _say(self, line: bytes, printed: Callable[[str], None]) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r")
        if self._dump is not None and dumps.is_of_dump(text):
            self._dump.append(text)
            return
        self.tail.append(text)
        printed(text)

    async def dump(self) -> Sequence[str]:
        """Have the host write down what its threads are doing, from the one that is busiest."""
        pid = self.process.pid
        before = dumps.cpu_by_thread(pid)
        await anyio.sleep(DUMP_S)
        thread = dumps.hottest(before, dumps.cpu_by_thread(pid), pid)
        lines: list[str] = []
        self._dump = lines
        # The kernel hands a signal for a thread's id to that thread, unless it blocks it.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(thread, DUMP_SIGNAL)
            await anyio.sleep(DUMP_S)
        self._dump = None
        return lines

    async def ending(self, otherwise: str) -> str:
        """Return why the process ended, waiting a moment for it; `otherwise` where it has not."""
        with anyio.move_on_after(END_S):
            await self.process.wait()
        with anyio.move_on_after(OUTPUT_S):
            await self._output_over.wait()
        code = self.process.returncode
        if code == -signal.SIGKILL and shortage.is_between(self._kills, shortage.kills()):
            return f"{describe(code)}, out of memory"
        if code != FAULT_CODE:
            return otherwise if code is None else describe(code)
        said = [line.removeprefix(FAULT_MARK) for line in self.tail if line.startswith(FAULT_MARK)]
        return f"{describe(code)}: {said[-1]}" if said else describe(code)

    def kill(self) -> None:
        """End the process and its group by force."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the process and its group: by the end of its link, and by force after `END_S`."""
        with anyio.CancelScope(shield=True):
            await self.link.close()
            with anyio.move_on_after(END_S):
                await self.process.wait()
            self.kill()
            await self.process.wait()
            with anyio.move_on_after(END_S):
                await self.process.aclose()


def describe(code: int) -> str:
    """Return how a process ended, by its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
