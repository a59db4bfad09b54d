"""Which proxy, if any, is on the way to the control plane (A-49). Pure: the environment is an argument.

`run`, `doctor` and every command ask here, so that they all go the same way. httpx is never asked: it reads the
variables anew for each client, and takes a network in `NO_PROXY` for a host name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadProxy(ValueError):
    """A proxy that nobody can go through. Its text names the variable, and never a password."""


class Entry(NamedTuple):
    """One entry of a `no_proxy` list: a network, or a name with all that is below it; None for the port is any."""

    network: Network | None
    name: str
    port: int | None


def proxy_for(
    url: str, *, proxy: str | None, no_proxy: str | None, environment: Mapping[str, str]
) -> str | None:
    """Return the proxy on the way to `url`, or None for none.

    A `proxy` that is set beats the proxy variables, and theirs are the exceptions of `NO_PROXY`: only `no_proxy`
    counts for it. A `no_proxy` that is set beats `NO_PROXY` too. Lower case variables come before upper case ones.

    Args:
        url: where the control plane is.
        proxy: that key of `stateous.yaml`; None where it is not set.
        no_proxy: the same of its exceptions.
        environment: the process's variables.

    Raises:
        BadProxy: a variable names what is no http proxy.
    """
    if no_proxy is None and proxy is None:
        no_proxy = _first(environment, "no_proxy")[1]
    if no_proxy is not None and is_excepted(url, no_proxy):
        return None
    if proxy is not None:
        return proxy
    variable, value = _first(environment, f"{urlsplit(url).scheme}_proxy", "all_proxy")
    if value is None:
        return None
    try:
        return parse_proxy(value if "://" in value else f"http://{value}")
    except ValueError as error:
        raise BadProxy(f"the variable {variable} {error}; 'no_proxy' or 'proxy' beats it") from None


def parse_proxy(value: object) -> str:
    """Return a proxy's URL as it is.

    Raises:
        ValueError: with "must be …".
    """
    must = "must be the URL of an http or https proxy, such as http://user:password@proxy.example:3128"
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        is_good = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not str(value).isprintable() or " " in str(value):
        raise ValueError(must)
    return str(value)


def is_excepted(url: str, no_proxy: str) -> bool:
    """Return whether a list of hosts, suffixes and networks, by commas or spaces, has the host of `url`.

    Entries that say nothing sensible have nobody.
    """
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme)
    address = _address(host)
    for entry in entries_of(no_proxy):
        found = read_entry(entry)
        if entry == "*" or (found is not None and _has(found, host, address, port)):
            return True
    return False


def entries_of(no_proxy: str) -> list[str]:
    return no_proxy.replace(",", " ").split()


def read_entry(entry: str) -> Entry | None:
    """Return what one entry means: `host`, `.suffix`, `*.suffix`, an address, a network, each with `:port` or without.

    None where it means nothing.
    """
    text, port = _split_port(entry.lower())
    try:
        return Entry(ipaddress.ip_network(text.strip("[]"), strict=False), "", port)
    except ValueError:
        name = text.removeprefix("*").rstrip(".")
    return Entry(None, name.lstrip("."), port) if _NAME.fullmatch(name) else None


def parse_no_proxy(value: object) -> str:
    """Return the list as it is.

    Raises:
        ValueError: with "must be …".
    """
    if not isinstance(value, str) or not 1 <= len(value) <= 4096 or not value.isprintable():
        raise ValueError("must be hosts, suffixes and networks, by commas or spaces")
    for entry in entries_of(value):
        if entry != "*" and read_entry(entry) is None:
            shown = entry if len(entry) <= 60 else entry[:60] + "…"
            raise ValueError(f"must be hosts, suffixes and networks, by commas or spaces; '{shown}' is none")
    return value


def _has(entry: Entry, host: str, address: Address | None, port: int | None) -> bool:
    if entry.port is not None and entry.port != port:
        return False
    if entry.network is not None:
        return address is not None and address in entry.network
    return host == entry.name or host.endswith("." + entry.name)


def _split_port(entry: str) -> tuple[str, int | None]:
    """Cut a port off; the colons of an address without brackets are its own."""
    text, colon, port = entry.rpartition(":")
    if not colon or not port.isdigit() or (":" in text and not text.endswith("]")):
        return entry, None
    return text, int(port)


def _address(host: str) -> Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str | None]:
    for name in names:
        for variable in (name, name.upper()):
            value = environment.get(variable, "").strip()
            if value:
                return variable, value
    return "", None
