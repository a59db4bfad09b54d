"""What is built works where there is no checkout (BH-059): the wheel made from the sdist, in an empty environment.

The environment has the project's dependencies, linked one by one, and nothing of the checkout. It lies under a path
with a space and a letter that is not ASCII. Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from programs import ControlPlaneClient, Program

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(*patterns: str) -> set[str]:
    """Files of the repository, those about to be added too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    return {name for name in run(*command, cwd=ROOT).splitlines() if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and its dependencies. Its `bin` has the commands."""
    home = tmp_path_factory.mktemp("leer und größer")
    run(sys.executable, "-m", "venv", "--without-pip", home / "env", cwd=home)
    python = home / "env/bin/python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(sys.executable, *install, next(built.glob("*.whl")), cwd=home)
    (home / "dependencies").mkdir()
    for entry in SITE.iterdir():
        if not re.match(r"_?stateous|__editable__|.*\.pth$|__pycache__", entry.name):
            (home / "dependencies" / entry.name).symlink_to(entry)
    return home


@pytest.fixture(scope="module")
def env(environment: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STATEOUS", "VIRTUAL"))}
    state = {"XDG_STATE_HOME": str(environment / "state"), "NO_COLOR": "1", "COLUMNS": "100"}
    return {**kept, **state, "PYTHONPATH": str(environment / "dependencies")}


def test_nothing_comes_from_the_checkout(environment: Path, env: dict[str, str]) -> None:
    asked = "import stateous_control, stateous_supervisor, stateous_contract as c; print(stateous_control.__file__, c.__file__)"

    told = run(environment / "env/bin/python", "-c", asked, cwd=environment, env=env)

    assert str(ROOT) not in told
    assert told.count(str(environment)) == 2


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


def test_every_file_of_the_packages_is_installed(environment: Path) -> None:
    site = next(environment.glob("env/lib/python*/site-packages"))
    installed = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}

    wanted = listed("stateous_control", "stateous_supervisor")
    wanted |= {name.removeprefix("contract/") for name in listed("contract/stateous_contract")}
    assert wanted <= installed
    assert not [name for name in installed if name.startswith(("tests", "benchmarks", "conformance"))]


@pytest.mark.parametrize("command", ["stateous-control", "stateous-supervisor"])
def test_every_subcommand_has_help(environment: Path, env: dict[str, str], command: str) -> None:
    """Asked in one process, because starting one for each would only test the interpreter."""
    module = command.replace("-", "_")
    told = run(environment / "env/bin" / command, "--help", cwd=environment, env=env)
    names = re.findall(r"^  ([a-z]+) ", told.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    assert len(names) > 3
    asked = f"""
import sys
from {module}.cli.main import main
for name in {names!r}:
    sys.argv = ["x", name, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, name
"""

    told = run(environment / "env/bin/python", "-c", asked, cwd=environment, env=env)

    assert told.count("Usage:") == len(names)


def test_a_control_plane_and_a_folder_work_from_the_wheel(environment: Path, env: dict[str, str]) -> None:
    workflow = ROOT / "tests/journeys/workflow.yaml"
    folder, bins = environment / "box", environment / "env/bin"
    serve: list[str | Path] = [bins / "stateous-control", "serve", workflow, "--listen", "127.0.0.1:0"]
    with Program([*serve, "--data", environment / "data"], whole_env=env, cwd=environment) as program:
        url = program.line("listening on ", within_s=60)
        run(bins / "stateous-supervisor", "init", url, folder, cwd=environment, env=env)
        run(bins / "stateous-supervisor", "check", folder, cwd=environment, env=env)
        with (
            Program([bins / "stateous-supervisor", "run", folder], whole_env=env, cwd=environment),
            ControlPlaneClient(url) as client,
        ):
            client.start("stub")
            client.until("stub", status="failed", within_s=30)
            errors = [
                entry["data"]["error"] for entry in client.history("stub") if entry["kind"] == "task_failed"
            ]

    assert len(errors) == 4
    assert all("still to be written" in error for error in errors)
