"""The lines of the demo on the screen: in colours on a terminal, plain elsewhere and under NO_COLOR."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TextIO

from stateous_supervisor.colours import has_colours
from stateous_supervisor.demo.story import Line, Tone

_TONES: dict[Tone, str] = {"plain": "", "quiet": "2", "good": "1;32", "bad": "31", "back": "33"}
_TOKENS = ("36", "35", "34")
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")


class Screen:
    """Prints what happens as it happens. Times count from the first line of a token's history."""

    def __init__(self, environment: Mapping[str, str], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_coloured = has_colours(environment, is_terminal=self._stream.isatty())
        self._began: datetime | None = None
        self._tokens: list[str] = []

    def say(self, text: str = "", tone: Tone = "plain") -> None:
        """Print a sentence of the demo's own."""
        print(self._painted(text, _TONES[tone]), file=self._stream, flush=True)

    def show(self, token: str, line: Line) -> None:
        """Print one line of a token's history."""
        self._began = self._began or line.at
        if token not in self._tokens:
            self._tokens.append(token)
        after_s = max(0.0, (line.at - self._began).total_seconds())
        name = self._painted(token, _TOKENS[self._tokens.index(token) % len(_TOKENS)])
        # What a routine said must not move the cursor.
        text = self._painted(_UNSAFE.sub(" ", line.text), _TONES[line.tone])
        print(f"{after_s:6.1f} s  {name}  {text}", file=self._stream, flush=True)

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured and code and text else text
