"""A control plane under test, as the suite sees it: a client, and what its ``/health`` says that it can do."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest


@dataclass
class Peer:
    """The fixture of every promise. Names made here are new in each test, and its tokens are cancelled after it."""

    http: httpx.Client
    health: dict[str, Any]
    run: str = field(default_factory=lambda: "p" + secrets.token_hex(5))
    started: list[str] = field(default_factory=list)

    def needs(self, *features: str) -> None:
        """Skip the test unless the peer has each feature.

        ``protocol`` stands for all that goes beyond the baseline, ``parallel`` for a workflow with parallel states.
        """
        offered = {*self.health.get("features", ()), *(("protocol",) if "protocol" in self.health else ())}
        if "parallel" in features and "workflows" in self.http.get("/workflow").json():
            offered.add("parallel")
        for feature in features:
            if feature not in offered:
                pytest.skip(f"this control plane does not offer {feature!r}")

    @property
    def lease_s(self) -> float:
        return float(self.health.get("lease_s", 120.0))

    def start(self, suffix: str = "a", *, path: str = "plain", **context: Any) -> dict[str, Any]:
        """Start a token and return it."""
        name = f"{self.run}-{suffix}"
        body = {"token": name, "context": {"path": path, **context}}
        response = self.http.post("/tokens", json=body)
        assert response.status_code == 201, response.text
        self.started.append(name)
        token: dict[str, Any] = response.json()
        return token

    def claim(self, *states: str, supervisor: str = "s", **more: Any) -> httpx.Response:
        """Send one claim under a name of this test."""
        body = {"supervisor": f"{self.run}-{supervisor}", "states": list(states), **more}
        return self.http.post("/tasks/claim", json=body)

    def report(
        self, task: int, event: str = "noted", *, supervisor: str = "s", attempt: int = 1
    ) -> httpx.Response:
        """Report an event of one task."""
        body = {"kind": "event", "event": event, "attempt": attempt, "supervisor": f"{self.run}-{supervisor}"}
        return self.http.post(f"/tasks/{task}/report", json=body)

    def history(self, suffix: str = "a") -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.http.get(f"/tokens/{self.run}-{suffix}/history").json()
        return entries

    def clean_up(self) -> None:
        for token in self.started:
            self.http.post(f"/tokens/{token}/cancel")


def client(url: str, key: str | None = None) -> httpx.Client:
    """A client that waits longer than any answer is held back, and follows no redirect.

    With a key each request names one owner, so that answers are those of a control plane that has no others.
    """
    if key is None:
        return httpx.Client(base_url=url, timeout=40.0, trust_env=False)
    headers = {"Authorization": f"Bearer {key}"}
    hooks = {"request": [_name_owner]}
    return httpx.Client(base_url=url, timeout=40.0, trust_env=False, headers=headers, event_hooks=hooks)


def _name_owner(request: httpx.Request) -> None:
    request.url = request.url.copy_merge_params({"owner": "default"})


@pytest.fixture(scope="module")
def control_plane_key() -> str | None:
    """The key to show: of an admin called ``ann``. None for a control plane without keys."""
    return os.environ.get("STATEOUS_KEY")


@pytest.fixture(scope="module")
def conformance_client(control_plane: str, control_plane_key: str | None) -> Iterator[httpx.Client]:
    with client(control_plane, control_plane_key) as http:
        yield http


@pytest.fixture
def peer(conformance_client: httpx.Client) -> Iterator[Peer]:
    one = Peer(conformance_client, conformance_client.get("/health").json())
    yield one
    one.clean_up()
