"""Asks a running control plane over HTTP. The only module of this room that knows httpx.

Whatever goes wrong becomes a `Failure` that says whose fault it is: not reached (69), refused (76), theirs (70).
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from stateous_control.cli import digits
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.files import read_secret
from stateous_control.cli.screen import remark

TIMEOUT_S: Final = 30.0
KEY_VARIABLE: Final = "STATEOUS_KEY"
_KEY: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,512}", re.ASCII)
LIST_TYPE: Final = "application/vnd.stateous.v1+json"
_AWAY: Final = frozenset({408, 425, 429, 502, 503, 504})


@dataclass(frozen=True)
class Reply:
    """An answer: its `text` as it came, and the value in it."""

    status: int
    text: str
    value: Any


class Client:
    """A client of one control plane. Use `connected`."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self._http = http

    def get(
        self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "application/json"
    ) -> Reply:
        return self._ask("GET", path, query=query, headers={"Accept": accept})

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send `body` as JSON; a `msgspec.Raw` in it goes out as the text it is."""
        try:
            content = msgspec.json.encode(body or {})
        except UnicodeEncodeError:
            raise Failure(Exit.USAGE, "a word of the command line is not UTF-8 text") from None
        return self._ask("POST", path, content=content, headers=dict(headers or {}))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: dict[str, str],
    ) -> Reply:
        try:
            response = self._http.request(method, path, params=query, content=content, headers=headers)
        except httpx.TransportError as error:
            is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise self._not_reached(_why(error), may_be_heard=is_sent) from None
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise Failure(Exit.USAGE, f"this cannot be asked of {self.url}: {error}") from None
        value = _json_of(response)
        if response.status_code < 400 and value is not None:
            return Reply(response.status_code, response.text, value)
        raise self._failure(response, value)

    def _failure(self, response: httpx.Response, value: Any) -> Failure:
        status = response.status_code
        if not isinstance(value, dict) or not isinstance(value.get("code"), str):
            return self._not_reached(f"what answered ({status}) is no control plane")
        sentence, code = str(value.get("error", "")), str(value["code"])
        if status in _AWAY:
            return self._not_reached(sentence, code=code)
        if status >= 500:
            return Failure(Exit.FAULT, f"the control plane at {self.url} failed: {sentence}", code=code)
        return Failure(Exit.REFUSED, f"refused ({code}): {sentence}", code=code)

    def _not_reached(self, why: str, *, code: str = "unreached", may_be_heard: bool = True) -> Failure:
        sentence = f"the control plane at {self.url} was not reached: {why}"
        return Failure(Exit.UNREACHED, sentence, code=code, may_be_heard=may_be_heard)


@contextmanager
def connected(url: str, key_file: Path | None = None) -> Iterator[Client]:
    """Yield a client for the control plane at `url`, with the key of `key_file`, else of STATEOUS_KEY.

    The key goes to the host of `url` alone: redirects are not followed. Raises `Failure`: 64 where that is no URL, 78
    for a file or variable that holds no key.
    """
    base = url.rstrip("/")
    parsed = _parse(base)
    key = _key(key_file, os.environ)
    # A proxy of the environment is for other machines.
    with httpx.Client(
        base_url=base,
        timeout=TIMEOUT_S,
        # What this machine trusts, or SSL_CERT_FILE names, as in the agent; httpx has a list of its own.
        verify=ssl.create_default_context() if parsed.scheme == "https" else True,
        trust_env=not _is_local(parsed.host),
        follow_redirects=False,
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
    ) as http:
        yield Client(_without_secret(parsed), http)


def _key(file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the key to show; never one from the command line, which all users of the machine can read."""
    if file is None:
        text, where = environment.get(KEY_VARIABLE, ""), KEY_VARIABLE
        if not text:
            return None
    else:
        text, where = _read_key(file), str(file)
    key = text.strip()
    if _KEY.fullmatch(key) is None:
        raise Failure(Exit.BAD_FILE, f"{where} holds no key: one line of letters, digits and '._~+/=-'")
    return key


def _read_key(file: Path) -> str:
    text, is_open = read_secret(file)
    if is_open:
        remark(f"warning: others than its owner can read the key in {file}; run: chmod 600 {file}")
    return text


def quoted(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="", errors="surrogateescape")


def _parse(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Failure(Exit.USAGE, "--url (or STATEOUS_URL) must be a URL such as http://127.0.0.1:8080")
    return parsed


def _without_secret(url: httpx.URL) -> str:
    return str(url.copy_with(username=None, password=None)) if url.userinfo else str(url)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _json_of(response: httpx.Response) -> Any:
    try:
        return digits.read(response.content)
    except ValueError:
        return None


def _why(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {TIMEOUT_S:.0f} s"
    return str(error) or type(error).__name__
