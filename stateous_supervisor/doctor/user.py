"""Looks with the eyes of the service's user: runs a command as that user, with the key as systemd would hand it over.

Only root can. The key goes into a folder that only that user can read, for as long as the command runs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CREDENTIAL: Final = "token"
LIMIT_S: Final = 180.0


def run_as(uid: int, command: Sequence[str], *, key_file: Path | None) -> subprocess.CompletedProcess[str]:
    """Run `command` as the user `uid`, as systemd starts a service: with a small environment, in `/`.

    Raises:
        OSError: that user cannot run it.
        subprocess.TimeoutExpired: it did not end.
    """
    try:
        entry = pwd.getpwuid(uid)
        gid, groups, home = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_dir
    except KeyError:
        gid, groups, home = uid, [uid], "/"
    environment = {"PATH": os.defpath, "HOME": home, "LANG": os.environ.get("LANG", "C.UTF-8")}
    with tempfile.TemporaryDirectory(prefix="stateous-doctor-") as folder:
        if key_file is not None and key_file.is_file():
            key = Path(folder, CREDENTIAL)
            shutil.copyfile(key_file, key)
            key.chmod(0o400)
            os.chown(key, uid, gid)
            os.chown(folder, uid, gid)
            environment["CREDENTIALS_DIRECTORY"] = folder
        return subprocess.run(
            command,
            user=uid,
            group=gid,
            extra_groups=groups,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
