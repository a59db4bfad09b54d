"""The real parts of an agent, put together: log, outbox, client, hosts, chance and signals around a `Supervisor`."""

from __future__ import annotations

import os
import random
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

import stateous_supervisor
from stateous_supervisor.agent import cores
from stateous_supervisor.agent import folder as folders
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.client import Client, options_for
from stateous_supervisor.agent.config import Config
from stateous_supervisor.agent.control_plane import ControlPlane
from stateous_supervisor.agent.duty import Duty
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host_process import ProcessHosts
from stateous_supervisor.agent.logs import Log, StderrLines
from stateous_supervisor.agent.outbox import Outbox
from stateous_supervisor.agent.outbox_file import open_outbox
from stateous_supervisor.agent.output import Output
from stateous_supervisor.agent.proxies import BadProxy, proxy_for
from stateous_supervisor.agent.stop import Stop
from stateous_supervisor.agent.supervisor import Supervisor
from stateous_supervisor.cli.attending import Attendance
from stateous_supervisor.colours import has_colours
from stateous_supervisor.systemd.notify import Notifier, from_environment

if TYPE_CHECKING:
    from stateous_supervisor.agent.host import HostSource

STDERR: Final = 2
CREDENTIAL: Final = "token"
_KEY: Final = re.compile(r"[!-~]+")
LAST_S: Final = 4.8


def serve(config: Config, *, reread: Callable[[], Config], is_inline: bool, is_strict: bool) -> Exit:
    """Run the agent of `config` until it is stopped; return its exit code.

    Args:
        config: what it is to do.
        reread: reads the configuration again, for a reload.
        is_inline: run routines in this process.
        is_strict: do not start with a file that does not load.

    Raises:
        Fault: it cannot start, with one sentence.
    """
    cores.leave_none()
    notifier = from_environment()
    outbox = open_outbox(config.state_dir)
    lines = StderrLines(STDERR)
    output = Output(config.state_dir)
    last = threading.Timer(LAST_S, os._exit, [int(Exit.ABANDONED)])
    last.daemon = True
    try:
        log = log_for(config, lines)
        given = _Given(config, outbox, output, log, notifier, reread, last, is_inline, is_strict)
        return anyio.run(_serve, given)
    finally:
        output.close()
        lines.close()
        outbox.close()
        last.cancel()


class _Given(NamedTuple):
    """What an agent is made of. `last` ends the process some seconds after it was started."""

    config: Config
    outbox: Outbox
    output: Output
    log: Log
    notifier: Notifier
    reread: Callable[[], Config]
    last: threading.Timer
    is_inline: bool
    is_strict: bool


async def _serve(given: _Given) -> Exit:
    config, log = given.config, given.log
    client = client_for(config)
    stop = Stop()
    token = token_file(config, os.environ)
    if token is not None and is_exposed(token):
        log.tell("token.exposed", file=str(token), mode=f"{token.stat().st_mode & 0o777:04o}")
    supervisor = Supervisor(
        duty_of(config, is_strict=given.is_strict),
        control_plane=ControlPlane(client),
        outbox=given.outbox,
        source=source_for(config, log, is_inline=given.is_inline),
        log=log,
        luck=random.Random(),  # noqa: S311  it spreads repeats, it guards nothing
        new_id=lambda: secrets.token_hex(16),
        stop=stop,
    )
    supervisor.keep_output(given.output)
    attendance = Attendance(
        supervisor,
        config,
        stop=stop,
        log=log,
        notifier=given.notifier,
        reread=given.reread,
        make_source=None if given.is_inline else lambda fresh: source_for(fresh, log, is_inline=False),
    )
    failure: Fault | None = None
    code = Exit.DONE
    async with anyio.create_task_group() as tasks:
        attendance.begin(tasks)
        tasks.start_soon(_end_in_time, stop, given.last)
        try:
            code = await supervisor.run()
        except Fault as fault:  # kept as it is: a task group would wrap it
            failure, code = fault, fault.exit_code
        await attendance.end(code)
        tasks.cancel_scope.cancel()
    await client.close()
    if failure is not None:
        raise failure
    return code


async def _end_in_time(stop: Stop, last: threading.Timer) -> None:
    """Once somebody insists, end in time also where a disk or a call hangs that nobody can cancel (A-44)."""
    await stop.insisted.wait()
    last.start()


