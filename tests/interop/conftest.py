"""The published package that our wire comes from, in a virtual environment of its own, made once and kept in the cache.

Without an interpreter of 3.12 or newer, or without a way to install the package, these tests are skipped and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "0.2.2"
NAMES = ("python3.14", "python3.13", "python3.12", "python3")


def interpreters() -> list[str]:
    """Interpreters that may do: the one that runs these tests, what the PATH has, and what pyenv keeps off the PATH."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(root.glob("versions/3.*/bin/python3"), key=_version, reverse=True)
    return [sys.executable, *filter(None, map(shutil.which, NAMES)), *map(str, kept)]


def _version(interpreter: Path) -> list[int]:
    return [int(part) for part in interpreter.parts[-3].split(".") if part.isdecimal()]


def is_new_enough(interpreter: str) -> bool:
    asked = [interpreter, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


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
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"stateous=={VERSION}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"INTEROP NOT TESTED: stateous {VERSION} cannot be installed: {done.stderr[-300:]}")
    ready.touch()
    return command
