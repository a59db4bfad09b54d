"""The published package that our wire comes from, in a virtual environment of its own, made once and kept in the cache.

Without an interpreter of 3.12 or newer, or without a way to install the package, these tests are skipped and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from interpreters import interpreters, version_of
from programs import Words

VERSION = "0.2.2"


def is_new_enough(interpreter: str) -> bool:
    return (version_of(interpreter) or (0, 0)) >= (3, 12)


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stateous-supervisor-tests"


@pytest.fixture(scope="session")
def stateous() -> Path:
    """The `stateous` command of the published package."""
    interpreter = next(filter(is_new_enough, interpreters()), None)
    if interpreter is None:
        pytest.skip(
            f"INTEROP NOT TESTED: stateous {VERSION} needs Python 3.12, and there is none on this machine"
        )
    folder = cache() / f"stateous-{VERSION}-{Path(interpreter).resolve().name}"
    command = folder / "bin" / "stateous"
    ready = folder / "ready"
    if ready.exists() and command.exists():
        return command
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([interpreter, "-m", "venv", folder], check=True, capture_output=True)
    install: Words = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"stateous=={VERSION}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"INTEROP NOT TESTED: stateous {VERSION} cannot be installed: {done.stderr[-300:]}")
    ready.touch()
    return command
