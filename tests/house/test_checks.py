"""Each house test can fail: planted samples, one for each kind of fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from house import checks

DOORS = {"stateous_control": {"asyncpg": ["stateous_control/store/pool.py"], "sqlite3": []}}


def test_a_broken_wall_is_seen(tmp_path: Path) -> None:
    for room in ("upper", "lower"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("import lower\n" if room == "upper" else "")
    (tmp_path / ".importlinter").write_text(
        "[importlinter]\nroot_packages =\n  upper\n  lower\n"
        "[importlinter:contract:1]\nname = apart\ntype = independence\nmodules =\n  upper\n  lower\n"
    )

    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(
        lint, cwd=tmp_path, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."}
    )

    assert done.returncode == 1
    assert "apart BROKEN" in done.stdout


def test_a_second_door_is_seen() -> None:
    right = list(checks.door_faults("stateous_control/store/pool.py", "import asyncpg.pool", DOORS))
    wrong = list(
        checks.door_faults(
            "stateous_control/engine/loops.py", "def f():\n    from asyncpg import Record", DOORS
        )
    )

    assert not right
    assert "engine/loops.py:2: asyncpg is reached through stateous_control/store/pool.py only" in wrong[0]


def test_a_library_without_a_door_is_seen() -> None:
    faults = list(checks.door_faults("stateous_control/engine/loops.py", "import requests", DOORS))

    assert faults == ["stateous_control/engine/loops.py:1: requests has no door in stateous_control"]


def test_a_named_module_of_the_standard_library_has_doors_too() -> None:
    assert list(checks.door_faults("stateous_control/engine/loops.py", "import sqlite3", DOORS))


def test_a_clock_in_a_pure_file_is_seen() -> None:
    source = (
        "import datetime\nfrom random import random\nimport os.path\nx = datetime.datetime.now()\nopen('x')\n"
    )

    faults = " ".join(checks.purity_faults("p.py", source))

    assert "imports random" in faults
    assert "imports os.path" in faults
    assert "asks a clock" in faults
    assert "calls open" in faults
    assert not list(checks.purity_faults("p.py", "from datetime import datetime, timedelta\nimport math\n"))


def test_a_refused_import_is_seen() -> None:
    assert list(checks.import_faults("p.py", "def f():\n    import asyncio.subprocess\n", ["asyncio"]))


def test_a_long_function_and_a_long_file_are_seen() -> None:
    long_function = "def f():\n" + "    x = 1\n" * 60
    long_file = "x = 1\n" * 401

    assert [name for name, _ in checks.size_faults("p.py", long_function)] == ["p.py:f"]
    assert [name for name, _ in checks.size_faults("p.py", long_file)] == ["p.py"]
    assert not list(checks.size_faults("p.py", "def f():\n" + "    x = 1\n" * 59))


def test_an_exception_that_nothing_needs_is_a_fault() -> None:
    assert list(checks.exception_faults({"p.py:f": "too long"}, [])) == ["too long"]
    assert not list(checks.exception_faults({"p.py:f": "too long"}, ["p.py:f"]))
    assert list(checks.exception_faults({}, ["p.py:f"])) == [
        "p.py:f: no longer too long; take it off the list"
    ]


def test_the_share_of_short_functions_is_counted() -> None:
    short, long = "def f():\n    return 1\n", "def g():\n" + "    x = 1\n" * 9

    assert checks.short_share([short, long, long]) == 1 / 3


def test_a_module_that_does_not_say_what_it_is_is_seen() -> None:
    assert list(checks.docstring_faults("p.py", "x = 1\n"))
    assert list(checks.docstring_faults("p.py", '"""' + "a\n" * 11 + '"""\n'))
    assert not list(checks.docstring_faults("p.py", ""))


def test_a_name_that_says_nothing_is_seen() -> None:
    assert list(checks.name_faults("stateous_control/utils.py"))
    assert list(checks.name_faults("stateous_control/helpers/__init__.py"))
    assert not list(checks.name_faults("stateous_control/store/pool.py"))


def test_a_word_of_the_workplace_is_seen() -> None:
    assert list(checks.workplace_faults("p.py", "x\nsee /" + "work/main")) == [
        "p.py:2: '/" + "work/' is a word of the workplace"
    ]
