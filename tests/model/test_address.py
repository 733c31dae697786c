"""Addresses: parsed from text and printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("h:1,[::1]:2", [("h", 1), ("::1", 2)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("a:1,a:1,a:2", [("a", 1), ("a", 2)]),
        ("127.0.0.1:65535", [("127.0.0.1", 65535)]),
        ("kafka_1.my-net:9092", [("kafka_1.my-net", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("[::ffff:10.0.0.1]:9092", [("::ffff:10.0.0.1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "host",
        "host:",
        ":9092",
        "host:0",
        "host:65536",
        "host:99999",
        "host:-1",
        "host:+1",
        "host: 1",
        "ho st:1",
        "::1:9092",
        "[::1]",
        "[::1:9092",
        "[host]:1",
        "a:1,b",
        "kafka://host:9092",
        "host:9092/x",
        "host:٣",
        "a" * 256 + ":1",
    ],
)
def test_invalid_address_is_refused_with_the_setting_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^my\.setting: "):
        parse_addresses(text, "my.setting")


@given(
    st.one_of(
        st.from_regex(r"[a-z0-9_.\-]{1,40}", fullmatch=True),
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
    ),
    st.integers(1, 65535),
)
def test_address_text_round_trips(host: str, port: int) -> None:
    address = Address(host, port)

    assert parse_address(address.text) == address


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ConfigError:
        return
    assert parse_address(address.text) == address
