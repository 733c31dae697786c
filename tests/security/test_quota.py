"""The quota that applies to a client."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, ErrorCode
from rookery.security.quota import (
    DEFAULT,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    QuotaLimit,
    QuotaTable,
    check_quota,
    read_changes,
    read_entity,
    read_quota_filter,
)

LEVELS = [
    (QuotaEntity("alice", "app"), ("alice", "app")),
    (QuotaEntity("alice", DEFAULT), ("alice", "app")),
    (QuotaEntity("alice"), ("alice", None)),
    (QuotaEntity(DEFAULT, "app"), ("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("alice", "app")),
    (QuotaEntity(DEFAULT), ("alice", None)),
    (QuotaEntity(None, "app"), (None, "app")),
    (QuotaEntity(None, DEFAULT), (None, "app")),
]
"""The levels, the most specific first, and who shares a limit of each."""
RATE = QuotaKey.PRODUCER_BYTE_RATE


@given(st.sets(st.integers(0, 7)))
def test_the_most_specific_quota_applies(present: set[int]) -> None:
    table = QuotaTable({LEVELS[level][0]: {RATE: float(level + 1)} for level in present})

    limit = table.find(RATE, "alice", "app")

    if present:
        assert limit == QuotaLimit(float(min(present) + 1), *LEVELS[min(present)][1])
    else:
        assert limit is None
    assert table.find(QuotaKey.CONSUMER_BYTE_RATE, "alice", "app") is None
    assert table.limits_any(RATE) is bool(present)


def test_a_level_without_the_key_does_not_hide_others() -> None:
    table = QuotaTable(
        {
            QuotaEntity("alice", "app"): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
            QuotaEntity(DEFAULT): {RATE: 2.0},
        }
    )

    assert table.find(RATE, "alice", "app") == QuotaLimit(2.0, "alice", None)


def test_quotas_of_others_do_not_apply() -> None:
    others = [QuotaEntity("bob"), QuotaEntity(None, "other"), QuotaEntity("bob", "app")]
    table = QuotaTable({entity: {RATE: 1.0} for entity in others})

    assert table.find(RATE, "alice", "app") is None


def test_an_empty_client_id_has_the_default_quota() -> None:
    table = QuotaTable({QuotaEntity(None, DEFAULT): {RATE: 1.0}})

    assert table.find(RATE, "alice", "") == QuotaLimit(1.0, None, "")


def test_addresses_have_a_quota_of_their_own_or_the_default() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    table = QuotaTable(
        {
            QuotaEntity(ip="10.0.0.1"): {key: 5.0},
            QuotaEntity(ip="::1"): {key: 7.0},
            QuotaEntity(ip=DEFAULT): {key: 9.0},
        }
    )

    assert table.find_ip("10.0.0.1") == 5.0
    assert table.find_ip("0:0:0:0:0:0:0:1") == 7.0
    assert table.find_ip("10.0.0.2") == 9.0
    assert QuotaTable().find_ip("10.0.0.2") is None


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("user", "alice")], QuotaEntity("alice")),
        ([("user", None)], QuotaEntity(DEFAULT)),
        ([("client-id", "app"), ("user", "alice")], QuotaEntity("alice", "app")),
        ([("client-id", None), ("user", "<default>")], QuotaEntity("<default>", DEFAULT)),
        ([("ip", "10.0.0.1")], QuotaEntity(ip="10.0.0.1")),
        ([("ip", "::1")], QuotaEntity(ip="::1")),
        ([("ip", None)], QuotaEntity(ip=DEFAULT)),
    ],
)
def test_an_entity_is_read(parts: list[tuple[str, str | None]], expected: QuotaEntity) -> None:
    entity = read_entity(parts)

    assert entity == expected
    assert sorted(entity.parts(), key=str) == sorted(parts, key=str)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("group", "g")],
        [("", "g")],
        [("User", "alice")],
        [("user", "")],
        [("client-id", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "alice")],
        [("ip", None), ("client-id", None)],
        [("ip", "10.0.0.0/8")],
        [("ip", "not an address")],
        [("ip", "")],
    ],
)
def test_an_invalid_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as caught:
        read_entity(parts)

    assert caught.value.code is ErrorCode.INVALID_REQUEST


USER, ADDRESS = QuotaEntity("alice"), QuotaEntity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, "producer_byte_rate", 1.0),
        (USER, "consumer_byte_rate", float(2**63)),
        (USER, "producer_byte_rate", 1.0000001),
        (USER, "request_percentage", 0.001),
        (USER, "controller_mutation_rate", 0.5),
        (USER, "request_percentage", 1e300),
        (ADDRESS, "connection_creation_rate", float(2**31 - 1)),
    ],
)
def test_valid_quotas_are_accepted(entity: QuotaEntity, key: str, value: float) -> None:
    check_quota(entity, key, value)


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, "producer_byte_rate", 0.0),
        (USER, "producer_byte_rate", -1.0),
        (USER, "producer_byte_rate", 1.5),
        (USER, "producer_byte_rate", 2.0**64),
        (USER, "producer_byte_rate", math.inf),
        (USER, "producer_byte_rate", math.nan),
        (USER, "request_percentage", math.nan),
        (USER, "request_percentage", 0.0),
        (USER, "connection_creation_rate", 1.0),
        (USER, "SCRAM-SHA-256", 1.0),
        (USER, "", 1.0),
        (ADDRESS, "producer_byte_rate", 1.0),
        (ADDRESS, "connection_creation_rate", 2.0**31),
        (ADDRESS, "connection_creation_rate", 1.5),
    ],
)
def test_invalid_quotas_are_refused(entity: QuotaEntity, key: str, value: float) -> None:
    with pytest.raises(ApiError) as caught:
        check_quota(entity, key, value)

    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_changes_are_checked_together() -> None:
    assert read_changes(USER, [("producer_byte_rate", 5.0), ("unknown", None)]) == {
        "producer_byte_rate": 5.0,
        "unknown": None,
    }
    for changes in (
        [("producer_byte_rate", 5.0), ("producer_byte_rate", None)],
        [("producer_byte_rate", 5.0), ("unknown", 1.0)],
    ):
        with pytest.raises(ApiError):
            read_changes(USER, changes)


ENTITIES = [entity for entity, _ in LEVELS] + [ADDRESS, QuotaEntity(ip=DEFAULT)]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (QuotaFilter(), ENTITIES),
        (QuotaFilter(strict=True), []),
        (QuotaFilter({"user": "alice"}), ENTITIES[:3]),
        (QuotaFilter({"user": "alice"}, strict=True), [ENTITIES[2]]),
        (QuotaFilter({"user": None}), ENTITIES[3:6]),
        (QuotaFilter({"user": None}, strict=True), [ENTITIES[5]]),
        (QuotaFilter(specified=frozenset({"client-id"}), strict=True), ENTITIES[6:8]),
        (QuotaFilter({"user": "alice"}, frozenset({"client-id"})), ENTITIES[:2]),
        (QuotaFilter(specified=frozenset({"ip"})), ENTITIES[8:]),
        (QuotaFilter({"ip": "10.0.0.2"}), []),
    ],
)
def test_a_filter_chooses_entities(choice: QuotaFilter, expected: list[QuotaEntity]) -> None:
    assert [entity for entity in ENTITIES if choice.matches(entity)] == expected


def test_a_filter_is_read() -> None:
    components = [("user", 0, "alice"), ("client-id", 2, None)]

    assert read_quota_filter(components, strict=True) == QuotaFilter(
        {"user": "alice"}, frozenset({"client-id"}), strict=True
    )
    assert read_quota_filter([("user", 1, None)], strict=False) == QuotaFilter({"user": None})


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        read_quota_filter(components, strict=False)

    assert caught.value.code is code


def test_every_combination_of_parts_is_described() -> None:
    choices = ("alice", DEFAULT, None)
    texts = {str(QuotaEntity(user, client)) for user, client in product(choices, choices)}

    assert len(texts) == 9
    assert "user alice client-id <default>" in texts
