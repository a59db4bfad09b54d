"""What facts about a box mean: one finding a check, each with a line that mends it. Pure.

`fail`: the agent cannot do its work. `warn`: it can, until something else happens. Called by `cli/doctor.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from stateous_supervisor.agent.tls import SENTENCES
from stateous_supervisor.doctor.facts import (
    Facts,
    FolderFacts,
    NetworkFacts,
    PlaneFacts,
    StateFacts,
    TlsFacts,
    TokenFacts,
    UnitFacts,
    UserFacts,
)
from stateous_supervisor.systemd.installed import InstalledUnit

SKEW_S: Final = 5.0
FREE_FAIL_BYTES: Final = 16 * 1_048_576
FREE_WARN_BYTES: Final = 512 * 1_048_576
FREE_FILES: Final = 64
VALID_S: Final = 14 * 86_400.0
STOP_MARGIN_S: Final = 10.0
NAME_S: Final = 2.0

# What is wrong with a handshake, and what mends it.
TLS: Final = {
    "expired": "renew the certificate of the control plane",
    "not_yet_valid": "compare this box's clock with another one; 'timedatectl' shows it",
    "unknown_ca": "name the file with the CA's certificate in 'ca_file' of stateous.yaml",
    "host_name": "let 'url' of stateous.yaml say a name that the certificate has",
    "plain_http": "let 'url' of stateous.yaml begin with http://",
    "old_protocol": "let the control plane's proxy speak TLS 1.2 or newer",
    "client_certificate": "set 'client_cert' and 'client_key' in stateous.yaml",
    "bad_files": "look at ca_file, client_cert and client_key in stateous.yaml",
    "other": "ask the server with 'openssl s_client -connect HOST:PORT'",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, one sentence, and what mends it."""

    check: str
    level: Literal["ok", "warn", "fail"]
    text: str
    mend: str | None = None


def judge(facts: Facts) -> list[Finding]:
    """Return the findings, in the order in which things depend on each other."""
    found = [*_user(facts.user), *_config(facts)]
    if facts.folder is not None:
        found += _folder(facts.folder)
    if facts.network is not None:
        found += _network(facts.network)
    if facts.tls is not None:
        found += _tls(facts.tls)
    if facts.token is not None:
        found += _token(facts.token)
    if facts.plane is not None:
        found += _plane(facts.plane)
    if facts.state is not None:
        found += _state(facts.state)
    if facts.unit is not None:
        found += _unit(facts.unit)
    return found


def _user(facts: UserFacts) -> Iterator[Finding]:
    if facts.stands_for_dynamic:
        yield Finding(
            "user", "ok", f"looked as {facts.current}, which stands for the user that systemd makes"
        )
    elif facts.service in (None, facts.current):
        yield Finding("user", "ok", f"looked as {facts.current}")
    else:
        text = f"looked as {facts.current}; the service runs as {facts.service} and may see other things"
        yield Finding("user", "warn", text, "run doctor with sudo, and it looks as the service's user")


def _config(facts: Facts) -> Iterator[Finding]:
    if facts.config_fault is not None:
        mend = "correct that; 'stateous-supervisor config FOLDER' then shows what is in effect"
        yield Finding("config", "fail", facts.config_fault, mend)
    else:
        yield Finding("config", "ok", f"{facts.config_file} is good")


def _folder(facts: FolderFacts) -> Iterator[Finding]:
    if facts.unusable is not None:
        sentence, _, mend = facts.unusable.partition("; '")
        mend = mend.removesuffix("' mends it") or "set 'python' in stateous.yaml to a Python of 3.11 or newer"
        yield Finding("python", "fail", sentence, mend)
        return
    yield Finding("python", "ok", f"{facts.interpreter} is Python {facts.python}")
    mend = f"'stateous-supervisor check {facts.path}' says more"
    if facts.faults:
        yield Finding("folder", "fail", "; ".join(facts.faults), mend)
    elif not facts.states:
        why = "".join(f"; {sentence}" for sentence in facts.broken)
        yield Finding("folder", "fail", f"{facts.path} has no routine that can be used{why}", mend)
    elif facts.broken:
        yield Finding("folder", "warn", f"files that do not load: {'; '.join(facts.broken)}", mend)
    else:
        yield Finding("folder", "ok", f"routines for {', '.join(facts.states)}")


