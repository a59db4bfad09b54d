"""What runs where (A-65): Linux whole; macOS for writing routines and `--inline`; nothing anywhere else. Pure."""

from __future__ import annotations

from typing import Final

WRITING: Final = frozenset({"check", "config", "init", "contract", "try"})


def fault(platform: str, command: str | None, *, is_inline: bool) -> str | None:
    """Return why `command` does not run on `platform` (as `sys.platform` has it), or None where it does."""
    if platform == "linux" or command is None:
        return None
    if platform != "darwin":
        return f"stateous-supervisor runs on Linux, and on macOS for writing routines; this is {platform}"
    if command in WRITING or (command == "run" and is_inline):
        return None
    if command == "run":
        return "on macOS 'run' works with --inline only; the agent that user code cannot hurt needs Linux"
    return f"'{command}' needs Linux; on macOS there are {', '.join(sorted(WRITING))} and 'run --inline'"
