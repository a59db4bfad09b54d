"""The interpreters of this machine, for tests that need another one than their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")
ABLE = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


def interpreters() -> list[str]:
    """Interpreters that may do: the one that runs these tests, what the PATH has, and what pyenv keeps off the PATH."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(root.glob("versions/3.*/bin/python3"), key=_numbers, reverse=True)
    return [sys.executable, *filter(None, map(shutil.which, NAMES)), *map(str, kept)]


def version_of(interpreter: str) -> tuple[int, int] | None:
    """Return the version of an interpreter that can make virtual environments, None of one that cannot."""
    asked = subprocess.run([interpreter, "-c", ABLE], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        return None
    major, minor = asked.stdout.split()
    return int(major), int(minor)


def _numbers(interpreter: Path) -> list[int]:
    return [int(part) for part in interpreter.parts[-3].split(".") if part.isdecimal()]
