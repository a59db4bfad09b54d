"""The way to the control plane, step by step: name, connection, handshake. It judges nothing.

httpx says only that it failed; here each step is made by itself, with the certificates that the agent uses.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Final
from urllib.parse import urlsplit

from stateous_supervisor.agent import tls
from stateous_supervisor.doctor.facts import NetworkFacts, TlsFacts

CONNECT_S: Final = 5.0
ALERT_S: Final = 0.5
ADDRESSES_MAX: Final = 8
PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


def reach(url: str, proxy: str | None) -> NetworkFacts:
    """Resolve and connect, one address after the other."""
    parts = urlsplit(proxy or url)
    host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 80)
    shown = None if proxy is None else f"{parts.scheme}://{host}:{port}"
    began = time.monotonic()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return NetworkFacts(host=host, port=port, via_proxy=shown, dns_error=str(why).lower())
    dns_s = time.monotonic() - began
    refusals: list[str] = []
    connected: str | None = None
    connect_s = 0.0
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:ADDRESSES_MAX]
    for address in addresses:
        began = time.monotonic()
        try:
            socket.create_connection((address, port), CONNECT_S).close()
        except OSError as error:
            refusals.append(f"{address}: {_why(error)}")
            continue
        if connected is None:
            connected, connect_s = address, time.monotonic() - began
    return NetworkFacts(
        host=host,
        port=port,
        via_proxy=shown,
        dns_s=dns_s,
        addresses=tuple(addresses),
        connected=connected,
        connect_s=connect_s,
        refusals=tuple(refusals),
    )


def shake_hands(network: NetworkFacts, context: ssl.SSLContext) -> TlsFacts:
    """Make a handshake with the address that took a connection, and read what comes after it."""
    try:
        with (
            socket.create_connection((network.connected, network.port), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=network.host) as secure,
        ):
            ends_at = dict(secure.getpeercert() or {}).get("notAfter")
            version = secure.version() or ""
            # With TLS 1.3 the want of a client certificate is told after the handshake. Nothing is sent before it is
            # heard: a server that closes on unread data resets the connection, and the alert is lost.
            secure.settimeout(ALERT_S)
            with contextlib.suppress(TimeoutError, ConnectionError):
                secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        return TlsFacts(is_asked_for=True, fault=tls.kind_of(error), detail=error.verify_message)
    except ssl.SSLError as error:
        return TlsFacts(is_asked_for=True, fault=tls.kind_of(error), detail=error.reason or str(error))
    except OSError as error:
        return TlsFacts(is_asked_for=True, fault="other", detail=_why(error))
    valid_s = None if not isinstance(ends_at, str) else ssl.cert_time_to_seconds(ends_at) - time.time()
    return TlsFacts(is_asked_for=True, version=version, valid_s=valid_s)


def speaks_tls(network: NetworkFacts) -> bool:
    """Return whether the port takes a TLS handshake, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said over it
    try:
        with (
            socket.create_connection((network.connected, network.port), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=network.host),
        ):
            return True
    except OSError:
        return False


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    return (error.strerror or str(error) or type(error).__name__).lower()
