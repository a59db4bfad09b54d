"""Who asks, and what they may see and do: roles, rights, owners, states. Pure values; keys are read elsewhere.

An id outside a caller's owners is treated like one that does not exist, everywhere (S1-117 … S1-122).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final

from stateous_contract.codes import Code, Refused

from stateous_control.rules.queues import kind_of

DEFAULT_OWNER: Final = "default"
OWNER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


class Role(StrEnum):
    """What a key is for."""

    SUPERVISOR = "supervisor"
    OPERATOR = "operator"
    VIEWER = "viewer"
    ADMIN = "admin"


class Right(Enum):
    """What a request does: KNOW the workflow, REPLAY, READ tokens and lists, STEER them, WORK on tasks, or RULE.

    REPORT is to tell an outcome from outside; one that a supervisor tells of its own task is WORK.
    """

    KNOW = "read the workflow"
    REPLAY = "read checkpoints"
    READ = "read tokens and lists"
    STEER = "start or steer tokens"
    REPORT = "report outcomes"
    WORK = "claim tasks, or report for a supervisor"
    RULE = "do this"


RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.SUPERVISOR: frozenset({Right.KNOW, Right.REPLAY, Right.REPORT, Right.WORK}),
    Role.VIEWER: frozenset({Right.KNOW, Right.REPLAY, Right.READ}),
    Role.OPERATOR: frozenset({Right.KNOW, Right.REPLAY, Right.READ, Right.STEER, Right.REPORT}),
    Role.ADMIN: frozenset(Right),
}


@dataclass(frozen=True, slots=True)
class Access:
    """One caller.

    Args:
        role: what it may do.
        own: the owners that its key names, sorted: where it starts tokens and claims work.
        owners: the owners whose rows exist for it; None is all of them.
        states: the states whose tasks exist for it, and routines with an ``@`` in front; None is all of them.
        key: the key's name, None where there are no keys.
        key_id: the public part of the key.
    """

    role: Role = Role.ADMIN
    own: tuple[str, ...] = (DEFAULT_OWNER,)
    owners: frozenset[str] | None = None
    states: frozenset[str] | None = None
    key: str | None = None
    key_id: str | None = None

    @property
    def scope(self) -> str:
        """The caller's owners as one text: request ids of claims are remembered under it."""
        return ",".join(self.own)

    @property
    def bounds(self) -> tuple[list[str] | None, list[str] | None]:
        """Owners and states as SQL takes them; None is all."""
        return (
            None if self.owners is None else sorted(self.owners),
            None if self.states is None else sorted(self.states),
        )

    @property
    def sees_several(self) -> bool:
        """With keys, whether rows of more than one owner may stand in one list."""
        return self.key is not None and (self.owners is None or len(self.owners) > 1)

    def covers(self, owner: str) -> bool:
        """Say whether rows of this owner exist for the caller."""
        return self.owners is None or owner in self.owners

    def covers_task(self, owner: str, state: str) -> bool:
        """Say whether a task exists for the caller; `state` is its queue."""
        return self.covers(owner) and (self.states is None or kind_of(state) in self.states)

    def place(self) -> str:
        """Return the one owner that the caller acts for. Raises `Refused` where there are several."""
        if len(self.own) == 1:
            return self.own[0]
        raise Refused(
            Code.INVALID_ARGUMENT, "this key acts for several owners; name one of them with ?owner="
        )

    def narrowed(self, owner: str) -> Access:
        """Return the caller as one who asks for `owner` alone; for an owner out of scope nothing exists."""
        if OWNER.fullmatch(owner) is None:
            raise Refused(
                Code.INVALID_ARGUMENT,
                "'owner' must be 1 to 64 small letters, digits, '.', '_' or '-', the first a letter or digit",
            )
        return replace(
            self, own=(owner,), owners=frozenset({owner}) if self.covers(owner) else frozenset[str]()
        )

    def check_right(self, right: Right) -> None:
        """Raise `Refused` unless the role has this right. Looks at no row."""
        if right not in RIGHTS[self.role]:
            raise Refused(Code.FORBIDDEN, f"a key with the role {self.role.value} may not {right.value}")

    def check_owner(self) -> None:
        """Raise `Refused` where the caller named an owner that is not its own. Looks at no row."""
        if self.owners is not None and self.owners.isdisjoint(self.own):
            raise Refused(Code.FORBIDDEN, "this key may not act for that owner")

    def check_states(self, states: list[str]) -> None:
        """Raise `Refused` for a claim that names a state which the key may not serve (A-15: per state)."""
        if self.states is None or self.states.issuperset(states):
            return
        wrong = next(state for state in states if state not in self.states)
        raise Refused(Code.STATE_NOT_ALLOWED, f"this key may not serve the state '{wrong}'")


OPEN: Final = Access()
"""Everybody, while there are no keys: all rights, and what is started belongs to `default`."""
