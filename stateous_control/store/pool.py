"""The one door to PostgreSQL: connections, transactions, what is tried again, and what an error means.

Every transaction says its isolation level and its time limits itself, in the message that begins it. So neither a
database-wide default (`ALTER DATABASE … SET default_transaction_isolation`) nor a pooler that hands each transaction
another connection can change what the rules stand on. No other module imports asyncpg.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, TypeVar

import asyncpg

from stateous_control.store.failures import Unavailable

Row = asyncpg.Record
Result = TypeVar("Result")

STATEMENT_TIMEOUT_S: Final = 15
LOCK_TIMEOUT_S: Final = 3
IDLE_TIMEOUT_S: Final = 10
CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 1.0
ACQUIRE_TIMEOUT_S: Final = 10.0
TRIES_MAX: Final = 6

_LIMITS: Final = (
    f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'; SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'; SET LOCAL jit = off"
)
# Statements that find every row by a key are planned once, and never for a table that was empty at the time: the
# plan of a queue that went from none to a million rows between two ANALYZEs is the right one all the same.
_KEYED: Final = (
    "; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; "
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_bitmapscan = off; "
    # Or a small table is read whole, kept, and compared with each key; the plan outlives the smallness.
    "SET LOCAL enable_material = off"
)
_ORDERED: Final = "; SET LOCAL enable_sort = off"
# Who shares a transaction does not wait long for a row that one of them needs.
_IMPATIENT: Final = "; SET LOCAL lock_timeout = '400ms'"
# A beat that a crash of the database undoes is one of the four that a lease lasts.
_RELAXED: Final = "; SET LOCAL synchronous_commit = off"


class Mode(Enum):
    """What a transaction is for; the value is the message that begins it."""

    PLAIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_LIMITS}"
    SNAPSHOT = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LIMITS}"
    WRITE = PLAIN + _KEYED
    GROUP = WRITE + _IMPATIENT
    CLAIM = WRITE + _ORDERED
    BEAT = WRITE + _RELAXED


class Again(Exception):
    """The database stopped this transaction for another's sake; the same once more may well succeed."""


class LockedOut(Unavailable):
    """Somebody else held a row for longer than this transaction would wait."""


class Rejected(Exception):
    """The database refused a statement for what is in it: a fault of ours, or data that no rule stopped."""


class Forbidden(Rejected):
    """The database's user may not do this."""


