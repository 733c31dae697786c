"""Kafka's ids: their text and their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.model.uuid import ZERO, parse_uuid_text, random_uuid, uuid_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ZERO, "AAAAAAAAAAAAAAAAAAAAAA"),
        (bytes(15) + b"\x01", "AAAAAAAAAAAAAAAAAAAAAQ"),
        (b"\xff" * 16, "_____________________w"),
        (bytes.fromhex("fb" * 16), "-_v7-_v7-_v7-_v7-_v7-w"),
    ],
)
def test_known_ids_are_converted(value: bytes, text: str) -> None:
    assert uuid_text(value) == text
    assert parse_uuid_text(text) == value


@given(st.binary(min_size=16, max_size=16))
def test_every_id_round_trips(value: bytes) -> None:
    assert parse_uuid_text(uuid_text(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA==",
        "AAAAAAAAAAAAAAAAAAAAAB",
        "AAAAAAAAAAAAAAAAAAAA+A",
        "AAAAAAAAAAAAAAAAAAAA/A",
        "AAAAAAAAAAAAAAAAAAAA A",
        "AAAAAAAAAAAAAAAAAAAA=A",
        "AAAAAAAAAAAAAAAAAAAAéA",
    ],
)
def test_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an id"):
        parse_uuid_text(text)


@given(st.text(alphabet="AQgw-_=+/ é", min_size=20, max_size=24))
def test_only_the_canonical_text_of_an_id_is_accepted(text: str) -> None:
    try:
        value = parse_uuid_text(text)
    except ConfigError:
        return
    assert uuid_text(value) == text


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_has_16_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_text(bytes(size))


def test_random_id_can_be_an_argument_of_a_command() -> None:
    """Kafka draws such ids again, too."""
    hyphen, good = bytes([0xFB]) + bytes(15), bytes([1]) * 16
    draws = iter([bytes(16), hyphen, good])

    assert uuid_text(hyphen).startswith("-")
    assert random_uuid(lambda _: next(draws)) == good
