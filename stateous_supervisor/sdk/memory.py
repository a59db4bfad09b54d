"""A routine's memory: small values that outlive a failed attempt, kept for its token and state.

Each write goes out at once, before the call returns; what is read is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from msgspec import Raw
from stateous_contract.limits import MEMORY_KEY_CHARS_MAX

from stateous_supervisor.sdk.values import json_size_checked, json_text, read


class Memory(MutableMapping[str, Any]):
    """The keys and values that attempts of this state left for this token (S3-77).

    Args:
        entries: what the grant brought, as JSON texts.
        remember: takes a key and its value as JSON; ``null`` forgets the key.
    """

    __slots__ = ("_entries", "_remember")

    def __init__(self, entries: dict[str, Raw], remember: Callable[[str, bytes], None]) -> None:
        self._entries: dict[str, bytes | Raw] = dict(entries)
        self._remember = remember

    def __getitem__(self, key: str) -> Any:
        return read(bytes(self._entries[key]))

    def __setitem__(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, from now on and in later attempts.

        Raises:
            ValueError: the key is no text of 1 to 128 characters, the value is None or too large.
            TypeError: the value is not JSON.
        """
        if not isinstance(key, str) or not 0 < len(key) <= MEMORY_KEY_CHARS_MAX:
            raise ValueError(
                f"a memory key is text of 1 to {MEMORY_KEY_CHARS_MAX} characters, not {key!r:.150}"
            )
        what = f"memory[{key!r}]"
        json_text(key, "a memory key")
        if value is None:
            raise ValueError(f"{what} cannot be None; use del to forget a key")
        encoded = json_size_checked(json_text(value, what), what)
        self._remember(key, encoded)
        self._entries[key] = encoded

    def __delitem__(self, key: str) -> None:
        if key not in self._entries:
            raise KeyError(key)
        self._remember(key, b"null")
        del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Memory({', '.join(self._entries)})"
