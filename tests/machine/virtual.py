"""A box in a virtual machine: booted, told what to do as root over SSH, and cut off from its power."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

BOOT_S: Final = 300
COMMAND_S: Final = 300
SSH: Final = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")


class Box:
    """One machine. It is emulated, about twenty times slower than this one: bounds in tests are generous."""

    def __init__(self, files: Path, key: Path) -> None:
        self._files = files
        self._key = key
        self._port = free_port()
        self._machine: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Switch it on, and wait until it lets us in."""
        disk = f"file={self._files / 'disk.img'},if=virtio,format=raw"
        net = f"user,id=net,hostfwd=tcp:127.0.0.1:{self._port}-:22"
        options: dict[str, str | Path] = {
            "-accel": "tcg,thread=multi",
            "-cpu": "max",
            "-smp": "2",
            "-m": "4096",
            "-kernel": self._files / "vmlinuz",
            "-initrd": self._files / "initrd.img",
            "-append": "root=/dev/vda rw console=ttyS0 net.ifnames=0",
            "-drive": disk,
            "-netdev": net,
            "-device": "virtio-net-pci,netdev=net",
            "-display": "none",
            "-monitor": "none",
            "-serial": f"file:{self._files / 'console.log'}",
        }
        words = [word for option in options.items() for word in option]
        self._machine = subprocess.Popen(["qemu-system-x86_64", *words])
        self.wait(lambda: self.try_to("true") is not None, BOOT_S, "boot of the box")

    def cut_power(self) -> None:
        """Switch it off as a power failure does."""
        if self._machine is not None:
            self._machine.kill()
            self._machine.wait()
            self._machine = None

    def tell(self, script: str, *, given: str = "") -> str:
        """Run a shell script as root, and return what it printed.

        Args:
            script: for `sh -e`.
            given: its standard input.

        Raises:
            RuntimeError: it failed.
        """
        done = self._ssh(script, given)
        if done.returncode != 0:
            raise RuntimeError(f"{script.strip()} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def try_to(self, script: str) -> str | None:
        """Run a script as `tell` does. None: it failed, or the box does not answer."""
        try:
            done = self._ssh(script, "", within_s=30)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def until(self, script: str, within_s: float = COMMAND_S) -> None:
        """Wait until a script succeeds."""
        self.wait(lambda: self.try_to(script) is not None, within_s, script)

    def send(self, folder: Path, to: str) -> None:
        """Copy what is in a folder into one of the box."""
        pack = subprocess.run(["tar", "-C", folder, "-c", "."], capture_output=True, check=True).stdout
        unpack = f"mkdir -p {to} && tar -C {to} --no-same-owner -x"
        subprocess.run(["ssh", *self._way(), unpack], input=pack, check=True, timeout=COMMAND_S)

    @staticmethod
    def wait(is_so: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: it was not, in the time given.
        """
        end = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {within_s:.0f} s: {what}")
            time.sleep(1)

    def _ssh(
        self, script: str, given: str, *, within_s: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        command = ["ssh", *self._way(), f"sh -e -c {shlex.quote(script)}"]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=within_s, check=False
        )

    def _way(self) -> list[str]:
        return [
            *SSH,
            "-o",
            "ConnectTimeout=10",
            "-i",
            str(self._key),
            "-p",
            str(self._port),
            "root@127.0.0.1",
        ]


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
