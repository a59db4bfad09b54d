"""Codes are what programs act on: each has one status, and the wire knows no others."""

from __future__ import annotations

import re

import pytest
from stateous_contract.codes import HTTP_STATUS, Code, Refused


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_status_that_refuses(code: Code) -> None:
    assert 400 <= code.status <= 599
    assert re.fullmatch(r"[a-z_]+", code.wire)


def test_no_code_is_left_out() -> None:
    assert set(HTTP_STATUS) == set(Code)


def test_a_body_that_is_too_large_is_a_bad_request_with_its_own_status() -> None:
    assert (Code.BODY_TOO_LARGE.wire, Code.BODY_TOO_LARGE.status) == ("bad_request", 413)


def test_a_refusal_carries_code_and_sentence() -> None:
    refused = Refused(Code.TOKEN_NOT_FOUND, "there is no token 'x'")

    assert (refused.code.status, refused.sentence, str(refused)) == (
        404,
        "there is no token 'x'",
        "there is no token 'x'",
    )
