# The contract of the workflow sdlc: what its routines may read, write and return.
# Made by `stateous-supervisor init`, refreshed by `stateous-supervisor contract`. Do not edit.
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, overload

from pydantic import BaseModel, ConfigDict, Field
from stateous_supervisor import AsyncContext, Context, Occurrence, StateRef

__workflow__ = "sdlc"
__checksum__ = "sha256:c48f5559da1999f8d05cd502a9c343e80e3d4a22cf646bd3aaedd7319e372b30"
__states__: dict[str, dict[str, str]] = {
    "*": {
        "context": "6a3a175b4f72",
        "Ticket": "cf8321fc9b93",
        "Ticket.title": "52ba84a4bbf3",
        "Ticket.crashes": "b0bdd2e30d31",
        "Ticket.workspace": "174e29b899b9",
    },
    "coding": {
        "emits coded": "a6b1ba0f3603",
        "Change": "3510b0d2e68d",
        "Change.file": "00404e686415",
        "Change.summary": "373775e26848",
    },
    "testing": {
        "emits passed": "e763e6d765d8",
        "Tests": "4ab0f546849e",
        "Tests.passed": "0d3ac1e9e006",
        "Tests.failed": "0d3ac1e9e006",
        "Tests.failures": "681004346c78",
        "emits failed": "e763e6d765d8",
    },
    "attention": {"emits retry": "74234e98afe7", "emits abandoned": "74234e98afe7"},
}


class Change(BaseModel):
    """What was written."""

    model_config = ConfigDict(extra="forbid")

    file: str
    summary: Annotated[str, Field(max_length=500)]


class Tests(BaseModel):
    """What a run of the tests found."""

    model_config = ConfigDict(extra="forbid")

    passed: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0)]
    failures: list[str] = []
    """The tests that failed, by name."""


class Ticket(BaseModel):
    """What a ticket carries from state to state."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=200)]
    crashes: Annotated[int, Field(ge=0, le=2)] = 0
    """How many attempts to write the code break down first."""
    workspace: str | None = None
    """Where the code of this ticket lies on the build box."""


if TYPE_CHECKING:

    class _TicketKeys(Protocol):
        @overload
        def __getitem__(self, key: Literal["title"], /) -> str: ...
        @overload
        def __getitem__(self, key: Literal["crashes"], /) -> int: ...
        @overload
        def __getitem__(self, key: Literal["workspace"], /) -> str | None: ...
        @overload
        def __setitem__(self, key: Literal["title"], value: str, /) -> None: ...
        @overload
        def __setitem__(self, key: Literal["crashes"], value: int, /) -> None: ...
        @overload
        def __setitem__(self, key: Literal["workspace"], value: str | None, /) -> None: ...

    class TicketContext(_TicketKeys, Context[Ticket]): ...  # type: ignore[misc]

    class AsyncTicketContext(_TicketKeys, AsyncContext[Ticket]): ...  # type: ignore[misc]

else:
    TicketContext = Context[Ticket]
    AsyncTicketContext = AsyncContext[Ticket]


class events:
    class coded(Occurrence[Change]):
        name = "coded"

    class passed(Occurrence[Tests]):
        name = "passed"

    class failed(Occurrence[Tests]):
        name = "failed"

    class retry(Occurrence[None]):
        name = "retry"

    class abandoned(Occurrence[None]):
        name = "abandoned"


class states:
    coding: ClassVar[StateRef[events.coded]] = StateRef("coding", emits=(events.coded,))
    testing: ClassVar[StateRef[events.passed | events.failed]] = StateRef(
        "testing", emits=(events.passed, events.failed)
    )
    attention: ClassVar[StateRef[events.retry | events.abandoned]] = StateRef(
        "attention", emits=(events.retry, events.abandoned)
    )
