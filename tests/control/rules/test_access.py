"""Who may see and do what, as values: owners, states, roles, and the narrowing by ``?owner=``."""

from __future__ import annotations

import pytest
from stateous_contract.codes import Code, Refused

from stateous_control.rules.access import OPEN, RIGHTS, Access, Right, Role


def supervisor(*owners: str, states: frozenset[str] | None = None) -> Access:
    return Access(
        role=Role.SUPERVISOR, own=tuple(sorted(owners)), owners=frozenset(owners), states=states, key="box", key_id="1"
    )  # fmt: skip


def test_without_keys_everybody_sees_all_and_owns_default() -> None:
    assert OPEN.covers("anybody")
    assert (OPEN.place(), OPEN.bounds, OPEN.scope) == ("default", (None, None), "default")


def test_a_task_is_there_for_its_owner_and_its_state_only() -> None:
    access = supervisor("a", states=frozenset({"build"}))
    assert access.covers_task("a", "build")
    assert not access.covers_task("a", "deploy")
    assert not access.covers_task("b", "build")


def test_a_caller_with_several_owners_names_one() -> None:
    access = supervisor("a", "b")
    with pytest.raises(Refused) as refused:
        access.place()
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert access.narrowed("b").place() == "b"


def test_an_owner_out_of_scope_has_nothing_and_takes_nothing() -> None:
    narrowed = supervisor("a").narrowed("b")
    assert not narrowed.covers("b")
    assert not narrowed.covers("a")
    with pytest.raises(Refused) as refused:
        narrowed.check_owner()
    assert refused.value.code is Code.FORBIDDEN


def test_an_admin_may_name_any_owner_and_claims_for_its_own() -> None:
    admin = Access(role=Role.ADMIN, own=("default",), key="ada", key_id="1")
    assert admin.covers("b")
    assert admin.narrowed("b").own == ("b",)
    assert admin.own == ("default",)


@pytest.mark.parametrize("owner", ["", "A", "-a", "a b", "a,b", "ä", "a" * 65])
def test_what_is_no_owner_is_refused(owner: str) -> None:
    with pytest.raises(Refused) as refused:
        OPEN.narrowed(owner)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_a_claim_that_names_one_wrong_state_is_refused_and_says_which() -> None:
    access = supervisor("a", states=frozenset({"build"}))
    access.check_states(["build"])
    with pytest.raises(Refused, match="'deploy'") as refused:
        access.check_states(["build", "deploy"])
    assert refused.value.code is Code.STATE_NOT_ALLOWED


def test_each_role_has_what_it_is_for_and_only_an_admin_rules() -> None:
    assert {role for role in Role if Right.WORK in RIGHTS[role]} == {Role.SUPERVISOR, Role.ADMIN}
    assert {role for role in Role if Right.STEER in RIGHTS[role]} == {Role.OPERATOR, Role.ADMIN}
    assert {role for role in Role if Right.RULE in RIGHTS[role]} == {Role.ADMIN}
    assert all(Right.KNOW in RIGHTS[role] for role in Role)
