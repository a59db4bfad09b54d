# The contract of the workflow approval: what its routines may read, write and return.
# Made by `stateous-supervisor init`, refreshed by `stateous-supervisor contract`. Do not edit.
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol, overload

from pydantic import BaseModel, ConfigDict, Field
from stateous_supervisor import AsyncContext, Context, Occurrence, StateRef

__workflow__ = "approval"
__checksum__ = "sha256:2eb3019ac6fa9a540064489a3290c926bfb60bafb67d8f17522582ddbe5b1d5f"
__states__: dict[str, dict[str, str]] = {
    "*": {
        "context": "3c449ba17a33",
        "Release": "5bc7dc772122",
        "Release.version": "6702fe3fdb64",
        "Release.remind_after": "e2a2cf033bd0",
    },
    "asking": {
        "emits approved": "5b5628908482",
        "Decision": "a97d54a18794",
        "Decision.by": "9ac136edb99a",
        "Decision.comment": "00404e686415",
        "emits rejected": "5b5628908482",
    },
    "publishing": {"emits published": "74234e98afe7"},
}


class Decision(BaseModel):
    """Who decided, and why."""

    model_config = ConfigDict(extra="forbid")

    by: Annotated[str, Field(min_length=1)]
    comment: str = ""


class Release(BaseModel):
    """What is to be released."""

    model_config = ConfigDict(extra="forbid")

    version: Annotated[str, Field(pattern="^[0-9]+\\.[0-9]+\\.[0-9]+$")]
    remind_after: Annotated[str, Field(pattern="^[1-9][0-9]*[smhd]$")] = "1d"


if TYPE_CHECKING:

    class _ReleaseKeys(Protocol):
        @overload
        def __getitem__(self, key: Literal["version"], /) -> str: ...
        @overload
        def __getitem__(self, key: Literal["remind_after"], /) -> str: ...
        @overload
        def __setitem__(self, key: Literal["version"], value: str, /) -> None: ...
        @overload
        def __setitem__(self, key: Literal["remind_after"], value: str, /) -> None: ...

    class ReleaseContext(_ReleaseKeys, Context[Release]): ...  # type: ignore[misc]

    class AsyncReleaseContext(_ReleaseKeys, AsyncContext[Release]): ...  # type: ignore[misc]

else:
    ReleaseContext = Context[Release]
    AsyncReleaseContext = AsyncContext[Release]


class events:
    class approved(Occurrence[Decision]):
        name = "approved"

    class rejected(Occurrence[Decision]):
        name = "rejected"

    class remind(Occurrence[None]):
        name = "remind"

    class published(Occurrence[None]):
        name = "published"


class states:
    asking: ClassVar[StateRef[events.approved | events.rejected]] = StateRef(
        "asking", emits=(events.approved, events.rejected)
    )
    publishing: ClassVar[StateRef[events.published]] = StateRef("publishing", emits=(events.published,))
