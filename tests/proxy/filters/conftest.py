"""Clients for tests of filters, and topics for them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing.wait import wait_until

Keys = Callable[..., Path]


@pytest.fixture
def topic(server: str) -> str:
    """A new topic with one partition."""
    name = f"t-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    wait_until(lambda: name in admin.list_topics(timeout=20).topics)
    return name


def read(bootstrap: str, topic: str, count: int, **settings: object) -> list[Message]:
    """Consume a number of records from the beginning of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"g-{uuid4().hex}", **settings}
    )
    messages: list[Message] = []

    def has_all() -> bool:
        for message in consumer.consume(count - len(messages), timeout=1.0):
            error = message.error()
            assert error is None, error
            messages.append(message)
        return len(messages) >= count

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        wait_until(has_all)
    finally:
        consumer.close()
    return messages


def read_error(bootstrap: str, topic: str) -> KafkaError:
    """Consume until there is an error; return it. No record must come before it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{uuid4().hex}"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def find() -> KafkaError | None:
            for message in consumer.consume(1, timeout=1.0):
                error = message.error()
                assert error is not None, message.value()
                return error
            return None

        error = wait_until(find)
        assert error is not None
        return error
    finally:
        consumer.close()


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Writes a file of keys, each from a number."""

    def write(active: str, **numbers: int) -> Path:
        path = tmp_path / "keys.toml"
        rows = [
            f'{name} = "{base64.b64encode(bytes([number]) * 32).decode()}"'
            for name, number in numbers.items()
        ]
        path.touch(mode=0o600)
        path.write_text("\n".join([f'active = "{active}"', "[keys]", *rows]))
        return path

    return write
