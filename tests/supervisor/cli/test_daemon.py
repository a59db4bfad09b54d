"""Where the bearer key comes from, and where it does not go (A-52)."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import FakeControlPlane, serving
from programs import AgentProgram

from stateous_supervisor.agent import config
from stateous_supervisor.agent.faults import Fault
from stateous_supervisor.cli.daemon import KeyFile, is_exposed, token_file

SDLC = Path(__file__).parents[3] / "examples" / "sdlc"
KEY = "the-very-secret-key"


def configured(folder: Path, text: str) -> config.Config:
    folder.mkdir(exist_ok=True)
    (folder / "stateous.yaml").write_text(text)
    return config.load(folder, environment={})


def test_the_credential_of_systemd_beats_the_configured_file(tmp_path: Path) -> None:
    made = configured(tmp_path / "f", "url: http://h\ntoken_file: key\n")
    (tmp_path / "token").write_text(KEY)

    assert token_file(made, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == tmp_path / "token"
    assert token_file(made, {"CREDENTIALS_DIRECTORY": str(tmp_path / "f")}) == tmp_path / "f" / "key"
    assert token_file(made, {}) == tmp_path / "f" / "key"


def test_without_either_there_is_no_key(tmp_path: Path) -> None:
    assert token_file(configured(tmp_path, "url: http://h\n"), {}) is None


@pytest.mark.parametrize(
    ("mode", "around", "expected"), [(0o604, 0o755, True), (0o640, 0o755, False), (0o644, 0o700, False)]
)
def test_a_key_is_exposed_where_every_user_can_read_it(
    tmp_path: Path, mode: int, around: int, expected: bool
) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(mode)
    tmp_path.chmod(around)

    assert is_exposed(tmp_path / "key") is expected


def test_a_key_that_changes_is_read_again_and_one_that_goes_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("one\n")
    key = KeyFile(file)
    assert key() == "one"

    (tmp_path / "new").write_text("two\n")
    (tmp_path / "new").replace(file)
    assert key() == "two"

    file.unlink()
    assert key() == "two"


@pytest.mark.parametrize("text", ["canary\nsecond", "can ary", "canary\x01", "can\u00e4ry", b"canary\xff"])
def test_what_cannot_stand_in_a_header_is_no_key_and_is_not_told(tmp_path: Path, text: str | bytes) -> None:
    """BH-055: at the start one sentence without it; later the key that was read last stays."""
    file = tmp_path / "key"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Fault, match="holds no bearer key") as raised:
        KeyFile(file)
    assert "canary" not in str(raised.value)

    file.write_text("one\n")
    key = KeyFile(file)
    (tmp_path / "new").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "new").replace(file)
    assert key() == "one"


class Keyed(FakeControlPlane):
    """Notes down with which keys it was asked."""

    keys: set[str]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.keys.add(dict(scope["headers"]).get(b"authorization", b"").decode())
        await super().__call__(scope, receive, send)


@pytest.fixture
def keyed() -> Iterator[tuple[Keyed, str]]:
    fake = Keyed()
    fake.keys = set()
    with serving(fake) as url:
        yield fake, url


def test_the_key_goes_to_the_control_plane_and_nowhere_else(tmp_path: Path, keyed: tuple[Keyed, str]) -> None:
    fake, url = keyed
    folder = tmp_path / "sdlc"
    shutil.copytree(SDLC, folder)
    tmp_path.chmod(0o755)
    (tmp_path / "token").write_text(KEY)
    (tmp_path / "token").chmod(0o644)

    with AgentProgram(folder, url, env={"CREDENTIALS_DIRECTORY": str(tmp_path)}) as agent:
        agent.line("contract.outdated")
        processes = [
            psutil.Process(agent.child.pid),
            *psutil.Process(agent.child.pid).children(recursive=True),
        ]
        shown = [json.dumps([process.cmdline(), process.environ()]) for process in processes]
        hosts = [process.environ() for process in processes[1:]]

    assert fake.keys == {f"Bearer {KEY}"}
    assert '"mode":"0644"' in agent.line("token.exposed")
    assert KEY not in agent.told
    assert len(shown) > 1
    assert not any(KEY in text for text in shown)
    assert not any("CREDENTIALS_DIRECTORY" in environment for environment in hosts)


@pytest.fixture
def cores_wanted() -> Iterator[int]:
    """What is started has core files of any size that is allowed; the limit is returned."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_the_agent_leaves_no_core_file_and_its_hosts_may(
    tmp_path: Path, keyed: tuple[Keyed, str], cores_wanted: int
) -> None:
    """BH-055: a core of the agent would hold the key."""
    folder = tmp_path / "sdlc"
    shutil.copytree(SDLC, folder)
    with AgentProgram(folder, keyed[1]) as agent:
        agent.line("contract.outdated")
        process = psutil.Process(agent.child.pid)
        limits = [each.rlimit(psutil.RLIMIT_CORE)[0] for each in (process, *process.children(recursive=True))]

    assert limits[0] == 0
    assert set(limits[1:]) == {cores_wanted}
