"""Who is let in, and what exists for whom (S1-117 … S1-122, C19, BH-055): over real HTTP, on a real database."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import pytest
from control.databases import fresh, run_sql
from control.http.keyed import Keyed, keyed, make_key, revoke

from stateous_control.http import limiting, rights
from stateous_control.http.routes import ROUTES
from stateous_control.rules.access import RIGHTS, Right, Role

TASK = 7_000_001
GONE = 7_999_999
HELD: dict[str, Any] = {"supervisor": "box", "instance": "i", "attempt": 1}
DECIDED: dict[str, Any] = {"run": "r", "node": None, "visited": [], "bindings": {}}
BODIES: dict[str, dict[str, Any]] = {
    "report": {"kind": "event", "event": "coded", "supervisor": "box", "instance": "i", "attempt": 1},
    "note": {"text": "hello", "attempt": 1},
    "memory": {"key": "k", "value": 1, "attempt": 1},
    "checkpoints": HELD | {"step": "s", "occurrence": 1, "value": 1},
    "questions": HELD | {"key": "k", "occurrence": 1, "data": 1, "ttl_s": 60, "locked_decisions": DECIDED},
    "park": HELD | {"wait": {"kind": "pause"}, "locked_decisions": DECIDED},
    **dict.fromkeys(("pause", "resume", "cancel", "retry"), {"expected_generation": 2}),
    "answer": {"answer": 1, "expected_generation": 2},
}


@pytest.fixture(scope="module")
def one_plane(postgres: str, migrated_template: str) -> Iterator[Keyed]:
    with fresh(postgres, migrated_template) as database:
        run_sql(database, f"ALTER SEQUENCE task_ids RESTART {TASK}")
        make_key(database, "first", "admin")
        with keyed(database) as plane:
            plane.start("B-1", "b")
            grant = plane.claim("b")
            assert (grant["task"], grant["owner"]) == (TASK, "b")
            plane.start("A-1", "a")
            yield plane


@pytest.fixture
def plane(one_plane: Keyed) -> Keyed:
    one_plane.door.failures = limiting.FailureLimit()
    return one_plane


def seen(answer: httpx.Response, name: str) -> tuple[Any, ...]:
    """All of an answer that a caller can tell apart, with the id that it asked for blotted out."""
    headers = {key: value for key, value in answer.headers.items() if key != "date"}
    return answer.status_code, answer.text.replace(name, "ID"), sorted(headers.items())


def routes_with(placeholder: str) -> list[tuple[str, str]]:
    return [(method, path) for path, handlers in ROUTES for method in handlers if placeholder in path]


ID_ROUTES = [route for route in routes_with("{") if rights.right_of(*route) is not Right.RULE]


@pytest.mark.parametrize(("method", "path"), ID_ROUTES)
def test_what_is_not_yours_does_not_exist(plane: Keyed, method: str, path: str) -> None:
    """S1-117, S1-118, S1-119, S1-120, S1-121: every route with an id, the same bytes and headers for both."""
    role = "supervisor" if rights.right_of(method, path) is Right.WORK else "operator"
    body = BODIES.get(path.rsplit("/", 1)[-1], {})
    answers = []
    for token, task in (("B-1", TASK), ("Z-1", GONE)):
        filled = path.replace("{token}", token).replace("{task:digits}", str(task))
        filled = re.sub(r"\{[a-z:]+\}", "coded", filled)
        more = {"json": body} if method != "GET" else {}
        answer = plane.ask(method, filled, plane.key(role, "a"), **more)
        answers.append(seen(answer, token if "{token}" in path else str(task)))
    assert answers[0][0] == 404
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("method", "path"), ID_ROUTES)
def test_a_foreign_task_is_not_found_before_what_stands_in_the_body_is_judged(
    plane: Keyed, method: str, path: str
) -> None:
    """S1-122: neither a stale generation or attempt nor an event that is not allowed shows that the row is there."""
    role = "supervisor" if rights.right_of(method, path) is Right.WORK else "operator"
    stale = {"expected_generation": 1, "attempt": 99, "event": "unheard_of", "payload": {"no": "such"}}
    body = BODIES.get(path.rsplit("/", 1)[-1], {}) | stale
    filled = path.replace("{token}", "B-1").replace("{task:digits}", str(TASK))
    filled = re.sub(r"\{[a-z:]+\}", "unheard_of", filled)
    answer = plane.ask(method, filled, plane.key(role, "a"), **({"json": body} if method != "GET" else {}))
    assert answer.status_code == 404


def test_the_owner_may_do_all_of_it(plane: Keyed) -> None:
    """S1-117: the matrix above means something only if the same requests succeed for the owner."""
    assert plane.ask("GET", "/tokens/B-1", plane.key("viewer", "b")).status_code == 200
    assert plane.ask("GET", "/tokens/B-1/history", plane.key("viewer", "b")).status_code == 200
    note = plane.ask("POST", f"/tasks/{TASK}/note", plane.key("supervisor", "b"), json=BODIES["note"])
    assert note.status_code == 204


def test_one_owners_name_is_free_for_another(plane: Keyed) -> None:
    plane.start("Same", "a")
    plane.start("same", "b")
    assert plane.ask("GET", "/tokens/Same", plane.key("viewer", "a")).json()["token"] == "Same"
    assert plane.ask("GET", "/tokens/same", plane.key("viewer", "b")).json()["token"] == "same"
    assert plane.ask("GET", "/tokens/same", plane.key("viewer", "a")).status_code == 404


def test_lists_hold_only_what_is_yours_and_count_only_that(plane: Keyed) -> None:
    """S1-117 for lists: neither entries nor counts tell of others."""
    page = {"Accept": "application/vnd.stateous.v1+json"}
    plane.start("L-1", "lister")
    for path in ("/tokens", "/tokens?status=active"):
        listed = plane.ask("GET", path, plane.key("viewer", "lister"))
        assert [each["token"] for each in listed.json()] == ["L-1"]
        assert "owner" not in listed.json()[0]
    paged = plane.ask("GET", "/tokens?limit=1", plane.key("viewer", "lister"), headers=page).json()
    assert (paged["total_count"], paged["withheld_count"]) == (1, 0)


def test_a_key_of_several_owners_names_one_for_a_token_and_sees_whose_each_is(plane: Keyed) -> None:
    key = plane.key("operator", "a", "b")
    unnamed = plane.ask("GET", "/tokens/A-1", key)
    assert (unnamed.status_code, unnamed.json()["code"]) == (422, "invalid_argument")
    assert plane.ask("GET", "/tokens/A-1?owner=a", key).status_code == 200
    assert plane.ask("GET", "/tokens/A-1?owner=b", key).status_code == 404
    owners = {(each["token"], each["owner"]) for each in plane.ask("GET", "/tokens", key).json()}
    assert {("A-1", "a"), ("B-1", "b")} <= owners


def test_an_admin_may_name_any_owner_and_nobody_else_one_that_is_not_theirs(plane: Keyed) -> None:
    admin, operator = plane.key("admin", "default"), plane.key("operator", "a")
    assert plane.ask("GET", "/tokens/B-1?owner=b", admin).status_code == 200
    assert plane.ask("POST", "/tokens?owner=z", admin, json={"token": "Z-9"}).status_code == 201
    assert plane.ask("POST", "/tokens?owner=b", operator, json={"token": "X"}).json()["code"] == "forbidden"
    foreign = plane.ask("GET", "/tokens/B-1?owner=b", operator)
    unknown = plane.ask("GET", "/tokens/B-1?owner=nobody", operator)
    assert seen(foreign, "B-1") == seen(unknown, "B-1")
    assert foreign.status_code == 404
    assert plane.ask("GET", "/tokens?owner=b", operator).json() == []
    assert plane.ask("GET", "/tokens?owner=B!", operator).json()["code"] == "invalid_argument"


def test_a_claim_brings_tasks_of_the_keys_owners_only(plane: Keyed) -> None:
    plane.start("C-1", "c")
    body = {"supervisor": "box", "instance": "i", "states": ["coding"], "max": 100}
    assert plane.ask("POST", "/tasks/claim", plane.key("supervisor", "d"), json=body).status_code == 204
    grants = plane.ask("POST", "/tasks/claim", plane.key("supervisor", "c", "d"), json=body).json()["tasks"]
    assert [(each["token"], each["owner"]) for each in grants] == [("C-1", "c")]


def test_another_owners_supervisor_with_the_same_names_gets_nothing_of_a_claim(plane: Keyed) -> None:
    """A request id means something among the same owners only: it neither repeats nor withdraws another's claim."""
    plane.start("R-1", "r")
    plane.claim("r", request="once")
    body = {"supervisor": "box", "instance": "i", "request": "once", "states": ["coding"]}
    stranger = plane.key("supervisor", "s")
    assert plane.ask("POST", "/tasks/claim", stranger, json=body).status_code == 204
    assert plane.ask("POST", "/tasks/claim", stranger, json=body | {"withdraw": True}).status_code == 204
    assert plane.claim("r", request="once")["token"] == "R-1"


