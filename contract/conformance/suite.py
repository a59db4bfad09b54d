"""Every promise of a control plane as tests. They need one fixture, `control_plane`: its URL, serving `workflow.json`.

`contract/conformance/test_conformance.py` runs them against any URL; the project's own tests run them against its
control plane and against the fake that the agent's tests use. What a peer does not offer is skipped by its ``/health``.
"""

from __future__ import annotations

import pytest

from conformance.description import answer_fault
from conformance.peer import Peer
from conformance.play import Scene, play, scenes
from conformance.promises import *  # noqa: F403


@pytest.mark.parametrize("scene", scenes(), ids=lambda scene: scene.name.replace(" ", "-"))
def test_exchange(scene: Scene, peer: Peer) -> None:
    peer.needs(*scene.needs)

    heard = play(scene, peer.http).heard

    assert not [fault for exchange in heard if (fault := answer_fault(*exchange))]
