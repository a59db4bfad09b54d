"""The commands ``key …``: who may ask the control plane. Straight on its database: the first key comes from here.

A key is shown once, on stdout, when it is made; the database has a digest of it. Works while `serve` runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from stateous_control.cli import databases
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import AsJson, Data, Database, DatabaseFile
from stateous_control.cli.screen import clean, document, remark, say, table

if TYPE_CHECKING:
    from stateous_control.store.keys import MadeKey
    from stateous_control.store.pool import Pool

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke keys for the control plane.")

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_DURATION: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_EXPIRES_S_MAX: Final = 3_650 * 86_400
Result = TypeVar("Result")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key goes by in records; for a person, who they are.")],
    role: Annotated[str, typer.Option(help="supervisor, operator, viewer or admin.")],
    owner: Annotated[
        list[str] | None, typer.Option(help="Whose tokens it is for; may be repeated. Default: default.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Of a supervisor: a state that it may serve; may be repeated. Default: all."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it lasts, as in 90d or 12h. Default: for ever."),
    ] = None,
    data: Data = None,
    database: Database = None,
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it: once, now, and never again."""
    from stateous_control.rules.access import DEFAULT_OWNER, OWNER, Role
    from stateous_control.store import keys

    if NAME.fullmatch(name) is None:
        raise Failure(Exit.USAGE, "a key's name has 1 to 64 letters, digits, '.', '_', '-' and '@'")
    if role not in list(Role):
        raise Failure(Exit.USAGE, f"--role is '{role}'; it must be one of: {', '.join(Role)}")
    owners = owner or [DEFAULT_OWNER]
    if not all(OWNER.fullmatch(each) for each in owners):
        raise Failure(Exit.USAGE, "--owner must be 1 to 64 small letters, digits, '.', '_' or '-'")
    if state and role != Role.SUPERVISOR:
        raise Failure(Exit.USAGE, "--state is for the role supervisor only")
    expires_s = None if expires is None else _seconds(expires)

    async def work(pool: Pool) -> MadeKey | None:
        return await keys.make_key(
            pool, name, Role(role), owners=owners, states=state or None, expires_s=expires_s
        )

    made = _on_database(work, data, database, database_file)
    if made is None:
        raise Failure(Exit.REFUSED, f"there is a key '{name}' already; revoke it first, or take another name")
    if as_json:
        document(
            {"key": made.text, "id": made.id, "name": name, "role": role, "owners": sorted(set(owners)),
             "states": state or None, "expires_at": _stamp(made.expires_at)}
        )  # fmt: skip
        return
    remark(f"the key of '{name}', shown this once; control planes that run take it within a few seconds:")
    say(made.text)


@app.command("list")
def list_(
    data: Data = None, database: Database = None, database_file: DatabaseFile = None, as_json: AsJson = False
) -> None:
    """List all keys, also those that are revoked or expired. The keys themselves are nowhere."""
    from stateous_control.store import keys

    rows = _on_database(keys.list_keys, data, database, database_file)
    found = [{key: _stamp(value) for key, value in row.items()} for row in rows]
    if as_json:
        document({"keys": found})
        return
    table(
        ("NAME", "ID", "ROLE", "OWNERS", "STATES", "STATUS", "EXPIRES", "LAST USED"),
        [
            (
                each["name"],
                each["id"],
                each["role"],
                ",".join(each["owners"]),
                ",".join(each["states"] or ["all"]),
                each["status"],
                each["expires_at"] or "never",
                each["last_used_at"] or "never",
            )
            for each in found
        ],
    )


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="The key's name or id.")],
    data: Data = None,
    database: Database = None,
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key, for good. Control planes that run refuse it within a few seconds."""
    from stateous_control.store import keys

    async def work(pool: Pool) -> list[Any]:
        return await keys.revoke_keys(pool, name)

    rows = _on_database(work, data, database, database_file)
    if not rows:
        raise Failure(Exit.REFUSED, f"there is no live key '{clean(name)}'", code="key_not_found")
    if as_json:
        document({"revoked": [dict(row) for row in rows]})
        return
    for row in rows:
        say(f"revoked {row['name']} ({row['id']})")


def _on_database(
    work: Callable[[Pool], Awaitable[Result]],
    data: Any,
    database: str | None,
    database_file: Any,
) -> Result:
    from stateous_control.cli import running

    url = databases.server_url(database, database_file, data, os.environ)
    with databases.joined(url, databases.data_folder(data, os.environ)) as used:
        return running.run(lambda: running.on_schema(used, work))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    seconds = 0 if match is None else int(match[1]) * _UNIT_S[match[2]]
    if not 0 < seconds <= _EXPIRES_S_MAX:
        raise Failure(
            Exit.USAGE, f"--expires is '{text}'; it must be a number and s, m, h or d, 3650d at most"
        )
    return float(seconds)


def _stamp(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value
