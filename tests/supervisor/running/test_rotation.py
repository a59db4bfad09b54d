"""A log that is rotated under a running agent: it writes to the descriptor it was given, and opens no file (BH-033)."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.running.managed import Managed


def test_a_log_that_is_copied_and_truncated_goes_on_from_its_beginning_bh_033(managed: Managed) -> None:
    with managed.agent() as agent:
        assert managed.ask("reload").returncode == 0
        assert managed.events("supervisor.started")
        os.truncate(managed.log, 0)
        assert managed.ask("reload").returncode == 0
        held = {str(each.readlink()) for each in Path(f"/proc/{agent.pid}/fd").iterdir()}

    assert not managed.events("supervisor.started")
    assert len(managed.events("folder.reloaded")) == 1
    assert b"\0" not in managed.log.read_bytes()
    files = {Path(path).name for path in held if path.startswith(str(managed.folder.parent))}
    assert {name for name in files if name.endswith(".log")} <= {managed.log.name}
