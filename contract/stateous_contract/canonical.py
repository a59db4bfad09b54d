"""The checksum of a workflow document: what `/health` tells and what a generated ``contract.py`` carries.

Both rooms compute it from a parsed document, so it stands here. It never reads a file.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_text(document: Any) -> str:
    """Write `document` in the one form that is hashed: keys sorted by code point, no spaces, ASCII only.

    ``1`` and ``1.0`` stay different. Raises ValueError for NaN and infinity, which JSON does not have.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def checksum_of(document: Any) -> str:
    """Return ``sha256:`` and the hexadecimal digest of the canonical form of `document`."""
    return "sha256:" + hashlib.sha256(canonical_text(document).encode("ascii")).hexdigest()


def completed(document: Any) -> Any:
    """Return the document that a workflow file stands for: each state's `emits` written out where it was left out.

    They are the declared events that have a transition from the state, in transition order, as programs of the
    baseline expect them in the file. A document that has them all is returned as it is, keys and order; so is
    whatever is no document, for the caller to refuse. The checksum of a file is that of the completed document.
    """
    if not isinstance(document, dict):
        return document
    whole = _with_emits(document)
    children = document.get("workflows")
    if isinstance(children, dict):
        whole["workflows"] = {
            name: _with_emits(child) if isinstance(child, dict) else child for name, child in children.items()
        }
    return whole


def _with_emits(machine: dict[str, Any]) -> dict[str, Any]:
    states, events, transitions = (machine.get(key) for key in ("states", "events", "transitions"))
    if not (isinstance(states, dict) and isinstance(events, dict) and isinstance(transitions, list)):
        return dict(machine)
    leading: dict[str, dict[str, None]] = {}
    for each in transitions:
        if isinstance(each, dict) and isinstance(each.get("from"), str) and isinstance(each.get("on"), str):
            leading.setdefault(each["from"], {})[each["on"]] = None
    whole = {
        name: {**state, "emits": [event for event in leading.get(name, ()) if event in events]}
        if isinstance(state, dict) and state.get("emits") is None and state.get("parallel") is None
        else state
        for name, state in states.items()
    }
    return {**machine, "states": whole}
