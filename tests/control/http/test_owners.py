"""What exists for whom (S1-117 … S1-122, C19): over real HTTP, on a real database."""

from __future__ import annotations

import pytest
from control.http.keyed import BODIES, GONE, QUESTION, TASK, Keyed, path_of, seen

from stateous_control.http import rights
from stateous_control.http.routes import ROUTES
from stateous_control.rules.access import Right


def routes_with(placeholder: str) -> list[tuple[str, str]]:
    return [(method, path) for path, handlers in ROUTES for method in handlers if placeholder in path]


ID_ROUTES = [route for route in routes_with("{") if rights.right_of(*route) is not Right.RULE]


@pytest.mark.parametrize(("method", "path"), ID_ROUTES)
def test_what_is_not_yours_does_not_exist(plane: Keyed, method: str, path: str) -> None:
    """S1-117, S1-118, S1-119, S1-120, S1-121: every route with an id, the same bytes and headers for both."""
    role = "supervisor" if rights.right_of(method, path) in (Right.WORK, Right.REPORT) else "operator"
    body = BODIES.get(path.rsplit("/", 1)[-1], {})
    answers = []
    for token, task in (("B-1", TASK), ("Z-1", GONE)):
        more = {"json": body} if method != "GET" else {}
        answer = plane.ask(method, path_of(path, token=token, task=task), plane.key(role, "a"), **more)
        answers.append(seen(answer, token if "{token}" in path else str(task)[1:]))
    assert answers[0][0] == 404
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("method", "path"), ID_ROUTES)
def test_a_foreign_task_is_not_found_before_what_stands_in_the_body_is_judged(
    plane: Keyed, method: str, path: str
) -> None:
    """S1-122: neither a stale generation or attempt nor an event that is not allowed shows that the row is there."""
    role = "supervisor" if rights.right_of(method, path) in (Right.WORK, Right.REPORT) else "operator"
    stale = {"expected_generation": 1, "attempt": 99, "event": "unheard_of", "payload": {"no": "such"}}
    body = BODIES.get(path.rsplit("/", 1)[-1], {}) | stale
    filled = path_of(path, token="B-1", task=TASK, event="unheard_of")
    answer = plane.ask(method, filled, plane.key(role, "a"), **({"json": body} if method != "GET" else {}))
    assert answer.status_code == 404


CHANGES = [
    *(f"/tasks/{TASK}/{verb}" for verb in ("pause", "resume", "cancel", "retry")),
    f"/questions/{QUESTION}/answer",
    f"/tasks/{TASK}/signals/go",
]


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("body", [{"actor": 7}, {"expected_generation": "new", "actor": ""}, [1]])
def test_a_body_that_no_change_could_have_shows_nothing_either(plane: Keyed, path: str, body: object) -> None:
    """S1-122: its owner is told what is wrong with it, others that nothing is there."""
    assert plane.ask("POST", path, plane.key("operator", "a"), json=body).status_code == 404
    assert plane.ask("POST", path, plane.key("operator", "b"), json=body).status_code in (400, 422, 428)


def test_the_owner_may_do_all_of_it(plane: Keyed) -> None:
    """S1-117: the matrix above means something only if the same requests succeed for the owner."""
    assert plane.ask("GET", "/tokens/B-1", plane.key("viewer", "b")).status_code == 200
    assert plane.ask("GET", "/tokens/B-1/history", plane.key("viewer", "b")).status_code == 200
    for path in (
        f"/tasks/{TASK}",
        f"/tasks/{TASK}/log",
        f"/tasks/{TASK}/checkpoints",
        f"/questions/{QUESTION}",
    ):
        assert plane.ask("GET", path, plane.key("viewer", "b")).status_code == 200
    note = plane.ask("POST", f"/tasks/{TASK}/note", plane.key("supervisor", "b"), json=BODIES["note"])
    assert note.status_code == 204


def test_a_question_is_answered_by_its_owner_alone_and_the_answer_bears_the_keys_name(plane: Keyed) -> None:
    """S1-118, S1-121: who answered is who the key says, whatever the request says."""
    current = plane.ask("GET", f"/questions/{QUESTION}", plane.key("viewer", "b")).json()
    body = {"answer": "yes", "actor": "somebody-else", "expected_generation": current["generation"]}
    path = f"/questions/{QUESTION}/answer"
    assert plane.ask("POST", path, plane.key("operator", "a"), json=body).status_code == 404
    answered = plane.ask("POST", path, plane.key("operator", "b"), json=body)
    assert (answered.status_code, answered.json()["answered_by"]) == (200, "operator-b")


def test_lists_of_tasks_and_questions_hold_only_what_is_yours(plane: Keyed) -> None:
    """S1-121."""
    for path in ("/tasks", "/questions", "/tasks?token=B-1", "/questions?token=B-2"):
        mine = plane.ask("GET", path, plane.key("viewer", "nobody-at-all")).json()
        assert (mine["total_count"], mine["entries"]) == (0, [])
    assert plane.ask("GET", "/questions?token=B-2", plane.key("viewer", "b")).json()["total_count"] == 1


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
