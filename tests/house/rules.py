"""The house's own lists: which module is the door to which library, which files are pure, what may still be too long."""

from __future__ import annotations

CONTROL = "stateous_control"
AGENT = "stateous_supervisor/agent"
HOST = "stateous_supervisor/host"
CLI = "stateous_supervisor/cli/*.py"

DOORS: dict[str, dict[str, list[str]]] = {
    "stateous_contract": {"msgspec": ["contract/stateous_contract/*.py"]},
    "stateous_control": {
        "asyncpg": [f"{CONTROL}/store/pool.py"],
        "jsonschema_rs": [f"{CONTROL}/graph/schema.py"],
        "yaml": [f"{CONTROL}/graph/source.py"],
        "msgspec": [f"{CONTROL}/*/*.py", f"{CONTROL}/*/*/*.py"],
        "httpx": [f"{CONTROL}/cli/client.py"],
        "starlette": [f"{CONTROL}/http/routes.py"],
        "prometheus_client": [f"{CONTROL}/http/metrics.py"],
        "uvloop": [f"{CONTROL}/cli/running.py"],
        "uvicorn": [f"{CONTROL}/http/server.py", f"{CONTROL}/http/arriving.py"],
        "typer": [f"{CONTROL}/cli/*.py"],
        "tenacity": [f"{CONTROL}/cli/following.py"],
        "structlog": [f"{CONTROL}/logs.py"],
        "ctypes": [f"{CONTROL}/embedded/*.py"],
    },
    "stateous_supervisor": {
        "httpx": [f"{AGENT}/client.py"],
        "yaml": [f"{AGENT}/yaml_file.py"],
        "sqlite3": [f"{AGENT}/outbox.py", f"{AGENT}/outbox_file.py"],
        "structlog": [f"{AGENT}/logs.py"],
        "anyio": [
            f"{AGENT}/*.py",
            CLI,
            "stateous_supervisor/demo/course.py",
            "stateous_supervisor/doctor/plane.py",
        ],
        "msgspec": ["stateous_supervisor/*/*.py"],
        "typer": [CLI],
        "pydantic": ["stateous_supervisor/sdk/payloads.py"],
        "pydantic_core": ["stateous_supervisor/sdk/payloads.py"],
        "ctypes": [f"{HOST}/prctl.py", "stateous_supervisor/agent/allocator.py"],
    },
}

PURE = [
    "stateous_control/graph/*.py",
    "stateous_control/rules/*.py",
    f"{AGENT}/assignment.py",
    f"{AGENT}/cadence.py",
    f"{AGENT}/calls.py",
    f"{AGENT}/cuts.py",
    f"{AGENT}/halving.py",
    f"{AGENT}/metrics.py",
    f"{AGENT}/overview.py",
    f"{AGENT}/tally.py",
    *(
        f"stateous_supervisor/scaffold/{name}.py"
        for name in (
            "annotations",
            "changes",
            "codegen",
            "document",
            "identifiers",
            "keys",
            "literals",
            "models",
        )
    ),
    "stateous_supervisor/scaffold/schemas.py",
    "stateous_supervisor/sdk/durable.py",
    "stateous_supervisor/sdk/replay.py",
    "stateous_supervisor/sdk/waiting.py",
    "stateous_supervisor/sdk/waits.py",
    "stateous_supervisor/scaffold/stubs.py",
    "stateous_supervisor/demo/story.py",
    "stateous_supervisor/doctor/facts.py",
    "stateous_supervisor/doctor/findings.py",
    "stateous_supervisor/systemd/installed.py",
    "stateous_supervisor/systemd/unit.py",
    "stateous_supervisor/cli/platforms.py",
]

TOO_LONG: list[str] = []
