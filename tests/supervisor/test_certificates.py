"""Certificates on the way to a control plane, over real TLS: verified whatever happens, and told in words (A-49, BH-038)."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
import trustme
from supervisor.calling import KEY, ask, with_client
from supervisor.peers import Peer, tls_of

from stateous_supervisor.agent import config
from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.faults import Unreachable
from stateous_supervisor.agent.tls import context_for
from stateous_supervisor.cli.daemon import client_for

NOW = datetime.now(UTC)


# Certificates.


def test_a_client_certificate_is_shown_to_a_server_that_asks_a_49(
    ca: trustme.CA, ca_file: Path, tmp_path: Path
) -> None:
    context = tls_of(ca.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    mine = ca.issue_cert("box-1")
    mine.cert_chain_pems[0].write_to_path(cert := tmp_path / "cert.pem")
    mine.private_key_pem.write_to_path(key := tmp_path / "key.pem")

    with Peer(context=context) as peer:
        assert ask(peer.url, ca_file=ca_file, client_cert=cert, client_key=key) == 200
        with pytest.raises(Unreachable, match=r"asks for a client certificate|broke before an answer"):
            ask(peer.url, ca_file=ca_file)

    assert len(peer.heard) == 1


def test_the_files_of_the_configuration_are_what_run_uses_a_49(ca: trustme.CA, tmp_path: Path) -> None:
    """Custom CA, client certificate and key file, from `stateous.yaml` to a server that asks for them."""
    context = tls_of(ca.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    mine = ca.issue_cert("box-1")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "token").write_text(KEY)
    files = "ca_file: ca.pem\nclient_cert: cert.pem\nclient_key: key.pem\ntoken_file: token\n"

    with Peer(context=context) as peer:
        (tmp_path / "stateous.yaml").write_text(f"url: {peer.url}\n{files}")

        async def run() -> int:
            client = client_for(config.load(tmp_path, environment={}))
            try:
                return (await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=100)).status
            finally:
                await client.close()

        assert anyio.run(run) == 200
        assert peer.heard[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_key_with_a_passphrase_is_an_error_not_a_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    leaf = trustme.CA().issue_cert("box-1")
    leaf.cert_chain_pems[0].write_to_path(cert := tmp_path / "cert.pem")
    private = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    kind, locked = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    (key := tmp_path / "key.pem").write_bytes(private.private_bytes(serialization.Encoding.PEM, kind, locked))

    with pytest.raises(OSError, match="passphrase"):
        context_for(client_cert=cert, client_key=key)


@pytest.mark.parametrize(
    ("name", "days", "says_what"),
    [
        ("localhost", (-9, -1), r"has expired .*the clock of this box says \d{4}-\d\d-\d\dT"),
        ("localhost", (1, 9), r"not valid yet .*the clock of this box says \d{4}-\d\d-\d\dT"),
        ("elsewhere.example", (-9, 9), "for another host name"),
    ],
    ids=["expired", "not-yet", "host"],
)
def test_what_is_wrong_with_a_certificate_is_said_bh_038(
    ca: trustme.CA, ca_file: Path, name: str, days: tuple[int, int], says_what: str
) -> None:
    begins, ends = (NOW + timedelta(days=day) for day in days)
    leaf = ca.issue_cert(name, not_before=begins, not_after=ends)

    with Peer(context=tls_of(leaf)) as peer, pytest.raises(Unreachable, match=says_what):
        ask(peer.url, ca_file=ca_file)

    assert peer.heard == []


def test_an_unknown_ca_is_not_trusted_without_its_file_bh_038(ca: trustme.CA, ca_file: Path) -> None:
    with Peer(context=tls_of(ca.issue_cert("localhost"))) as peer:
        with pytest.raises(Unreachable, match="of a CA that this box does not trust"):
            ask(peer.url)
        assert ask(peer.url, ca_file=ca_file) == 200


def test_plain_http_on_the_port_is_said_bh_038(ca_file: Path) -> None:
    with Peer() as peer, pytest.raises(Unreachable, match="speaks plain http"):
        ask(peer.url.replace("http://", "https://"), ca_file=ca_file)


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
def test_an_old_protocol_is_said_bh_038(ca: trustme.CA, ca_file: Path) -> None:
    context = tls_of(ca.issue_cert("localhost"))
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1

    with Peer(context=context) as peer, pytest.raises(Unreachable, match="only an old version of TLS"):
        ask(peer.url, ca_file=ca_file)


def test_a_certificate_that_was_renewed_works_with_the_same_client_bh_038(
    ca: trustme.CA, ca_file: Path
) -> None:
    old = ca.issue_cert("localhost", not_before=NOW - timedelta(days=9), not_after=NOW - timedelta(days=1))

    with Peer(context=tls_of(old)) as peer:

        async def main(client: Client) -> None:
            for _ in range(3):
                with pytest.raises(Unreachable, match="expired"):
                    await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            peer.use(tls_of(ca.issue_cert("localhost")))
            answer = await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            assert answer.status == 200

        with_client(peer.url, main, ca_file=ca_file)


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHTTPSVERIFY": "0"},
        {"SSL_CERT_FILE": "/dev/null"},
        {"CURL_CA_BUNDLE": ""},
        {"REQUESTS_CA_BUNDLE": ""},
    ],
    ids=str,
)
def test_no_variable_switches_verification_off_a_49(
    ca: trustme.CA, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with Peer(context=tls_of(ca.issue_cert("localhost"))) as peer, pytest.raises(Unreachable):
        ask(peer.url)

    assert peer.heard == []
