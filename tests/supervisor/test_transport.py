"""The way to a control plane, over real sockets: proxies, redirects, names that move (A-49, A-50, BH-037, BH-038)."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from supervisor.calling import KEY, ask, with_client
from supervisor.peers import Peer, Proxy, names, says, tls_of

from stateous_supervisor.agent.client import Client
from stateous_supervisor.agent.faults import PeerViolation, Unreachable

NOW = datetime.now(UTC)


# Proxies.


def test_plain_http_goes_through_the_proxy_that_is_set_a_49() -> None:
    with Peer() as peer, Proxy() as proxy:
        assert ask(peer.url, proxy=proxy.url) == 200

        assert [heard.path for heard in proxy.heard] == [f"{peer.url}/health"]
        assert len(peer.heard) == 1


def test_https_goes_through_a_tunnel_and_the_proxy_never_sees_the_key_a_49(
    ca: trustme.CA, ca_file: Path
) -> None:
    with Peer(context=tls_of(ca.issue_cert("localhost"))) as peer, Proxy() as proxy:
        assert ask(peer.url, proxy=proxy.url, ca_file=ca_file) == 200

        assert proxy.tunnels == [f"localhost:{peer.port}"]
        assert proxy.heard == []
        assert peer.heard[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("is_https", [False, True], ids=["http", "https"])
def test_a_proxy_gets_the_password_that_it_asks_for_bh_037(
    ca: trustme.CA, ca_file: Path, is_https: bool
) -> None:
    context = tls_of(ca.issue_cert("localhost")) if is_https else None
    with Peer(context=context) as peer, Proxy(password="me:secret") as proxy:
        assert ask(peer.url, proxy=proxy.url, ca_file=ca_file) == 200

        assert "proxy-authorization" not in peer.heard[0].headers


@pytest.mark.parametrize("is_https", [False, True], ids=["http", "https"])
def test_a_proxy_that_wants_another_password_is_unreachable_and_the_password_untold_bh_037(
    ca: trustme.CA, ca_file: Path, is_https: bool
) -> None:
    context = tls_of(ca.issue_cert("localhost")) if is_https else None
    with Peer(context=context) as peer, Proxy(password="me:right") as proxy:
        wrong = f"http://me:canary-wrong@127.0.0.1:{proxy.port}"
        with pytest.raises(Unreachable, match="407") as caught:
            ask(peer.url, proxy=wrong, ca_file=ca_file)

    assert "canary-wrong" not in caught.value.sentence
    assert peer.heard == []


def test_a_proxys_page_is_no_answer_bh_037() -> None:
    with Peer() as gone:
        url = gone.url
    with Proxy() as proxy, pytest.raises(Unreachable, match="502"):
        ask(url, proxy=proxy.url)


def test_the_variables_of_the_process_are_not_read_again_behind_our_back_bh_037(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """httpx takes a network in NO_PROXY for a host; whoever decides has decided."""
    with Peer() as peer:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,localhost,.internal,[::1]:8080,*")

        assert ask(peer.url) == 200


# Redirects.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_no_way_to_another_host_and_a_post_stays_one_a_49(status: int) -> None:
    with (
        Peer() as other,
        Peer(answer=says(status, location=f"{other.url}/health")) as peer,
        pytest.raises(PeerViolation) as caught,
    ):
        ask(peer.url)

    assert other.heard == []
    assert [heard.method for heard in peer.heard] == ["POST"]
    assert peer.url in caught.value.sentence
    assert str(status) in caught.value.sentence


def test_a_redirect_to_itself_costs_one_request_bh_038() -> None:
    with Peer(answer=says(308, location="/health")) as peer, pytest.raises(PeerViolation):
        ask(peer.url)

    assert len(peer.heard) == 1


# Names that move, connections that end.


@pytest.mark.parametrize("status", [200, 503])
def test_a_name_that_moved_is_found_when_its_connections_are_old_a_50(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """BH-037: the old address goes on answering, so that no connection breaks: only age finds the new one."""
    with (
        names(monkeypatch, cp_example="127.0.0.1") as table,
        Peer(answer=says(status)) as old,
        Peer(address="127.0.0.2", port=old.port) as new,
    ):

        async def main(client: Client) -> None:
            client.age_max_s = 0.3
            with suppress(Unreachable):
                await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            table["cp.example"] = "127.0.0.2"
            with anyio.fail_after(20):
                while not new.heard:
                    with suppress(Unreachable):
                        await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
                    await anyio.sleep(0.05)
            before = len(old.heard)
            await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            assert len(old.heard) == before

        with_client(f"http://cp.example:{old.port}", main)


def test_an_old_address_that_answers_nothing_more_costs_one_deadline_a_50(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silence, over = threading.Event(), threading.Event()

    def until_silent(_: Any) -> Any:
        if silence.is_set():
            over.wait(20)
        return 200, {}, b"{}"

    with (
        names(monkeypatch, cp_example="127.0.0.1") as table,
        Peer(answer=until_silent) as old,
        Peer(address="127.0.0.2", port=old.port) as new,
    ):

        async def main(client: Client) -> None:
            await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            silence.set()
            table["cp.example"] = "127.0.0.2"
            with pytest.raises(Unreachable):
                await client.call("POST", "/x", b"{}", deadline_s=0.3, bytes_max=10)
            await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            assert len(new.heard) == 1

        with_client(f"http://cp.example:{old.port}", main)
        over.set()


def test_a_name_that_cannot_be_resolved_is_unreachable_and_works_again_later_bh_037(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with names(monkeypatch, cp_example="") as table, Peer() as peer:

        async def main(client: Client) -> None:
            with pytest.raises(Unreachable, match="name resolution"):
                await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            table["cp.example"] = "127.0.0.1"
            assert (await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)).status == 200

        with_client(f"http://cp.example:{peer.port}", main)


def test_a_control_plane_with_an_address_of_version_6_only_bh_037(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this machine has no such loopback, the failure names the address as it was written."""
    if not has_version_6():
        with pytest.raises(Unreachable, match=r"\[::1\]"):
            ask("http://[::1]:9")
        return
    with Peer(address="::1") as peer:
        assert ask(f"http://[::1]:{peer.port}") == 200
        with names(monkeypatch, cp_example="::1"):
            assert ask(f"http://cp.example:{peer.port}") == 200


