"""Runs the tests of a ticket's checkout with pytest, in a process of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from contract import Tests, TicketContext, events, states
from stateous_supervisor import on_state


@on_state(states.testing)
def testing(ctx: TicketContext) -> events.passed | events.failed:
    workspace = ctx["workspace"]
    if workspace is None or not Path(workspace).is_dir():
        raise FileNotFoundError(f"the workspace {workspace!r} is not on this box")
    tests = run_tests(Path(workspace))
    ctx.note(f"{tests.passed} passed, {tests.failed} failed")
    return events.failed(tests) if tests.failed else events.passed(tests)


def run_tests(workspace: Path) -> Tests:
    """Run pytest under the interpreter that runs this routine, and read what it found."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir=.", f"--junitxml={report}"],
            cwd=workspace,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(
                f"pytest did not run (exit code {done.returncode}): {done.stderr.strip()[-300:]}"
            )
        cases = ET.parse(report).getroot().findall(".//testcase")
    failures = [
        case.get("name", "?")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return Tests(passed=len(cases) - len(failures), failed=len(failures), failures=failures)
