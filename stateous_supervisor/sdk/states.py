"""States as a contract names them, with the events that their routines may return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stateous_supervisor.sdk.occurrences import Occurrence

O = TypeVar("O", bound=Occurrence[Any])  # noqa: E741


class OutcomeError(ValueError):
    """What was given is no outcome that the state may have. The text is one sentence that says what is allowed."""


@dataclass(frozen=True)
class StateRef(Generic[O]):
    """One state of a workflow.

    Args:
        name: as it is claimed: ``testing``, or ``child/testing`` in a child workflow.
        emits: the event classes that its routine may return.
    """

    name: str
    emits: tuple[type[O], ...] = ()

    def may_emit(self, occurrence: object) -> bool:
        """Whether a routine of this state may return `occurrence`: exactly one of its classes, no subclass."""
        return type(occurrence) in self.emits

    def outcome_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of ``{"event": …, "payload": …}``, to be given to a model or a form.

        Raises OutcomeError for a state without events and for a payload that refers to itself.
        """
        from stateous_supervisor.sdk.payloads import schema_of

        if not self.emits:
            raise OutcomeError(f"the state {self.name!r} emits no event, so it has no outcome to describe")
        return {"oneOf": [_branch(event, schema_of(event)) for event in self.emits]}

    def outcome(self, given: Any) -> O:
        """Make the occurrence that ``{"event": …, "payload": …}`` describes. Raises OutcomeError (lax validation)."""
        from stateous_supervisor.sdk.payloads import model_of, validated

        event = self._named(given)
        has_payload = given.get("payload") is not None
        if model_of(event) is None:
            if "payload" in given:
                raise OutcomeError(f"the event {event.name!r} has no payload, and one was given")
            return event(None)
        try:
            return event(validated(event, given["payload"] if has_payload else {}))
        except ValueError as error:
            raise OutcomeError(f"{error}; {self.allowed()}") from None

    def allowed(self) -> str:
        """Say in words what a routine of this state may return."""
        names = ", ".join(repr(event.name) for event in self.emits)
        return f"the state {self.name!r} may emit {names or 'no event'}"

    def _named(self, given: Any) -> type[O]:
        if not isinstance(given, dict):
            kind = type(given).__name__
            raise OutcomeError(
                f"an outcome is an object with 'event' and 'payload', not {kind}; {self.allowed()}"
            )
        unknown = [key for key in given if key not in ("event", "payload")]
        if unknown:
            raise OutcomeError(
                f"an outcome has only 'event' and 'payload', not {unknown[0]!r}; {self.allowed()}"
            )
        for event in self.emits:
            if event.name == given.get("event"):
                return event
        raise OutcomeError(f"the outcome has the event {given.get('event')!r}; {self.allowed()}")


def _branch(event: type[Occurrence[Any]], payload: dict[str, Any] | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"event": {"const": event.name}}
    if payload is not None:
        properties["payload"] = payload
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