def has_version_6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_kept_connections_that_all_broke_cost_exactly_one_repeat_a_50() -> None:
    """Several are kept; the first call over a dead one does not try the other dead ones."""
    with Peer() as peer:

        async def main(client: Client) -> None:
            async with anyio.create_task_group() as many:
                for _ in range(5):
                    many.start_soon(call, client)
            kept = peer.connections
            assert kept >= 2
            for connection in list(peer.open.values()):  # a reset that only the next write finds
                connection.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")
            peer.cut()
            before = len(peer.heard)

            await call(client)

            assert len(peer.heard) == before + 1
            assert peer.connections == kept + 1

        async def call(client: Client) -> None:
            await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)

        with_client(peer.url, main)


def test_what_is_in_flight_when_connections_are_given_up_is_sent_again_a_33() -> None:
    """After a suspend a waiting claim would wait on a connection that nobody holds any more."""
    over = threading.Event()

    def first_hangs(heard: Any) -> Any:
        if heard.connection == 1:
            over.wait(20)
        return 200, {}, b"{}"

    with Peer(answer=first_hangs) as peer:

        async def main(client: Client) -> None:
            async def drop() -> None:
                while not peer.heard:
                    await anyio.sleep(0.01)
                client.drop()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drop)
                answer = await client.call("POST", "/x", b"{}", deadline_s=15, bytes_max=10)
            assert answer.status == 200
            assert [heard.connection for heard in peer.heard] == [1, 2]

        with_client(peer.url, main)
        over.set()


def test_old_connections_are_closed_when_their_last_call_ends_a_50() -> None:
    with Peer() as peer:

        async def main(client: Client) -> None:
            client.age_max_s = 0.0
            for _ in range(20):
                await client.call("POST", "/x", b"{}", deadline_s=5, bytes_max=10)
            assert peer.connections == 20
            with anyio.fail_after(10):
                while len(peer.open) > 2:
                    await anyio.sleep(0.02)

        with_client(peer.url, main)


def test_calls_that_close_old_connections_at_the_same_time_all_get_their_answers_a_50() -> None:
    together = threading.Barrier(5)

    def at_once(_: Any) -> Any:
        together.wait(20)
        return 200, {}, b"{}"

    with Peer(answer=at_once) as peer:

        async def main(client: Client) -> None:
            client.age_max_s = 0.0  # each call has its own connections, and closes those before it
            for _ in range(3):
                async with anyio.create_task_group() as many:
                    for _ in range(5):
                        many.start_soon(call, client)
            assert len(peer.heard) == 15

        async def call(client: Client) -> None:
            await client.call("POST", "/x", b"{}", deadline_s=20, bytes_max=10)

        with_client(peer.url, main)