def duty_of(config: Config, *, is_strict: bool) -> Duty:
    """Return what an agent of this configuration is to do, under an instance of its own."""
    return Duty(
        identity=Identity(config.name, secrets.token_hex(8)),
        tasks=config.tasks,
        tasks_by_state={s: r.tasks for s, r in config.routines.items() if r.tasks is not None},
        timeouts={s: r.timeout_s for s, r in config.routines.items()},
        confinements={s: r.confinement for s, r in config.routines.items()},
        fenced=config.fenced,
        drain_timeout_s=config.drain_timeout_s,
        checksum=lambda: folders.checksum_of(config.folder),
        reliance=lambda: folders.reliance_of(config.folder),
        is_strict=is_strict,
        url=config.url,
        folder=str(config.folder),
        version=stateous_supervisor.__version__,
    )


def source_for(config: Config, log: Log, *, is_inline: bool) -> HostSource:
    """Return what starts routine hosts: child processes, or with `--inline` this process."""
    if is_inline:
        from stateous_supervisor.cli.inline import InlineHosts

        return InlineHosts(config.folder)
    return ProcessHosts(
        config.python,
        config.folder,
        printed=lambda host, line: log.tell("host.printed", host=host, text=line),
        environment=os.environ,
    )


def log_for(config: Config, lines: StderrLines) -> Log:
    """Return a log on stderr: for people on a terminal, JSON otherwise (A-58)."""
    is_terminal = os.isatty(STDERR)
    console = config.log_format == "console" or (config.log_format == "auto" and is_terminal)
    colors = has_colours(os.environ, is_terminal=is_terminal)
    bound = {"supervisor": config.name}
    return Log(lines.write, console=console, level=config.log_level, colors=colors, bound=bound)


def client_for(config: Config) -> Client:
    """Return the one client.

    Raises:
        Fault: certificates or the key's file cannot be read, a proxy variable makes no sense (78).
    """
    proxy = proxy_of(config)
    try:
        options = options_for(config.url, proxy=proxy, **config.certificates)
        token = token_file(config, os.environ)
        key = None if token is None else KeyFile(token)
    except OSError as error:
        where = error.filename or "ca_file, client_cert or client_key"
        raise Fault(Exit.CONFIG, f"{where}: cannot be used: {error.strerror or error}") from None
    product = f"stateous-supervisor/{stateous_supervisor.__version__}"
    return Client(config.url, product=product, key=key or (lambda: None), options=options)


def proxy_of(config: Config) -> str | None:
    """Return the proxy on the way to the control plane; the variables are those of now (A-49).

    Raises:
        Fault: a proxy variable makes no sense (78).
    """
    try:
        return proxy_for(config.url, proxy=config.proxy, no_proxy=config.no_proxy, environment=os.environ)
    except BadProxy as error:
        raise Fault(Exit.CONFIG, str(error)) from None


def token_file(config: Config, environment: Mapping[str, str]) -> Path | None:
    """Return the file with the bearer key: the credential that systemd hands over beats `token_file` (A-52)."""
    given = environment.get("CREDENTIALS_DIRECTORY", "")
    credential = Path(given) / CREDENTIAL
    return credential if given and credential.exists() else config.token_file


def is_exposed(file: Path) -> bool:
    """Return whether any user can read a file. A folder that lets nobody in keeps them out whatever its mode says."""
    return bool(file.stat().st_mode & 0o004) and bool(file.parent.stat().st_mode & 0o001)


class KeyFile:
    """The bearer key from a file, read again when the file changes.

    What could not stand in a header is no key: an error about that header would tell it (BH-055).

    Raises:
        OSError: the file cannot be read.
        Fault: it holds something else (78).
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._key = ""
        self()

    def __call__(self) -> str | None:
        """Return the key; a file without one, or that cannot be read, leaves the one that was read last."""
        try:
            status = self._file.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                self._key = self._read()
                self._seen = seen
        except (OSError, Fault):
            if self._seen is None:
                raise
        return self._key or None

    def _read(self) -> str:
        key = self._file.read_text("utf-8", "replace").strip()
        if key and _KEY.fullmatch(key) is None:
            sentence = (
                "holds no bearer key; a key is one line of ASCII letters, digits and signs, without spaces"
            )
            raise Fault(Exit.CONFIG, f"{self._file}: {sentence}")
        return key
