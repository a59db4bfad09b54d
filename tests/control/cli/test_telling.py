"""People outside are told of questions: by a command, by a signed post, again when it was in vain, and as a reminder."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from webs import serving_with

from stateous_control.cli.exits import Failure
from stateous_control.cli.telling import teller
from stateous_control.engine.telling import NotDelivered

SECRET = b"0123456789abcdef"


class Receiver(BaseHTTPRequestHandler):
    """Writes down what comes, and answers what it is told to."""

    seen: list[tuple[dict[str, str], bytes]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen.append((dict(self.headers), body))
        self.send_response(type(self).status)
        if type(self).status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[Receiver]]]:
    handler = type("OneReceiver", (Receiver,), {"seen": [], "status": 200})
    with serving_with(handler) as url:
        yield f"{url}/hook?a=1", handler


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    return file


def tell(target: str, secret_file: Path | None = None, notice: bytes = b'{"kind":"question_asked"}') -> None:
    asyncio.run(_tell(target, secret_file, notice))


async def _tell(target: str, secret_file: Path | None, notice: bytes) -> None:
    await teller(target, secret_file)(notice)


def test_a_post_is_signed_over_its_time_and_body(receiver: tuple[str, type[Receiver]], secret: Path) -> None:
    url, handler = receiver
    tell(url, secret)
    ((headers, body),) = handler.seen
    signed = headers["Stateous-Timestamp"].encode() + b"." + body
    assert headers["Stateous-Signature"] == "v1=" + hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
    assert body == b'{"kind":"question_asked"}'


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_no_success_is_not_delivered(
    receiver: tuple[str, type[Receiver]], secret: Path, status: int
) -> None:
    url, handler = receiver
    handler.status = status
    with pytest.raises(NotDelivered, match=f"answered {status}"):
        tell(url, secret)
    assert len(handler.seen) == 1


def test_nobody_there_is_not_delivered(secret: Path) -> None:
    with pytest.raises(NotDelivered, match="was not reached"):
        tell("http://127.0.0.1:9/", secret)


def test_a_command_gets_the_notice_on_stdin_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEOUS_DATABASE_URL", "postgresql://u:hidden@h/d")
    out = tmp_path / "out"
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "open(sys.argv[1], 'w').write(json.dumps([sys.stdin.read(), sys.argv[2:], 'STATEOUS_DATABASE_URL' in os.environ]))\n"
    )
    tell(f"{sys.executable} {script} {out} '$(touch x);' '*'")
    assert json.loads(out.read_text()) == ['{"kind":"question_asked"}\n', ["$(touch x);", "*"], False]


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_command_that_fails_is_not_delivered(tmp_path: Path, code: str) -> None:
    script = tmp_path / "fail.py"
    script.write_text(code)
    with pytest.raises(NotDelivered, match="ended with"):
        tell(f"{sys.executable} {script}")


def test_a_command_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateous_control.cli.telling.TIME_S_MAX", 0.5)
    script = tmp_path / "hang.py"
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(NotDelivered, match="took longer"):
        tell(f"{sys.executable} {script}")


@pytest.mark.parametrize("target", ["no-such-program-here", "'unclosed", ""])
def test_a_target_that_cannot_work_is_refused_at_the_start(target: str) -> None:
    with pytest.raises(Failure):
        teller(target, None)


def test_a_url_needs_a_secret_to_sign_with(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="secret-file"):
        teller("https://example.org/", None)
    (tmp_path / "short").write_text("short")
    with pytest.raises(Failure, match="16 or more"):
        teller("https://example.org/", tmp_path / "short")
