"""How people outside are told of a question: a command that gets it on stdin, or a URL that it is posted to, signed.

A command is run without a shell. A URL is asked with a time limit, follows no redirect, and gets
``Stateous-Signature: v1=…``: HMAC-SHA256, with the secret, over the timestamp, a dot and the body. Trying again is the
engine's business.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import os
import shlex
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.files import read_bytes
from stateous_control.engine.telling import Deliver, NotDelivered

TIME_S_MAX: Final = 30.0
SECRET_BYTES_MIN: Final = 16
_OURS: Final = ("STATEOUS_", "PG")


def teller(target: str, secret_file: Path | None) -> Deliver:
    """Return what delivers to `target`, a command line or an http(s) URL. Raises `Failure` where that cannot work."""
    if target.startswith(("http://", "https://")):
        return _to_url(target, _secret(secret_file))
    try:
        command = shlex.split(target)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--on-question is no command line: {error}") from None
    if not command or shutil.which(command[0]) is None:
        raise Failure(Exit.USAGE, f"--on-question is {target!r}; there is no such program, and it is no URL")
    return _to_command(command)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what a receiver compares: ``v1=`` and hexadecimal digits."""
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={digest.hexdigest()}"


def _secret(file: Path | None) -> bytes:
    if file is None:
        raise Failure(Exit.USAGE, "--on-question with a URL needs --on-question-secret-file, to sign with")
    secret = read_bytes(file).strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise Failure(
            Exit.BAD_FILE, f"{file} holds {len(secret)} bytes; a secret has {SECRET_BYTES_MIN} or more"
        )
    return secret


def _to_command(command: list[str]) -> Deliver:
    # What opens the database or this API is nothing for a command that only tells somebody.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}

    async def deliver(notice: bytes) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise NotDelivered(f"{command[0]} could not be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(TIME_S_MAX):
                with suppress(BrokenPipeError, ConnectionResetError):
                    await process.communicate(notice + b"\n")
        except TimeoutError:
            raise NotDelivered(f"{command[0]} took longer than {TIME_S_MAX:.0f} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            raise NotDelivered(f"{command[0]} ended with {process.returncode}")

    return deliver


def _to_url(url: str, secret: bytes) -> Deliver:
    async def deliver(notice: bytes) -> None:
        await asyncio.to_thread(_post, url, secret, notice)

    return deliver


def _post(url: str, secret: bytes, body: bytes) -> None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "Stateous-Timestamp": timestamp,
        "Stateous-Signature": signature(secret, timestamp, body),
    }
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=TIME_S_MAX / 3)
        try:
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotDelivered(f"{parts.hostname} was not reached: {error}") from None
    if not 200 <= status < 300:
        raise NotDelivered(f"{parts.hostname} answered {status}")
