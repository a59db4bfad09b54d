"""The effective configuration of one agent: flag over environment over `stateous.yaml` over default.

A-01 to A-03. Each value knows where it came from. A fault is one sentence with file, line, key, what was
found and what is allowed. Called by the commands; nothing else in the agent sees the whole of it.
"""

from __future__ import annotations

import difflib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stateous_supervisor.agent import folder as folders
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.keys import KEYS, ROUTINE_KEYS, Key, Plain, duration_text
from stateous_supervisor.agent.yaml_file import BYTES_MAX, BadYaml, Node, read
from stateous_supervisor.link.frames import Confinement

FILE: Final = "stateous.yaml"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin, such as `flag --url`, `environment STATEOUS_URL` or `stateous.yaml:1`."""

    value: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class RoutineSettings:
    """What `routines.<state>` says. `tasks` None: only the total limit counts."""

    isolation: str | None = None
    timeout_s: float | None = None
    tasks: int | None = None
    memory_mb: int | None = None
    grace_s: float = 5.0
    fence: bool = False

    @property
    def confinement(self) -> Confinement:
        """Where its routine runs, and within what bounds, as the host is told."""
        memory_bytes = None if self.memory_mb is None else self.memory_mb * 1_048_576
        return Confinement(isolation=self.isolation, memory_bytes=memory_bytes, grace_s=self.grace_s)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that `run` needs to know. Paths are absolute."""

    folder: Path
    url: str
    tasks: int
    name: str
    token_file: Path | None
    ca_file: Path | None
    client_cert: Path | None
    client_key: Path | None
    proxy: str | None
    no_proxy: str | None
    state_dir: Path
    drain_timeout_s: float | None
    python: str
    log_format: str
    metrics_listen: str | None
    log_level: str
    routines: Mapping[str, RoutineSettings]
    settings: Mapping[str, Setting] = field(repr=False)

    @property
    def fenced(self) -> frozenset[str]:
        """The states whose routines do not outlive a lease that cannot be proven."""
        return frozenset(state for state, routine in self.routines.items() if routine.fence)

    @property
    def certificates(self) -> dict[str, Path | None]:
        """The files that TLS is made with, by their keys."""
        return {"ca_file": self.ca_file, "client_cert": self.client_cert, "client_key": self.client_key}


def load(folder: Path, *, flags: Mapping[str, Plain] | None = None, environment: Mapping[str, str]) -> Config:
    """Return the configuration of the supervisor in `folder`.

    Args:
        folder: the supervisor's folder.
        flags: values from the command line by key, None where a flag was not given.
        environment: the process's environment.

    Raises:
        Fault: with exit code 78, or 64 for a flag.
    """
    real = folders.find(folder)
    settings, routines = _from_file(real / FILE)
    settings.update(_from_environment(environment))
    settings.update(_from_flags(flags or {}))
    for name, key in KEYS.items():
        settings.setdefault(name, Setting(key.default, "default"))
    if settings["url"].value is None:
        sentence = f"{real / FILE}: 'url' is missing; it must say where the control plane is"
        raise Fault(Exit.CONFIG, sentence)
    if settings["client_key"].value is not None and settings["client_cert"].value is None:
        where = settings["client_key"].origin
        raise Fault(Exit.CONFIG, f"{where}: 'client_key' is set and 'client_cert' is not; they go together")
    return _config(real, settings, routines, environment)


