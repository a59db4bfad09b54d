"""The way to a control plane, with real sockets and real certificates (A-56, BH-037, BH-038)."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from supervisor.doctor.servers import in_clear, listening, over_tls
from supervisor.peers import tls_of

from stateous_supervisor.agent.client import options_for
from stateous_supervisor.doctor import network
from stateous_supervisor.doctor.facts import NetworkFacts, TlsFacts

NOW = datetime.now(UTC)


def tried(
    port: int,
    ca_file: Path | None,
    host: str = "localhost",
    *,
    client_cert: Path | None = None,
    client_key: Path | None = None,
) -> TlsFacts:
    """Shake hands as the agent of a folder with these certificate files would."""
    context = options_for(f"https://{host}", ca_file=ca_file, client_cert=client_cert, client_key=client_key)[
        "verify"
    ]
    return network.shake_hands(NetworkFacts(host=host, port=port, connected="127.0.0.1"), context)


def test_a_good_certificate_is_trusted_and_its_end_is_read(ca: trustme.CA, ca_file: Path) -> None:
    leaf = ca.issue_cert("localhost", not_after=NOW + timedelta(days=5))

    with listening(over_tls(tls_of(leaf))) as port:
        facts = tried(port, ca_file)

    assert facts.fault is None
    assert facts.version == "TLSv1.3"
    assert facts.valid_s == pytest.approx(5 * 86_400, abs=3_600)


@pytest.mark.parametrize(
    ("name", "days", "fault"),
    [
        ("localhost", (-9, -1), "expired"),
        ("localhost", (1, 9), "not_yet_valid"),
        ("elsewhere.example", (-9, 9), "host_name"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_exactly(
    ca: trustme.CA, ca_file: Path, name: str, days: tuple[int, int], fault: str
) -> None:
    begins, ends = (NOW + timedelta(days=day) for day in days)
    leaf = ca.issue_cert(name, not_before=begins, not_after=ends)

    with listening(over_tls(tls_of(leaf))) as port:
        assert tried(port, ca_file).fault == fault


def test_a_certificate_for_another_address_is_one_for_another_host(ca: trustme.CA, ca_file: Path) -> None:
    with listening(over_tls(tls_of(ca.issue_cert("127.0.0.2")))) as port:
        assert tried(port, ca_file, host="127.0.0.1").fault == "host_name"


def test_a_ca_that_the_box_does_not_trust_is_told(ca: trustme.CA) -> None:
    with listening(over_tls(tls_of(ca.issue_cert("localhost")))) as port:
        assert tried(port, None).fault == "unknown_ca"


def test_plain_http_on_the_port_is_told(ca_file: Path) -> None:
    with listening(in_clear) as port:
        assert tried(port, ca_file).fault == "plain_http"


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
def test_a_server_with_an_old_protocol_is_told(ca: trustme.CA, ca_file: Path) -> None:
    context = tls_of(ca.issue_cert("localhost"))
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1

    with listening(over_tls(context)) as port:
        assert tried(port, ca_file).fault == "old_protocol"


def test_the_want_of_a_client_certificate_is_told(ca: trustme.CA, ca_file: Path) -> None:
    context = tls_of(ca.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)

    with listening(over_tls(context)) as port:
        assert tried(port, ca_file).fault == "client_certificate"


def test_a_client_certificate_is_shown(ca: trustme.CA, ca_file: Path, tmp_path: Path) -> None:
    context = tls_of(ca.issue_cert("localhost"))
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    mine = ca.issue_cert("box-1")
    mine.private_key_and_cert_chain_pem.write_to_path(pem := tmp_path / "mine.pem")

    with listening(over_tls(context)) as port:
        assert tried(port, ca_file, client_cert=pem, client_key=pem).fault is None


def test_a_port_that_speaks_tls_is_known_whoever_signed_it(ca: trustme.CA) -> None:
    with listening(over_tls(tls_of(ca.issue_cert("elsewhere.example")))) as port:
        assert network.speaks_tls(NetworkFacts(host="localhost", port=port, connected="127.0.0.1"))
    with listening(in_clear) as port:
        assert not network.speaks_tls(NetworkFacts(host="localhost", port=port, connected="127.0.0.1"))


def test_a_name_is_resolved_and_its_address_reached() -> None:
    with listening(in_clear) as port:
        facts = network.reach(f"http://localhost:{port}", None)

    assert "127.0.0.1" in (facts.addresses or ())
    assert facts.connected == "127.0.0.1"


def test_a_name_without_an_address_is_told() -> None:
    facts = network.reach("http://no-such-host.invalid", None)

    assert facts.addresses is None
    assert facts.dns_error


def test_a_port_where_nobody_listens_is_told_with_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    facts = network.reach(f"https://127.0.0.1:{port}", None)

    assert facts.connected is None
    assert facts.refusals == ("127.0.0.1: connection refused",)


def test_with_a_proxy_its_address_is_what_is_reached() -> None:
    with listening(in_clear) as port:
        facts = network.reach("https://far.invalid", f"http://user:secret@127.0.0.1:{port}")

    assert facts.connected == "127.0.0.1"
    assert facts.via_proxy == f"http://127.0.0.1:{port}"
