"""The published package that the drain is compared with, in an interpreter of its own: `.venv/peer`, made once.

    python benchmarks/peer.py        makes it where it can, and says why where it cannot

STATEOUS_PEER_BIN names a folder that has its programs already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.2.2"
FOLDER = Path(__file__).parents[1] / ".venv" / "peer"
NAMES = ("python3.14", "python3.13", "python3.12", "python3")


def find() -> Path | None:
    """Return where the package's programs are, or None where it was not installed."""
    given = os.environ.get("STATEOUS_PEER_BIN")
    found = Path(given) if given else FOLDER / "bin"
    return found if (found / "stateous").exists() else None


def install() -> str:
    """Install it where it is not yet; return one sentence about how that went."""
    found = find()
    if found is not None:
        return f"stateous {VERSION} is in {found}"
    python = interpreter()
    if python is None:
        return f"stateous {VERSION} is not measured: it needs Python 3.12 or newer with venv, and there is none here"
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([python, "-m", "venv", FOLDER], check=True, stdout=subprocess.DEVNULL)
    pip = [FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [f"stateous=={VERSION}", "psycopg[binary]"]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(FOLDER, ignore_errors=True)
        why = (done.stderr.strip().splitlines() or ["pip did not say why"])[-1]
        return f"stateous {VERSION} is not measured: it cannot be installed: {why}"
    return f"stateous {VERSION} was installed in {FOLDER}"


def interpreter() -> str | None:
    """Return an interpreter that peers run in, or None where there is none."""
    return next(filter(_is_new_enough, _interpreters()), None)


def _interpreters() -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(map(str, pyenv.glob("versions/3.*/bin/python3")), reverse=True)
    return [sys.executable, *filter(None, map(shutil.which, NAMES)), *kept]


def _is_new_enough(interpreter: str) -> bool:
    asked = [interpreter, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    print(install())
