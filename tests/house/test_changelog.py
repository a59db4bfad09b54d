"""The changelog names the lowest versions that the package asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from stateous_control.store import migrate

ROOT = Path(__file__).parents[2]


def needs() -> str:
    """Return what stands under "What it needs"."""
    return (ROOT / "CHANGELOG.md").read_text().partition("#### What it needs\n")[2].partition("####")[0]


def test_every_lowest_version_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["control"], *extras["embedded"]]
    lowest = {re.sub(r">=([0-9.]+).*", r" \1", each) for each in asked} | {
        "Python " + project["requires-python"].removeprefix(">=")
    }
    text = needs()

    assert [each for each in lowest if re.search(rf"\b{re.escape(each)}\b(?!\.\d)", text) is None] == []


def test_the_lowest_postgresql_is_the_one_that_is_checked() -> None:
    source = Path(migrate.__file__).read_text()
    major = int(re.findall(r'\["number"\] < ([0-9_]+):', source)[0]) // 10_000

    assert f"PostgreSQL {major} or newer" in needs()
