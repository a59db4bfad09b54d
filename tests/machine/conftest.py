"""One box for all of these tests: made, booted, and set up as the guides of `docs/how-to` say."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from machine import image
from machine.virtual import Box

FOLDER: Final = Path(__file__).with_name("folder")
TOOLS: Final = ("debootstrap", "mke2fs", "qemu-system-x86_64", "ssh", "ssh-keygen")
UNIT: Final = "stateous-supervisor"
CONTROL: Final = """
/opt/stateous/bin/stateous-control unit > /etc/systemd/system/stateous-control.service
useradd --system --home-dir /var/lib/stateous-control stateous-control
install -D -m 644 /srv/builds/workflow.yaml /etc/stateous/workflow.yaml
systemctl enable --now stateous-control
"""
KEYS: Final = """
key() { runuser -u stateous-control -- /opt/stateous/bin/stateous-control key create $1 --role $2 --data /var/lib/stateous-control; }
umask 077
key box supervisor > /etc/stateous/token
key ada admin > /root/ada.key
"""
AGENT: Final = """
useradd --system --home-dir /var/lib/stateous-supervisor stateous
cd /srv/builds
STATEOUS_KEY=$(cat /root/ada.key) /opt/stateous/bin/stateous-supervisor contract .
/opt/stateous/bin/stateous-supervisor check .
/opt/stateous/bin/stateous-supervisor service . --install --enable
"""


class Service:
    """The agent's service on the box, as its owner and the operator of the control plane see it."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def control(self, words: str) -> str:
        """Run a command of `stateous-control` with the operator's key."""
        return self.box.tell(f"STATEOUS_KEY=$(cat /root/ada.key) /opt/stateous/bin/stateous-control {words}")

    def start(self, token: str, what: str, *, own: bool = False) -> None:
        """Start a token that does `what`, in a process of its own or in a thread."""
        self.control(f"token start {token} '{json.dumps({'what': what, 'own': own})}'")

    def history(self, token: str) -> str:
        return self.control(f"token history {token}")

    def until(self, token: str, text: str) -> str:
        """Wait until the history of a token says something, and return it."""
        told: list[str] = []

        def is_told() -> bool:
            told.append(self.history(token))
            return text in told[-1]

        self.box.wait(is_told, 300, f"{text!r} in the history of {token}")
        return told[-1]

    def log(self, since: str = "") -> str:
        """Return the journal of the unit, from a cursor of `mark` on."""
        after = f"--after-cursor '{since}'" if since else ""
        return self.box.tell(f"journalctl -u {UNIT} -o cat --no-pager {after}")

    def mark(self) -> str:
        shown = self.box.tell(f"journalctl -u {UNIT} -n 1 --show-cursor -o cat --no-pager")
        return shown.rsplit("-- cursor: ", 1)[1].strip()

    def until_logged(self, text: str, since: str) -> str:
        """Wait until the unit has logged something, and return all of its journal since the mark."""
        told: list[str] = []

        def is_told() -> bool:
            told.append(self.log(since))
            return text in told[-1]

        self.box.wait(is_told, 300, f"{text!r} in the journal")
        return told[-1]

    def show(self, name: str) -> str:
        """Return a property of the unit."""
        return self.box.tell(f"systemctl show {UNIT} --value -p {name}").strip()

    def override(self, lines: Sequence[str]) -> None:
        """Put lines into a drop-in of the unit, in place of those before, and start it anew."""
        text = "\n".join(["[Service]", *lines, ""])
        place = f"/etc/systemd/system/{UNIT}.service.d"
        self.box.tell(f"mkdir -p {place} && cat > {place}/test.conf && systemctl daemon-reload", given=text)
        self.box.tell(f"systemctl restart {UNIT}")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    assert not absent, (
        f"not on the PATH: {', '.join(absent)} (Debian: debootstrap, qemu-system-x86, openssh-client)"
    )
    assert os.geteuid() == 0, "the disk of the machine can be made by root only"
    key = tmp_path_factory.mktemp("machine") / "key"
    image.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    box = Box(image.make(key), key)
    try:
        box.boot()
        box.send(FOLDER, "/srv/builds")
        box.tell(CONTROL)
        box.until("journalctl -u stateous-control -o cat | grep -q 'listening on'")
        box.tell(KEYS)
        box.tell(AGENT)
        yield Service(box)
    finally:
        box.cut_power()


@pytest.fixture(autouse=True)
def plain(service: Service) -> Iterator[None]:
    """Leave the unit as it was installed to the next test."""
    yield
    service.box.tell(f"rm -rf /etc/systemd/system/{UNIT}.service.d && systemctl daemon-reload")
    service.box.tell(f"systemctl reset-failed; systemctl restart {UNIT}")