def _config(
    folder: Path,
    settings: dict[str, Setting],
    routines: dict[str, dict[str, Setting]],
    environment: Mapping[str, str],
) -> Config:
    if settings["name"].value is None:
        settings["name"] = Setting(_host_name(), "default, the host name")
    if settings["state_dir"].value is None:
        settings["state_dir"] = Setting(str(folders.state_folder(folder, dict(environment))), "default")
    if settings["python"].value is None:
        settings["python"] = Setting(sys.executable, "default, the agent's own")
    for state, keys in routines.items():
        settings.update({f"routines.{state}.{name}": setting for name, setting in keys.items()})
    get = {name: setting.value for name, setting in settings.items()}
    return Config(
        folder=folder,
        url=get["url"],
        tasks=get["tasks"],
        name=get["name"],
        token_file=_path(folder, get["token_file"]),
        ca_file=_path(folder, get["ca_file"]),
        client_cert=_path(folder, get["client_cert"]),
        client_key=_path(folder, get["client_key"]),
        proxy=get["proxy"],
        no_proxy=get["no_proxy"],
        state_dir=folder / Path(get["state_dir"]).expanduser(),
        drain_timeout_s=get["drain_timeout"],
        python=_interpreter(folder, get["python"]),
        log_format=get["log.format"],
        metrics_listen=get["metrics.listen"],
        log_level=get["log.level"],
        routines={state: _routine(keys) for state, keys in routines.items()},
        settings=settings,
    )


def _routine(keys: Mapping[str, Setting]) -> RoutineSettings:
    get: dict[str, Any] = {
        name: keys[name].value if name in keys else key.default for name, key in ROUTINE_KEYS.items()
    }
    return RoutineSettings(
        isolation=get["isolation"],
        timeout_s=get["timeout"],
        tasks=get["tasks"],
        memory_mb=get["memory_mb"],
        grace_s=get["grace"],
        fence=get["fence"],
    )


def state_dir_of(folder: Path, *, environment: Mapping[str, str]) -> Path:
    """Return the state folder that a configuration names, whatever else in it is wrong (A-45).

    Args:
        folder: the supervisor's folder, resolved.
        environment: the process's environment.

    Raises:
        Fault: what it says of the state folder cannot be read.
    """
    file, only = folder / FILE, {"state_dir": KEYS["state_dir"]}
    document = _document(file)
    named = {} if document is None else _mapping(file, "the file", document)
    found = {name: _setting(file, name, node, only) for name, node in named.items() if name in only}
    found.update(_from_environment(environment, only))
    if "state_dir" not in found:
        return folders.state_folder(folder, dict(environment))
    return folder / Path(str(found["state_dir"].value)).expanduser()


def _from_file(file: Path) -> tuple[dict[str, Setting], dict[str, dict[str, Setting]]]:
    document = _document(file)
    return ({}, {}) if document is None else _read_document(file, document)


