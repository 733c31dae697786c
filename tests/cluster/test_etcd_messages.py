"""The encoding of messages to and from etcd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.cluster.etcd import messages
from rookery.cluster.etcd.protobuf import Value, present, read, write
from rookery.errors import ProtocolError

_numbers = st.integers(1, 2**29 - 1)
_values = st.one_of(st.integers(0, 2**63 - 1), st.binary(max_size=300))


@given(st.lists(st.tuples(_numbers, _values), max_size=8))
def test_written_messages_are_read(fields: list[tuple[int, Value]]) -> None:
    data = b"".join(present(number, value) for number, value in fields)
    assert list(read(data)) == fields
    assert list(read(write(*fields))) == [field for field in fields if field[1]]


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for reader in (
        messages.read_range,
        messages.read_txn,
        messages.read_watch,
        messages.read_token,
    ):
        try:
            value = reader(data)
        except ProtocolError:
            continue
        assert value == reader(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x05abc", "field 1 .* is cut off"),
        (b"\x0a", "number .* is cut off"),
        (b"\x08\xff", "number .* is cut off"),
        (b"\x08" + b"\xff" * 11, "too long"),
        (b"\x0b", "kind 3"),
        (b"\x09abc", "field 1 .* is cut off"),
    ],
)
def test_malformed_message_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        list(read(data))


def test_unknown_fields_are_skipped() -> None:
    newer = b"\x99\x06" + b"x" * 8 + b"\x9d\x06" + b"x" * 4
    pair = write((1, b"k"), (5, b"v")) + newer
    result = messages.read_range(write((1, write((3, 7))), (2, pair)) + newer)
    assert result == messages.RangeResult(7, [messages.Pair(b"k", b"v")])


def test_negative_numbers_are_read_but_not_written() -> None:
    assert list(read(b"\x08" + b"\xff" * 9 + b"\x01")) == [(1, -1)]
    with pytest.raises(ValueError, match="negative"):
        present(1, -1)
