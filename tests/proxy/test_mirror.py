"""Clients see through the proxy what they see directly, on Rookery and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterQuotaEntry,
    EntityData,
    OpData,
)

COUNT = 500


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    reader = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})
    try:
        yield reader
    finally:
        reader.close()


def read(reader: Consumer, total: int) -> list[Message]:
    messages: list[Message] = []

    def has_all() -> bool:
        messages.extend(reader.consume(total, timeout=1.0))
        return len(messages) >= total

    wait_until(has_all)
    assert [each.error() for each in messages if each.error()] == []
    return messages


@pytest.fixture
def topic(proxy: ServedProxy) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(20)
    return name


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_pass_in_order(proxy: ServedProxy, topic: str, acks: str) -> None:
    # A broker that does not lead a new partition yet drops what needs no acknowledgement.
    first = Producer({"bootstrap.servers": proxy.bootstrap, "acks": "all"})
    first.produce(topic, b"0", partition=1)
    assert first.flush(20) == 0
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "acks": acks})
    for number in range(1, COUNT):
        producer.produce(topic, b"%d" % number, partition=1)
    assert producer.flush(20) == 0

    with consumer(proxy.bootstrap, **{"group.id": topic}) as reader:
        reader.assign([TopicPartition(topic, 1, 0)])
        assert [int(each.value() or b"") for each in read(reader, COUNT)] == list(range(COUNT))


def test_groups_share_and_commit(proxy: ServedProxy, server: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(20) == 0

    with consumer(proxy.bootstrap, **{"group.id": topic}) as reader:
        reader.subscribe([topic])
        assert sorted(int(each.value() or b"") for each in read(reader, COUNT)) == list(
            range(COUNT)
        )
        reader.commit(asynchronous=False)

    with consumer(server, **{"group.id": topic}) as reader:
        places = [TopicPartition(topic, number) for number in range(3)]
        assert sum(each.offset for each in reader.committed(places, timeout=20)) == COUNT


def test_transactions_pass(proxy: ServedProxy, topic: str) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, finish in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(20)
        finish(30)

    with consumer(proxy.bootstrap, **{"group.id": topic}) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [each.value() for each in read(reader, 1)] == [b"committed"]


def test_quota_of_the_upstream_is_that_of_each_client(proxy: ServedProxy, topic: str) -> None:
    limited, free = f"limited-{topic}", f"free-{topic}"
    entity = [EntityData(entity_type="client-id", entity_name=limited)]
    limit = OpData(key="producer_byte_rate", value=1000.0, remove=False)
    request = AlterClientQuotasRequest(entries=[AlterQuotaEntry(entity=entity, ops=[limit])])
    [row] = ask(proxy.bootstrap, ALTER_CLIENT_QUOTAS, 1, request).entries
    assert row.error_code is ErrorCode.NONE
    throttled: list[str] = []

    def write(name: str) -> list[str]:
        """Write a record; return the clients that the broker has throttled."""
        producers[name].produce(topic, bytes(20_000), partition=0)
        assert producers[name].flush(20) == 0
        producers[name].poll(0)
        return throttled

    def open_producer(name: str) -> Producer:
        def note(event: Any) -> None:
            if event.throttle_time > 0:
                throttled.append(name)

        return Producer(
            {"bootstrap.servers": proxy.bootstrap, "client.id": name, "throttle_cb": note}
        )

    producers = {name: open_producer(name) for name in (limited, free)}
    wait_until(lambda: write(limited))
    for _ in range(3):
        write(free)

    assert set(throttled) == {limited}


def test_clients_see_only_addresses_of_the_proxy(proxy: ServedProxy) -> None:
    metadata = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20)
    [cluster] = proxy.proxy.clusters
    addresses = {node: f"{broker.host}:{broker.port}" for node, broker in metadata.brokers.items()}

    assert addresses == {node: address.text for node, address in cluster.nodes.items()}
    assert addresses