class Session:
    """One open transaction, or a connection outside of any. Statements run one after the other."""

    def __init__(self, connection: asyncpg.Connection[Row]) -> None:
        self._connection = connection
        self.statements = 0
        self.timeout_s = STATEMENT_TIMEOUT_S + 5.0

    async def fetch(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        self.statements += 1
        return await self._connection.fetch(statement, *values, timeout=self.timeout_s)

    async def execute(self, statement: str) -> None:
        """Run statements that take no values, several in one text if need be."""
        self.statements += 1
        await self._connection.execute(statement, timeout=self.timeout_s)


class Pool:
    """A bounded set of connections. A connection that saw trouble is dropped, never mended.

    Args:
        url: a PostgreSQL URL; connections_max: how many transactions run at once.
        statement_cache: False behind a pooler in transaction mode. Such a pooler is also found out by its errors.

    """

    def __init__(self, url: str, *, connections_max: int = 10, statement_cache: bool = True) -> None:
        self.url = url
        self.statement_cache = statement_cache
        self.transactions = 0
        self.statements = 0
        self._idle: list[asyncpg.Connection[Row]] = []
        self._slots = asyncio.Semaphore(connections_max)

    async def run(
        self,
        work: Callable[[Session], Awaitable[Result]],
        mode: Mode = Mode.WRITE,
        *,
        wait_s: float = ACQUIRE_TIMEOUT_S,
    ) -> Result:
        """Run `work` in one transaction and commit it; stopped by a deadlock or the like, run it again.

        Args:
            work: called with the open transaction, perhaps several times; it must keep nothing from a stopped try.
            mode: what the transaction is for.
            wait_s: how long to wait for a free connection.

        Raises `Unavailable` where the database does not answer in time, `Rejected` where it refuses a statement.

        """
        for tries in range(TRIES_MAX):
            try:
                async with self._transaction(mode.value, wait_s) as session:
                    return await work(session)
            except Again:
                await asyncio.sleep(random.uniform(0, 0.01) * 2**tries)  # noqa: S311 - spreads rivals, nothing secret
        raise Unavailable(f"the database stopped this transaction {TRIES_MAX} times for the sake of others")

    async def once(self, statement: str, *values: Any) -> list[Row]:
        """Run one statement that is a transaction by itself, on a connection that is there; None is tried again.

        It says what it needs of settings itself. Raises `Unavailable`, `Rejected` and `Again`.

        """
        async with self._slot(ACQUIRE_TIMEOUT_S):
            connection = self._idle.pop() if self._idle else await self.connect()
            is_whole = False
            try:
                rows = await connection.fetch(statement, *values, timeout=STATEMENT_TIMEOUT_S + 5.0)
                is_whole = True
            except Exception as error:
                is_whole = isinstance(error, asyncpg.PostgresError) and not isinstance(error, _POOLER)
                meaning = translated(error)
                if meaning is error:
                    raise
                raise meaning from error
            else:
                return rows
            finally:
                self.transactions += 1
                self.statements += 1
                self._put_back(connection, is_whole=is_whole)

    @asynccontextmanager
    async def alone(self, statement_s: float) -> AsyncIterator[Session]:
        """Yield a new connection whose statements are transactions of their own and may wait and take `statement_s`."""
        connection = await self.connect()
        session = Session(connection)
        session.timeout_s = statement_s
        try:
            for setting in ("lock_timeout", "statement_timeout"):
                await session.execute(f"SET {setting} = {statement_s * 1000:.0f}")
            yield session
        except Exception as error:
            meaning = translated(error)
            if meaning is error:
                raise
            raise meaning from error
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Close the idle connections; those in use close when they come back."""
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=CLOSE_TIMEOUT_S)
            except _TROUBLE:
                connection.terminate()

    @asynccontextmanager
    async def _transaction(self, begin: str, wait_s: float) -> AsyncIterator[Session]:
        async with self._slot(wait_s):
            connection = await self._begun(begin)
            session = Session(connection)
            is_whole = False
            try:
                yield session
                await connection.execute("COMMIT")
                is_whole = True
            except Exception as error:
                is_whole = await self._rolled_back(connection)
                if isinstance(error, _POOLER):
                    is_whole = False  # what it remembers of its statements is wrong
                    self.statement_cache = False
                    await self.close()
                meaning = translated(error)
                if meaning is error:
                    raise
                raise meaning from error
            finally:
                # Also on cancellation: the state of a connection that was interrupted is not worth finding out.
                self.transactions += 1
                self.statements += session.statements
                self._put_back(connection, is_whole=is_whole)

    @asynccontextmanager
    async def _slot(self, wait_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("every connection to the database is busy") from None
        try:
            yield
        finally:
            self._slots.release()

    async def _begun(self, begin: str) -> asyncpg.Connection[Row]:
        """Return a connection with an open transaction; one that died while idle costs nobody an answer."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_closed():
                continue
            try:
                await connection.execute(begin)
            except _TROUBLE:
                connection.terminate()
                await self.close()
            except BaseException:
                connection.terminate()
                raise
            else:
                return connection
        connection = await self.connect()
        try:
            await connection.execute(begin)
        except Exception as error:
            connection.terminate()
            raise translated(error) from error
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def connect(self) -> asyncpg.Connection[Row]:
        """Open a connection of its own, outside the pool's count."""
        try:
            return await asyncpg.connect(
                self.url,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S + 5,
                statement_cache_size=500 if self.statement_cache else 0,
                max_cached_statement_lifetime=0,
            )
        except Exception as error:
            raise translated(error) from error

    async def _rolled_back(self, connection: asyncpg.Connection[Row]) -> bool:
        if connection.is_closed():
            return False
        try:
            await connection.execute("ROLLBACK")
        except _TROUBLE:
            return False
        return True

    def _put_back(self, connection: asyncpg.Connection[Row], *, is_whole: bool) -> None:
        if is_whole and not connection.is_closed():
            self._idle.append(connection)
        else:
            connection.terminate()


# A connection that the server dropped while it was idle may answer with any of these, even the last one.
_TROUBLE = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError, asyncpg.InternalClientError)
_POOLER = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
_AGAIN = (
    *_POOLER,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down, restarting, cancelled by a time limit
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that was not promoted yet
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
_NAMES_TAKEN: Final = frozenset({"tokens_name_key", "start_keys_pkey"})


def translated(error: Exception) -> Exception:
    """Return what `error` means to the rest of the program; an error that is not the database's stays itself."""
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name in _NAMES_TAKEN:
        return Again("another control plane took this name a moment ago")
    for kinds, meaning, said in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(said + _sentence(error))
    return error


_MEANINGS: Final[tuple[tuple[Any, type[Exception], str], ...]] = (
    (_AGAIN, Again, ""),
    (asyncpg.LockNotAvailableError, LockedOut, "the database does not answer: "),
    (_AWAY, Unavailable, "the database does not answer: "),
    (asyncpg.InsufficientPrivilegeError, Forbidden, ""),
    (asyncpg.PostgresError, Rejected, ""),
)


def _sentence(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class Listener:
    """A connection of its own that hears notifications on one channel and comes back after any trouble.

    It only ever wakes somebody: what was missed while it was away is found by the backstop poll.

    Args:
        pool: where to connect. channel: a name of ours. heard: is called with each payload.

    """

    PROBE_S: Final = 15.0

    def __init__(self, pool: Pool, channel: str, heard: Callable[[str], None]) -> None:
        self._pool = pool
        self._channel = channel
        self._heard = heard
        self.is_listening = False

    async def run(self) -> None:
        """Listen for ever."""
        pause_s = 0.1
        while True:
            try:
                await self._listen()
            except (Unavailable, Again, *_TROUBLE):
                self.is_listening = False
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2.0)
            else:
                pause_s = 0.1

    async def _listen(self) -> None:
        connection = await self._pool.connect()
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(
                self._channel, lambda _c, _pid, _channel, text: self._heard(str(text))
            )
            self.is_listening = True
            while not gone.is_set():
                try:
                    async with asyncio.timeout(self.PROBE_S):
                        await gone.wait()
                except TimeoutError:
                    # A connection that a firewall forgot says nothing; asking finds it out.
                    await connection.execute("SELECT 1", timeout=5)
        finally:
            self.is_listening = False
            connection.terminate()
