"""The command ``token start-many``: starts what the lines of a file name, many in one request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.screen import clean, document, remark, say
from stateous_control.cli.steering import also

if TYPE_CHECKING:
    from stateous_control.cli.client import Client

_LINES_AT_ONCE = 500
_BYTES_AT_ONCE = 4 * 1_048_576


def start_many(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON object a line; - is stdin.")],
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> int:
    """Start a token for each line of FILE: {"token": "T-1", "context": {}, "key": "k"}. Those that exist stay."""
    from stateous_control.cli.client import connected

    results: list[dict[str, Any]] = []
    with connected(url, key_file) as client, ExitStack() as stack:
        for starts in _portions(_lines(file, stack)):
            results += _start(client, starts)
    refused = [each for each in results if each["status"] >= 400]
    if as_json:
        document({"results": results})
    else:
        for each in refused:
            remark(clean(f"{each.get('token', '-')}: {each['error']}"))
        new = sum(each["status"] == 201 for each in results)
        say(f"{new:,} started, {len(results) - new - len(refused):,} were there, {len(refused):,} refused")
    return Exit.FAILED if refused else Exit.OK


def _start(client: Client, starts: list[Any]) -> list[dict[str, Any]]:
    """Start some tokens. They are not sent twice: the count of those that are new would be wrong."""
    try:
        results: list[dict[str, Any]] = client.post("/starts", {"starts": starts}).value["results"]
    except Failure as failure:
        if not failure.may_be_heard:
            raise
        raise also(
            failure,
            f"whether {len(starts):,} of the file were started is not known: "
            "the same command again starts none of them twice",
        ) from None
    return results


def _lines(file: Path, stack: ExitStack) -> Iterator[tuple[Any, int]]:
    from msgspec import Raw
    from stateous_contract.scan import Malformed, NotAnObject, read, read_object

    try:
        source = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        for number, line in enumerate(source, 1):
            if line.strip():
                try:
                    read_object(line.strip())
                except (Malformed, NotAnObject) as error:
                    raise Failure(
                        Exit.BAD_FILE, f"{file}: line {number} is no JSON object: {error}"
                    ) from None
                yield Raw(read(line.strip())[0]), len(line)
    except OSError as error:
        raise Failure(Exit.BAD_FILE, f"{file} cannot be read: {error.strerror}") from None


def _portions(lines: Iterator[tuple[Any, int]]) -> Iterator[list[Any]]:
    portion: list[Any] = []
    size = 0
    for line, length in lines:
        if portion and (len(portion) == _LINES_AT_ONCE or size + length > _BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += length
    if portion:
        yield portion
