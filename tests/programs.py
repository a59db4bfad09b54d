"""The two programs as child processes, for tests that need the real thing: started, asked, killed, and always ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, Signals
from types import TracebackType
from typing import Any, Self

import httpx

BIN = Path(sys.executable).parent
ENDS_S = 15.0
# Where tests are killed and can end nothing themselves, the kernel kills what they started.
WITH_ITS_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []

Words = list[str | Path]  # of a command line


def wait_for(asked: Callable[[], Any], *, within_s: float, what: str) -> Any:
    """Ask until the answer is true, and return it. Only for what another process does; nothing here has a clock."""
    deadline = time.monotonic() + within_s
    while not (answer := asked()):
        assert time.monotonic() < deadline, f"after {within_s:g} s there is still no {what}"
        time.sleep(0.03)
    return answer


class Program:
    """A child in a process group of its own. `lines` are what it said so far, output and errors together."""

    def __init__(
        self,
        command: Words,
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        whole_env: dict[str, str] | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.env = {**(whole_env or os.environ), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **(env or {})}
        self.cwd = cwd
        self.lines: list[str] = []
        self._child: subprocess.Popen[str] | None = None

    def begin(self) -> Self:
        self._child = subprocess.Popen(
            [*WITH_ITS_PARENT, *self.command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            errors="replace", env=self.env, cwd=self.cwd, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._child,), daemon=True)
        self._reader.start()
        return self

    def _read(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        with child.stdout as output:
            for line in output:
                self.lines.append(line)

    @property
    def child(self) -> subprocess.Popen[str]:
        assert self._child is not None, "the program was not begun"
        return self._child

    @property
    def told(self) -> str:
        return "".join(self.lines)

    def line(self, beginning: str, *, within_s: float = 40.0) -> str:
        """Wait for a line that has `beginning`, and return what follows it."""

        def found() -> str | None:
            for line in list(self.lines):
                if beginning in line:
                    return line.partition(beginning)[2].strip() or " "
            assert self.child.poll() is None, f"the program ended with {self.child.returncode}: {self.told}"
            return None

        return str(wait_for(found, within_s=within_s, what=f"line {beginning!r} in: {self.told}"))

    def signal(self, number: Signals) -> None:
        self.child.send_signal(number)

    def ended(self, *, within_s: float = ENDS_S) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self.child.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program still runs after {within_s:g} s: {self.told}") from None

    def kill(self) -> None:
        """Kill the whole group at once, as a power cut would."""
        self._end_group(SIGKILL)
        self.child.wait(ENDS_S)
        self._reader.join(ENDS_S)

    def _end_group(self, number: Signals) -> None:
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            return

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is None:
            return
        try:
            if self.child.poll() is None:
                self.child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(ENDS_S)
        finally:  # a test's deadline may pass in that wait
            self.kill()


class ControlPlaneProgram(Program):
    """``stateous-control serve`` on a free port."""

    def __init__(self, workflow: Path | None, *options: str | Path, listen: str = "127.0.0.1:0") -> None:
        given = [workflow] if workflow else []
        super().__init__([BIN / "stateous-control", "serve", *given, "--listen", listen, *options])

    @property
    def url(self) -> str:
        return self.line("listening on ", within_s=40.0)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            assert self.url
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self


class AgentProgram(Program):
    """``stateous-supervisor run`` on a folder, with a state folder beside it."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *options: str | Path,
        name: str = "box-1",
        env: dict[str, str] | None = None,
    ) -> None:
        state = folder.parent / f"{folder.name}-state"
        where = ["--url", url, "--name", name, "--log-format", "json"]
        if "--state-dir" not in options:
            where += ["--state-dir", str(state)]
        super().__init__([BIN / "stateous-supervisor", "run", folder, *where, *options], env=env)


class ControlPlaneClient:
    """What a person asks of a control plane, in short words. Each call is one request."""

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        verify = True if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        self.http = httpx.Client(base_url=url, timeout=30.0, trust_env=False, verify=verify)

    def start(self, token: str, **context: Any) -> Any:
        answer = self.http.post("/tokens", json={"token": token, "context": context})
        assert answer.status_code == 201, f"another test has started a token of this name: {answer.text}"
        return answer.json()

    def token(self, token: str) -> Any:
        return self.http.get(f"/tokens/{token}").json()

    def history(self, token: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.http.get(f"/tokens/{token}/history").json()
        return entries

    def kinds(self, token: str) -> list[str]:
        return [entry["kind"] for entry in self.history(token)]

    def cancel(self, token: str) -> None:
        assert self.http.post(f"/tokens/{token}/cancel").status_code == 200

    def until(self, token: str, *, within_s: float = 40.0, **wanted: Any) -> Any:
        """Wait until the token is as wanted (`state`, `status`), and return it."""

        def there() -> Any:
            try:
                now = self.token(token)
            except httpx.TransportError:
                return None
            return now if all(now.get(key) == value for key, value in wanted.items()) else None

        return wait_for(there, within_s=within_s, what=f"token {token} with {wanted}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
