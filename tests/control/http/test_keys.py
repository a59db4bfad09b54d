"""Who is let in and what a role may do (S1-120, C19, BH-036, BH-055): over real HTTP, on a real database."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx
import pytest
from control.http.keyed import GONE, Keyed, make_key, path_of, revoke

from stateous_control.http import limiting, rights
from stateous_control.http.routes import ROUTES
from stateous_control.rules.access import RIGHTS, Right, Role


@pytest.mark.parametrize("path", ["/tokens", "/tokens/", "/nowhere", "/metrics", "/workflow", "/tasks/claim"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic c3RrOng="},
        {"Authorization": f"Bearer stk_000000000000_{'x' * 43}"},
    ],
)
def test_without_a_valid_key_everything_is_the_same_401(
    plane: Keyed, path: str, headers: dict[str, str]
) -> None:
    """C19: before shape, method, path or body are looked at; one shape for every reason."""
    answer = httpx.request("DELETE", plane.url + path, headers=headers, content=b"{", timeout=5)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="stateous"'
    assert answer.json() == {
        "error": "a valid key is needed, as in 'Authorization: Bearer KEY'", "code": "unauthorized",
    }  # fmt: skip


def test_a_key_in_the_query_is_no_key(plane: Keyed) -> None:
    """BH-055."""
    key = plane.key("admin", "default")
    for name in ("key", "token", "access_token", "authorization"):
        assert httpx.get(f"{plane.url}/tokens", params={name: key}).status_code == 401


def test_two_authorization_headers_are_no_key(plane: Keyed) -> None:
    key = plane.key("admin", "default")
    headers = [("Authorization", f"Bearer {key}")] * 2
    assert httpx.get(f"{plane.url}/tokens", headers=headers).status_code == 401


def test_the_secret_part_of_a_key_counts(plane: Keyed) -> None:
    key = plane.key("viewer", "a")
    changed = key[:-1] + ("a" if key[-1] != "a" else "b")
    assert plane.ask("GET", "/tokens", changed).status_code == 401


def test_health_and_ready_ask_for_no_key_and_say_that_the_rest_does(plane: Keyed) -> None:
    health = plane.ask("GET", "/health", None)
    assert "auth" in health.json()["features"]
    assert plane.ask("GET", "/ready", None).status_code == 200


def test_a_revoked_key_is_refused_once_the_keys_are_read_again(plane: Keyed) -> None:
    key = plane.make("short", "viewer", "a")
    assert plane.ask("GET", "/tokens", key).status_code == 200
    revoke(plane.database, "short")
    plane.read_keys()
    assert plane.ask("GET", "/tokens", key).status_code == 401


def test_an_expired_key_is_refused_to_the_moment(plane: Keyed) -> None:
    key = plane.make("brief", "viewer", "a", expires_s=0.5)
    assert plane.ask("GET", "/tokens", key).status_code == 200
    deadline = time.monotonic() + 5
    while plane.ask("GET", "/tokens", key).status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_claim_that_waits_is_given_nothing_after_its_key_was_revoked(plane: Keyed) -> None:
    """BH-036: a revocation holds for what is under way, too."""
    key = plane.make("waiting", "supervisor", "w")
    asked: list[int] = []

    async def claim() -> None:
        async with httpx.AsyncClient(timeout=10) as http:
            body = {"supervisor": "box", "instance": "i", "states": ["coding"], "wait": 3}
            waiting = asyncio.create_task(
                http.post(f"{plane.url}/tasks/claim", json=body, headers={"Authorization": f"Bearer {key}"})
            )
            while plane.plane._claims.waiting == 0:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(revoke, plane.database, "waiting")
            await asyncio.to_thread(plane.read_keys)
            await asyncio.to_thread(plane.start, "W-1", "w")
            asked.append((await waiting).status_code)

    asyncio.run(claim())
    assert asked == [204]


@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_look_that_waits_ends_when_its_key_does(plane: Keyed, is_revoked: bool) -> None:
    """BH-036: revoked or expired, a wait of 25 seconds tells nothing any more, long before it is over."""
    plane.start(f"V-{is_revoked}", "v")
    task = plane.claim("v")["task"]
    name = f"looking-{is_revoked}"
    more = {} if is_revoked else {"expires_s": 2.0}
    key = plane.make(name, "viewer", "v", **more)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(
            httpx.get,
            f"{plane.url}/tasks/{task}?wait=25",
            headers={"Authorization": f"Bearer {key}"},
            timeout=40,
        )
        while task not in plane.plane._watching._waiting:
            assert not looking.done(), looking.result().text
            time.sleep(0.01)
        if is_revoked:
            revoke(plane.database, name)
            plane.read_keys()
        answer = looking.result()
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert time.monotonic() - began < 20


def test_an_operator_reports_from_outside_and_for_no_supervisor(plane: Keyed) -> None:
    """A.6: an outcome that names no supervisor, event or failed, for a task that is claimed or waits."""
    plane.start("O-1", "o")
    task = plane.claim("o")["task"]
    said = {"kind": "event", "event": "coded"}
    operator, viewer, other = plane.key("operator", "o"), plane.key("viewer", "o"), plane.key("operator", "p")

    def report(key: str, **more: Any) -> httpx.Response:
        return plane.ask("POST", f"/tasks/{task}/report", key, json=said | more)

    assert [report(key).status_code for key in (viewer, other)] == [403, 404]
    for instance in ({}, {"instance": "i"}):
        refused = report(operator, supervisor="box", attempt=1, **instance)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert report(operator, kind="waiting").json()["code"] == "task_not_held"
    assert report(operator).json()["state"] == "testing"
    beat = {"supervisor": "box", "instance": "i", "tasks": [task]}
    assert plane.ask("POST", "/tasks/heartbeat", plane.key("supervisor", "o"), json=beat).json()["lost"] == [
        task
    ]


def test_a_new_key_is_taken_at_once(plane: Keyed) -> None:
    key = make_key(plane.database, "fresh", "viewer", "a")
    plane.plane.keyring._read_at -= 1.0  # longer ago than the last look at the keys may be
    assert plane.ask("GET", "/tokens", key).status_code == 200


def test_failures_are_limited_by_address_and_valid_keys_are_not(
    plane: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiting, "PER_S", 0.001)  # a bucket that fills slower than any box sends
    statuses = [plane.ask("GET", "/tokens", "guess").status_code for _ in range(limiting.BURST + 5)]
    limited = plane.ask("GET", "/tokens", None)
    assert statuses[0] == 401
    assert statuses[-1] == limited.status_code == 429
    assert limited.json()["code"] == "too_many_failures"
    assert int(limited.headers["retry-after"]) >= 1
    assert plane.ask("GET", "/tokens", plane.key("viewer", "a")).status_code == 200
    assert plane.ask("GET", "/health", None).status_code == 200


# Roles.


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("method", "path"), [(m, path) for path, handlers in ROUTES for m in handlers])
def test_a_role_may_do_what_it_is_for_and_a_refusal_looks_at_no_row(
    plane: Keyed, role: Role, method: str, path: str
) -> None:
    """S1-120: 403 depends on the role and the route alone, so it is the same for every id."""
    if path in rights.OPEN_PATHS:
        return
    filled = path_of(path, token="none", task=GONE)
    answer = plane.ask(method, filled, plane.key(role, "roles"), content=b"{}")
    is_allowed = rights.right_of(method, path) in RIGHTS[role]
    assert (answer.status_code == 403) is not is_allowed
    if not is_allowed:
        assert answer.json()["code"] == "forbidden"


def test_every_route_says_which_right_it_asks_for() -> None:
    """A route that is not in the table is for admins only; that is safe, and never meant."""
    left_out = [
        (method, path)
        for path, handlers in ROUTES
        for method in handlers
        if path not in rights.OPEN_PATHS and rights.right_of(method, path) is Right.RULE
    ]
    assert left_out == []


def test_a_path_that_is_not_there_is_404_for_every_role(plane: Keyed) -> None:
    for role in Role:
        assert plane.ask("GET", "/nowhere", plane.key(role, "roles")).json()["code"] == "not_found"
        assert plane.ask("GET", "/tokens/", plane.key(role, "roles")).status_code == 404


# The key is nowhere.


def test_a_key_is_in_no_row_of_the_database(plane: Keyed) -> None:
    """BH-055: of a key the database holds a digest; the text is in no table at all."""
    key = plane.key("operator", "canary")
    plane.start("Canary", "canary")
    secret = key.rsplit("_", 1)[-1] if key.count("_") == 2 else key[17:]

    async def search() -> list[str]:
        connection = await asyncpg.connect(plane.database)
        try:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            return [
                table
                for (table,) in tables
                for row in await connection.fetch(f"SELECT t::text AS text FROM {table} t")
                if secret in row["text"]
            ]
        finally:
            await connection.close()

    assert asyncio.run(search()) == []


def test_no_answer_repeats_a_key(plane: Keyed) -> None:
    key = plane.key("admin", "default")
    for path in ("/tokens", "/supervisors", "/queues", "/metrics", "/health", "/workflow", "/nowhere"):
        answer = plane.ask("GET", path, key)
        assert key not in answer.text + str(answer.headers)
