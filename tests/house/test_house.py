"""The walls of the house, checked on the real tree. `test_checks.py` shows that each of these can fail."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from house import checks, rules

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("contract/stateous_contract", "stateous_control", "stateous_supervisor")


@cache
def tree() -> dict[str, str]:
    """Every text file that is, or is about to be, in the repository."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    found = {name: (ROOT / name).read_bytes() for name in names if name and (ROOT / name).is_file()}
    return {name: content.decode() for name, content in found.items() if b"\0" not in content}


def modules(*folders: str) -> dict[str, str]:
    """The Python files below `folders`, or all of them."""
    return {n: s for n, s in tree().items() if n.endswith(".py") and (not folders or n.startswith(folders))}


def told(faults: list[str]) -> str:
    return "\n".join(faults)


def test_the_walls_between_rooms_stand() -> None:
    lint = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_library_is_reached_through_its_door() -> None:
    faults = [
        f
        for path, source in modules(*PACKAGES).items()
        for f in checks.door_faults(path, source, rules.DOORS)
    ]

    assert not faults, told(faults)


def test_pure_files_have_no_clock_no_chance_and_no_io() -> None:
    pure = {
        p: s for p, s in modules().items() if any(PurePosixPath(p).match(pattern) for pattern in rules.PURE)
    }

    faults = [fault for path, source in pure.items() for fault in checks.purity_faults(path, source)]

    assert not faults, told(faults)
    assert len(pure) > 4


def test_the_agent_runs_on_any_event_loop() -> None:
    faults = [
        fault
        for path, source in modules("stateous_supervisor/agent/").items()
        for fault in checks.import_faults(path, source, ["asyncio", "trio", "uvloop"])
    ]

    assert not faults, told(faults)


def test_the_agent_process_loads_no_pydantic() -> None:
    """A-62: routines' payload models are the host's business."""
    faults = [
        fault
        for path, source in modules("stateous_supervisor/agent/", "stateous_supervisor/link/").items()
        for fault in checks.import_faults(path, source, ["pydantic"])
    ]

    assert not faults, told(faults)


def test_functions_and_files_stay_small() -> None:
    found = dict(fault for path, source in modules().items() for fault in checks.size_faults(path, source))

    faults = list(checks.exception_faults(found, rules.TOO_LONG))

    assert not faults, told(faults)


def test_half_of_all_functions_have_fewer_than_ten_lines() -> None:
    assert checks.short_share(modules(*PACKAGES).values()) >= 0.5


def test_every_module_says_what_it_is() -> None:
    spared = ("examples/", "tests/")
    mine = {path: source for path, source in modules().items() if not path.startswith(spared)}

    faults = [fault for path, source in mine.items() for fault in checks.docstring_faults(path, source)]

    assert not faults, told(faults)


def test_names_say_something() -> None:
    faults = [fault for path in tree() for fault in checks.name_faults(path)]

    assert not faults, told(faults)


def test_nothing_tells_where_it_was_made() -> None:
    faults = [fault for path, text in tree().items() for fault in checks.workplace_faults(path, text)]

    assert not faults, told(faults)


@pytest.mark.parametrize(
    "name",
    [
        "contract/stateous_contract/py.typed",
        "stateous_control/py.typed",
        "stateous_supervisor/py.typed",
        "stateous_control/store/migrations/0001_base.sql",
    ],
)
def test_package_data_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_each_decision_has_a_number_of_its_own_that_its_title_repeats() -> None:
    titles = {PurePosixPath(p).stem: s.splitlines()[0] for p, s in tree().items() if p.startswith("adr/")}

    numbers = sorted(int(name[:4]) for name in titles)
    strayed = [name for name, title in titles.items() if not title.startswith(f"# {int(name[:4])}: ")]

    assert numbers == list(range(1, len(titles) + 1))
    assert not strayed, told(strayed)
