"""The peers that steps are compared with, each in a virtual environment of its own: `.venv/peer-NAME`, made once.

    python benchmarks/durable_peers.py        makes them where it can, and says why where it cannot

STATEOUS_PEERS_DIR names a folder with such environments that are there already. The programs are in `durable/`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import peer

HERE = Path(__file__).parent
WANTED = {
    "dbos": ["dbos==3.4.0"],
    "absurd": ["absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9"],
    "pgtask": ["pgtask==0.4.0"],
}
URLS = {"dbos": "postgresql+psycopg"}
RUN_S = 240


def _folder(name: str) -> Path:
    given = os.environ.get("STATEOUS_PEERS_DIR")
    return Path(given) / name if given else HERE.parent / ".venv" / f"peer-{name}"


def find() -> list[str]:
    """Return the peers that are installed."""
    return [name for name in WANTED if (_folder(name) / "bin" / "python").exists()]


def install() -> list[str]:
    """Install those that are missing; return one sentence about each."""
    interpreter = peer.interpreter()
    if interpreter is None:
        return ["no peer is measured: they need Python 3.12 or newer with venv, and there is none here"]
    return [f"{name} is there" if name in find() else _install(interpreter, name) for name in WANTED]


def _install(interpreter: str, name: str) -> str:
    subprocess.run([interpreter, "-m", "venv", _folder(name)], check=True, stdout=subprocess.DEVNULL)
    pip = [_folder(name) / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *WANTED[name]], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return f"{name} was installed in {_folder(name)}"
    (_folder(name) / "bin" / "python").unlink()
    return f"{name} is not measured: {(done.stderr.strip().splitlines() or ['pip did not say why'])[-1]}"


def run(name: str, dsn: str, workflows: int, steps: int) -> list[list[int]]:
    """Return the marks of workflows that ran side by side: before the first step, and after each."""
    url = dsn.replace("postgresql", URLS.get(name, "postgresql"), 1)
    argv = [
        _folder(name) / "bin" / "python",
        HERE / "durable" / f"{name}_steps.py",
        url,
        f"{workflows}",
        f"{steps}",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("STEPS ")]
    runs = [[int(at) for at in words[2:]] for words in lines if words[1] != "-1"]
    if len(runs) != workflows:
        raise SystemExit(f"{name} ended {len(runs)} of {workflows} workflows: {done.stderr[-500:]}")
    return runs


if __name__ == "__main__":
    print("\n".join(install()))
