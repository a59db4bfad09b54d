"""`openapi.yaml` as a judge: is this answer one that the description of the API allows? Pure but for reading the file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

OPENAPI = Path(__file__).resolve().parent.parent / "openapi.yaml"


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(OPENAPI.read_text("utf-8"))
    return loaded


@cache
def validator(schema: str) -> Any:
    """Return the validator of one schema under ``components``."""
    root = {"$ref": f"#/components/schemas/{schema}", "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(root)


def answer_fault(method: str, path: str, status: int, body: Any) -> str | None:
    """Say what is wrong with an answer, or None. A refusal is one whatever the path."""
    if status >= 400:
        return _fault("Refusal", body) or _code_fault(status, body)
    operation = _operation("get" if method == "HEAD" else method.lower(), path)
    if operation is None:
        return None if status == 307 else f"{method} {path} is not described"
    described = operation["responses"].get(str(status))
    if described is None:
        return f"{method} {path} is not described to answer {status}"
    if "$ref" in described:
        described = document()["components"]["responses"][described["$ref"].rpartition("/")[2]]
    schema = described.get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return (
            None if body in (None, "") or status == 200 else f"{method} {path} {status} has a body: {body!r}"
        )
    root = {**schema, "components": document()["components"]}
    error = next(jsonschema_rs.Draft202012Validator(root).iter_errors(body), None)
    return None if error is None or method == "HEAD" else f"{method} {path} {status}: {error.message}"


def _fault(schema: str, body: Any) -> str | None:
    error = next(validator(schema).iter_errors(body), None)
    return error.message if error else None


def _code_fault(status: int, body: Any) -> str | None:
    allowed = document()["components"]["schemas"]["Code"]["x-status"][body["code"]]
    return None if status in allowed else f"{body['code']} goes with {allowed}, not with {status}"


def _operation(method: str, path: str) -> dict[str, Any] | None:
    for template, item in document()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path.partition("?")[0]) and method in item:
            found: dict[str, Any] = item[method]
            return found
    return None
