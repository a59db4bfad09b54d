# The contract of the workflow deploy: what its routines may read, write and return.
# Made by `stateous-supervisor init`, refreshed by `stateous-supervisor contract`. Do not edit.
from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field
from stateous_supervisor import AsyncContext, Context, Occurrence, StateRef

__workflow__ = "deploy"
__checksum__ = "sha256:5bd2a350791bee1125b94b2c324a94501563d381bbe6e1e651f61fd7b57ba965"
__states__: dict[str, dict[str, str]] = {
    "*": {"context": "4fadb744edde", "Deployment": "939465f0b977", "Deployment.service": "9ac136edb99a"},
    "deploying": {
        "emits deployed": "3c449ba17a33",
        "Release": "211988080a16",
        "Release.artifact": "00404e686415",
        "Release.url": "00404e686415",
        "emits declined": "5de425663cc6",
        "Refusal": "c4a914b65fbe",
        "Refusal.artifact": "00404e686415",
    },
}


class Deployment(BaseModel):
    """What is to be deployed."""

    model_config = ConfigDict(extra="forbid")

    service: Annotated[str, Field(min_length=1)]


class Refusal(BaseModel):
    """Why it did not go out."""

    model_config = ConfigDict(extra="forbid")

    artifact: str


class Release(BaseModel):
    """What went out, and where it can be seen."""

    model_config = ConfigDict(extra="forbid")

    artifact: str
    url: str


if TYPE_CHECKING:

    class _DeploymentKeys(Protocol):
        def __getitem__(self, key: Literal["service"], /) -> str: ...
        def __setitem__(self, key: Literal["service"], value: str, /) -> None: ...

    class DeploymentContext(_DeploymentKeys, Context[Deployment]): ...  # type: ignore[misc]

    class AsyncDeploymentContext(_DeploymentKeys, AsyncContext[Deployment]): ...  # type: ignore[misc]

else:
    DeploymentContext = Context[Deployment]
    AsyncDeploymentContext = AsyncContext[Deployment]


class events:
    class deployed(Occurrence[Release]):
        name = "deployed"

    class declined(Occurrence[Refusal]):
        name = "declined"

    class expired(Occurrence[None]):
        name = "expired"


class states:
    deploying: ClassVar[StateRef[events.deployed | events.declined]] = StateRef(
        "deploying", emits=(events.deployed, events.declined)
    )
