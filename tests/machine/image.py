"""A disk with Debian 13, whose systemd knows all that the unit asks for, and this checkout installed as a wheel.

Needs root, debootstrap, mke2fs and pip's index. What is the same each time is kept in the cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stateous-machine"
PACKAGES: Final = "systemd,systemd-sysv,dbus,udev,linux-image-cloud-amd64,python3,python3-venv,iproute2,openssh-server,procps,kmod,e2fsprogs"
PYTHON: Final = "3.13"  # Debian 13's
SETTLE: Final = """
set -e
python3 -m venv --clear /opt/stateous
/opt/stateous/bin/pip install --quiet --no-index --find-links /root/wheels 'stateous-supervisor[control,embedded]'
echo box > /etc/hostname
echo '127.0.0.1 localhost box' > /etc/hosts
echo '/dev/vda / ext4 rw 0 1' > /etc/fstab
printf '[Match]\\nType=ether\\n[Network]\\nDHCP=yes\\n' > /etc/systemd/network/10-any.network
install -d -m 700 /root/.ssh
systemctl enable --quiet systemd-networkd ssh
"""


def make(key: Path) -> Path:
    """Make the disk of a box that lets the owner of `key` in as root, and return the folder it is in.

    Args:
        key: the private key; its public half lies beside it.
    """
    root = CACHE / "root"
    if not (root / "root").is_dir() or not list((root / "boot").glob("vmlinuz-*")):
        shutil.rmtree(root, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root)
    wheels = root / "root/wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", wheels, CHECKOUT)
    built = next(wheels.glob("*.whl"))
    binary = ("--only-binary=:all:", f"--python-version={PYTHON}")
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        *binary,
        "-d",
        wheels,
        f"{built}[control,embedded]",
    )
    run("chroot", root, "sh", "-c", SETTLE)
    shutil.copy(f"{key}.pub", root / "root/.ssh/authorized_keys")
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), CACHE / name)
    disk = CACHE / "disk.img"
    disk.unlink(missing_ok=True)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-d", root, disk, "6G")
    return CACHE


def run(*command: str | Path) -> None:
    """Run a command.

    Raises:
        RuntimeError: it failed; what it said is in the text.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stdout[-2_000:]}")