def _document(file: Path) -> Node | None:
    """Return what the file holds; None where there is none."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Fault(
            Exit.CONFIG, f"{file}: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    if len(raw) > BYTES_MAX:
        raise Fault(Exit.CONFIG, f"{file}: is larger than {BYTES_MAX} bytes")
    try:
        return read(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Fault(Exit.CONFIG, f"{file}: is not UTF-8 (byte {error.start})") from None
    except BadYaml as error:
        raise Fault(Exit.CONFIG, f"{file}:{error.line}: {error.sentence}") from None


def _read_document(file: Path, document: Node) -> tuple[dict[str, Setting], dict[str, dict[str, Setting]]]:
    settings: dict[str, Setting] = {}
    routines: dict[str, dict[str, Setting]] = {}
    for name, node in _named(file, document):
        if name == "routines":
            routines = _read_routines(file, node)
        elif name in settings:
            sentence = f"the key '{name}' stands here again, first in {settings[name].origin}"
            raise Fault(Exit.CONFIG, f"{file}:{node.line}: {sentence}")
        else:
            settings[name] = _setting(file, name, node, KEYS)
    return settings, routines


def _named(file: Path, document: Node) -> Iterator[tuple[str, Node]]:
    """Yield what the file says by the whole name of each key: `log: {level: …}` may be written as `log.level` too."""
    for name, node in _mapping(file, "the file", document).items():
        if name in ("log", "metrics"):
            for part, value in _mapping(file, f"'{name}'", node).items():
                yield f"{name}.{part}", value
        else:
            yield name, node


def _read_routines(file: Path, node: Node) -> dict[str, dict[str, Setting]]:
    return {
        state: {
            name: _setting(file, name, value, ROUTINE_KEYS, prefix=f"routines.{state}.")
            for name, value in _mapping(file, f"'routines.{state}'", keys).items()
        }
        for state, keys in _mapping(file, "'routines'", node).items()
    }


def _setting(file: Path, name: str, node: Node, keys: Mapping[str, Key], *, prefix: str = "") -> Setting:
    key = keys.get(name)
    if key is None:
        raise Fault(Exit.CONFIG, f"{file}:{node.line}: '{prefix}{name}' is not a key; {_nearest(name, keys)}")
    where = f"{file}:{node.line}: '{prefix}{name}'"
    if isinstance(node.value, (dict, list)):
        raise Fault(Exit.CONFIG, f"{where} is {_show(node.value)}; it {_must(key, None)}")
    return Setting(_parse(key, node.value, where, Exit.CONFIG), f"{file.name}:{node.line}")


def _from_environment(environment: Mapping[str, str], keys: Mapping[str, Key] = KEYS) -> dict[str, Setting]:
    return {
        name: Setting(
            _parse(
                key, key.of_text(environment[key.variable]), f"environment: '{key.variable}'", Exit.CONFIG
            ),
            f"environment {key.variable}",
        )
        for name, key in keys.items()
        if environment.get(key.variable)
    }


def _from_flags(flags: Mapping[str, Plain]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, value in flags.items():
        if value is not None:
            option = "--" + name.replace("_", "-").replace(".", "-")
            given = KEYS[name].of_text(value) if isinstance(value, str) else value
            found[name] = Setting(_parse(KEYS[name], given, f"'{option}'", Exit.USAGE), f"flag {option}")
    return found


def _parse(key: Key, value: Plain, where: str, exit_code: Exit) -> object:
    try:
        return key.parse(value)
    except ValueError as error:
        # A name and password in `url`, which are refused, are a secret as much as those of a proxy.
        name = "proxy" if key.name == "url" else key.name
        shown = _show(masked(name, value) if isinstance(value, str) else value)
        raise Fault(exit_code, f"{where} is {shown}; it {error}") from None


def _must(key: Key, value: Plain) -> str:
    """Say what a key must be, by having its parser refuse a value that nothing allows."""
    try:
        key.parse("\0" if value is None else value)
    except ValueError as error:
        return str(error)
    return "must be a plain value"


def _mapping(file: Path, what: str, node: Node) -> dict[str, Node]:
    if node.value is None:
        return {}
    if not isinstance(node.value, dict):
        sentence = f"{file}:{node.line}: {what} is {_show(node.value)}; it must be a mapping of keys"
        raise Fault(Exit.CONFIG, sentence)
    return node.value


def _nearest(name: str, keys: Iterable[str]) -> str:
    allowed = [*keys] if "url" not in keys else [*keys, "routines"]
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else "allowed are " + ", ".join(allowed)


def _show(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    shown = repr(value) if not isinstance(value, bool) else str(value).lower()
    return shown if len(shown) <= 80 else shown[:77] + "…'"


def _path(folder: Path, value: str | None) -> Path | None:
    return None if value is None else folder / Path(value).expanduser()


def _interpreter(folder: Path, value: str) -> str:
    """Return the interpreter's path; a bare name is looked for on PATH when it is started."""
    return value if os.sep not in value else str(folder / Path(value).expanduser())


def _host_name() -> str:
    """Return the host name as it is: one that is no name for a supervisor is refused rather than cut (BH-033)."""
    name = socket.gethostname() or "supervisor"
    try:
        return str(KEYS["name"].parse(name))
    except ValueError as error:
        sentence = f"the host name {name!r:.300} is no name for a supervisor: {error}; give one as 'name'"
        raise Fault(Exit.CONFIG, sentence) from None


def masked(name: str, value: object) -> str:
    """Return how `config` shows a value: as it may be written, secrets inside a proxy's URL masked."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = duration_text(value) if isinstance(value, float) else str(value)
    if name != "proxy" or "@" not in text:
        return text
    scheme, slashes, rest = text.partition("://") if "://" in text else ("", "", text)
    return f"{scheme}{slashes}***@{rest.rpartition('@')[2]}"
