"""Exceptions as text (A-19, BH-024): whatever they do, there is a text with their type, soon, and at most 8 KB."""

from __future__ import annotations

import time

import pytest
from stateous_contract.limits import ERROR_BYTES_MAX

from stateous_supervisor.host import failures
from stateous_supervisor.host.failures import clean, describe, is_plain


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301 - it must have been raised to have a traceback.
    except BaseException as caught:
        return caught


class Raises(Exception):
    def __str__(self) -> str:
        raise ValueError("in __str__")


class Huge(Exception):
    def __str__(self) -> str:
        return "x" * 50_000_000


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307


class Hangs(Exception):
    def __str__(self) -> str:
        time.sleep(3_600)
        return ""


class TwoArguments(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)
        self.two = two


class Lies(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Lying(Exception, metaclass=Lies):
    pass


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (OSError(2, "No such file", "f"), "FileNotFoundError: [Errno 2] No such file: 'f'"),
        (Raises(), "Raises: its text was not to be had: __str__ raised ValueError"),
        (NoText(), "NoText: its text was not to be had: __str__ raised TypeError"),
        (TwoArguments(1, 2), "TwoArguments: 1"),
        (Lying("x"), "Lying: x"),
        (ValueError("a\x00b\ud800"), "ValueError: a\\x00b\\ud800"),
        (ValueError(b"\xff"), "ValueError: b'\\xff'"),
    ],
)
def test_the_text_is_type_and_message(error: BaseException, text: str) -> None:
    assert describe(raised(error)).text == text


def test_a_text_that_hangs_takes_a_bounded_time_for_all_of_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "ASK_S", 0.2)
    error: BaseException = Hangs()
    for _ in range(7):
        following = Hangs()
        following.__cause__ = error
        error = following
    started_at = time.monotonic()
    described = describe(raised(error))
    assert time.monotonic() - started_at < 2
    assert described.text == "Hangs: its text was not to be had within 0.2 s"


def test_a_huge_text_is_cut_with_a_mark_that_says_how_long_it_was() -> None:
    text = describe(raised(Huge())).text
    assert text.startswith("Huge: xxx")
    assert text.endswith("… [cut: 50,000,000 characters in all]")
    assert len(text.encode()) <= ERROR_BYTES_MAX


def test_a_long_text_of_wide_characters_is_cut_by_bytes() -> None:
    text = describe(raised(ValueError("é" * 6_000))).text
    assert len(text.encode()) <= ERROR_BYTES_MAX
    assert "[cut: 6,012 characters in all]" in text


def test_circles_of_causes_end() -> None:
    one, two, three = ValueError(1), ValueError(2), ValueError(3)
    one.__cause__, two.__cause__, three.__cause__ = two, three, one
    assert describe(raised(one)).traceback.count("ValueError") == 3
    alone = ValueError("self")
    alone.__cause__ = alone
    assert describe(raised(alone)).traceback.count("ValueError: self") == 1


def test_a_chain_of_5000_is_cut_and_quick() -> None:
    error: BaseException = ValueError(0)
    for number in range(1, 5_000):
        following = ValueError(number)
        following.__context__ = error
        error = following
    started_at = time.monotonic()
    described = describe(raised(error))
    assert time.monotonic() - started_at < 1
    assert described.text == "ValueError: 4999"
    assert described.traceback.startswith("(what came before is not shown)")


def test_a_deep_recursion_shows_its_ends() -> None:
    def deeper(n: int) -> None:
        if n:
            deeper(n - 1)
        raise ValueError("deep")

    with pytest.raises(ValueError, match="deep") as caught:
        deeper(500)
    traceback = describe(caught.value).traceback
    assert "frames are not shown" in traceback
    assert len(traceback) < failures.TRACEBACK_BYTES_MAX


def test_a_group_of_1000_names_the_first_few() -> None:
    group = ExceptionGroup("many", [ValueError(number) for number in range(1_000)])
    text = describe(raised(group)).text
    assert text == "ExceptionGroup: many (1000 sub-exceptions); ValueError: 0; ValueError: 1; ValueError: 2"


def test_the_traceback_has_file_line_source_and_the_chain() -> None:
    def inner() -> None:
        raise KeyError("inner")

    def outer() -> None:
        try:
            inner()
        except KeyError as error:
            raise ValueError("outer") from error

    with pytest.raises(ValueError, match="outer") as caught:
        outer()
    traceback = describe(caught.value).traceback
    assert 'raise ValueError("outer") from error' in traceback
    assert (
        traceback.index("KeyError: 'inner'")
        < traceback.index("direct cause")
        < traceback.index("ValueError: outer")
    )


def test_only_an_exception_without_user_code_is_plain() -> None:
    """What is not plain is never asked on the event loop."""
    noted = ValueError("x")
    noted.add_note("n")
    assert is_plain(ValueError("x", 1, None))
    assert not is_plain(Raises())
    assert not is_plain(ValueError(object()))
    assert not is_plain(noted)
    assert not is_plain(ExceptionGroup("g", [Raises()]))


def test_clean_leaves_good_text_as_it_is() -> None:
    assert clean("grün 😀 \n", 100) == "grün 😀 \n"
