"""An agent with a key at a control plane that asks for keys: it works, outlives a revocation, and tells the key nobody."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import trustme
from control.databases import fresh
from control.http.keyed import make_key, revoke
from programs import BIN, AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for
from supervisor.peers import Peer, says, tls_of

from journeys import folders
from journeys.conftest import TIMES
from journeys.folders import WORKFLOW


@dataclass
class Guarded:
    """A control plane with keys: its database, its program, and a person who may do everything."""

    database: str
    program: ControlPlaneProgram
    person: ControlPlaneClient


@pytest.fixture(scope="module")
def guarded(postgres: str, migrated_template: str) -> Iterator[Guarded]:
    with fresh(postgres, migrated_template) as database:
        key = make_key(database, "ann", "admin")
        with (
            ControlPlaneProgram(WORKFLOW, *TIMES, "--database", database) as program,
            ControlPlaneClient(program.url) as person,
        ):
            person.http.headers["Authorization"] = f"Bearer {key}"
            yield Guarded(database, program, person)


def keyed_folder(place: Path, url: str, key: str) -> tuple[Path, Path]:
    """Make a folder whose agent shows the key in the file that is returned beside it."""
    file = place.parent / "key"
    file.write_text(key + "\n")
    file.chmod(0o600)
    made = folders.make(place, url)
    config = made / "stateous.yaml"
    before = config.read_text() if config.exists() else ""
    config.write_text(f"{before}\ntoken_file: {file}\n")
    return made, file


def test_an_agent_with_a_key_works_and_the_key_is_nowhere_else(guarded: Guarded, box: Path) -> None:
    """BH-055: not in a log of either side, not in the history, not in an argument."""
    key = make_key(guarded.database, "box", "supervisor")
    made, _file = keyed_folder(box, guarded.program.url, key)
    with AgentProgram(made, guarded.program.url) as agent:
        guarded.person.start("keyed", size=7)
        guarded.person.until("keyed", status="completed")
        arguments = Path(f"/proc/{agent.child.pid}/cmdline").read_text()
    history = str(guarded.person.history("keyed"))
    for text in (agent.told, guarded.program.told, arguments, history):
        assert key[17:] not in text


def test_work_goes_on_through_an_exchange_of_keys(guarded: Guarded, box: Path, tmp_path: Path) -> None:
    """BH-036: a routine runs on while its agent's key is refused, and its outcome arrives under the next key."""
    key = make_key(guarded.database, "old", "supervisor")
    made, file = keyed_folder(box, guarded.program.url, key)
    gate = tmp_path / "gate"
    with AgentProgram(made, guarded.program.url) as agent:
        guarded.person.start("exchanged", gate=str(gate))
        wait_for(lambda: folders.phases(made, "exchanged"), within_s=20, what="routine that runs")
        revoke(guarded.database, "old")
        guarded.program.line('"event": "key.refused"', within_s=15)
        file.write_text(make_key(guarded.database, "new", "supervisor") + "\n")
        gate.touch()
        guarded.person.until("exchanged", status="completed", within_s=40)
        assert agent.child.poll() is None
    assert key[17:] not in agent.told + guarded.program.told


CANARY = "canary-7be0d2c4"
CRASH = """
import httpx


def refuse(self, *rest, headers=None, **more):
    seen = dict(headers or {})
    raise RuntimeError(f"a fault of ours with {len(seen)} headers")


httpx.Request.__init__ = refuse
"""


def peer_of(way: str, opened: ExitStack) -> str:
    """Return the URL of a control plane that cannot be worked with in this way."""
    if way == "nobody":
        return "http://127.0.0.1:9"
    if way == "silence":
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
    context = tls_of(trustme.CA().issue_cert("localhost")) if way == "certificate" else None
    answer = says(302, location="http://127.0.0.1:9/") if way == "redirect" else says(200, "<p>hello")
    url = opened.enter_context(Peer(context=context, answer=answer)).url
    return url.replace("http:", "https:") if way == "no TLS" else url


WAYS = {
    "nobody": "control_plane.unreachable",
    "no TLS": "control_plane.unreachable",
    "certificate": "control_plane.unreachable",
    "redirect": "control_plane.unreachable",
    "a page": "control_plane.unreachable",
    "silence": "control_plane.unreachable",
    "crash": "loop.failed",
}


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "way", [each if each == "crash" else pytest.param(each, marks=pytest.mark.prove) for each in WAYS]
)  # fmt: skip
def test_no_trouble_tells_the_key(way: str, box: Path, tmp_path: Path) -> None:
    """BH-055: log at its most talkative, arguments, environments, the state folder, metrics, and what commands say."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CRASH if way == "crash" else "")
    with ExitStack() as opened:
        port = _free_port()
        url = peer_of(way, opened)
        made, _ = keyed_folder(box, url, CANARY)
        with (made / "stateous.yaml").open("a") as config:
            config.write(f"log: {{level: debug}}\nmetrics: {{listen: {port}}}\n")
        with AgentProgram(made, url, env={"PYTHONPATH": str(tmp_path / "site")}) as agent:
            agent.line(WAYS[way], within_s=60)
            root = psutil.Process(agent.child.pid)
            everybody = [root, *root.children(recursive=True)]
            seen = [
                Path(f"/proc/{each.pid}/{what}").read_text()
                for each in everybody
                for what in ("cmdline", "environ")
            ]
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
            state = box.parent / f"{box.name}-state"
            said = [_said("status", made, "--state-dir", state, *more) for more in ([], ["--json"])]
        said += [
            _said(*each, made, *more)
            for *each, more in (("check", ["--url", url]), ("config", []), ("doctor", []))
        ]
        stored = [each.read_bytes().decode("latin-1") for each in state.rglob("*") if each.is_file()]

    assert len(everybody) >= 2
    assert "supervisor_" in metrics or "stateous_" in metrics
    assert all(said), "a command said nothing"
    assert stored
    for text in (agent.told, metrics, *seen, *said, *stored):
        assert CANARY not in text


@pytest.mark.parametrize("url", ["http://[nowhere", "ftp://x", f"http://me:{CANARY}@127.0.0.1:9"])
def test_an_address_that_is_none_does_not_tell_the_key(url: str, box: Path) -> None:
    """BH-055: one sentence, within moments; a password in an address is a key too."""
    made, _ = keyed_folder(box, "http://127.0.0.1:9", CANARY)
    for command in ("run", "check"):
        ended = subprocess.run(
            [BIN / "stateous-supervisor", command, made, "--url", url],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode in (64, 78), ended.stderr
        assert CANARY not in ended.stdout + ended.stderr


def _said(*command: str | Path) -> str:
    ended = subprocess.run(
        [BIN / "stateous-supervisor", *command], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.stdout + ended.stderr


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
