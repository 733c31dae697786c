"""AlterClientQuotas and DescribeClientQuotas, compared with Kafka's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterQuotaEntry,
    EntityData,
    OpData,
)
from rookery.wire.messages.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.broker.conftest import Start

Parts = list[tuple[str, str | None]]
Ops = list[tuple[str, float | None]]
Found = set[tuple[frozenset[tuple[str, str | None]], frozenset[tuple[str, float]]]]

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
ALICE, DEFAULT_USER = ("user", "alice"), ("user", None)
APP, DEFAULT_APP = ("client-id", "app"), ("client-id", None)


def alter(
    bootstrap: str, *entries: tuple[Parts, Ops], validate_only: bool = False, version: int = 1
) -> list[tuple[ErrorCode, str | None]]:
    request = AlterClientQuotasRequest(
        entries=[
            AlterQuotaEntry(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops
                ],
            )
            for parts, ops in entries
        ],
        validate_only=validate_only,
    )
    response = ask(bootstrap, ALTER_CLIENT_QUOTAS, version, request)
    return [(entry.error_code, entry.error_message) for entry in response.entries]


def describe(
    bootstrap: str, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> tuple[ErrorCode, str | None, Found | None]:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=way, match=name) for kind, way, name in parts
        ],
        strict=strict,
    )
    response = ask(bootstrap, DESCRIBE_CLIENT_QUOTAS, version, request)
    if response.entries is None:
        return response.error_code, response.error_message, None
    quotas = {
        (
            frozenset((part.entity_type, part.entity_name) for part in entry.entity),
            frozenset((value.key, value.value) for value in entry.values),
        )
        for entry in response.entries
    }
    return response.error_code, response.error_message, quotas


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaServer) -> Iterator[tuple[str, str]]:
    """Our address and Kafka's, with the same quotas; Kafka's are removed in the end."""
    quotas: list[tuple[Parts, Ops]] = [
        ([ALICE], [(PRODUCE, 1e9), (FETCH, 2e9)]),
        ([ALICE, APP], [(PRODUCE, 3e9)]),
        ([ALICE, DEFAULT_APP], [(PRODUCE, 4e9)]),
        ([("user", "bob")], [(FETCH, 5e9)]),
        ([APP], [(PRODUCE, 6e9)]),
        ([("ip", "10.1.2.3")], [("connection_creation_rate", 1000.0)]),
    ]
    with ServedBroker(tmp_path_factory.mktemp("broker"), BrokerSettings(durability="os")) as ours:
        for bootstrap in (ours.bootstrap, kafka.bootstrap):
            assert alter(bootstrap, *quotas) == [(ErrorCode.NONE, None)] * len(quotas)
        wait_until(lambda: describe(kafka.bootstrap) == describe(ours.bootstrap))
        yield ours.bootstrap, kafka.bootstrap
        for parts, ops in quotas:
            alter(kafka.bootstrap, (parts, [(key, None) for key, _ in ops]))


FILTERS: list[list[tuple[str, int, str | None]]] = [
    [],
    [("user", 0, "alice")],
    [("user", 2, None)],
    [("user", 1, None)],
    [("user", 0, "alice"), ("client-id", 2, None)],
    [("user", 0, "alice"), ("client-id", 1, None)],
    [("client-id", 0, "app")],
    [("client-id", 2, None)],
    [("ip", 2, None)],
    [("ip", 0, "10.1.2.3")],
    [("user", 0, "nobody")],
    # Wrong ones.
    [("", 0, "x")],
    [("tenant", 0, "x")],
    [("user", 0, "x"), ("user", 2, None)],
    [("user", 0, None)],
    [("user", 1, "x")],
    [("user", 2, "x")],
    [("user", 3, None)],
    [("ip", 2, None), ("user", 2, None)],
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("parts", FILTERS, ids=str)
def test_description_matches_kafka(
    pair: tuple[str, str], parts: list[tuple[str, int, str | None]], strict: bool
) -> None:
    ours, theirs = (describe(bootstrap, *parts, strict=strict) for bootstrap in pair)

    assert (ours[0], ours[2]) == (theirs[0], theirs[2])
    assert bool(ours[1]) == bool(theirs[1])


CHANGES: list[list[tuple[Parts, Ops]]] = [
    [([ALICE], [("unknown", 1.0)])],
    [([ALICE], [("unknown", None)])],
    [([ALICE], [(PRODUCE, 0.0)])],
    [([ALICE], [(PRODUCE, -1.0)])],
    [([ALICE], [(PRODUCE, 1.5)])],
    [([ALICE], [(PRODUCE, 1e30)])],
    [([ALICE], [("connection_creation_rate", 1.0)])],
    [([ALICE], [(PRODUCE, 1.0), (PRODUCE, 2.0)])],
    [([ALICE], [(PRODUCE, 1e9), ("unknown", 2.0)])],
    [([ALICE], [])],
    [([], [(PRODUCE, 1.0)])],
    [([("tenant", "x")], [(PRODUCE, 1.0)])],
    [([("user", "")], [(PRODUCE, 1.0)])],
    [([("ip", "10.0.0.1"), ALICE], [("connection_creation_rate", 1.0)])],
    [([("ip", "10.0.0.1")], [(PRODUCE, 1.0)])],
    [([("ip", "10.0.0.1")], [("connection_creation_rate", 1.5)])],
    [([("ip", "not an address")], [("connection_creation_rate", 1.0)])],
    [([ALICE], [("unknown", 1.0)]), ([("user", "bob")], [(FETCH, 1e9)])],
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("entries", CHANGES, ids=str)
def test_results_of_changes_match_kafka(
    pair: tuple[str, str], entries: list[tuple[Parts, Ops]], validate_only: bool
) -> None:
    ours, theirs = (alter(bootstrap, *entries, validate_only=validate_only) for bootstrap in pair)

    assert [code for code, _ in ours] == [code for code, _ in theirs]
    assert [text is None for _, text in ours] == [text is None for _, text in theirs]
    # A broker of Kafka answers from its own copy of the metadata, which can lag.
    wait_until(lambda: describe(pair[0]) == describe(pair[1]))


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_of_an_entity_change_together(broker: ServedBroker, version: int) -> None:
    results = alter(
        broker.bootstrap,
        ([ALICE], [(PRODUCE, 10.0), (FETCH, -1.0)]),
        ([DEFAULT_USER], [(PRODUCE, 20.0)]),
        version=version,
    )

    assert [code for code, _ in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    _, _, quotas = describe(broker.bootstrap, version=version)
    assert quotas == {(frozenset({DEFAULT_USER}), frozenset({(PRODUCE, 20.0)}))}


def test_validation_changes_nothing(broker: ServedBroker) -> None:
    results = alter(broker.bootstrap, ([ALICE], [(PRODUCE, 10.0)]), validate_only=True)

    assert results == [(ErrorCode.NONE, None)]
    assert describe(broker.bootstrap) == (ErrorCode.NONE, "", set())


def test_entity_named_twice_is_changed_once(broker: ServedBroker) -> None:
    results = alter(broker.bootstrap, ([ALICE], [(PRODUCE, 10.0)]), ([ALICE], [(PRODUCE, 20.0)]))

    assert [code for code, _ in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert describe(broker.bootstrap)[2] == {(frozenset({ALICE}), frozenset({(PRODUCE, 10.0)}))}


def test_quotas_are_those_of_the_whole_cluster_and_survive_restarts(start: Start) -> None:
    first, second = start(), start()
    alter(first.bootstrap, ([ALICE, DEFAULT_APP], [(PRODUCE, 10.0)]))

    expected = {(frozenset({ALICE, DEFAULT_APP}), frozenset({(PRODUCE, 10.0)}))}
    assert describe(second.bootstrap)[2] == expected
    assert describe(start().bootstrap)[2] == expected
