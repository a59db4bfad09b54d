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
