"""The page of states says what the tables say."""

from __future__ import annotations

from house.states_page import PAGE, page


def test_the_page_of_states_is_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
