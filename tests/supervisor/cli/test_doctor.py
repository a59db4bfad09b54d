"""`stateous-supervisor doctor` on real folders, sockets and processes (A-56)."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from fakes import FakeControlPlane, Fault, serving
from supervisor.doctor.servers import in_clear, listening, over_tls
from supervisor.peers import tls_of

from stateous_supervisor.agent.outbox_file import open_outbox
from stateous_supervisor.cli.main import run
from stateous_supervisor.cli.service import program
from stateous_supervisor.scaffold import folder as folders
from stateous_supervisor.scaffold.source import from_file
from stateous_supervisor.systemd.unit import Service, render

PLANE = "control plane"


class Box:
    """A folder with its units beside it. `looked` runs doctor and gives its exit code and its findings by check."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = path / "folder"
        self.units = path / "units"
        self.state = path / "state"
        self.units.mkdir()
        self._capsys = capsys

    def configure(self, url: str, **keys: Any) -> None:
        lines = [
            f"url: {url}",
            f"state_dir: {self.state}",
            *(f"{key}: {value}" for key, value in keys.items()),
        ]
        (self.folder / "stateous.yaml").write_text("\n".join(lines))

    def looked(self, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
        code = run(["doctor", str(self.folder), "--json", "--directory", str(self.units), *options])
        return code, {found["check"]: found for found in json.loads(self._capsys.readouterr().out)}


@pytest.fixture(scope="module")
def plane() -> Iterator[tuple[FakeControlPlane, str]]:
    fake = FakeControlPlane()
    with serving(fake) as url:
        yield fake, url


@pytest.fixture
def box(tmp_path: Path, plane: tuple[FakeControlPlane, str], capsys: pytest.CaptureFixture[str]) -> Box:
    made = Box(tmp_path, capsys)
    fake, url = plane
    (tmp_path / "workflow.json").write_text(json.dumps(fake.graph.document))
    source = from_file(tmp_path / "workflow.json")
    folders.init(made.folder, source.document, source.checksum, url)
    made.configure(url)
    return made


@pytest.fixture
def nowhere(box: Box) -> Box:
    """A box whose control plane is not there; its folder does not load, so that no host is started for nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    box.configure(f"http://127.0.0.1:{port}", python="/no/such/python")
    return box


def test_a_good_box_is_exit_code_0(box: Box) -> None:
    code, found = box.looked()

    assert [f"{check}: {f['text']}" for check, f in found.items() if f["level"] != "ok"] == []
    assert code == 0
    assert {"user", "config", "python", "folder", "dns", "route", "tls", PLANE, "contract", "round trip"} <= {
        *found
    }
    assert {"clock", "disk", "unit"} <= {*found}
    assert not box.state.exists()


def test_findings_are_shown_as_lines_with_what_mends_them(
    nowhere: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["doctor", str(nowhere.folder), "--directory", str(nowhere.units)])

    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("fail  route"))
    assert "127.0.0.1: connection refused" in lines[at]
    assert lines[at + 1].strip().startswith("mend: ")
    assert code == 1


def test_an_interpreter_that_is_not_there_is_one_finding(nowhere: Box) -> None:
    _, found = nowhere.looked()

    assert found["python"]["level"] == "fail"
    assert "/no/such/python cannot be started: no such file or directory" in found["python"]["text"]
    assert "folder" not in found


def test_a_wrong_stateous_yaml_is_one_finding(nowhere: Box) -> None:
    (nowhere.folder / "stateous.yaml").write_text("urll: x\n")

    code, found = nowhere.looked()

    assert code == 1
    assert "'urll' is not a key; did you mean 'url'?" in found["config"]["text"]


def test_a_contract_of_another_workflow_is_told(box: Box) -> None:
    contract = box.folder / "contract.py"
    text = re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, contract.read_text())
    contract.write_text(re.sub(r"(?ms)^__states__.*?^\}\n", "", text))  # as the published package writes it

    code, found = box.looked()

    assert (code, found["contract"]["level"]) == (1, "fail")
    assert found["contract"]["mend"] == "stateous-supervisor contract FOLDER"


def test_a_key_that_is_not_accepted_is_told(box: Box, plane: tuple[FakeControlPlane, str]) -> None:
    plane[0].faults.append(Fault("GET /health", times=1, status=401))

    code, found = box.looked()

    assert code == 1
    assert "the key is not accepted" in found[PLANE]["text"]


def test_what_is_wrong_with_the_certificate_is_told(nowhere: Box, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    now = datetime.now(UTC)
    leaf = ca.issue_cert("localhost", not_before=now - timedelta(9), not_after=now - timedelta(1))

    with listening(over_tls(tls_of(leaf))) as port:
        nowhere.configure(f"https://localhost:{port}", ca_file=tmp_path / "ca.pem", python="/no/such/python")
        code, found = nowhere.looked()

    assert code == 1
    assert found["tls"]["text"].startswith("the server's certificate has expired")
    assert PLANE not in found


def test_http_to_a_port_that_speaks_tls_is_told(nowhere: Box) -> None:
    with listening(over_tls(tls_of(trustme.CA().issue_cert("localhost")))) as port:
        nowhere.configure(f"http://localhost:{port}", python="/no/such/python")
        _, found = nowhere.looked()

    assert "begin with https://" in found["tls"]["mend"]


def test_https_to_a_port_that_speaks_http_is_told(nowhere: Box) -> None:
    with listening(in_clear) as port:
        nowhere.configure(f"https://localhost:{port}", python="/no/such/python")
        _, found = nowhere.looked()

    assert "begin with http://" in found["tls"]["mend"]


def test_a_ca_file_that_is_none_is_told(nowhere: Box) -> None:
    with listening(in_clear) as port:
        nowhere.configure(f"https://localhost:{port}", ca_file="stateous.yaml", python="/no/such/python")
        _, found = nowhere.looked()

    assert found["tls"]["text"].startswith("the certificate files cannot be used")


def test_a_ca_file_that_is_not_there_is_told_whatever_the_scheme(nowhere: Box) -> None:
    with listening(in_clear) as port:
        nowhere.configure(f"http://localhost:{port}", ca_file="ca.pem", python="/no/such/python")
        code, found = nowhere.looked()

    text = f"the certificate files cannot be used ({nowhere.folder}/ca.pem: no such file or directory)"
    assert (code, found["tls"]["level"], found["tls"]["text"]) == (1, "fail", text)
    assert PLANE in found


def test_a_key_file_that_is_not_there_is_not_to_be_chowned(nowhere: Box) -> None:
    nowhere.configure("http://127.0.0.1:9", token_file="key", python="/no/such/python")

    _, found = nowhere.looked()

    key = nowhere.folder / "key"
    assert (found["token"]["level"], found["token"]["text"]) == ("fail", f"{key} is not there")
    mend = f"put the bearer key there: install -m 600 /dev/stdin {key}; or correct 'token_file'"
    assert found["token"]["mend"] == mend


def test_a_key_file_that_every_user_can_read_is_a_warning(nowhere: Box) -> None:
    nowhere.folder.chmod(0o755)
    (nowhere.folder / "key").write_text("very secret")
    (nowhere.folder / "key").chmod(0o644)
    nowhere.configure("http://127.0.0.1:9", token_file="key", python="/no/such/python")

    _, found = nowhere.looked()

    assert (found["token"]["level"], found["token"]["mend"]) == ("warn", f"chmod 0600 {nowhere.folder}/key")
    assert "very secret" not in json.dumps(found)


def test_another_agent_on_the_state_folder_is_told(nowhere: Box) -> None:
    outbox = open_outbox(nowhere.state)
    try:
        _, found = nowhere.looked()
    finally:
        outbox.close()

    assert found["agent"]["level"] == "warn"
    assert found["agent"]["text"].startswith(f"process {os.getpid()} holds {nowhere.state}")


def test_an_installed_unit_is_held_against_the_configuration(nowhere: Box) -> None:
    me = "root" if os.geteuid() == 0 else str(os.geteuid())
    service = Service(program=str(program()), folder=str(nowhere.folder), user=me, drain_timeout_s=60)
    (nowhere.units / "box.service").write_text(render(service, profile="build", systemd_version=252))
    nowhere.configure("http://127.0.0.1:9", drain_timeout="10m", python="/no/such/python")

    _, found = nowhere.looked("--unit", "box")

    assert found["unit"]["level"] == "fail"
    assert "cut off after 90 s (TimeoutStopSec); drain_timeout is 600 s" in found["unit"]["text"]


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to look as another user")
def test_root_looks_as_the_user_of_the_unit(nowhere: Box) -> None:
    """The folder is root's alone, and perhaps the program too: whichever it is, that user is told of it."""
    nowhere.folder.parent.chmod(0o700)
    service = Service(program=str(program()), folder=str(nowhere.folder), user="nobody")
    (nowhere.units / "box.service").write_text(render(service, profile="build", systemd_version=252))

    code, found = nowhere.looked("--unit", "box")

    assert code == 1
    denied = [f["text"] for f in found.values() if f["level"] == "fail"]
    assert "nobody" in found["user"]["text"]
    assert any("denied" in text for text in denied)


def test_an_unknown_user_is_a_wrong_command_line(nowhere: Box, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(nowhere.folder), "--user", "no-such-user"]) == 64
    assert "there is no such user" in capsys.readouterr().err
