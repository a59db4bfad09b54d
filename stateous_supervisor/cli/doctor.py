"""`stateous-supervisor doctor FOLDER`: gather facts as the service's user, judge them, show findings (A-56)."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import anyio
import typer

from stateous_supervisor.agent import config
from stateous_supervisor.agent import folder as folders
from stateous_supervisor.agent import tls as certificates
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host import HostUnusable, where
from stateous_supervisor.cli import options
from stateous_supervisor.cli.check import load
from stateous_supervisor.cli.daemon import client_for, proxy_of, token_file
from stateous_supervisor.cli.service import DIRECTORY, PROGRAM, Directory, UnitName, program
from stateous_supervisor.doctor import box, network, plane, user
from stateous_supervisor.doctor.facts import (
    Facts,
    FolderFacts,
    NetworkFacts,
    PlaneFacts,
    TlsFacts,
    TokenFacts,
    UserFacts,
)
from stateous_supervisor.doctor.findings import Finding, judge
from stateous_supervisor.systemd.installed import InstalledUnit

NOBODY: Final = "nobody"


class _Asked(NamedTuple):
    """What the command line asks for."""

    folder: Path
    user: str | None
    unit: str
    directory: Path


def doctor(
    folder_path: options.Folder,
    service_user: Annotated[
        str | None,
        typer.Option("--user", help="As whom to look. Default: the user of the unit.", metavar="USER"),
    ] = None,
    unit: UnitName = PROGRAM,
    directory: Directory = DIRECTORY,
    as_json: options.Json = False,
) -> None:
    """Look at everything that the agent needs on this box, and say what mends what is wrong.

    With sudo it looks as the service's user. Ends with 1 if a finding is a failure.
    """
    asked = _Asked(folder_path.absolute(), service_user, unit, directory.absolute())
    installed = box.find_unit(unit, directory)
    runs_as = service_user or _user_of(installed[1])
    uid = None if runs_as is None else box.user_id(runs_as)
    if service_user is not None and uid is None:
        raise Fault(Exit.USAGE, f"'--user' is '{service_user}'; there is no such user")
    if os.geteuid() == 0 and uid:
        findings = _look_as(str(runs_as), uid, asked, installed[1])
    else:
        findings = judge(_gather(asked, installed, runs_as))
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        _show(findings)
    is_good = all(finding.level != "fail" for finding in findings)
    raise typer.Exit(Exit.DONE if is_good else Exit.ABANDONED)


def _show(findings: Sequence[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print(f"{finding.level:<5} {finding.check:<{width}}  {finding.text}")
        if finding.mend is not None:
            print(f"{'':<5} {'':<{width}}  mend: {finding.mend}")


def _user_of(unit: InstalledUnit | None) -> str | None:
    if unit is None:
        return None
    return NOBODY if unit.is_dynamic else unit.user or "root"


def _look_as(name: str, uid: int, asked: _Asked, unit: InstalledUnit | None) -> list[Finding]:
    """Run doctor once more, as the service's user, and take its findings."""
    command = [str(program()), "doctor", str(asked.folder), "--json", "--unit", asked.unit]
    command += ["--directory", str(asked.directory), *(["--user", asked.user] if asked.user else [])]
    key_file = None if unit is None else unit.credentials.get("token")
    mend = "install the program, and put the folder, where that user can read: /opt and /srv, not a home"
    try:
        done = user.run_as(uid, command, key_file=None if key_file is None else Path(key_file))
        return [Finding(**found) for found in json.loads(done.stdout)]
    except OSError as error:
        why = f"{name} cannot run {command[0]}: {(error.strerror or str(error)).lower()}"
    except (ValueError, TypeError):
        said = done.stderr.strip().splitlines()
        why = f"doctor does not run as {name}: {said[-1] if said else f'exit code {done.returncode}'}"
    except subprocess.TimeoutExpired as error:
        why = f"doctor did not end within {error.timeout:g} s as {name}"
    return [Finding("user", "fail", why, mend)]