def test_heartbeats_and_messages_lose_a_foreign_task_like_one_that_is_not_there(plane: Keyed) -> None:
    """S1-121."""
    key = plane.key("supervisor", "a")
    beat = {"supervisor": "box", "instance": "i", "tasks": [TASK, GONE]}
    answer = plane.ask("POST", "/tasks/heartbeat", key, json=beat).json()
    assert answer["lost"] == [TASK, GONE]
    assert set(answer["causes"].values()) == {"not_found"}
    said = [{"task": task, "attempt": 1, "kind": "note", "text": "x"} for task in (TASK, GONE)]
    body = {"supervisor": "box", "instance": "i", "messages": said}
    first, second = plane.ask("POST", "/tasks/messages", key, json=body).json()["results"]
    assert {**first, "task": 0, "error": first["error"].replace(str(TASK), "")} == {
        **second, "task": 0, "error": second["error"].replace(str(GONE), "")
    }  # fmt: skip
    held = plane.ask("POST", "/tasks/heartbeat", plane.key("supervisor", "b"), json=beat).json()
    assert held["lost"] == [GONE]


def test_a_key_for_some_states_may_not_claim_others_and_may_still_claim_its_own(plane: Keyed) -> None:
    """A-15, BH-036: 403 for one state leaves the claims of the others alone."""
    key = plane.make("coder", "supervisor", "t", states=["coding"])
    plane.start("T-1", "t")
    body = {"supervisor": "box", "instance": "i", "states": ["coding", "testing"]}
    refused = plane.ask("POST", "/tasks/claim", key, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "state_not_allowed")
    grant = plane.ask("POST", "/tasks/claim", key, json=body | {"states": ["coding"]}).json()
    assert grant["token"] == "T-1"
    tester = plane.make("tester", "supervisor", "t", states=["testing"])
    note = plane.ask("POST", f"/tasks/{grant['task']}/note", tester, json=BODIES["note"])
    assert note.json()["code"] == "task_not_found"
    beat = {"supervisor": "box", "instance": "i", "tasks": [grant["task"]]}
    assert plane.ask("POST", "/tasks/heartbeat", tester, json=beat).json()["lost"] == [grant["task"]]
    assert plane.ask("POST", "/tasks/heartbeat", key, json=beat).json()["lost"] == []


