"""The unit file of the agent, as text, for the systemd that is on the box. Pure: it runs and writes nothing.

Two profiles. `build` lets builds run: homes, devices, namespaces and just-in-time compilers stay usable. `strict`
is for routines that only compute and talk: a user of its own, a read-only world.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

Profile = Literal["build", "strict"]

NOTIFY_RELOAD_SINCE = 253
EXIT_USAGE, EXIT_CONFIG = 64, 78

_BUILD = """\
NoNewPrivileges=yes
ProtectSystem=full
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=
AmbientCapabilities="""

_STRICT = """\
DynamicUser=yes
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectProc=invisible
ProcSubset=pid
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
CapabilityBoundingSet=
AmbientCapabilities="""


@dataclass(frozen=True, slots=True)
class Service:
    """What a unit is written for.

    Args:
        program: absolute path of ``stateous-supervisor``.
        folder: absolute path of the supervisor's folder.
        user: who runs it; unused in the strict profile, which makes a user of its own.
        token_file: absolute path of a file with a bearer key, handed over as a credential; None for none.
        drain_timeout_s: how long a stop may wait for routines; None for as long as they take.
        read_write: further paths that are written: by routines in the strict profile, and the state folder where
            `stateous.yaml` names one.
        name: of the unit, and of its state and runtime folders.
    """

    program: str
    folder: str
    user: str = "stateous"
    token_file: str | None = None
    drain_timeout_s: float | None = None
    read_write: tuple[str, ...] = ()
    name: str = "stateous-supervisor"


def render(service: Service, *, profile: Profile, systemd_version: int) -> str:
    """Return the unit file (A-54).

    Args:
        service: what the unit is for.
        profile: how much of the box routines may touch.
        systemd_version: what ``systemctl --version`` prints; from 253 on a reload reports its result.
    """
    sections = (
        _head(service),
        _service(service, profile, systemd_version),
        "[Install]\nWantedBy=multi-user.target",
    )
    return _stamped("\n\n".join(sections) + "\n")


def is_edited(text: str) -> bool:
    """Return whether an installed unit is other than `render` wrote it, so that it must not be overwritten."""
    first, _, rest = text.partition("\n")
    return f"{first}\n" != _stamp(rest)


def _stamped(text: str) -> str:
    return _stamp(text) + text


def _stamp(text: str) -> str:
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"# Made by 'stateous-supervisor service' ({checksum}). Changes belong into a drop-in: systemctl edit\n"


def _head(service: Service) -> str:
    return "\n".join(
        (
            "[Unit]",
            f"Description=Stateous supervisor of {service.folder.replace('%', '%%')}",
            "Wants=network-online.target",
            "After=network-online.target",
            "StartLimitIntervalSec=0",
        )
    )


def _service(service: Service, profile: Profile, systemd_version: int) -> str:
    lines = [
        "[Service]",
        *_start_and_reload(service, systemd_version),
        *_life(service),
        *_places(service, profile),
    ]
    return "\n".join([*lines, "# What the routines may not do.", _STRICT if profile == "strict" else _BUILD])


def _start_and_reload(service: Service, systemd_version: int) -> list[str]:
    start = f"ExecStart={quoted(service.program)} run {quoted(service.folder).replace('$', '$$')}"
    if systemd_version >= NOTIFY_RELOAD_SINCE:
        return ["Type=notify-reload", "NotifyAccess=main", start]
    return ["Type=notify", "NotifyAccess=main", start, "ExecReload=/bin/kill -HUP $MAINPID"]


def _life(service: Service) -> list[str]:
    stop_s = 120 if service.drain_timeout_s is None else int(service.drain_timeout_s) + 30
    return [
        "WatchdogSec=60",
        "TimeoutStartSec=120",
        f"TimeoutStopSec={stop_s}",
        "KillMode=mixed",
        "Restart=always",
        "RestartSec=2",
        f"RestartPreventExitStatus={EXIT_USAGE} {EXIT_CONFIG}",
        "OOMPolicy=continue",
        "OOMScoreAdjust=-200",
        "Environment=PYTHONFAULTHANDLER=1",
    ]


def _places(service: Service, profile: Profile) -> list[str]:
    lines = [
        f"StateDirectory={service.name}",
        "StateDirectoryMode=0700",
        f"RuntimeDirectory={service.name}",
        f"WorkingDirectory=%S/{service.name}",
        "UMask=0077",
        "TasksMax=8192",
        "LimitNOFILE=65536",
    ]
    if profile == "build":
        lines = [f"User={service.user}", "Delegate=yes", *lines]
    if service.token_file is not None:
        lines.append(f"LoadCredential=token:{service.token_file.replace('%', '%%')}")
    return lines + [f"ReadWritePaths={quoted(path)}" for path in service.read_write]


def quoted(path: str) -> str:
    """Return a path as a unit file wants it: per cent signs doubled, quoted where there are spaces."""
    escaped = path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(c.isspace() for c in path) or escaped != path.replace("%", "%%") else escaped


def parse_version(text: str) -> int:
    """Return the number in what ``systemctl --version`` prints, 0 where there is none."""
    words = text.split()
    digits = re.match(r"\d*", words[1] if len(words) > 1 else "")
    return int(digits[0]) if digits and digits[0] else 0
