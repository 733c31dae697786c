"""APIs and topics that the proxy refuses."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError
from rookery.proxy.filters.deny import Deny
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until


@pytest.fixture(scope="module")
def prefix() -> str:
    return f"{uuid4().hex[:8]}."


@pytest.fixture(scope="module")
def guarded(server: str, prefix: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": server})
    names = [f"{prefix}{name}" for name in ("open", "secret-a", "secret-b")]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(20)
    wait_until(lambda: set(names) <= set(admin.list_topics(timeout=20).topics))
    filters = [
        TopicPrefix({"prefix": prefix}),
        # It sees the names of the upstream.
        Deny({"topics": [r".*\.secret-.*"], "apis": ["DeleteTopics"]}),
    ]
    with ServedProxy(server, filters=filters) as proxy:
        yield proxy.bootstrap


def outcome(bootstrap: str, *topics: str, acks: str = "all") -> dict[str, int | None]:
    """Produce one record to each topic; return the error code of each."""
    codes: dict[str, int | None] = {}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "message.timeout.ms": 10_000}
    )

    def note(error: KafkaError | None, message: Message) -> None:
        codes[message.topic() or ""] = error.code() if error else None

    for topic in topics:
        producer.produce(topic, b"x", on_delivery=note)
    assert producer.flush(20) == 0
    return codes


def test_denied_topics_are_refused_and_others_pass(guarded: str) -> None:
    assert outcome(guarded, "secret-a", "open", "secret-b") == {
        "secret-a": KafkaError.TOPIC_AUTHORIZATION_FAILED,
        "open": None,
        "secret-b": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }


def test_denied_topics_are_not_listed(guarded: str) -> None:
    topics = AdminClient({"bootstrap.servers": guarded}).list_topics(timeout=20).topics

    assert set(topics) == {"open"}


def test_named_denied_topic_is_refused_under_the_name_of_the_client(guarded: str) -> None:
    admin = AdminClient({"bootstrap.servers": guarded})

    topics = admin.list_topics("secret-a", timeout=20).topics

    assert list(topics) == ["secret-a"]
    error = topics["secret-a"].error
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_creating_some_denied_topics_creates_the_others(guarded: str) -> None:
    admin = AdminClient({"bootstrap.servers": guarded})
    new = [NewTopic(name, 1, 1) for name in ("secret-c", f"new-{uuid4().hex}")]

    denied, created = admin.create_topics(new).values()

    created.result(20)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        denied.result(20)


def test_denied_api_is_refused(guarded: str) -> None:
    admin = AdminClient({"bootstrap.servers": guarded})

    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        admin.delete_topics(["open"])["open"].result(20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"apis": ["Nothing"]}, "there is no API 'Nothing'"),
        ({"apis": "Produce"}, "apis: must be a list of texts"),
        ({"topics": ["("]}, "topics: "),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Deny(options)