def test_supervisors_and_queues_of_others_are_not_shown(plane: Keyed) -> None:
    plane.start("Q-1", "q")
    plane.claim("q")
    plane.start("Q-2", "q")
    plane.run(plane.plane._attendance.write())
    mine, others = plane.key("viewer", "q"), plane.key("viewer", "nobody-else")
    assert [each["running"] for each in plane.ask("GET", "/supervisors", mine).json()["entries"]] == [1]
    assert plane.ask("GET", "/supervisors", others).json()["entries"] == []
    queues = plane.ask("GET", "/queues", mine).json()["entries"]
    assert [(each["depth"], each["running"]) for each in queues] == [(1, 1)]
    assert plane.ask("GET", "/queues", others).json()["entries"] == []
    assert 'state="coding"' not in plane.ask("GET", "/metrics", others).text


# Who is let in.


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


def test_a_new_key_is_taken_at_once(plane: Keyed) -> None:
    time.sleep(0.3)  # longer ago than the last look at the keys may be
    key = make_key(plane.database, "fresh", "viewer", "a")
    assert plane.ask("GET", "/tokens", key).status_code == 200


def test_failures_are_limited_by_address_and_valid_keys_are_not(plane: Keyed) -> None:
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
    filled = re.sub(
        r"\{event\}", "coded", path.replace("{token}", "none").replace("{task:digits}", str(GONE))
    )
    answer = plane.ask(method, re.sub(r"\{[a-z:]+\}", "1", filled), plane.key(role, "roles"), content=b"{}")
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
