"""The wheel has everything that a machine without the checkout needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel, as pip would put them into site-packages."""
    built, unpacked = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(unpacked)
    return unpacked


def printed(site: Path, statement: str) -> str:
    """Run a statement with the wheel's packages before the checkout's, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", statement],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_demo_finds_its_example_in_the_wheel(site: Path) -> None:
    found = printed(site, "from stateous_supervisor.demo.course import example; print(example())")

    assert Path(found) == site / "stateous_supervisor" / "examples" / "sdlc"
    files = {str(path.relative_to(found)) for path in Path(found).rglob("*") if path.is_file()}
    wanted = {"workflow.yaml", "contract.py", "coding.py", "testing.py", "attention.py", "stateous.yaml"}
    assert wanted | {"checkout/prices.py", "checkout/test_prices.py"} <= files


@pytest.mark.parametrize(
    "pattern",
    [
        "stateous_control/store/migrations/*.sql",
        "stateous_control/store/queries/*.sql",
        "stateous_control/py.typed",
        "stateous_supervisor/py.typed",
        "stateous_contract/py.typed",
    ],
)
def test_files_that_are_no_modules_are_in_the_wheel(site: Path, pattern: str) -> None:
    source = "contract/" + pattern if pattern.startswith("stateous_contract") else pattern

    assert {path.name for path in site.glob(pattern)} == {path.name for path in ROOT.glob(source)} != set()


def test_the_wheel_has_the_three_packages_and_nothing_else(site: Path) -> None:
    found = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}

    assert found == {"stateous_contract", "stateous_control", "stateous_supervisor"}
