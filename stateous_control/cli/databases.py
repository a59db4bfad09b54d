"""Which PostgreSQL to use: a server that somebody named, or the embedded one in a data folder.

A password never travels on a command line, where every user of the machine can read it, and never into a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.files import read_secret
from stateous_control.cli.screen import remark

if TYPE_CHECKING:
    from stateous_control.embedded import EmbeddedPostgres

VARIABLE: Final = "STATEOUS_DATABASE_URL"
CREDENTIAL: Final = "database-url"
WAYS: Final = (
    f"give the URL in {VARIABLE}, in a file with --database-file, or as the systemd credential '{CREDENTIAL}', "
    "or leave the password out and keep it in PGPASSFILE"
)


def data_folder(given: Path | None, environment: Mapping[str, str]) -> Path:
    """Return the data folder: what was given, else systemd's state folder, else the user's."""
    if given is not None:
        return given.absolute()
    systemd = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if systemd:
        return Path(systemd)
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return (Path(state).expanduser() / "stateous-control").absolute()


def server_url(
    database: str | None, file: Path | None, data: Path | None, environment: Mapping[str, str]
) -> str | None:
    """Return the URL of the PostgreSQL server that was named; None means the embedded one.

    Flags beat the environment. Raises `Failure` (64, 78) for a password on the command line, two answers at once,
    and what is no URL.
    """
    if sum(each is not None for each in (database, file, data)) > 1:
        raise Failure(Exit.USAGE, "give one of --database, --database-file and --data, not several")
    if database is not None:
        if _has_password(database):
            raise Failure(
                Exit.USAGE, f"--database holds a password, which all users of this machine could read; {WAYS}"
            )
        return _checked(database, "--database", Exit.USAGE)
    if file is not None:
        return _checked(_read(file), str(file), Exit.BAD_FILE)
    if data is not None:
        return None
    if environment.get(VARIABLE):
        return _checked(environment[VARIABLE], VARIABLE, Exit.USAGE)
    credential = Path(environment.get("CREDENTIALS_DIRECTORY", "")) / CREDENTIAL
    if environment.get("CREDENTIALS_DIRECTORY") and credential.exists():
        return _checked(_read(credential), f"the credential {CREDENTIAL}", Exit.BAD_FILE)
    return None


@contextmanager
def opened(url: str | None, data: Path) -> Iterator[tuple[str, EmbeddedPostgres | None]]:
    """Yield the URL to use; without one, start the embedded PostgreSQL of `data` and stop it afterwards."""
    if url is not None:
        yield url, None
        return
    from stateous_control.embedded import CannotStart, EmbeddedPostgres, InUse

    server = EmbeddedPostgres(data)
    try:
        started = server.start()
    except InUse as error:
        raise Failure(Exit.IN_USE, str(error)) from None
    except CannotStart as error:
        raise Failure(Exit.NO_PLACE, str(error)) from None
    try:
        yield started, server
    finally:
        server.stop()


@contextmanager
def joined(url: str | None, data: Path) -> Iterator[str]:
    """Yield the URL to use, like `opened`, but share the embedded PostgreSQL of a control plane that runs."""
    if url is None and not (data / "postgres.lock").exists():
        raise Failure(
            Exit.NO_PLACE,
            f"{data} holds no embedded PostgreSQL; name the folder with --data, or a --database",
        )
    with ExitStack() as stack:
        try:
            used, _server = stack.enter_context(opened(url, data))
        except Failure as failure:
            if failure.exit_code is not Exit.IN_USE:
                raise
            used = _running_url(data)
        yield used


def _running_url(data: Path) -> str:
    from stateous_control.embedded import url_file

    try:
        return url_file(data).read_text()
    except OSError:
        raise Failure(
            Exit.IN_USE, f"the PostgreSQL of {data} is just starting or stopping; try again"
        ) from None


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.password) or "password" in parse_qs(parts.query)
    except ValueError:
        return False


def _checked(url: str, where: str, exit_code: Exit) -> str:
    text = url.strip()
    if not text.startswith(("postgresql://", "postgres://")) or len(text.split()) != 1:
        raise Failure(exit_code, f"{where} must be a URL such as postgresql://user@host/database")
    return text


def _read(file: Path) -> str:
    text, is_open = read_secret(file)
    if is_open and _has_password(text.strip()):
        remark(
            f"warning: {file} holds a password and others than its owner can read it; run: chmod 600 {file}"
        )
    return text
