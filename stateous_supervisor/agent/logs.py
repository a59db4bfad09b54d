"""The one door to structlog: a documented table of events, and a log that never makes its caller wait.

An event that is not in `EVENTS` cannot be logged; `docs/reference/logs.md` shows the same table and a test
compares them. Lines go to a thread of their own that writes to stderr; when nobody reads there, the newest
lines are dropped and counted. Never logged: keys, payloads, contexts, answers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import structlog

LINES_MAX: Final = 20_000
WAITING_CHARS_MAX: Final = 16 * 1_048_576
TEXT_CHARS_MAX: Final = 16_384
GATHER_S: Final = 0.02

Write = Callable[[str], None]
Heard = Callable[[str, Mapping[str, object]], None]


class Row(NamedTuple):
    """One event of the table: its level, the keys it carries, and when it is logged."""

    level: str
    keys: tuple[str, ...]
    when: str


# A routine without a graph has `routine` in the place of token and state.
ATTEMPT: Final = ("task", "attempt", "token", "state", "routine")

EVENTS: Final[Mapping[str, Row]] = {
    "supervisor.started": Row(
        "info", ("states", "slots", "url", "supervisor", "instance"), "routines are loaded"
    ),
    "supervisor.stopping": Row("info", ("reason", "running"), "a stop was asked for"),
    "supervisor.stopped": Row("info", ("duration_s", "kept", "exit_code"), "last line of the process"),
    "token.exposed": Row("warning", ("file", "mode"), "other users can read the file with the bearer key"),
    "folder.broken": Row(
        "error", ("file", "line", "error"), "a file could not be loaded; other states go on"
    ),
    "folder.reloaded": Row(
        "info", ("host", "states", "needs_restart"), "configuration and folder were read again and are good"
    ),
    "reload.refused": Row("error", ("error",), "configuration or folder are not good; the old ones go on"),
    "host.retired": Row("info", ("host",), "a host that was replaced has ended its last routine"),
    "host.started": Row("info", ("host", "pid", "python", "states"), "a routine host is ready"),
    "host.ended": Row("warning", ("host", "reason", "running", "next_in_s"), "a routine host is gone"),
    "host.failed": Row("error", ("error", "next_in_s"), "a routine host could not be started"),
    "host.unfit": Row(
        "warning",
        ("host", "reason", "running", "next_in_s"),
        "routines took from a host what each of them needs: another one takes its place, what runs in it goes on",
    ),
    "host.crowded": Row(
        "warning",
        ("host", "abandoned"),
        "so many abandoned routines are in it that another host takes its place",
    ),
    "host.hung": Row(
        "warning",
        ("host", "what", "hung_s", "running", "next_in_s"),
        "a host, or its loop, has not answered for so long that another one takes new work; what runs in it goes on",
    ),
    "host.blocked": Row(
        "warning",
        ("host", "what", "place", "blocked_s", "tasks", *ATTEMPT),
        "a routine holds the host's loop, or all of the host; repeated at growing intervals",
    ),
    "host.unblocked": Row("info", ("host", "blocked_s"), "it goes on"),
    "control_plane.reached": Row("info", ("features", "down_s"), "first contact, or contact again"),
    "control_plane.unreachable": Row(
        "warning",
        ("error", "failures", "next_in_s"),
        "no answer; at the first one, at once where the cause is another one, and once a minute for each; "
        "of five causes in a minute at most",
    ),
    "key.refused": Row(
        "error",
        ("error", "failures", "next_in_s"),
        "401, or 403 with a code: claims stop, what runs goes on; at the first one and then once a minute",
    ),
    "key.accepted": Row("info", ("refused_s",), "the control plane accepts the key again"),
    "box.suspended": Row(
        "info", ("slept_s",), "the box slept; connections are given up, and leases counted on"
    ),
    "contract.differs": Row("error", ("contract", "control_plane", "mend"), "claims stop until it is mended"),
    "contract.outdated": Row(
        "error",
        ("states", "contract", "control_plane", "mend"),
        "claims stop for these states until it is mended",
    ),
    "contract.agreed": Row("info", ("checksum",), "the contract fits again"),
    "routine.unclaimed": Row(
        "warning",
        ("routines", "feature"),
        "the control plane has no routines without a graph: nothing is claimed for these",
    ),
    "claim.refused": Row(
        "warning", ("states", "code", "error", "next_in_s"), "the control plane refused a claim"
    ),
    "claim.abandoned": Row(
        "error", ("request", "error"), "a claim's answer could not be understood, again and again"
    ),
    "grant.unusable": Row("error", ("error", "task", "attempt"), "a grant that no routine can run"),
    "task.claimed": Row("info", (*ATTEMPT, "lease_s"), "a grant was received"),
    "task.noted": Row("debug", (*ATTEMPT, "text"), "a routine said a line of progress"),
    "task.parked": Row("info", (*ATTEMPT, "call"), "the control plane has parked the task; its slot is free"),
    "replay.diverged": Row(
        "warning",
        (*ATTEMPT, "steps", "count"),
        "steps that earlier attempts passed were not come by any more; of a strict routine, which parks, the first",
    ),
    "task.failed": Row(
        "warning", (*ATTEMPT, "error", "traceback"), "a routine raised or returned what is not allowed"
    ),
    "task.finished": Row(
        "info",
        (
            *ATTEMPT,
            "outcome",
            "event_name",
            "ending",
            "duration_s",
            "queue_s",
            "report_s",
            "heartbeats",
            "cpu_s",
            "peak_mb",
        ),
        "the one line that ends each attempt",
    ),
    "routine.abandoned": Row("warning", ATTEMPT, "a routine goes on although its attempt is over"),
    "lease.lost": Row(
        "warning", (*ATTEMPT, "reason", "held_s"), "the control plane says that it is not ours"
    ),
    "lease.doubted": Row(
        "warning", (*ATTEMPT, "since_s"), "the lease cannot be proven any more; the routine goes on"
    ),
    "lease.fenced": Row(
        "warning",
        (*ATTEMPT, "left_s"),
        "the lease will soon not be provable: the routine is stopped (`fence`)",
    ),
    "fence.powerless": Row(
        "warning",
        ("states",),
        "`fence` is set, and the routine is a thread that nothing can stop: give it `isolation: process`",
    ),
    "heartbeat.missed": Row(
        "warning", ("error", "failures", "next_in_s", "trusted_s"), "a heartbeat was not answered"
    ),
    "report.refused": Row("info", (*ATTEMPT, "code", "error"), "the control plane said no to an outcome"),
    "message.refused": Row(
        "warning", (*ATTEMPT, "message", "code", "error"), "no to a note or a memory write"
    ),
    "outbox.recovered": Row("info", ("claims", "grants", "messages"), "an earlier process left something"),
    "outbox.copied": Row("warning", ("claims", "grants", "messages"), "the outbox was made on another box"),
    "outbox.set_aside": Row(
        "error",
        ("record", "error"),
        "a record or file that is damaged, foreign or refused, kept and not sent",
    ),
    "outbox.failed": Row("error", ("error", "next_in_s"), "the disk refused; no claims until it is mended"),
    "outbox.mended": Row("info", ("down_s",), "the disk takes writes again"),
    "routine.logged": Row("info", (*ATTEMPT, "text", "level"), "a routine printed or logged a line"),
    "host.printed": Row("info", ("host", "text"), "output of the host that belongs to no task"),
    "socket.failed": Row(
        "warning",
        ("folder", "error"),
        "there is no socket in the state folder for `status`, `reload` and `drain`",
    ),
    "metrics.failed": Row("warning", ("listen", "error"), "nobody can listen there; there are no metrics"),
    "loop.failed": Row("error", ("loop", "error", "traceback"), "a fault of ours; the loop goes on"),
}

_NUMBERS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_dumps: Final = msgspec.json.Encoder(enc_hook=str).encode


class Log:
    """Where the agent's events go.

    Args:
        write: takes one finished line; must not block.
        console: for people rather than programs.
        level: the least level that is written.
        colors: only with `console`.
        clock: wall time in seconds; a number for tests.
        bound: keys that stand on every line.

    `heard` gets every event of the agent itself, also those below the level.
    """

    def __init__(
        self,
        write: Write,
        *,
        console: bool = False,
        level: str = "info",
        colors: bool = False,
        clock: Callable[[], float] = time.time,
        bound: Mapping[str, object] | None = None,
    ) -> None:
        self._write = write
        self._least = _NUMBERS[level]
        self._clock = clock
        self._bound = dict(bound or {})
        self.heard: Heard = lambda _event, _keys: None
        self._second, self._moment = -1, -1
        self._until_second = self._shown = ""
        self._render = _console(colors=colors) if console else _json()

    def show_from(self, level: str) -> None:
        """Write lines from another level on."""
        self._least = _NUMBERS[level]

    def tell(self, event: str, /, **keys: object) -> None:
        """Log `event` with its keys; a key that is None is left out."""
        level = EVENTS[event].level
        self.heard(event, keys)
        self.tell_at(level, event, keys)

    def tell_at(self, level: str, event: str, keys: Mapping[str, object]) -> None:
        """Log `event` at a level of the caller's choice (a routine's own lines)."""
        if _NUMBERS.get(level, 20) < self._least:
            return
        fields: dict[str, Any] = {"at": self._stamp(), "level": level, "event": event, **self._bound}
        fields |= {name: value for name, value in keys.items() if value is not None}
        line = self._render(fields)
        if len(line) > TEXT_CHARS_MAX:
            line = self._render({name: _cut(value) for name, value in fields.items()})
        self._write(line)

    def _stamp(self) -> str:
        """Return the wall time to the millisecond: a busy agent logs several lines in one, and they share its text."""
        moment = int(self._clock() * 1000)
        if moment != self._moment:
            self._moment = moment
            second = moment // 1000
            if second != self._second:
                self._second = second
                self._until_second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._shown = f"{self._until_second}.{moment % 1000:03d}Z"
        return self._shown


def _cut(value: object) -> object:
    if type(value) is str and len(value) > TEXT_CHARS_MAX:
        return value[:TEXT_CHARS_MAX] + " … [cut]"
    return value


def _json() -> Callable[[dict[str, Any]], str]:
    renderer = structlog.processors.JSONRenderer(serializer=_dumped)

    def render(fields: dict[str, Any]) -> str:
        try:
            return str(renderer(None, "", fields))
        except UnicodeEncodeError:  # a lone surrogate in a routine's text
            return str(renderer(None, "", {k: _plain(v) for k, v in fields.items()}))

    return render


def _dumped(fields: dict[str, Any], **_: object) -> str:
    return _dumps(fields).decode()


def _plain(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _console(*, colors: bool) -> Callable[[dict[str, Any]], str]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors, timestamp_key="at", pad_event_to=26, sort_keys=False
    )

    def render(fields: dict[str, Any]) -> str:
        shown = {k: v for k, v in fields.items() if k not in ("supervisor", "instance", "version")}
        trace = shown.pop("traceback", None)
        line = str(renderer(None, str(fields["level"]), shown))
        return f"{line}\n{trace}" if trace else line

    return render


class StderrLines:
    """Writes lines to a descriptor from a thread of its own, in bursts."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._dropped = 0
        # Each is counted by one thread alone; what lies between them waits.
        self._given_chars = self._taken_chars = 0
        self._is_open = True
        self._is_idle = False
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Take a line. Never waits: beyond `LINES_MAX` or `WAITING_CHARS_MAX` it is dropped and counted."""
        if len(self._lines) >= LINES_MAX or self._given_chars - self._taken_chars > WAITING_CHARS_MAX:
            self._dropped += 1
            return
        self._given_chars += len(line)
        self._lines.append(line)
        if self._is_idle:
            self._is_idle = False
            self._called.set()

    def close(self, wait_s: float = 1.0) -> None:
        """Write what is there, for at most `wait_s`."""
        self._is_open = False
        self._called.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while self._is_open or self._lines:
            if not self._lines:
                self._rest()
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            text = "".join(f"{line}\n" for line in lines)
            if self._dropped:
                text += f'{{"level":"warning","event":"log.dropped","lines":{self._dropped}}}\n'
                self._dropped = 0
            self._put(text.encode("utf-8", "replace"))
            self._taken_chars += sum(map(len, lines))

    def _rest(self) -> None:
        """Wait for a line, and then a little for more: a busy agent wakes this thread fifty times a second."""
        self._called.clear()
        self._is_idle = True
        if not self._lines and self._is_open:
            self._called.wait()
        self._is_idle = False
        if self._is_open:
            time.sleep(GATHER_S)

    def _put(self, text: bytes) -> None:
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:
            self._dropped += 1  # nobody reads any more (a closed pipe): the agent goes on
