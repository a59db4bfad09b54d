"""The one door to httpx: one client for all calls, and what an answer is before anybody reads it.

It knows paths and bytes, not messages. A redirect is never followed (a POST would become a GET, a key would
travel), an answer is read up to a limit, every call has a total deadline. A keep-alive connection that the
server closed under a request costs one repeat at once (BH-034); all calls of the agent can bear being sent
twice.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from stateous_supervisor.agent.faults import Denied, PeerViolation, Unreachable

if TYPE_CHECKING:
    import httpx

CONNECTIONS_MAX: Final = 16
URLS_MAX: Final = 8
KEEPALIVE_S: Final = 4.0  # below the 5 s after which uvicorn closes an idle connection
ERROR_BYTES_MAX: Final = 65_536
NO_ANSWER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
DENIED: Final = frozenset({401, 403})


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
        self._headers = {"user-agent": product, "accept": "application/json", "accept-encoding": "identity"}
        self._transport = transport
        self._options = options or {}
        self._http: httpx.AsyncClient | None = None
        self._urls: dict[str, httpx.URL] = {}

    def _open(self) -> httpx.AsyncClient:
        """Make the client at the first call: httpx is imported while the host loads the folder."""
        import httpx

        connections = CONNECTIONS_MAX
        return httpx.AsyncClient(
            transport=self._transport,
            timeout=None,  # noqa: S113  each call has a total deadline instead
            follow_redirects=False,
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=KEEPALIVE_S,
            ),
            headers=self._headers,
            **self._options,
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, deadline_s: float, bytes_max: int
    ) -> Answer:
        """Send one request and return what came back, whatever its status says of the request itself.

        Raises:
            Unreachable: no connection, a deadline passed, or a status that means "not now".
            PeerViolation: a redirect, or a body beyond `bytes_max`.
            Denied: 401 or 403.
        """
        if self._http is None:
            self._http = self._open()
        import httpx

        # The connection broke under the request: as likely as not it was closed while it was idle.
        broken = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + deadline_s):
                try:
                    return await self._send(self._http, method, path, body, bytes_max)
                except broken:
                    return await self._send(self._http, method, path, body, bytes_max)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise Unreachable(f"{self._url}{path} cannot be reached: {_describe(error)}") from None
        raise Unreachable(f"{self._url}{path} did not answer within {deadline_s:g} s")

    async def _send(
        self, http: httpx.AsyncClient, method: str, path: str, body: bytes | None, bytes_max: int
    ) -> Answer:
        headers: dict[str, str] = {} if body is None else {"content-type": "application/json"}
        key = self._key()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        url = self._urls.get(path) or self._parse(path)
        request = http.build_request(method, url, content=body, headers=headers)
        response = await http.send(request, stream=True)
        try:
            self._judge(path, response)
            is_json = "json" in response.headers.get("content-type", "")
            limit = bytes_max if response.status_code < 400 else ERROR_BYTES_MAX
            body = await self._read(path, response, limit)
            return Answer(response.status_code, body, is_json, response.headers.get("date", ""))
        finally:
            await response.aclose()

    def _parse(self, path: str) -> httpx.URL:
        """Return the address of `path`; those that are asked first are asked for ever, and parsed once."""
        import httpx

        url = httpx.URL(self._url + path)
        if len(self._urls) < URLS_MAX:
            self._urls[path] = url
        return url

    def _judge(self, path: str, response: httpx.Response) -> None:
        status = response.status_code
        if status in NO_ANSWER:
            asked_s = _seconds(response.headers.get("retry-after"))
            raise Unreachable(f"{self._url}{path} answered {status}", asked_s=asked_s)
        if status in DENIED:
            raise Denied(f"{self._url}{path} answered {status}: the key is missing or not accepted")
        if 300 <= status < 400 or status < 200:
            where = response.headers.get("location", "elsewhere")
            raise PeerViolation(f"{self._url}{path} answered {status} to {where[:200]}; it is not followed")

    async def _read(self, path: str, response: httpx.Response, bytes_max: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > bytes_max:
                raise PeerViolation(f"{self._url}{path} answered with more than {bytes_max} bytes")
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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        if client_cert is not None:
            context.load_cert_chain(client_cert, client_key)
    return {"verify": context, "proxy": proxy}


def _seconds(retry_after: str | None) -> float | None:
    """Return what a `Retry-After` of seconds asks for; its form as a date is not worth a clock."""
    return float(retry_after) if retry_after is not None and retry_after.strip().isdigit() else None


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
