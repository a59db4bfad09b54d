"""`make` on a fresh machine: it finds an interpreter that can make a venv, or says in one line what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# An interpreter as far as the Makefile can tell: it logs how it was called, and `-m venv` copies it.
USABLE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
"""
UNUSABLE = "#!/bin/sh\nexit 1\n"


def make(
    tmp_path: Path, programs: dict[str, str], *, system: str = ""
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the step that makes the venv in a copy of the checkout's root, with `programs` first on the PATH."""
    found = shutil.which("make")
    if found is None:
        pytest.skip("make is not installed")
    checkout, path, log = tmp_path / "checkout", tmp_path / "bin", tmp_path / "log"
    checkout.mkdir()
    path.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    for name, text in programs.items():
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    environment = {"PATH": f"{path}{system}", "LOG": str(log)}
    done = subprocess.run(
        [found, ".venv/.ready"], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    return done, log.read_text() if log.exists() else ""


def test_the_newest_interpreter_that_can_make_a_venv_is_taken(tmp_path: Path) -> None:
    programs = {"python3.14": UNUSABLE, "python3.13": USABLE, "python3": USABLE}

    done, log = make(tmp_path, programs, system=os.pathsep + os.environ["PATH"])

    assert done.returncode == 0, done.stderr
    assert "python3.13 -m venv .venv" in log
    assert "--editable .[control,embedded,dev]" in log
    assert (tmp_path / "checkout/.venv/.ready").exists()


def test_without_one_make_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    done, _ = make(tmp_path, {"python3": UNUSABLE})

    said = [line for line in done.stderr.splitlines() if not line.startswith("make:")]
    assert done.returncode == 2
    assert len(said) == 1
    assert "python3-venv" in said[0]


def test_help_lists_every_target() -> None:
    done = subprocess.run(
        ["make", "help"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )

    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert listed == {"help", "demo", "test", "check", "docs", "prove", "machine", "simulate", "bench"}