def _gather(asked: _Asked, installed: tuple[Path, InstalledUnit | None, bool], runs_as: str | None) -> Facts:
    unit = installed[1]
    is_ours = unit is not None and unit.arguments[1:2] == (str(asked.folder.resolve()),)
    current = box.user_name(os.geteuid())
    is_dynamic = unit is not None and unit.is_dynamic and asked.user is None
    facts = Facts(
        user=UserFacts(current=current, service=runs_as, stands_for_dynamic=is_dynamic and current == NOBODY),
        config_file=str(asked.folder / config.FILE),
    )
    environment = dict(os.environ)
    if is_ours and unit is not None and unit.state_directory is not None:
        environment = {"STATE_DIRECTORY": str(box.STATE_HOME / unit.state_directory)}
    try:
        settings = config.load(asked.folder, environment=environment)
    except Fault as fault:
        return dataclasses.replace(facts, config_fault=fault.sentence)
    has_default_state = settings.settings["state_dir"].origin == "default"
    makes_state = is_ours and has_default_state and (is_dynamic or not box.is_there(settings.state_dir))
    token = _token(settings, unit if is_ours else None)
    way, tls, asked_plane = _reach(settings, token)
    return dataclasses.replace(
        facts,
        folder=_load(settings),
        network=way,
        tls=tls,
        token=token,
        plane=asked_plane,
        state=box.look_at_state(
            settings.state_dir, is_made_by_systemd=makes_state, service_pid=box.service_pid(asked.unit)
        ),
        unit=box.look_at_unit(
            asked.unit,
            installed,
            program=str(program()),
            folder=str(settings.folder),
            token_file=None if settings.token_file is None else str(settings.token_file),
            drain_timeout_s=settings.drain_timeout_s,
        ),
    )


def _load(settings: config.Config) -> FolderFacts:
    """Load the folder as `check` does."""
    path = str(settings.folder)
    try:
        loaded = anyio.run(load, settings, lambda _line: None)
    except HostUnusable as unusable:
        return FolderFacts(path=path, interpreter=settings.python, unusable=unusable.sentence)
    return FolderFacts(
        path=path,
        interpreter=settings.python,
        python=loaded.python,
        states=tuple(sorted({routine.state for routine in loaded.routines})),
        broken=tuple(f"{where(file)}: {file.error}" for file in loaded.broken),
        faults=tuple(loaded.faults),
    )


def _token(settings: config.Config, unit: InstalledUnit | None) -> TokenFacts | None:
    file = token_file(settings, os.environ)
    if file is None:
        return None
    facts = box.look_at_token(file, is_credential=file != settings.token_file)
    is_handed_over = unit is not None and unit.credentials.get("token") == str(file)
    return dataclasses.replace(facts, is_handed_over=is_handed_over)


def _reach(
    settings: config.Config, token: TokenFacts | None
) -> tuple[NetworkFacts, TlsFacts | None, PlaneFacts | None]:
    """Go the way to the control plane as far as it leads."""
    try:
        proxy = proxy_of(settings)
    except Fault as fault:
        print(f"warning: {fault.sentence}", file=sys.stderr)
        proxy = None
    way = network.reach(settings.url, proxy)
    is_https = settings.url.startswith("https://")
    bad_files = certificates.fault_of(**settings.certificates)
    if bad_files is not None:  # whatever 'url' begins with: the files are wrong
        tls: TlsFacts | None = TlsFacts(is_asked_for=is_https, fault="bad_files", detail=bad_files)
    elif way.connected is None or proxy is not None:
        tls = None
    else:
        tls = _shake_hands(settings, way) if is_https else TlsFacts(is_asked_for=False)
    if way.connected is None or (is_https and tls is not None and tls.fault is not None):
        return way, tls, None
    asked = anyio.run(_ask, settings, token is None or token.error is None)
    if (
        tls is not None
        and tls.fault is None
        and not is_https
        and asked is not None
        and asked.error is not None
    ):
        tls = dataclasses.replace(tls, speaks_tls=network.speaks_tls(way))
    return way, tls, asked


def _shake_hands(settings: config.Config, way: NetworkFacts) -> TlsFacts:
    return network.shake_hands(way, certificates.context_for(**settings.certificates))


async def _ask(settings: config.Config, has_key: bool) -> PlaneFacts | None:
    try:
        client = client_for(settings if has_key else dataclasses.replace(settings, token_file=None))
    except Fault as fault:
        print(f"warning: {fault.sentence}", file=sys.stderr)
        return None
    try:
        return await plane.ask(
            client,
            url=settings.url,
            name=settings.name,
            checksum=lambda: _checksum(settings.folder),
            reliance=lambda: folders.reliance_of(settings.folder),
        )
    finally:
        await client.close()


def _checksum(folder: Path) -> str | None:
    """Return what the contract was made for: empty where it does not say, None where there is no contract."""
    try:
        return folders.checksum_of(folder)
    except Fault:
        return ""
