"""The log: stderr, for people on a terminal, one JSON object a line otherwise. The only module that knows structlog.

An event is ``noun.past_participle``, details are keys. Never a payload, a context, an answer or a secret.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from typing import Any, TextIO, cast

import structlog

from stateous_control.colours import has_colours


class Unbreakable(io.TextIOBase):
    """A stream whose reader may go away: what cannot be written is lost, and the request that wrote it goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def logger(name: str = "stateous.control") -> Any:
    """Return a logger; it finds out how to write when it is first used, so that importing sets nothing up."""
    return structlog.get_logger(name)


def configure() -> None:
    """Set up the log for a server process, ours and that of the libraries."""
    is_terminal = sys.stderr.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_terminal:
        last: Any = structlog.dev.ConsoleRenderer(
            colors=has_colours(os.environ, is_terminal=is_terminal),
            # Never the variables of a traceback: a key or a context may be among them.
            exception_formatter=structlog.dev.plain_traceback,
        )
    else:
        shared.append(structlog.processors.format_exc_info)
        last = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", Unbreakable(sys.stderr))),
    )
    handler = logging.StreamHandler(Unbreakable(sys.stderr))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
