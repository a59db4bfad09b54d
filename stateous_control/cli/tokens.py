"""The commands ``token …``: what a person does with processes, over the same API as everybody else."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stateous_control.cli.digits import written
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.paging import withheld
from stateous_control.cli.screen import clean, coloured, document, remark, say, table

if TYPE_CHECKING:
    from msgspec import Raw

    from stateous_control.cli.client import Client

app = typer.Typer(no_args_is_help=True, help="Start, watch and steer tokens.")

Name = Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id.")]


@app.command()
def start(
    name: Name,
    context: Annotated[str | None, typer.Argument(help="The context, a JSON object.")] = None,
    context_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the context from a file; - is stdin.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the token until it ends.")] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key and token start nothing again.")
    ] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> int:
    """Start a token. A token that exists is left as it is."""
    from stateous_control.cli.client import connected
    from stateous_control.cli.steering import once

    body: dict[str, Any] = {"token": name}
    if context_file is not None:
        context = _read(context_file)
    if context is not None:
        body["context"] = _object(context, "the context")
    with connected(url, key_file) as client:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        send = partial(client.post, "/tokens", body, headers)
        reply = once(send, f"whether {name} was started is not known: see token show {name}")
        if wait:
            return _watch(client, name, as_json=as_json)
    _show_token(reply.text, reply.value, as_json=as_json)
    return Exit.OK


@app.command()
def watch(name: Name, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> int:
    """Follow a token until it ends. Exit 0 when it completed, 1 when it failed or was cancelled."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        return _watch(client, name, as_json=as_json)


def _watch(client: Client, name: str, *, as_json: bool) -> int:
    from stateous_control.cli.following import exit_of, follow
    from stateous_control.cli.story import told

    def show(entry: Any) -> None:
        if not as_json:
            print(told(entry), flush=True)

    token, history = follow(client, name, show)
    if as_json:
        document({"token": token, "history": history})
    return exit_of(token)


@app.command()
def show(name: Name, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show where a token is, and its context."""
    from stateous_control.cli.client import connected, quoted

    with connected(url, key_file) as client:
        reply = client.get(f"/tokens/{quoted(name)}")
    _show_token(reply.text, reply.value, as_json=as_json)
    if as_json:
        return
    say(f"visit {reply.value.get('visit')}, entered at {clean(reply.value.get('entered_at'))}")
    for key, value in (reply.value.get("context") or {}).items():
        say(f"  {clean(key)} = {clean(written(value))}")


@app.command("list")
def list_(
    status: Annotated[
        str | None, typer.Option(help="Only active, paused, completed, failed or cancelled ones.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Only the children of this token.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to show, 1 to 1000.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where an earlier list stopped.")] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, newest first. The last line says how many there are in all."""
    from stateous_control.cli.client import LIST_TYPE, connected

    asked = {"status": status, "parent": parent, "limit": str(limit), "cursor": cursor}
    with connected(url, key_file) as client:
        reply = client.get(
            "/tokens", {key: each for key, each in asked.items() if each is not None}, accept=LIST_TYPE
        )
    page = reply.value if isinstance(reply.value, dict) else None
    if as_json:
        document(reply.text)
        return
    tokens = page["entries"] if page else reply.value
    table(
        ("TOKEN", "STATE", "STATUS", "VISIT", "ENTERED"),
        [[each[key] for key in ("token", "state", "status", "visit", "entered_at")] for each in tokens],
    )
    if page:
        withheld(page)
    elif len(tokens) >= limit:
        remark(f"showing {len(tokens):,}; this control plane does not say whether there are more")


@app.command()
def history(
    name: Name,
    after: Annotated[int, typer.Option(help="Only entries after this number.")] = 0,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show everything that happened to a token, oldest first."""
    from stateous_control.cli.client import connected
    from stateous_control.cli.following import read_history
    from stateous_control.cli.story import told

    with connected(url, key_file) as client:
        entries = read_history(client, name, after=after)
    if as_json:
        document(entries)
        return
    for entry in entries:
        say(told(entry))


@app.command()
def fire(
    name: Name,
    event: Annotated[str, typer.Argument(help="The event.")],
    payload: Annotated[str | None, typer.Argument(help="Its payload, a JSON object.")] = None,
    key: Annotated[
        str | None, typer.Option(help="An idempotency key: with it, firing twice is firing once.")
    ] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Fire an event that moves a token."""
    from stateous_control.cli import steering
    from stateous_control.cli.client import connected

    body = {} if payload is None else {"payload": _object(payload, "the payload")}
    with connected(url, key_file) as client:
        reply = steering.fire(client, name, event, body, key)
    is_duplicate = bool(reply.value.get("duplicate"))
    token = reply.value["token"] if is_duplicate else reply.value
    _show_token(reply.text, token, as_json=as_json, prefix="duplicate: " if is_duplicate else "")


@app.command()
def pause(name: Name, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Stop a token from moving. A routine that runs goes on; its outcome is held."""
    _steer(url, key_file, name, "pause", as_json=as_json)


@app.command()
def resume(name: Name, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Let a paused token move again; held events come first."""
    _steer(url, key_file, name, "resume", as_json=as_json)


@app.command()
def cancel(name: Name, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """End a token for good."""
    _steer(url, key_file, name, "cancel", as_json=as_json)


def _steer(url: str, key_file: Path | None, name: str, action: str, *, as_json: bool) -> None:
    from stateous_control.cli.client import connected
    from stateous_control.cli.steering import steer_token

    with connected(url, key_file) as client:
        reply = steer_token(client, name, action)
    _show_token(reply.text, reply.value, as_json=as_json)


def _show_token(text: str, token: dict[str, Any], *, as_json: bool, prefix: str = "") -> None:
    from stateous_control.cli.story import token_line

    if as_json:
        document(text)
        return
    colour = {"completed": "green", "failed": "red", "cancelled": "red", "paused": "yellow"}
    say(prefix + coloured(token_line(token), colour.get(str(token.get("status")))))


def _object(text: str, what: str) -> Raw:
    """Return a JSON object as the text that was typed, so that its numbers stay as they are."""
    from msgspec import Raw
    from stateous_contract.scan import Malformed, NotAnObject, read, read_object

    try:
        read_object(text.encode("utf-8", "surrogatepass"))
    except NotAnObject:
        raise Failure(Exit.USAGE, f"{what} must be a JSON object, as in '{{\"key\": 1}}'") from None
    except Malformed as error:
        raise Failure(Exit.USAGE, f"{what} must be a JSON object; {error}") from None
    return Raw(read(text.encode())[0])


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(Exit.BAD_FILE, f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(Exit.BAD_FILE, f"{file} is not UTF-8 text") from None