def _network(facts: NetworkFacts) -> Iterator[Finding]:
    what = facts.host if facts.via_proxy is None else f"the proxy {facts.host}"
    if facts.addresses is None:
        text = f"{what} has no address: {facts.dns_error}"
        yield Finding(
            "dns", "fail", text, f"'getent hosts {facts.host}' asks again; look at url and /etc/resolv.conf"
        )
        return
    is_address = facts.addresses == (facts.host,)
    told = f"{what} is an address" if is_address else f"{what} is {', '.join(facts.addresses)}"
    if facts.dns_s > NAME_S:
        text = f"{told}, after {facts.dns_s:.1f} s"
        yield Finding("dns", "warn", text, "a name server in /etc/resolv.conf does not answer; take it out")
    else:
        yield Finding("dns", "ok", told)
    refusals = "; ".join(facts.refusals)
    if facts.connected is None:
        mend = "look whether the control plane runs, at the port in 'url', and at firewalls between"
        yield Finding("route", "fail", f"no connection to port {facts.port}: {refusals}", mend)
    elif facts.refusals:
        text = f"{facts.connected} takes connections on port {facts.port}, but not every address does: {refusals}"
        yield Finding("route", "warn", text, f"take dead addresses of {facts.host} out of the name service")
    else:
        text = f"connected to {facts.connected} port {facts.port} in {_ms(facts.connect_s)}"
        yield Finding("route", "ok", text)


def _tls(facts: TlsFacts) -> Iterator[Finding]:
    if facts.speaks_tls:
        text = "'url' begins with http://, and the port speaks TLS"
        yield Finding("tls", "fail", text, "let 'url' of stateous.yaml begin with https://")
    elif facts.fault is not None:
        text, mend = SENTENCES[facts.fault], TLS[facts.fault]
        yield Finding("tls", "fail", f"{text} ({facts.detail})" if facts.detail else text, mend)
    elif not facts.is_asked_for:
        yield Finding("tls", "ok", "not used: 'url' begins with http://")
    elif facts.valid_s is not None and facts.valid_s < VALID_S:
        text = f"the server's certificate is valid for {facts.valid_s / 86_400:.1f} more days"
        yield Finding("tls", "warn", text, "renew the certificate of the control plane")
    else:
        yield Finding("tls", "ok", f"{facts.version}, and the certificate is trusted")


def _token(facts: TokenFacts) -> Iterator[Finding]:
    if facts.error is not None and facts.is_handed_over:
        text = f"{facts.file} cannot be read ({facts.error}); systemd hands it to the service"
        yield Finding("token", "warn", text, "run doctor with sudo, and it is tried")
    elif facts.is_missing:
        mend = f"put the bearer key there: install -m 600 /dev/stdin {facts.file}; or correct 'token_file'"
        yield Finding("token", "fail", f"{facts.file} is not there", mend)
    elif facts.error is not None:
        mend = f"'chown' it to the service's user with mode 0600, or hand it over: service --token-file {facts.file}"
        yield Finding("token", "fail", f"{facts.file} cannot be read: {facts.error}", mend)
    elif facts.is_empty:
        yield Finding("token", "fail", f"{facts.file} is empty", "put the bearer key into it")
    elif facts.is_exposed:
        text = f"{facts.file} has mode {facts.mode}: every user can read it"
        yield Finding("token", "warn", text, f"chmod 0600 {facts.file}")
    else:
        how = "handed over as a credential" if facts.is_credential else f"mode {facts.mode}"
        yield Finding("token", "ok", f"{facts.file} is read ({how})")


def _plane(facts: PlaneFacts) -> Iterator[Finding]:
    if facts.is_denied:
        mend = "put a key that the control plane knows into 'token_file'"
        yield Finding("control plane", "fail", f"the key is not accepted: {facts.error}", mend)
        return
    if facts.error is not None:
        mend = f"look whether {facts.url} is the control plane: 'curl {facts.url}/health' shows what answers"
        yield Finding("control plane", "fail", facts.error, mend)
        return
    if facts.alarms:
        text = f"it answers, and is not well: {'; '.join(facts.alarms)}"
        yield Finding("control plane", "warn", text, "tell who runs it; its log says more")
    elif not facts.is_extended:
        yield Finding(
            "control plane", "ok", "it answers, with the baseline protocol: one task a claim, polling"
        )
    else:
        yield Finding(
            "control plane", "ok", f"it answers, and offers {', '.join(facts.features) or 'nothing more'}"
        )
    yield _contract(facts)
    yield _round_trip(facts)
    if facts.skew_s is not None:
        yield _clock(facts.skew_s, facts.skew_doubt_s)


def _contract(facts: PlaneFacts) -> Finding:
    if facts.folder_checksum is None:
        return Finding("contract", "ok", "there is no contract.py; routines without a graph need none")
    if not facts.folder_checksum:
        return Finding(
            "contract", "fail", "contract.py has no checksum", "stateous-supervisor contract FOLDER"
        )
    if facts.checksum != facts.folder_checksum:
        text = f"contract.py is for {_short(facts.folder_checksum)}, the control plane serves {_short(facts.checksum)}"
        if facts.changed is not None and not facts.changed:
            return Finding("contract", "ok", f"{text}; nothing that its routines rely on has changed")
        if facts.changed:
            text += f"; what changed concerns {', '.join(facts.changed)}, and no task is claimed for those"
        return Finding("contract", "fail", text, "stateous-supervisor contract FOLDER")
    return Finding("contract", "ok", f"contract.py is that of the control plane ({_short(facts.checksum)})")


