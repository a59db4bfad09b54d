"""`python -m stateous_supervisor`: the same as the program `stateous-supervisor`."""

from __future__ import annotations

from stateous_supervisor.cli.main import main

main()
