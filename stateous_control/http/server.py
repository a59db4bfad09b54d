"""The web server around the app: its socket, how long connections live, and how it stops.

Only here and in `arriving` is uvicorn known.
The first SIGTERM or SIGINT answers every waiting claim at once and gives the rest five seconds; a second one ends now.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn

from stateous_control.engine.operations import ControlPlane
from stateous_control.http.arriving import arriving
from stateous_control.http.door import Door
from stateous_control.http.routes import make_app
from stateous_control.http.strangers import Strangers
from stateous_control.http.tls import CannotUse, Certificates
from stateous_control.logs import logger

log = logger("stateous.control.http")

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept: well above what clients keep (httpx: 5 s), so that the client closes first."""

STOP_S: Final = 5
BACKLOG: Final = 2_048


class CannotListen(Exception):
    """The address cannot be listened on. The text is one plain sentence."""


@dataclass(frozen=True)
class Address:
    """Where to listen. A `port` of 0 takes any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``. Raises `CannotListen` for anything else."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
            raise CannotListen(
                f"--listen is '{text}'; it must be an address and a port, as in 127.0.0.1:8080"
            )
        if host == "localhost":
            host = "127.0.0.1"
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def bind(address: Address) -> socket.socket:
    """Take the address, without listening yet. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol must be named: an event loop sets TCP_NODELAY only on sockets that say they are TCP, and
    # without it each answer waits 40 ms for the peer's acknowledgement. Accepted connections inherit the option.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise CannotListen(
            f"{address.host}:{address.port} cannot be listened on: {error.strerror}"
        ) from error
    listener.set_inheritable(False)
    return listener


def url_of(listener: socket.socket, *, is_secure: bool = False) -> str:
    """Return the URL under which the socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if is_secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn with a stop of our own: its hooks in the app would come after the waiting claims, which is too late.

    Args:
        door: what answers; it is told when the stop begins.
        on_listening: called once, when connections are taken.
        certificates: for TLS; SIGHUP reads them again.
    """

    def __init__(
        self,
        door: Door,
        on_listening: Callable[[], None] = lambda: None,
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(door),
                http=arriving(),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._certificates = certificates
        if certificates is not None:
            self.config.load()
            self.config.ssl = certificates.context
        self._door = door
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_forced = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self._certificates is not None and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self._reload, self._certificates)
        self._on_listening()

    def _reload(self, certificates: Certificates) -> None:
        try:
            certificates.reload()
        except CannotUse as error:
            log.warning("certificates.refused", reason=str(error))
        else:
            log.info("certificates.read")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop, or end now when asked again. Runs in a signal handler: the loop does the work."""
        assert self._loop is not None
        if self.should_exit:
            self.is_forced = self.force_exit = True
            self._loop.call_soon_threadsafe(self._abort)
            return
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._door.begin_stop)

    def _abort(self) -> None:
        """Drop every connection: the server waits for them, even when it is forced."""
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


async def serve(
    plane: ControlPlane,
    listener: socket.socket,
    *,
    names: frozenset[str] = frozenset(),
    certificates: Certificates | None = None,
    on_listening: Callable[[], None] = lambda: None,
) -> bool:
    """Serve until a signal says stop. Return whether the stop was orderly (False: a second signal cut it short)."""
    server = Server(Door(plane, Strangers(names), plane.keyring), on_listening, certificates)
    await server.serve(sockets=[listener])
    return not server.is_forced
