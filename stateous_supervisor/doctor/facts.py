"""Facts about a build box, as values. A part that was not looked at is None; nothing here judges."""

from __future__ import annotations

from dataclasses import dataclass

from stateous_supervisor.systemd.installed import InstalledUnit


@dataclass(frozen=True, kw_only=True)
class UserFacts:
    """As whom doctor looks, and who runs the service. `stands_for_dynamic`: systemd makes up the real one."""

    current: str
    service: str | None = None
    stands_for_dynamic: bool = False


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """What a routine host made of the folder. `unusable` is why there was none."""

    path: str
    interpreter: str
    python: str = ""
    states: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    unusable: str | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """The way to a host. `via_proxy` is the proxy that `host` is of. Times are seconds.

    `addresses` None: the name did not resolve, for the reason `dns_error`.
    `connected` None: no address took a connection; `refusals` says why, address by address.
    """

    host: str
    port: int
    via_proxy: str | None = None
    dns_s: float = 0.0
    addresses: tuple[str, ...] | None = None
    dns_error: str = ""
    connected: str | None = None
    connect_s: float = 0.0
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TlsFacts:
    """A TLS handshake. `fault` is one of `tls.SENTENCES`, None where it was made; `detail` is OpenSSL's own word.

    `speaks_tls` is for a plain `http` URL: whether the port would rather speak TLS.
    """

    is_asked_for: bool
    fault: str | None = None
    detail: str = ""
    version: str = ""
    valid_s: float | None = None
    speaks_tls: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """The file with the bearer key. `error` is why it cannot be read; `is_handed_over`: systemd reads it for us.

    `is_missing`: nothing stands there.
    """

    file: str
    is_credential: bool = False
    is_handed_over: bool = False
    is_exposed: bool = False
    is_empty: bool = False
    mode: str = ""
    error: str | None = None
    is_missing: bool = False


@dataclass(frozen=True, kw_only=True)
class PlaneFacts:
    """What the control plane said. `error` None: it answered; `is_denied`: it does not accept the key.

    `changed` are the states whose routines another workflow than the folder's does not suit; None: nobody can tell.
    `skew_s` is how far its clock is ahead of ours; `skew_doubt_s` how wrong that may be.
    """

    url: str
    error: str | None = None
    changed: tuple[str, ...] | None = None
    is_denied: bool = False
    features: tuple[str, ...] = ()
    is_extended: bool = False
    alarms: tuple[str, ...] = ()
    checksum: str = ""
    folder_checksum: str | None = None
    lease_s: float = 0.0
    heartbeat_s: float = 0.0
    round_trip_s: float = 0.0
    skew_s: float | None = None
    skew_doubt_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StateFacts:
    """The state folder. `is_made_by_systemd`: it is not there yet, or its user is not.

    `holder` is the process that holds it, `service_pid` that of the running service.
    """

    path: str
    free_bytes: int = 0
    free_files: int | None = None
    error: str | None = None
    is_made_by_systemd: bool = False
    holder: int | None = None
    service_pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class UnitFacts:
    """The installed unit, and what `service` would make of the folder's configuration. None: it is not there."""

    name: str
    file: str
    unit: InstalledUnit | None = None
    is_edited: bool = False
    has_user: bool = True
    has_program: bool = True
    program: str = ""
    folder: str = ""
    token_file: str | None = None
    drain_timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that was looked at."""

    user: UserFacts
    config_file: str
    config_fault: str | None = None
    folder: FolderFacts | None = None
    network: NetworkFacts | None = None
    tls: TlsFacts | None = None
    token: TokenFacts | None = None
    plane: PlaneFacts | None = None
    state: StateFacts | None = None
    unit: UnitFacts | None = None
