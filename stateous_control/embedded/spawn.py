"""Start a PostgreSQL program in one of the three ways a system may allow, tied to the life of this process.

Never starts anything else. Called by `postgres` and `housing`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Literal

Mode = Literal["plain", "namespace", "nobody"]

_LAUNCHER = Path(__file__).with_name("launch.py")
# Nothing of ours leaks in: no PG* variable, no locale, no secret.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def spawn(
    mode: Mode, program: Path | str, *arguments: str, output: IO[bytes] | int, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start `program`; when this process ends, however it ends, it is told to shut down fast (SIGINT).

    Must be called from the main thread: Linux ties a child to the life of the *thread* that started it.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the embedded PostgreSQL must be started from the main thread")
    command = [sys.executable, "-I", "-S", str(_LAUNCHER), mode, str(os.getpid()), str(int(signal.SIGINT))]
    return subprocess.Popen(
        [*command, str(program), *arguments],
        stdin=stdin,
        stdout=output,
        stderr=output,
        env=_ENVIRONMENT,
        cwd="/",
    )


def run(mode: Mode, program: Path | str, *arguments: str, said: bytes = b"") -> tuple[int, str]:
    """Run `program` to its end with `said` on its standard input; return exit code and everything it said."""
    child = spawn(mode, program, *arguments, output=subprocess.PIPE, stdin=subprocess.PIPE)
    # stdout and stderr are separate pipes; both are read to their end.
    out, err = child.communicate(said)
    return child.returncode, (out + (err or b"")).decode(errors="replace").strip()
