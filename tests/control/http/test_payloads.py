"""What injection and traversal look like, in every parameter of every path: refused or taken literally, and soon (BH-054)."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from conformance.description import document
from control.databases import fresh
from control.engine.planes import sql
from control.http.keyed import BODIES, HELD, Keyed, keyed

INJECTED = (
    "'",
    '" OR 1=1--',
    "id;select pg_sleep(5)",
    "'||(select pg_sleep(5))||'",
    "(case when (select count(*) from tokens) > 0 then 1 else 1/0 end)",
    "%",
    "_",
    "$1",
    "\\",
    "$.a ? (@ > 1)",
    "{a,b}",
)
TRAVERSING = (
    "../x",
    "../../etc/passwd",
    "..%2f",
    "%2e%2e/",
    "....//",
    "/etc/passwd",
    "..\\x",
    ".",
    "..",
    "CON",
    "a\0b",
    "x" * 300,
)
NO_LIMITS = ("0", "-1", "1000000000", "ten", "1e1", "", "9" * 5_000, "0" * 5_000 + "7", "٣")
LARGE = ("2147483648", "999999999999999999", "9223372036854775807", "9223372036854775808")
PAYLOADS = (*INJECTED, *TRAVERSING, *NO_LIMITS, *LARGE)
MANY = 10_000
SLOW_S = 4.0  # what sleeps in the database sleeps for five
OF_SQL = re.compile(
    r"\bSELECT\b|\bFROM\b|\bWHERE\b|syntax|asyncpg|relation|column|\bpg_|Traceback|passwd|\$[0-9]"
)
FILTERS = ("status", "parent", "current_state", "token", "state", "reason", "task")
LISTS = ("/tokens", "/tasks", "/questions", "/supervisors", "/queues")


def described() -> Iterator[tuple[str, str, str, str]]:
    """Every parameter of the description: method, path, where it stands, name."""
    shared = document()["components"]["parameters"]
    for path, operations in document()["paths"].items():
        for method in operations.keys() - {"parameters"}:
            operation = operations[method]
            for each in [*operations.get("parameters", ()), *operation.get("parameters", ())]:
                found = shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
                yield method.upper(), path, found["in"], found["name"]


PARAMETERS = sorted(set(described()))


@dataclass
class There:
    """A server, and a name for each part of a path that leads to something."""

    plane: Keyed
    names: dict[str, Any]

    def ask(self, method: str, target: str, **headers: str) -> tuple[int, str]:
        """Send a request line as it stands; return status and text of the answer, which was there soon."""
        at = urlsplit(self.plane.url)
        connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=30)
        said = BODIES.get(target.partition("?")[0].rpartition("/")[2], HELD)
        body = None if method == "GET" else json.dumps(said)
        began = time.monotonic()
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert time.monotonic() - began < SLOW_S, target[:200]
        return answer.status, text

    def path(self, path: str, **instead: str) -> str:
        for name, value in self.names.items():
            path = path.replace(f"{{{name}}}", instead.get(name, str(value)))
        return path


@pytest.fixture(scope="module")
def there(postgres: str, migrated_template: str) -> Iterator[There]:
    with fresh(postgres, migrated_template) as database, keyed(database) as plane:
        for name in ("A", "B"):
            assert plane.ask("POST", "/tokens", None, json={"token": name}).status_code == 201
        claim = {"supervisor": "box", "instance": "i", "states": ["coding"]}
        task = plane.ask("POST", "/tasks/claim", None, json=claim).json()["task"]
        asked = plane.ask("POST", f"/tasks/{task}/questions", None, json=BODIES["questions"]).json()
        names = {"token": "A", "task": task, "question": asked["question"], "event": "again", "name": "go"}
        yield There(plane, names)


def shown(text: str, payload: str) -> str:
    """An answer without what it repeats of the payload."""
    for said in (payload, payload[:128], payload[:40], json.dumps(payload)[1:-1]):
        text = text.replace(said, "") if said else text
    return text


def judge(place: str, name: str, payload: str, answer: tuple[int, str]) -> None:
    status, text = answer
    told = f"{name}={payload[:80]!r}: {status} {text[:300]}"
    assert status < 500, told
    if status == 400 and text == "Invalid HTTP request received.":
        return  # the web server's own word on a line of more than 64 kB
    if status >= 400:
        assert OF_SQL.search(shown(text, payload)) is None, told
        assert json.loads(text)["code"], told
    elif place == "query" and name in FILTERS:
        entries = json.loads(text)
        assert (entries if isinstance(entries, list) else entries["entries"]) == [], told


@pytest.mark.parametrize(("method", "path", "place", "name"), PARAMETERS)
def test_a_payload_is_refused_or_matches_only_itself(
    there: There, method: str, path: str, place: str, name: str
) -> None:
    """BH-054, BH-056: each in each parameter, as a value and as a part of the path."""
    for payload in PAYLOADS:
        encoded = quote(payload, safe="")
        if place == "path":
            answer = there.ask(method, there.path(path, **{name: encoded}))
        elif place == "query":
            answer = there.ask(method, f"{there.path(path)}?{name}={encoded}")
        else:
            heard = payload.encode("ascii", "ignore").decode().replace("\0", "")
            answer = there.ask(method, there.path(path), **{name: heard})
        judge(place, name, payload, answer)
        if name == "limit":
            assert (answer[0], json.loads(answer[1])["code"]) == (422, "invalid_argument"), payload[:80]
        if place == "path" and name != "name" and payload.lstrip("0") != "7":
            assert answer[0] in (404, 405, 409, 422, 307), (payload[:80], answer)


@pytest.mark.parametrize(
    ("path", "name"), sorted({(path, name) for _, path, place, name in PARAMETERS if place == "query"})
)
def test_ten_thousand_values_of_a_filter_are_soon_refused_or_answered(
    there: There, path: str, name: str
) -> None:
    """BH-054: one after the other, and in one value."""
    values = [f"v{number}" for number in range(MANY)]
    for query in (urlencode([(name, value) for value in values]), urlencode({name: ",".join(values)})):
        judge("query", name, ",".join(values), there.ask("GET", f"{there.path(path)}?{query}"))


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("name", ["sort", "order", "order_by", "search", "q", "filter", "offset", "page"])
def test_what_a_list_does_not_know_changes_nothing(there: There, path: str, name: str) -> None:
    """BH-054: no list is sorted by what a client says."""
    plain = re.sub(r'"as_of":"[^"]*"|"oldest_wait_s":[0-9.e-]+', "", there.ask("GET", path)[1])
    for payload in INJECTED:
        status, text = there.ask("GET", f"{path}?{name}={quote(payload, safe='')}")
        assert (status, re.sub(r'"as_of":"[^"]*"|"oldest_wait_s":[0-9.e-]+', "", text)) == (200, plain)


@pytest.mark.parametrize("target", ["/../../etc/passwd", "/tokens/../../etc/passwd", "/tokens/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd",
                                    "/....//....//etc/passwd", "//etc/passwd", "/tokens/A/history/../../../etc/passwd", "/\\..\\etc\\passwd", "/metrics/../x",
                                    "/tasks/1/log%2f..%2f..%2fx", "/workflow%00.json", "/" + "a/" * 5_000])  # fmt: skip
def test_no_path_leads_out_of_the_api(there: There, target: str) -> None:
    """BH-054."""
    status, text = there.ask("GET", target)
    assert 300 <= status < 500, (status, text[:200])
    assert "root:" not in text


def test_nothing_was_run_and_what_was_stored_is_what_was_sent(there: There) -> None:
    """BH-054: the tables are there, with the rows of before, and a signal's name is its text."""
    sent = [payload for payload in INJECTED if "/" not in payload]
    for payload in sent:
        status, text = there.ask("POST", f"/tokens/B/signals/{quote(payload, safe='')}")
        assert status < 400, (payload, text)

    def column(statement: str) -> list[str]:
        return [row[0] for row in asyncio.run(sql(there.plane.database, statement))]

    assert set(column("SELECT name FROM signals")) >= set(sent)
    assert column("SELECT name FROM tokens ORDER BY id") == ["A", "B"]
