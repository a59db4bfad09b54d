"""Folders for tests with real hosts: a small contract, and routine files as a test wants them."""

from __future__ import annotations

from pathlib import Path

CONTRACT = """
from pydantic import BaseModel
from stateous import Context, Occurrence, StateRef

__workflow__ = "press"
__checksum__ = "{checksum}"


class events:
    class noted(Occurrence[None]):
        name = "noted"


class states:
    plain = StateRef("plain", emits=(events.noted,))
    fragile = StateRef("fragile", emits=(events.noted,))
"""

PLAIN = """
from contract import events, states
from stateous import on_state


@on_state(states.plain)
async def plain(ctx):
    return events.noted()
"""


def make_folder(
    folder: Path, *, url: str = "http://127.0.0.1:9", checksum: str = "sha256:" + "0" * 64, **files: str
) -> Path:
    """Write a supervisor's folder. `files` are routine files by stem; without any there is one good routine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stateous.yaml").write_text(f"url: {url}\n")
    (folder / "contract.py").write_text(CONTRACT.replace("{checksum}", checksum))
    for stem, text in (files or {"plain": PLAIN}).items():
        (folder / f"{stem}.py").write_text(text)
    return folder
