"""Keys from the command line, and `serve` with them: real processes, TLS, and no key anywhere that it should not be."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme
from control.cli.conftest import COMMAND, WORKFLOW, environment, launched, serving, stateous
from control.databases import fresh


def create(database: str, name: str, role: str, *more: str) -> str:
    made = stateous("key", "create", name, "--role", role, "--database", database, *more)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def until(asked: Callable[[], object], within_s: float = 8.0) -> None:
    deadline = time.monotonic() + within_s
    while not asked():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def keyed(postgres: str, migrated_template: str) -> Iterator[tuple[str, str, str]]:
    """A database with an admin's key, and a control plane on it: database, URL, key."""
    with fresh(postgres, migrated_template) as database:
        admin = create(database, "admin", "admin")
        with serving(str(WORKFLOW), "--database", database) as (_process, url):
            yield database, url, admin


def log_of(process: subprocess.Popen[str]) -> str:
    """Stop a control plane and return all that it logged."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=20)[1]


def status(url: str, key: str | None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{url}/tokens", headers=headers, timeout=5).status_code


def test_create_prints_the_key_alone_on_stdout(keyed: tuple[str, str, str]) -> None:
    made = stateous("key", "create", "alone", "--role", "viewer", "--database", keyed[0])
    assert made.stdout.count("\n") == 1
    assert made.stdout.startswith("stk_")
    assert made.stdout.strip() not in made.stderr


def test_create_tells_programs_what_it_made(keyed: tuple[str, str, str]) -> None:
    arguments = [
        "--role",
        "supervisor",
        "--owner",
        "b",
        "--owner",
        "a",
        "--state",
        "plain",
        "--expires",
        "1d",
    ]
    made = stateous("key", "create", "whole", *arguments, "--database", keyed[0], "--json")
    told = json.loads(made.stdout)
    assert (told["role"], told["owners"], told["states"]) == ("supervisor", ["a", "b"], ["plain"])
    left = datetime.fromisoformat(told["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(days=1, minutes=1)
    assert told["key"].startswith(f"stk_{told['id']}_")


def test_list_shows_everything_but_the_keys(keyed: tuple[str, str, str]) -> None:
    """BH-055."""
    key = create(keyed[0], "listed", "operator")
    for more in ((), ("--json",)):
        shown = stateous("key", "list", "--database", keyed[0], *more)
        assert "listed" in shown.stdout
        assert key[17:] not in shown.stdout
    entries = json.loads(stateous("key", "list", "--database", keyed[0], "--json").stdout)["keys"]
    assert {"name", "id", "role", "owners", "states", "status", "created_at", "expires_at", "revoked_at",
            "last_used_at"} == set(entries[0])  # fmt: skip


def test_a_key_that_is_revoked_is_refused_within_seconds_and_its_name_is_free_again(
    keyed: tuple[str, str, str],
) -> None:
    database, url, _admin = keyed
    key = create(database, "gone", "viewer")
    until(lambda: status(url, key) == 200)
    revoked = stateous("key", "revoke", "gone", "--database", database)
    assert revoked.stdout.startswith("revoked gone (")
    until(lambda: status(url, key) == 401)
    create(database, "gone", "viewer")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "x", "--role", "king"), 64),
        (("create", "x"), 64),
        (("create", "a b", "--role", "viewer"), 64),
        (("create", "x", "--role", "viewer", "--owner", "Not Small"), 64),
        (("create", "x", "--role", "viewer", "--state", "plain"), 64),
        (("create", "x", "--role", "viewer", "--expires", "soon"), 64),
        (("create", "x", "--role", "viewer", "--expires", "9999d"), 64),
        (("create", "ADMIN", "--role", "viewer"), 76),
        (("revoke", "nobody"), 76),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_code(
    keyed: tuple[str, str, str], arguments: tuple[str, ...], code: int
) -> None:
    """A-60."""
    ended = stateous("key", *arguments, "--database", keyed[0])
    assert ended.returncode == code
    assert ended.stderr.startswith("error: ")
    assert ended.stdout == ""


def test_a_database_that_is_away_is_69_and_one_without_a_schema_76(empty_database: str) -> None:
    away = stateous("key", "list", "--database", "postgresql://nobody@127.0.0.1:1/none")
    bare = stateous("key", "list", "--database", empty_database)
    assert (away.returncode, bare.returncode) == (69, 76)
    assert "stateous-control migrate" in bare.stderr


def test_keys_are_made_and_revoked_beside_a_control_plane_with_its_own_postgresql(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert stateous("key", "list", "--data", data).returncode == 73
    with serving(str(WORKFLOW), "--data", data) as (_process, url):
        assert status(url, None) == 200
        key = stateous("key", "create", "first", "--role", "admin", "--data", data).stdout.strip()
        until(lambda: status(url, None) == 401)
        assert status(url, key) == 200
        assert stateous("key", "revoke", "first", "--data", data).returncode == 0
        until(lambda: status(url, key) == 401)
        assert status(url, None) == 401


# Commands that ask over HTTP.


def test_commands_take_the_key_from_the_environment_or_a_file_and_from_nowhere_else(
    keyed: tuple[str, str, str], tmp_path: Path
) -> None:
    _database, url, admin = keyed
    file = tmp_path / "key"
    file.write_text(admin + "\n")
    file.chmod(0o600)
    bare = stateous("token", "list", STATEOUS_URL=url)
    by_variable = stateous("token", "list", STATEOUS_URL=url, STATEOUS_KEY=admin)
    by_file = stateous("token", "list", "--key-file", str(file), STATEOUS_URL=url)
    argument = stateous("token", "list", "--key", admin, STATEOUS_URL=url)
    assert (bare.returncode, by_variable.returncode, by_file.returncode, argument.returncode) == (
        76,
        0,
        0,
        64,
    )
    assert "unauthorized" in bare.stderr
    assert by_file.stderr == ""


def test_a_key_file_that_others_can_read_is_told_of_and_an_empty_one_refused(
    keyed: tuple[str, str, str], tmp_path: Path
) -> None:
    _database, url, admin = keyed
    file = tmp_path / "key"
    file.write_text(admin)
    file.chmod(0o644)
    assert "chmod 600" in stateous("token", "list", "--key-file", str(file), STATEOUS_URL=url).stderr
    file.write_text("two words")
    refused = stateous("token", "list", "--key-file", str(file), STATEOUS_URL=url)
    assert refused.returncode == 78
    assert "two words" not in refused.stderr


def test_the_key_goes_to_the_host_of_the_url_alone(keyed: tuple[str, str, str]) -> None:
    """A redirect is not followed, so no other host ever hears the key."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        here, there = listener.getsockname()[1], other.getsockname()[1]
        other.settimeout(0.5)
        process = subprocess.Popen(
            [COMMAND, "token", "list"],
            env=environment(STATEOUS_URL=f"http://127.0.0.1:{here}", STATEOUS_KEY=keyed[2]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        connection, _ = listener.accept()
        heard.append(connection.recv(65_536))
        connection.sendall(
            f"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:{there}/\r\nContent-Length: 0\r\n\r\n".encode()
        )
        connection.close()
        assert process.wait(20) == 69
        with pytest.raises(TimeoutError):
            other.accept()
    assert f"authorization: bearer {keyed[2]}".lower() in heard[0].decode().lower()


# What is listened on.


def test_an_address_that_others_reach_needs_a_key_first(postgres: str, migrated_template: str) -> None:
    with fresh(postgres, migrated_template) as database:
        arguments = ("serve", str(WORKFLOW), "--database", database, "--listen", "0.0.0.0:0")
        refused = stateous(*arguments)
        assert refused.returncode == 64
        assert "key create" in refused.stderr
        key = create(database, "admin", "admin")
        with launched(*arguments) as process:
            assert process.stdout is not None
            url = (
                process.stdout.readline()
                .removeprefix("listening on ")
                .strip()
                .replace("0.0.0.0", "127.0.0.1")
            )
            assert status(url, None) == 401
            assert (
                httpx.get(
                    f"{url}/tokens", headers={"Host": "cp.example", "Authorization": f"Bearer {key}"}
                ).status_code
                == 200
            )
            assert '"event": "keys.exposed"' in log_of(process)


def test_without_keys_serve_says_so(postgres: str, migrated_template: str) -> None:
    with (
        fresh(postgres, migrated_template) as database,
        serving(str(WORKFLOW), "--database", database) as (process, url),
    ):
        assert status(url, None) == 200
        assert "auth" not in httpx.get(f"{url}/health").json()["features"]
        assert httpx.get(f"{url}/tokens", headers={"Host": "evil.example"}).status_code == 400
        assert '"event": "keys.none"' in log_of(process)


# TLS.


def certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    made = authority.issue_cert("127.0.0.1", "localhost")
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    return chain, key


def serial(url: str, context: ssl.SSLContext) -> int:
    host, _, port = url.removeprefix("https://").partition(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        found = secure.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def test_tls_is_served_from_files_and_a_hangup_reads_them_again(
    postgres: str, migrated_template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands trust what the machine trusts, or the file that SSL_CERT_FILE names, on this machine too."""
    from stateous_control.cli.main import run

    authority = trustme.CA()
    chain, key = certificate(authority, tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with fresh(postgres, migrated_template) as database:
        files = ("--tls-cert", str(chain), "--tls-key", str(key))
        with serving(str(WORKFLOW), "--database", database, *files) as (process, url):
            assert url.startswith("https://")
            assert httpx.get(f"{url}/health", verify=context).status_code == 200
            authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            assert run(("token", "list", "--url", url)) == 0
            monkeypatch.delenv("SSL_CERT_FILE")
            assert run(("token", "list", "--url", url)) == 69
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            authority.configure_trust(old)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            before = serial(url, old)
            chain.write_text("nonsense")
            process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert serial(url, context) == before
            certificate(authority, tmp_path)
            process.send_signal(signal.SIGHUP)
            until(lambda: serial(url, context) != before)
            log = log_of(process)
    assert '"event": "certificates.refused"' in log
    assert '"event": "certificates.read"' in log


@pytest.mark.parametrize("given", [("--tls-cert", "x"), ("--tls-key", "x")])
def test_a_certificate_without_its_key_is_a_wrong_command_line(given: tuple[str, str]) -> None:
    assert stateous("serve", str(WORKFLOW), *given).returncode == 64


def test_files_that_are_no_certificate_are_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.write_text("nonsense")
    for chain in (file, tmp_path / "absent"):
        ended = stateous("serve", str(WORKFLOW), "--tls-cert", str(chain), "--tls-key", str(file))
        assert ended.returncode == 78
        assert ended.stderr.startswith("error: ")
        assert "Traceback" not in ended.stderr


# The key is nowhere (BH-055).


def test_a_key_is_in_no_log_no_history_and_no_command_line(
    postgres: str, migrated_template: str, tmp_path: Path
) -> None:
    """Start, good and refused requests, a broken body, a revoked key, debugging, the end: the log has none of it."""
    with fresh(postgres, migrated_template) as database:
        key = create(database, "canary", "admin")
        secret = key[17:]
        with serving(str(WORKFLOW), "--database", database) as (process, url):
            headers = {"Authorization": f"Bearer {key}"}
            httpx.post(f"{url}/tokens", headers=headers, json={"token": "C", "context": {"path": "plain"}})
            httpx.post(f"{url}/tokens", headers=headers, content=b"{")
            httpx.get(f"{url}/tokens?key={key}")
            httpx.get(f"{url}/tokens", headers={"Authorization": f"Basic {key}"})
            httpx.get(f"{url}/tokens", headers={"Authorization": f"Bearer {key}x"})
            history = httpx.get(f"{url}/tokens/C/history", headers=headers).text
            with launched("token", "watch", "C", STATEOUS_URL=url, STATEOUS_KEY=key) as watching:
                time.sleep(0.5)
                lines = [Path(f"/proc/{child.pid}/cmdline").read_text() for child in (process, watching)]
            stateous("key", "revoke", "canary", "--database", database)
            until(lambda: status(url, key) == 401)
            log = log_of(process)
    assert '"event": "key.refused"' in log
    for text in (log, history, *lines):
        assert secret not in text
