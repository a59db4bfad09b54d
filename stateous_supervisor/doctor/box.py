"""The box itself: the key's file, the state folder and who holds it, the installed unit, users.

It changes nothing, but for one nameless file in the state folder, to see that there can be one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from stateous_supervisor.agent.outbox_file import LOCK
from stateous_supervisor.doctor.facts import StateFacts, TokenFacts, UnitFacts
from stateous_supervisor.systemd.installed import InstalledUnit, read
from stateous_supervisor.systemd.unit import is_edited

STATE_HOME: Final = Path("/var/lib")
KEY_BYTES_MAX: Final = 65_536
PROBE_BYTES: Final = 4_096


def look_at_token(file: Path, *, is_credential: bool) -> TokenFacts:
    """Read the file with the bearer key; the key itself goes nowhere."""
    try:
        with file.open("rb") as opened:
            key = opened.read(KEY_BYTES_MAX)
            mode = os.fstat(opened.fileno()).st_mode & 0o777
        is_open = bool(file.parent.stat().st_mode & 0o001)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        return TokenFacts(file=str(file), error=_why(error), is_missing=is_missing)
    return TokenFacts(
        file=str(file),
        is_credential=is_credential,
        is_exposed=bool(mode & 0o004) and is_open,
        is_empty=not key.strip(),
        mode=f"{mode:04o}",
    )


def look_at_state(path: Path, *, is_made_by_systemd: bool, service_pid: int | None) -> StateFacts:
    """Look whether the state folder can be written, how much room there is, and who holds it."""
    there = path
    while not is_there(there) and there != there.parent:
        there = there.parent
    space = os.statvfs(there)
    return StateFacts(
        path=str(path),
        free_bytes=space.f_bavail * space.f_frsize,
        free_files=space.f_favail if space.f_files else None,
        error=None if is_made_by_systemd else _write(path, there),
        is_made_by_systemd=is_made_by_systemd,
        holder=holder_of(path),
        service_pid=service_pid,
    )


def is_there(path: Path) -> bool:
    """Return whether this user can see `path`: what systemd keeps in /var/lib/private, no other user can."""
    return os.access(path, os.F_OK)


def _write(path: Path, there: Path) -> str | None:
    """Return why a file cannot be made in `path`, or `path` in the folder that is there."""
    if path != there:
        return None if os.access(there, os.W_OK | os.X_OK) else f"{there} is not writable"
    try:
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return _why(error)
    return None


def holder_of(path: Path) -> int | None:
    """Return the process that holds the state folder, 0 where it is not known which, None where nobody does."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        told = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        return int(told) if told.isdecimal() else 0
    finally:
        os.close(lock)
    return None


def find_unit(name: str, directory: Path) -> tuple[Path, InstalledUnit | None, bool]:
    """Return the unit's file, what it says with its drop-ins (None: it is not there), and whether it was edited."""
    file = directory / f"{name}.service"
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return file, None, False
    drop_ins = sorted((directory / f"{name}.service.d").glob("*.conf"))
    texts = [text]
    for each in drop_ins:
        with contextlib.suppress(OSError):
            texts.append(each.read_text("utf-8", "replace"))
    return file, read(texts), is_edited(text)


def look_at_unit(
    name: str,
    found: tuple[Path, InstalledUnit | None, bool],
    *,
    program: str,
    folder: str,
    token_file: str | None,
    drain_timeout_s: float | None,
) -> UnitFacts:
    """Put what an installed unit says beside what the configuration asks for."""
    file, unit, edited = found
    user = None if unit is None or unit.is_dynamic else unit.user
    return UnitFacts(
        name=name,
        file=str(file),
        unit=unit,
        is_edited=edited,
        has_user=user is None or user_id(user) is not None,
        has_program=unit is None or unit.program is None or os.access(unit.program, os.X_OK),
        program=program,
        folder=folder,
        token_file=token_file,
        drain_timeout_s=drain_timeout_s,
    )


def service_pid(name: str) -> int | None:
    """Return the main process of a running service, None where it does not run or there is no systemd."""
    command = ["systemctl", "show", "--property=MainPID", "--value", name]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = asked.stdout.strip()
    return int(told) if told.isdecimal() and int(told) else None


def user_id(name: str) -> int | None:
    """Return the uid of a user by name or number, None where there is no such user."""
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def user_name(uid: int) -> str:
    """Return the name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
