"""How a command asks the agent that runs on this box: through the socket in its state folder, without a network.

Used by `status`, `reload` and `drain`. Which state folder it is comes from `--state-dir`, the configuration, or the
installed unit, whichever has a socket that answers.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stateous_supervisor.agent import config
from stateous_supervisor.agent import folder as folders
from stateous_supervisor.agent.desk import SOCKET, Refusal, address
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.cli.service import DIRECTORY
from stateous_supervisor.doctor import box

BYTES_MAX: Final = 64 * 1_048_576

T = TypeVar("T")


def ask(
    question: str,
    answer: type[T],
    places: list[Path],
    folder: Path,
    *,
    within_s: float | None,
    late: str | None = None,
) -> T:
    """Ask the agent of a folder and return what it says.

    Args:
        question: `status`, `reload` or `drain`.
        answer: what is expected.
        places: the state folders where it may be, in order.
        folder: the supervisor's folder, for sentences.
        within_s: how long an answer may take; None for ever.
        late: the sentence for one that took longer, where that is no fault.

    Raises:
        Fault: no agent runs there, or it does not answer (69); it refuses (78).
    """
    for place in places:
        try:
            with address(place) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.settimeout(within_s)
                door.connect(path)
                said = _exchange(door, question)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            continue
        except PermissionError:
            mend = "ask as the agent's user, or with sudo"
            raise Fault(Exit.UNREACHABLE, f"{place / SOCKET}: this user may not ask; {mend}") from None
        except TimeoutError:
            sentence = late or f"{place / SOCKET}: no answer within {within_s:g} s"
            raise Fault(Exit.UNREACHABLE, sentence) from None
        except OSError as error:
            raise Fault(Exit.UNREACHABLE, f"{place / SOCKET}: {error.strerror or error}") from None
        return _read(said, answer, place)
    looked = " and ".join(str(place / SOCKET) for place in places)
    raise Fault(Exit.UNREACHABLE, f"no agent runs for {folder}: nobody answers at {looked}; {_mend(folder)}")


def _mend(folder: Path) -> str:
    try:
        config.load(folder, environment=os.environ)
    except Fault as fault:
        return f"--state-dir says where else, as the configuration is not good: {fault.sentence}"
    return "--state-dir says where else its state folder may be"


def _exchange(door: socket.socket, question: str) -> bytes:
    door.sendall(json.dumps({"ask": question}).encode() + b"\n")
    said = b""
    while b"\n" not in said and len(said) <= BYTES_MAX:
        part = door.recv(1_048_576)
        if not part:
            break
        said += part
    return said


def _read(said: bytes, answer: type[T], place: Path) -> T:
    if not said.strip():
        sentence = (
            f"{place / SOCKET}: it was closed without an answer: the agent ended, or lets only its user ask"
        )
        raise Fault(Exit.UNREACHABLE, sentence)
    try:
        found = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
        if set(found) == {"error"} and answer.__name__ != "Reloaded":
            raise Fault(Exit.CONFIG, msgspec.json.decode(said, type=Refusal).error)
        return msgspec.json.decode(said, type=answer)
    except msgspec.DecodeError as error:
        raise Fault(Exit.UNREACHABLE, f"{place / SOCKET}: the answer is not understood: {error}") from None


def places(folder: Path, state_dir: str | None) -> list[Path]:
    """Return where the agent's state folder may be; a configuration that broke meanwhile does not matter here.

    Raises:
        Fault: there is no such folder (78).
    """
    real = folders.find(folder)
    if state_dir is not None:
        return [real / Path(state_dir).expanduser()]
    try:
        configured = config.state_dir_of(real, environment=os.environ)
    except Fault:
        configured = folders.state_folder(real, dict(os.environ))
    return list(dict.fromkeys([configured, *_of_units(real)]))


def _of_units(folder: Path) -> Iterator[Path]:
    """Yield the state folders that systemd makes for units of that folder."""
    try:
        names = sorted(file.stem for file in DIRECTORY.glob("*.service"))
    except OSError:
        return
    for name in names:
        unit = box.find_unit(name, DIRECTORY)[1]
        if unit is not None and unit.state_directory and unit.arguments[1:2] == (str(folder),):
            yield box.STATE_HOME / unit.state_directory
