"""The page of requirements says which tests name each line, and no line of a finished part is without one."""

from __future__ import annotations

from house.requirements import LINES
from house.requirements_page import OPEN, PAGE, lines_of, named, page, untested


def test_the_page_of_requirements_is_what_the_tests_name() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`, and commit the page with the tests"


def test_every_line_of_a_finished_part_has_a_test() -> None:
    assert untested(named()) == []


def test_a_line_without_a_test_is_told() -> None:
    nothing: dict[str, list[str]] = {line: [] for line in LINES}

    assert set(untested(nothing)) == LINES.keys() - OPEN.keys()


def test_lines_are_found_in_names_and_docstrings_and_nowhere_else() -> None:
    source = '''
"""Of a whole file (A-01)."""
def test_one_s1_02() -> None:
    """S3-03, and S1-104."""
    x = "S1-05"  # A-06
def helper_a_07() -> None: ...
def test_in_a_404() -> None: ...
'''
    assert lines_of(source) & LINES.keys() == {"A-01", "S1-02", "S3-03", "S1-104"}


def test_a_line_is_named_in_at_most_eight_words() -> None:
    assert [line for line, words in LINES.items() if len(words.split()) > 8] == []
