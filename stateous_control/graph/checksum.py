"""What tells two workflow documents apart: the checksum of all, the structure without settings (C.6).

The canonical form itself stands in the contract, because the agent's room needs it too.
"""

from __future__ import annotations

from typing import Any

from stateous_contract.canonical import canonical_text, checksum_of

__all__ = ["canonical_text", "checksum_of", "structure_of"]

_SETTINGS = frozenset({"timeout", "retries"})


def structure_of(document: dict[str, Any]) -> str:
    """Return the checksum of `document` without the timeouts and retries of its states, children included.

    Two graphs of one structure can take each other's place while tokens are under way.
    """
    bare = _without_settings(document)
    workflows = document.get("workflows")
    if isinstance(workflows, dict):
        bare["workflows"] = {name: _without_settings(child) for name, child in workflows.items()}
    return checksum_of(bare)


def _without_settings(machine: dict[str, Any]) -> dict[str, Any]:
    states = {
        name: {key: value for key, value in state.items() if key not in _SETTINGS}
        for name, state in machine["states"].items()
    }
    return {**machine, "states": states}
