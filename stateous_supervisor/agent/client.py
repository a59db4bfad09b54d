"""The one door to httpx: one client for all calls, and what an answer is before anybody reads it.

It knows paths and bytes, not messages. A redirect is never followed (a POST would become a GET, a key would
travel), an answer is read up to a limit, every call has a total deadline. A connection that broke under a
request costs one repeat at once, on a new one (BH-034); all calls of the agent can bear being sent twice.
Connections are kept for `age_max_s` at most, so that a name is resolved again that often (A-50).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from stateous_supervisor.agent import tls
from stateous_supervisor.agent.faults import Denied, PeerViolation, TooLarge, Unreachable
from stateous_supervisor.agent.wire import gather

if TYPE_CHECKING:
    import httpx

CONNECTIONS_MAX: Final = 16
URLS_MAX: Final = 8
AGE_MAX_S: Final = 30.0
CONNECT_S: Final = 10.0
EXTENSIONS: Final = {"timeout": {"connect": CONNECT_S}}  # each call has a total deadline besides
KEEPALIVE_S: Final = 4.0  # below the 5 s after which uvicorn closes an idle connection
ERROR_BYTES_MAX: Final = 65_536
BEGIN_BYTES: Final = 4_096
NO_ANSWER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
STUMBLED: Final = frozenset({500, 502, 504})  # of those, the ones that something in a request may bring about
DENIED: Final = frozenset({401, 403})
PROXY_DENIED: Final = 407


class Answer(NamedTuple):
    """Status and body of an answer that came through. `is_json` is what its content type says, `date` its clock."""

    status: int
    body: bytes
    is_json: bool
    date: str = ""


class Client:
    """Calls one control plane.

    Args:
        url: where it is; paths are added to it.
        product: name and version, for the User-Agent header.
        key: gives the bearer key at each call, or None for none.
        transport: what carries requests; for tests and simulation.
        options: `verify`, `proxy` of httpx.
    """

    def __init__(
        self,
        url: str,
        *,
        product: str,
        key: Callable[[], str | None] = lambda: None,
        transport: httpx.AsyncBaseTransport | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._url = url
        self._key = key
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "connection": "keep-alive",
            "user-agent": product,
        }
        self._transport = transport
        self._options = options or {}
        self._pool: _Pool | None = None
        self._retired: list[_Pool] = []
        self._out: set[anyio.CancelScope] = set()
        self._urls: dict[str, httpx.URL] = {}
        self.age_max_s = AGE_MAX_S

    def _open(self) -> httpx.AsyncBaseTransport:
        """Make connections: httpx is imported at the first call, while the host loads the folder.

        They are used without a client around them: its cookies, redirects, authentication and hooks are never wanted
        here, and cost a third of a request.
        """
        import httpx

        if self._transport is not None:
            return self._transport
        connections = CONNECTIONS_MAX
        proxy, context = self._options.get("proxy"), self._options.get("verify", True)
        if proxy is not None and proxy.startswith("https://"):
            proxy = httpx.Proxy(proxy, ssl_context=context)
        transport = httpx.AsyncHTTPTransport(
            trust_env=False,  # what the variables say about proxies is decided by `proxies`, once
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=KEEPALIVE_S,
            ),
            verify=context,
            proxy=proxy,
        )
        gather(transport)
        return transport

    async def close(self) -> None:
        self._retire()
        while self._retired:
            await self._retired.pop().http.aclose()

    def key(self) -> str | None:
        """Return the key that the next call shows."""
        return self._key()

    def drop(self) -> None:
        """Give up all connections, as after a suspend; what is in flight is sent again on new ones (A-33)."""
        self._retire()
        for scope in self._out:
            scope.cancel()

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, deadline_s: float, bytes_max: int
    ) -> Answer:
        """Send one request and return what came back, whatever its status says of the request itself.

        Raises:
            Unreachable: no connection, a deadline passed, or a status that means "not now".
            PeerViolation: a redirect, or a body beyond `bytes_max` (`TooLarge`).
            Denied: 401 or 403.
        """
        import httpx

        # The connection broke under the request: as likely as not it was closed while it was idle.
        # An alert of TLS after the handshake comes as OpenSSL's own error, past httpx.
        closed = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
        broken = (*closed, ssl.SSLError, _Dropped)
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + deadline_s):
                try:
                    return await self._try(method, path, body, bytes_max)
                except broken:
                    self._retire()
                    return await self._try(method, path, body, bytes_max)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, _Dropped) as error:
            self._retire()
            sentence = f"{self._url}{path} cannot be reached: {_describe(error)}"
            is_cut = isinstance(error, closed)
            raise Unreachable(sentence, may_be_ours=is_cut, is_cut=is_cut) from None
        self._retire()  # it may be an address where nobody is any more
        raise Unreachable(f"{self._url}{path} did not answer within {deadline_s:g} s", may_be_ours=True)

    async def _try(self, method: str, path: str, body: bytes | None, bytes_max: int) -> Answer:
        pool = await self._pool_of_now()
        pool.calls += 1
        try:
            with anyio.CancelScope() as scope:
                self._out.add(scope)
                return await self._send(pool.http, method, path, body, bytes_max)
            raise _Dropped("the connection was given up")
        finally:
            self._out.discard(scope)
            pool.calls -= 1

    async def _pool_of_now(self) -> _Pool:
        """Return connections that are young enough; older ones end with their last call."""
        now = anyio.current_time()
        if self._pool is not None and now - self._pool.born_at >= self.age_max_s:
            self._retire()
        await self._close_unused()
        if self._pool is None:
            self._pool = _Pool(self._open(), now)
        return self._pool

    async def _close_unused(self) -> None:
        """Close retired connections without a call; another call may close some of them meanwhile."""
        while unused := next((pool for pool in self._retired if pool.calls == 0), None):
            self._retired.remove(unused)
            with anyio.CancelScope(shield=True):
                await unused.http.aclose()

    def _retire(self) -> None:
        """Let the next call begin with connections, and a name, of its own."""
        if self._pool is not None:
            self._retired.append(self._pool)
            self._pool = None

    async def _send(
        self, http: httpx.AsyncBaseTransport, method: str, path: str, body: bytes | None, bytes_max: int
    ) -> Answer:
        response = await http.handle_async_request(self._request(method, path, body))
        try:
            self._judge(path, response)
            is_json = "json" in response.headers.get("content-type", "")
            limit = bytes_max if response.status_code < 400 else ERROR_BYTES_MAX
            body = await self._read(path, response, limit)
            if response.status_code in DENIED:
                sentence = (
                    f"{self._url}{path} answered {response.status_code}: the key is missing or not accepted"
                )
                raise Denied(sentence, status=response.status_code, body=body)
            return Answer(response.status_code, body, is_json, response.headers.get("date", ""))
        finally:
            await response.aclose()

    def _request(self, method: str, path: str, body: bytes | None) -> httpx.Request:
        import httpx

        headers = self._headers if body is None else {**self._headers, "content-type": "application/json"}
        key = self._key()
        if key is not None:
            headers = {**headers, "authorization": f"Bearer {key}"}
        url = self._urls.get(path) or self._parse(path)
        return httpx.Request(method, url, headers=headers, content=body, extensions=EXTENSIONS)

    def _parse(self, path: str) -> httpx.URL:
        """Return the address of `path`; those that are asked first are asked for ever, and parsed once."""
        import httpx

        url = httpx.URL(self._url + path)
        if len(self._urls) < URLS_MAX:
            self._urls[path] = url
        return url

    def _judge(self, path: str, response: httpx.Response) -> None:
        status = response.status_code
        if status == PROXY_DENIED:
            raise Unreachable(f"{self._url}{path} answered 407: the proxy asks for a name and a password")
        if status in NO_ANSWER:
            asked_s = seconds_of(response.headers.get("retry-after"), response.headers.get("date"))
            raise Unreachable(
                f"{self._url}{path} answered {status}", asked_s=asked_s, may_be_ours=status in STUMBLED
            )
        if 300 <= status < 400 or status < 200:
            where = ascii(response.headers.get("location", "elsewhere")[:200])[1:-1]
            raise PeerViolation(f"{self._url}{path} answered {status} to {where}; it is not followed")

    async def _read(self, path: str, response: httpx.Response, bytes_max: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > bytes_max:
                sentence = f"{self._url}{path} answered with more than {bytes_max} bytes"
                raise TooLarge(sentence, begin=(chunks or [chunk])[0][:BEGIN_BYTES])
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def options_for(
    url: str,
    *,
    ca_file: Path | None = None,
    client_cert: Path | None = None,
    client_key: Path | None = None,
    proxy: str | None = None,
) -> dict[str, Any]:
    """Return the TLS and proxy options for `url`.

    Without https no certificates are loaded: that costs megabytes, and a redirect to https is not followed
    anyway.

    Raises:
        OSError: a file cannot be read, or is none of certificates (`ssl.SSLError`).
    """
    is_plain = url.startswith("http://") and (proxy is None or proxy.startswith("http://"))
    if is_plain:
        return {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "proxy": proxy}
    context = tls.context_for(ca_file=ca_file, client_cert=client_cert, client_key=client_key)
    return {"verify": context, "proxy": proxy}


def seconds_of(retry_after: str | None, date: str | None) -> float | None:
    """Return what a `Retry-After` asks for: a number of seconds, or a date, compared with the server's own clock.

    None where it says nothing sensible. Our clock is not asked: it may be wrong (BH-011).
    """
    if retry_after is None:
        return None
    told = retry_after.strip()
    if told.isascii() and told.isdigit():
        return float(told[:12])
    try:
        span = parsedate_to_datetime(told) - parsedate_to_datetime(date or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, span.total_seconds())


def _describe(error: Exception) -> str:
    failure = tls.cause_of(error)
    if failure is not None:
        return tls.describe(failure)
    # So ends, among others, a server that wants another client certificate; `doctor` tells which it is.
    return str(error) or f"the connection broke before an answer came ({type(error).__name__})"


class _Dropped(Exception):
    """A call lost its connection because we gave up all of them."""


class _Pool:
    """Connections that were begun at about one time, and how many calls are on them."""

    __slots__ = ("born_at", "calls", "http")

    def __init__(self, http: httpx.AsyncBaseTransport, born_at: float) -> None:
        self.http = http
        self.born_at = born_at
        self.calls = 0
