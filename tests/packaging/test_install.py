"""What is built works where there is no checkout (BH-059): the wheel made from the sdist, in an empty environment.

The environment has the project's dependencies, linked one by one, and nothing of the checkout. It lies under a path
with a space and a letter that is not ASCII, and belongs to somebody else: whoever works with it cannot write there.
Nothing is downloaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import ROOT, Installed, check_help, check_work, run, unprivileged
from programs import Words

SITE = Path(sysconfig.get_paths()["purelib"])
PROGRAMS = ["stateous-control", "stateous-supervisor"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def listed(*patterns: str) -> set[str]:
    """Files of the repository, those about to be added too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    return {name for name in run(*command, cwd=ROOT).splitlines() if (ROOT / name).is_file()}


def install(built: Path, home: Path) -> None:
    """Make an environment in `home` that has the wheel and nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", home / "env", cwd=home)
    pip(home, "install", "--no-deps", "--no-index", next(built.glob("*.whl")))


def pip(home: Path, *words: str | Path) -> None:
    command: Words = ["-m", "pip", "--disable-pip-version-check", "--python", home / "env/bin/python"]
    run(sys.executable, *command, *words, cwd=home)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An environment that has the wheel and its dependencies, and that nobody can write to."""
    home = tmp_path_factory.mktemp("leer und größer")
    install(built, home)
    (home / "dependencies").mkdir()
    for entry in SITE.iterdir():
        if not re.match(r"_?stateous|__editable__|.*\.pth$|__pycache__", entry.name):
            (home / "dependencies" / entry.name).symlink_to(entry)
    run("chmod", "-R", "a-w", home / "env", home / "dependencies", cwd=home)
    yield Installed(home, {"PYTHONPATH": str(home / "dependencies")}, unprivileged())
    run("chmod", "-R", "u+w", home / "env", home / "dependencies", cwd=home)


def test_whoever_runs_it_cannot_write_to_it(environment: Installed) -> None:
    """What the others here stand on."""
    tried = subprocess.run([*environment.before, "touch", environment.site / "x"], capture_output=True)

    assert tried.returncode != 0
    assert b"Permission denied" in tried.stderr


def test_nothing_comes_from_the_checkout(environment: Installed) -> None:
    asked = "import stateous_control, stateous_supervisor, stateous_contract as c; print(stateous_control.__file__, c.__file__)"

    told = environment.run("python", "-c", asked)

    assert str(ROOT) not in told
    assert told.count(str(environment.home)) == 2


def test_the_sdist_has_what_the_repository_has(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = listed(
        "stateous_control",
        "stateous_supervisor",
        "contract",
        "examples",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
    )
    assert wanted <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", ".ci", ".git/", ".venv"))]


def test_exactly_the_files_of_the_packages_are_installed(environment: Installed) -> None:
    """Migrations, queries, the unit file and py.typed are there; tests are not."""
    made = (".dist-info/", "__pycache__/")  # by pip
    found = {name for name in files(environment.site) if not any(each in name for each in made)}

    wanted = listed("stateous_control", "stateous_supervisor")
    wanted |= {name.removeprefix("contract/") for name in listed("contract/stateous_contract")}
    wanted |= {f"stateous_supervisor/{name}" for name in listed("examples/sdlc")}
    assert found == wanted


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_version_is_that_of_the_project(environment: Installed, program: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    assert environment.run(program, "--version") == f"{program} {version}\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_subcommand_has_help(environment: Installed, program: str) -> None:
    check_help(environment, program)


def test_a_control_plane_and_a_folder_work_from_the_wheel(environment: Installed) -> None:
    check_work(environment)


def test_uninstalling_leaves_nothing(built: Path, tmp_path: Path) -> None:
    """Of what was compiled while it ran, neither."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    before = files(tmp_path / "env")
    pip(tmp_path, "install", "--no-deps", "--no-index", next(built.glob("*.whl")))
    Installed(tmp_path, {"PYTHONPATH": str(SITE)}).run("stateous-control", "--version")
    assert list((tmp_path / "env").rglob("stateous_control/cli/__pycache__/*.pyc"))

    pip(tmp_path, "uninstall", "--yes", "stateous-supervisor")

    assert files(tmp_path / "env") == before
    assert not list((tmp_path / "env").rglob("stateous*"))
