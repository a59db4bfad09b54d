"""Frames as bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from stateous_supervisor.link.frames import FRAME_BYTES_MAX, Began, Cancel, Hello, Noted, Outcome, Run
from stateous_supervisor.link.stream import LinkBroken, MessageTooLarge, from_agent, from_host, pack


def frame(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


@given(texts=st.lists(st.text(max_size=20), max_size=20), cuts=st.lists(st.integers(1, 40), max_size=40))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(
    texts: list[str], cuts: list[int]
) -> None:
    messages = [Noted(task=number, attempt=1, text=text) for number, text in enumerate(texts)]
    sent = pack(messages)
    unpacker = from_host()
    got = []

    while sent:
        size = cuts.pop() if cuts else len(sent)
        got += unpacker.feed(sent[:size])
        sent = sent[size:]

    assert got == messages


def test_one_turn_is_one_frame() -> None:
    sent = pack([Began(task=1, attempt=1, at=0.5), Outcome(task=1, attempt=1, outcome="waiting")])

    assert int.from_bytes(sent[:4], "big") == len(sent) - 4


def test_what_does_not_fit_one_frame_becomes_several() -> None:
    grant = Raw(b'{"context":"' + b"x" * (FRAME_BYTES_MAX // 2) + b'"}')

    sent = pack([Run(grant=grant, lease_s=1.0) for _ in range(3)])

    assert len(from_agent().feed(sent)) == 3


def test_a_message_that_fits_no_frame_is_the_senders_fault() -> None:
    with pytest.raises(MessageTooLarge):
        pack([Noted(task=1, attempt=1, text="x" * FRAME_BYTES_MAX)])


def test_a_users_json_passes_as_the_text_it_is() -> None:
    raw = Raw(b'{"a":1.0,"b":12345678901234567890.10}')

    (got,) = from_host().feed(pack([Outcome(task=1, attempt=1, outcome="event", payload=raw)]))

    assert isinstance(got, Outcome)
    assert bytes(got.payload or b"") == bytes(raw)


def test_a_kind_that_this_side_does_not_know_is_passed_over() -> None:
    text = b'[{"kind":"newer","x":1},{"kind":"cancel","task":1,"attempt":2,"cause":"lost"}]'

    assert from_agent().feed(frame(text)) == [Cancel(task=1, attempt=2, cause="lost")]


def test_a_field_that_this_side_does_not_know_is_passed_over() -> None:
    text = b'[{"kind":"hello","protocol":1,"sdk":"2","newer":true}]'

    assert from_host().feed(frame(text)) == [Hello(protocol=1, sdk="2")]


@pytest.mark.parametrize(
    "text",
    [b"{", b"{}", b'[{"kind":"began","task":"x"}]', b"[" * 100_000],
    ids=["half", "no array", "wrong type", "deep"],
)
def test_what_is_no_frame_breaks_the_link(text: bytes) -> None:
    with pytest.raises(LinkBroken):
        from_host().feed(frame(text))


def test_a_length_beyond_the_limit_breaks_the_link_before_it_is_read() -> None:
    with pytest.raises(LinkBroken, match="at most"):
        from_host().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))


def test_the_kind_stands_in_each_message() -> None:
    assert msgspec.json.decode(pack([Cancel(task=1, attempt=1, cause="x")])[4:])[0]["kind"] == "cancel"
