"""Client metrics (KIP-714): subscriptions, pushes, their errors, and the bounds of what is kept."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rookery.broker.settings import BrokerSettings
from rookery.broker.telemetry import pushedmetrics
from rookery.broker.telemetry.clientmetrics import WantedMetrics, find_wanted
from rookery.broker.telemetry.pushedmetrics import VALUES, Telemetry
from rookery.cluster.resources import CLIENT_METRICS_RESOURCE, resource_key
from rookery.cluster.state.state import State
from rookery.errors import ApiError, ErrorCode
from rookery.formats.otlp import Point
from rookery.model.uuid import uuid_text
from rookery.records.compression import CODECS
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from rookery.wire.messages.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from rookery.wire.messages.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
)
from rookery.wire.messages.push_telemetry import PUSH_TELEMETRY, PushTelemetryRequest
from tests.formats.test_otlp import data, fixed, metric

CLIENT_METRICS = 16
SET, DELETE, APPEND = 0, 1, 2
HOUR = "3600000"
BOMB = bytes(16 * 1024 * 1024)
PACKED = [(number, codec) for number, codec in CODECS.items() if number]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path / "data", BrokerSettings(durability="os")) as broker:
        yield broker


def change(
    bootstrap: str, name: str, *changes: tuple[str, int, str | None]
) -> tuple[ErrorCode, str | None]:
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=what, value=to) for key, what, to in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [result] = ask(bootstrap, INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return result.error_code, result.error_message


def subscribe(broker: ServedBroker, name: str, **settings: str) -> None:
    changes = [(key.replace("_", "."), SET, value) for key, value in settings.items()]
    assert change(broker.bootstrap, name, *changes) == (ErrorCode.NONE, None)


def describe(bootstrap: str, name: str) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = ask(bootstrap, DESCRIBE_CONFIGS, 4, request).results
    return result


def listed(bootstrap: str) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
    answer = ask(bootstrap, LIST_CONFIG_RESOURCES, 1, request)
    return sorted(resource.resource_name for resource in answer.config_resources)


def wanted(broker: ServedBroker, instance: bytes = bytes(16)) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    return ask(broker.bootstrap, GET_TELEMETRY_SUBSCRIPTIONS, 0, request)


def push(
    broker: ServedBroker, given: GetTelemetrySubscriptionsResponse, metrics: bytes, **other: Any
) -> ErrorCode:
    values: dict[str, Any] = {
        "client_instance_id": given.client_instance_id,
        "subscription_id": given.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
    }
    request = PushTelemetryRequest(**values | other)
    return ask(broker.bootstrap, PUSH_TELEMETRY, 0, request).error_code


def shown(instance: bytes) -> dict[str, float]:
    """Return the numbers of a client that `/metrics` shows."""
    own = f'instance="{uuid_text(instance)}"'
    lines = [line for line in VALUES.lines("v") if own in line]
    return {
        line.split('metric="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in lines
    }


# Subscriptions.

CHANGES: dict[str, tuple[str, int, str | None]] = {
    "prefixes": ("metrics", SET, "org.apache.kafka.producer.,x"),
    "all": ("metrics", SET, "*"),
    "none": ("metrics", SET, ""),
    "null": ("metrics", SET, None),
    "appended": ("metrics", APPEND, "x"),
    "pattern": ("match", SET, "client_id=.*x.*,client_software_name=java"),
    "no pattern": ("match", SET, "client_id"),
    "unknown property": ("match", SET, "name=x"),
    "bad pattern": ("match", SET, "client_id=["),
    "two equals": ("match", SET, "client_id=a=b"),
    "interval": ("interval.ms", SET, "100"),
    "short interval": ("interval.ms", SET, "99"),
    "long interval": ("interval.ms", SET, "3600001"),
    "no number": ("interval.ms", SET, "abc"),
    "unknown key": ("other", SET, "1"),
    "unknown key deleted": ("other", DELETE, None),
}


def test_settings_are_checked_and_shown_as_kafka_does(
    served: ServedBroker, kafka: KafkaServer
) -> None:
    for case, alteration in CHANGES.items():
        name = case.replace(" ", "-")
        ours, theirs = (change(server.bootstrap, name, alteration) for server in (served, kafka))
        assert ours == theirs, case
    for name in ("", "prefixes", "pattern", "interval", "none", "never-made"):
        want = describe(served.bootstrap, name)

        def has_learnt(name: str = name, want: DescribeConfigsResult = want) -> bool:
            return describe(kafka.bootstrap, name) == want

        wait_until(has_learnt)
    assert change(served.bootstrap, "", ("metrics", SET, "x")) == change(
        kafka.bootstrap, "", ("metrics", SET, "x")
    )
    assert set(listed(served.bootstrap)) == {"prefixes", "all", "none", "pattern", "interval"}
    for name in listed(served.bootstrap):
        for server in (served, kafka):
            change(server.bootstrap, name, *((key, DELETE, None) for key in CHANGES_OF))
    assert listed(served.bootstrap) == []


CHANGES_OF = ("metrics", "match", "interval.ms")


def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as broker:
        subscribe(broker, "kept", metrics="a", interval_ms="1000")
        given = wanted(broker)
    with ServedBroker(tmp_path, settings) as broker:
        again = wanted(broker, given.client_instance_id)
        assert listed(broker.bootstrap) == ["kept"]
        # Settings of all brokers are others'.
        assert "" not in broker.broker.replica.state.broker_configs
    assert (again.requested_metrics, again.push_interval_ms) == (["a"], 1000)
    assert again.subscription_id == given.subscription_id


def test_matching_subscriptions_are_combined(served: ServedBroker) -> None:
    first = wanted(served)
    assert (first.requested_metrics, first.push_interval_ms) == ([], 300_000)
    assert first.client_instance_id != bytes(16)
    subscribe(served, "one", metrics="b,a", interval_ms="5000", match="client_id=te.*")
    subscribe(served, "two", metrics="c,a", interval_ms="9000")
    subscribe(served, "three", metrics="d", interval_ms="100", match="client_id=other")
    subscribe(served, "four", metrics="", interval_ms="100")
    host, port = "client_source_address=127.0.0.1", "client_source_port=[0-9]+"
    subscribe(served, "five", metrics="e", match=f"{host},{port}")

    second = wanted(served)
    assert (second.requested_metrics, second.push_interval_ms) == (["a", "b", "c", "e"], 5000)
    assert second.accepted_compression_types == [4, 3, 1, 2]
    assert (second.telemetry_max_bytes, second.delta_temporality) == (1024 * 1024, True)

    subscribe(served, "two", metrics="*")
    assert wanted(served).requested_metrics == ["*"]


def test_a_pattern_is_matched_in_linear_time() -> None:
    state = State()
    key = resource_key(CLIENT_METRICS_RESOURCE, "slow")
    # A matcher that backtracks takes 2^60 steps to see that this does not match.
    state.broker_configs[key] = {"metrics": "a", "match": "client_id=(a+)+"}

    assert find_wanted(state, {"client_id": "a" * 60}).metrics == ["a"]
    assert find_wanted(state, {"client_id": "a" * 60 + "!"}).metrics == []


def test_stored_pattern_of_an_unknown_kind_matches_no_client() -> None:
    state = State()
    key = resource_key(CLIENT_METRICS_RESOURCE, "old")
    state.broker_configs[key] = {"metrics": "a", "match": "client_id=(?!b).*"}

    assert find_wanted(state, {"client_id": "a"}).metrics == []


# Pushes.

METRICS = data(
    metric("gauge", 5, fixed(4, "<d", 2.5)),
    metric("delta", 7, fixed(6, "<q", 10), temporality=1),
    metric("sum", 7, fixed(6, "<q", 10), temporality=2),
)


@pytest.mark.parametrize("compression", sorted(CODECS))
def test_pushed_metrics_are_exposed(served: ServedBroker, compression: int) -> None:
    subscribe(served, "all", metrics="*", interval_ms="100")
    given = wanted(served)
    metrics = CODECS[compression].compress(METRICS)

    def is_taken() -> bool:
        # The interval must be over.
        return push(served, given, metrics, compression_type=compression) is ErrorCode.NONE

    for count in (1, 2):
        wait_until(is_taken)
        assert shown(given.client_instance_id) == {"gauge": 2.5, "delta": 10.0 * count, "sum": 10}


def test_invalid_pushes_are_refused_as_kafka_does(served: ServedBroker) -> None:
    subscribe(served, "all", metrics="*", interval_ms=HOUR)
    given = wanted(served)

    assert push(served, given, METRICS, client_instance_id=bytes(16)) is ErrorCode.INVALID_REQUEST
    for refused, other in (
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, {"subscription_id": given.subscription_id ^ 1}),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, {"compression_type": 9}),
    ):
        assert push(served, given, METRICS, **other) is refused
        # A client has to ask again after these, so it may do so at once.
        given = wanted(served, given.client_instance_id)
        assert given.error_code is ErrorCode.NONE
    assert push(served, given, METRICS) is ErrorCode.NONE
    assert push(served, given, METRICS) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    too_early = wanted(served, given.client_instance_id)
    assert too_early.error_code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # The last push may come at any time, and nothing after it.
    assert push(served, given, METRICS, terminating=True) is ErrorCode.NONE
    assert push(served, given, METRICS, terminating=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("metrics", "compression", "code"),
    [
        (b"x" * (1024 * 1024 + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\xff" * 100, 0, ErrorCode.INVALID_RECORD),
        (b"no zstd", 4, ErrorCode.INVALID_RECORD),
        *((codec.compress(BOMB), number, ErrorCode.INVALID_RECORD) for number, codec in PACKED),
        (b"", 0, ErrorCode.NONE),
    ],
    ids=["large", "garbage", "damaged", *(f"bomb {number}" for number, _ in PACKED), "nothing"],
)
def test_pushed_metrics_are_bounded(
    served: ServedBroker, metrics: bytes, compression: int, code: ErrorCode
) -> None:
    given = wanted(served)
    assert push(served, given, metrics, compression_type=compression) is code
    assert shown(given.client_instance_id) == {}


def test_librdkafka_pushes_the_requested_metrics(served: ServedBroker) -> None:
    name = f"telling-{secrets.token_hex(4)}"
    subscribe(served, "all", metrics="*", interval_ms="100", match=f"client_id={name}")
    producer = Producer({"bootstrap.servers": served.bootstrap, "client.id": name})
    producer.produce("t", b"v")
    assert producer.flush(20) == 0

    def metrics() -> set[str]:
        own = f'client_id="{name}"'
        lines = [line for line in VALUES.lines("v") if own in line]
        return {line.split('metric="')[1].split('"')[0] for line in lines}

    wait_until(lambda: "org.apache.kafka.producer.connection.creation.total" in metrics())


# Bounds.


class TestBounds:
    def setup_method(self) -> None:
        self.kept = Telemetry()
        self.wanted = WantedMetrics(["*"], 1000)

    def client(self, number: int = 0, now_ms: int = 0) -> pushedmetrics.ClientInstance:
        return self.kept.ask(_id(number), "c", self.wanted, now_ms)

    def points(self, count: int, value: float = 1.0) -> list[Point]:
        return [Point(f"m{index}", (), value, is_delta=False) for index in range(count)]

    def test_absent_clients_are_removed_with_their_metrics(self) -> None:
        client = self.client()
        self.kept.keep(client, self.points(3))
        assert len(shown(_id(0))) == 3
        self.kept.expire(60_000)
        assert len(self.kept) == 1
        self.kept.expire(60_001)
        assert (len(self.kept), shown(_id(0))) == (0, {})

    def test_metrics_per_client_are_bounded(self) -> None:
        client = self.client()
        for value in (1.0, 2.0):
            self.kept.keep(client, self.points(pushedmetrics._MAX_CLIENT_SERIES + 7, value))
        assert len(client.series) == pushedmetrics._MAX_CLIENT_SERIES
        assert set(shown(_id(0)).values()) == {2.0}

    def test_metrics_of_all_clients_are_bounded(self) -> None:
        clients = pushedmetrics._MAX_SERIES // pushedmetrics._MAX_CLIENT_SERIES
        for number in range(clients + 2):
            self.kept.keep(self.client(number), self.points(pushedmetrics._MAX_CLIENT_SERIES))
        assert [bool(shown(_id(number))) for number in (0, clients - 1, clients)] == [
            True,
            True,
            False,
        ]
        self.kept.expire(10**9)
        assert len(self.kept) == 0

    def test_number_of_clients_is_bounded(self) -> None:
        self.kept.keep(self.client(), self.points(1))
        for number in range(1, pushedmetrics._MAX_CLIENTS + 1):
            self.client(number)
        assert len(self.kept) == pushedmetrics._MAX_CLIENTS
        assert shown(_id(0)) == {}

    def test_long_names_are_truncated(self) -> None:
        client = self.kept.ask(_id(0), "c" * 1000, self.wanted, 0)
        self.kept.keep(client, [Point("n" * 1000, (("k", "v" * 1000),), 1, is_delta=False)])
        [series] = client.series
        assert [len(label) for label in series] == [200, 22, 200, 200]
        with pytest.raises(ApiError):
            self.kept.ask(_id(0), "c", self.wanted, 999)
        self.kept.expire(10**9)

    def teardown_method(self) -> None:
        self.kept.expire(10**12)


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")
