"""`stateous-supervisor service FOLDER`: the unit file for the systemd on this box, printed or installed (A-54).

It never reloads or restarts anything by itself; `--enable` asks for that.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from stateous_supervisor.agent import config
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.cli import options
from stateous_supervisor.systemd.unit import Service, is_edited, parse_version, render

PROGRAM: Final = "stateous-supervisor"
DIRECTORY: Final = Path("/etc/systemd/system")
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108  what a unit hides, not where we write
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

UnitName = Annotated[str, typer.Option("--unit", help="The unit's name, without .service.", metavar="NAME")]
Directory = Annotated[Path, typer.Option(help="Where unit files stand.", metavar="PATH")]


class Profile(StrEnum):
    """How much of the box routines may touch."""

    build = "build"
    strict = "strict"


def service(
    folder_path: options.Folder,
    profile: Annotated[
        Profile, typer.Option(help="build: builds can run. strict: routines only compute and talk.")
    ] = Profile.build,
    user: Annotated[
        str, typer.Option(help="Who runs it; the strict profile makes a user of its own.", metavar="USER")
    ] = "stateous",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the bearer key, handed over as a credential. Default: token_file.",
            metavar="PATH",
        ),
    ] = None,
    unit: UnitName = PROGRAM,
    directory: Directory = DIRECTORY,
    install: Annotated[
        bool, typer.Option("--install", help="Write it there instead of printing it.")
    ] = False,
    enable: Annotated[
        bool, typer.Option("--enable", help="Install it, reload systemd, enable and start it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a unit that somebody edited.")] = False,
) -> None:
    """Print the systemd unit of this folder, or install it.

    It is written for the systemd on this box and the program that is running now. Nothing is reloaded or started
    unless --enable is given.
    """
    if not NAME.fullmatch(unit):
        raise Fault(Exit.USAGE, f"'--unit' is '{unit}'; it must be 1 to 64 of letters, digits, and _ . -")
    # What stands in this shell's environment is not there when systemd starts it.
    settings = config.load(folder_path, flags={}, environment={})
    made = _service(settings, user=user, token_file=token_file, name=unit)
    version = systemd_version()
    text = render(made, profile=profile.value, systemd_version=version or 0)
    _warn(made, settings, profile, version)
    if not (install or enable):
        print(text, end="")
        return
    file = directory / f"{unit}.service"
    was_there = _install(file, text, is_forced=force)
    if enable:
        _systemctl("daemon-reload")
        _systemctl("enable", unit)
        _systemctl("restart", unit)
        return
    print("next:")
    print("  systemctl daemon-reload")
    print(f"  systemctl restart {unit}" if was_there else f"  systemctl enable --now {unit}")
    print(f"  {PROGRAM} doctor {made.folder}")


def _service(settings: config.Config, *, user: str, token_file: Path | None, name: str) -> Service:
    token = token_file.absolute() if token_file is not None else settings.token_file
    has_own_state = settings.settings["state_dir"].origin != "default"
    for path in (settings.folder, token):
        if path is not None and not str(path).isprintable():
            raise Fault(Exit.CONFIG, f"{path!r}: a path with a control character cannot stand in a unit")
    return Service(
        program=str(program()),
        folder=str(settings.folder),
        user=user,
        token_file=None if token is None else str(token),
        drain_timeout_s=settings.drain_timeout_s,
        read_write=(str(settings.state_dir),) if has_own_state else (),
        name=name,
    )


def program() -> Path:
    """Return the program beside the interpreter that runs now: that of its virtual environment.

    Raises:
        Fault: there is none (78).
    """
    found = Path(sys.executable).with_name(PROGRAM)
    if not found.exists():
        raise Fault(Exit.CONFIG, f"{found} is not there; install {PROGRAM} into the environment that runs it")
    return found


def systemd_version() -> int | None:
    """Return the version of the systemd on this box, None where there is no systemctl."""
    try:
        asked = subprocess.run(
            ["systemctl", "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(asked.stdout) or None


def _warn(made: Service, settings: config.Config, profile: Profile, version: int | None) -> None:
    if version is None:
        _say("there is no systemctl here; this unit is of the form that every systemd takes")
    if profile is Profile.build:
        try:
            pwd.getpwnam(made.user)
        except KeyError:
            home = f"/var/lib/{made.name}"
            _say(
                f"there is no user '{made.user}'; 'useradd --system --home-dir {home} {made.user}' makes one"
            )
    hidden = HIDDEN if profile is Profile.strict else HIDDEN[3:]
    for what, path in (("folder", made.folder), ("program", made.program), ("python", settings.python)):
        if any(Path(path).is_relative_to(place) for place in hidden):
            _say(f"the service will not see its {what} {path}: the {profile.value} profile hides that place")
    if made.token_file is not None and not Path(made.token_file).exists():
        _say(f"the token file {made.token_file} is not there; the service cannot start without it")


def _say(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def _install(file: Path, text: str, *, is_forced: bool) -> bool:
    """Write the unit in one step; return whether one was there before.

    Raises:
        Fault: somebody edited the one that is there, or it cannot be written (73).
    """
    try:
        there = file.read_text("utf-8", "replace") if file.exists() else None
        if there == text:
            print(f"unchanged  {file}")
            return True
        if there is not None and is_edited(there) and not is_forced:
            mend = f"keep the changes in a drop-in ('systemctl edit {file.stem}'), then give --force"
            raise Fault(Exit.NO_STATE_FOLDER, f"{file} was edited by hand and is not overwritten; {mend}")
        _replace(file, text)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Fault(Exit.NO_STATE_FOLDER, f"{file}: cannot be written: {why}; it takes root") from None
    print(f"{'made' if there is None else 'replaced':<10} {file}")
    return there is not None


def _replace(file: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fchmod(opened.fileno(), 0o644)
            os.fsync(opened.fileno())
        os.replace(name, file)  # noqa: PTH105  one step, as the name says
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _systemctl(*words: str) -> None:
    command = " ".join(["systemctl", *words])
    print(command, flush=True)
    try:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Fault(Exit.UNREACHABLE, f"'{command}' cannot be run: {error.strerror}") from None
    if done.returncode:
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise Fault(Exit.UNREACHABLE, f"'{command}' failed: {why}")