def _round_trip(facts: PlaneFacts) -> Finding:
    text = f"{_ms(facts.round_trip_s)}; a lease lasts {facts.lease_s:g} s, heartbeats are {facts.heartbeat_s:g} s apart"
    mend = "bring the control plane nearer, or let it give longer leases (serve --lease, --heartbeat)"
    if facts.round_trip_s >= facts.heartbeat_s / 2:
        return Finding("round trip", "fail", f"{text}: leases will be lost", mend)
    if facts.round_trip_s >= facts.heartbeat_s / 10:
        return Finding("round trip", "warn", text, mend)
    return Finding("round trip", "ok", text)


def _clock(skew_s: float, doubt_s: float) -> Finding:
    if abs(skew_s) <= SKEW_S + doubt_s:
        return Finding("clock", "ok", f"it differs from the control plane's by {abs(skew_s):.1f} s")
    side = "behind" if skew_s > 0 else "ahead of"
    text = f"this box is {abs(skew_s):.0f} s {side} the control plane; leases do not mind, certificates and logs do"
    return Finding("clock", "warn", text, "start a time service: 'timedatectl set-ntp true'")


def _state(facts: StateFacts) -> Iterator[Finding]:
    mend = "name a folder on a disk with space in 'state_dir', or make room"
    free = f"{facts.free_bytes / 1_048_576:,.0f} MiB free"
    if facts.error is not None:
        text = f"{facts.path} cannot be written: {facts.error}"
        yield Finding(
            "disk", "fail", text, f"'chown' {facts.path} to the service's user, or name another 'state_dir'"
        )
    elif facts.free_bytes < FREE_FAIL_BYTES:
        yield Finding("disk", "fail", f"{facts.path}: {free}; nothing is claimed when the disk is full", mend)
    elif facts.free_files is not None and facts.free_files < FREE_FILES:
        yield Finding("disk", "fail", f"{facts.path}: only {facts.free_files} more files can be made", mend)
    elif facts.free_bytes < FREE_WARN_BYTES:
        yield Finding("disk", "warn", f"{facts.path}: {free}", mend)
    else:
        how = "systemd makes it" if facts.is_made_by_systemd else "it can be written"
        yield Finding("disk", "ok", f"{facts.path}: {how}, {free}")
    if facts.holder is not None:
        yield _holder(facts.holder, facts.service_pid, facts.path)


def _holder(holder: int, service_pid: int | None, path: str) -> Finding:
    if holder == service_pid:
        return Finding("agent", "ok", f"the service runs (process {holder})")
    text = f"process {holder} holds {path}; a second agent on it does not start"
    return Finding("agent", "warn", text, f"if it is not meant to run: kill {holder}")


def _unit(facts: UnitFacts) -> Iterator[Finding]:
    unit = facts.unit
    if unit is None:
        yield Finding("unit", "ok", f"{facts.file} is not installed")
        return
    again = f"stateous-supervisor service {facts.folder} --unit {facts.name} --install, and systemctl daemon-reload"
    faults = list(_unit_faults(facts, unit))
    for text, mend in faults:
        yield Finding("unit", "fail", text, mend or again)
    if not faults and facts.is_edited:
        mend = f"keep changes in a drop-in: systemctl edit {facts.name}"
        yield Finding(
            "unit",
            "warn",
            f"{facts.file} was edited by hand; 'service --install' will not overwrite it",
            mend,
        )
    elif not faults:
        more = "" if unit.keeps_privileges else "; routines cannot use sudo (NoNewPrivileges)"
        yield Finding("unit", "ok", f"{facts.file} fits stateous.yaml{more}")


def _unit_faults(facts: UnitFacts, unit: InstalledUnit) -> Iterator[tuple[str, str | None]]:
    """Yield what is wrong with it, and what mends it where installing it again does not."""
    folder = unit.arguments[1] if unit.arguments[:1] == ("run",) and len(unit.arguments) > 1 else None
    if folder != facts.folder:
        yield (
            f"{facts.file} runs {folder or 'something else'}, not {facts.folder}",
            "name this folder's unit with --unit",
        )
        return
    if not facts.has_program:
        yield f"{facts.file} runs {unit.program}, which is not there or not executable", None
    elif unit.program != facts.program:
        yield f"{facts.file} runs {unit.program}; this is {facts.program}", None
    if not facts.has_user:
        yield f"{facts.file} wants the user {unit.user}, which is not there", f"useradd --system {unit.user}"
    if facts.drain_timeout_s is not None and unit.stop_s < facts.drain_timeout_s + STOP_MARGIN_S:
        yield (
            (
                f"a stop is cut off after {unit.stop_s:g} s (TimeoutStopSec); "
                f"drain_timeout is {facts.drain_timeout_s:g} s and needs {STOP_MARGIN_S:g} s more"
            ),
            None,
        )
    given = unit.credentials.get("token")
    if facts.token_file is not None and given is not None and given != facts.token_file:
        yield f"the unit hands over {given}; token_file is {facts.token_file}", None


def _short(checksum: str) -> str:
    return checksum.removeprefix("sha256:")[:12] or "nothing"


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
