"""What clients can see of a cluster: topics with their records, settings and ids, and groups."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from rookery.testing.wait import wait_until

SECONDS: Final = 120.0
T0: Final = 1_700_000_000_000
"""The time of the first record that names one."""


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record as a consumer got it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(slots=True)
class SeenPartition:
    """A partition as clients saw it."""

    low: int
    high: int
    records: list[SeenRecord]
    committed: list[int]
    """The offsets that a consumer of committed records got."""
    by_time: dict[int, int]
    """The offset of the first record of a time or later; -1 if there was none."""


@dataclass(slots=True)
class SeenTopic:
    """A topic as an admin client saw it."""

    id: str
    configs: dict[str, str]
    partitions: dict[int, SeenPartition]


@dataclass(slots=True)
class ClusterSight:
    """A cluster as clients saw it, and its folder."""

    folder: Path
    cluster_id: str
    topics: dict[str, SeenTopic] = field(default_factory=dict)
    groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)
    """The offset and the words that a group committed, by topic and partition."""


def look(server: Any, folder: Path, cluster_id: str | None = None) -> ClusterSight:
    """Read everything that clients can see of a server; `server` has a `bootstrap`."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    seen = ClusterSight(folder, cluster_id or server.cluster_id)
    listing = admin.list_topics(timeout=SECONDS)
    places = [
        (name, number)
        for name, topic in sorted(listing.topics.items())
        for number in sorted(topic.partitions)
        if not name.startswith("__")
    ]
    every = consume_all(server.bootstrap, places)
    committed = consume_all(server.bootstrap, places, committed=True)
    for name in dict.fromkeys(name for name, _ in places):
        seen.topics[name] = SeenTopic(_topic_id(admin, name), _configs(admin, name), {})
    for place in places:
        low, high, records = every[place]
        seen.topics[place[0]].partitions[place[1]] = SeenPartition(
            low,
            high,
            records,
            [record.offset for record in committed[place][2]],
            _by_time(admin, place, records),
        )
    for group in admin.list_consumer_groups(request_timeout=60).result().valid:
        seen.groups[group.group_id] = _group(server.bootstrap, group.group_id, seen)
    return seen


def _topic_id(admin: Any, name: str) -> str:
    from confluent_kafka import TopicCollection  # noqa: PLC0415 (new in the client)

    described = admin.describe_topics(TopicCollection([name]))[name].result()
    return _uuid_text(described.topic_id)


def _uuid_text(value: Any) -> str:
    bits = (value.get_most_significant_bits() & (2**64 - 1)) << 64
    bits |= value.get_least_significant_bits() & (2**64 - 1)
    from rookery.model.uuid import uuid_text  # noqa: PLC0415

    return uuid_text(bits.to_bytes(16, "big"))


def _configs(admin: Any, name: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = admin.describe_configs([resource])[resource].result()
    dynamic_topic_config = 1
    return {
        key: entry.value for key, entry in entries.items() if entry.source == dynamic_topic_config
    }


def _by_time(admin: Any, place: tuple[str, int], records: list[SeenRecord]) -> dict[int, int]:
    times = sorted({record.timestamp for record in records}) or [T0]
    wanted = {times[0] - 1, times[0], times[len(times) // 2], times[-1], times[-1] + 1}
    offsets = {}
    for when in sorted(wanted):
        partition = TopicPartition(*place)
        spec = {partition: OffsetSpec.for_timestamp(when)}
        offsets[when] = int(retry(partial(_first_at, admin, spec)).offset)
    return offsets


def _first_at(admin: Any, spec: dict[Any, Any]) -> Any:
    [asked] = admin.list_offsets(spec).values()
    return asked.result()


def _group(bootstrap: str, name: str, seen: ClusterSight) -> dict[tuple[str, int], tuple[int, str]]:
    consumer = make_consumer(bootstrap, **{"group.id": name})
    places = [
        TopicPartition(topic, number)
        for topic, description in seen.topics.items()
        for number in description.partitions
    ]
    committed = consumer.committed(places, timeout=SECONDS)
    consumer.close()
    return {
        (commit.topic, commit.partition): (commit.offset, commit.metadata or "")
        for commit in committed
        if commit.offset >= 0
    }


Place = tuple[str, int]
"""Topic and partition."""


def consume(bootstrap: str, topic: str, partition: int) -> list[SeenRecord]:
    """Read a partition from its start to its end with librdkafka."""
    return consume_all(bootstrap, [(topic, partition)])[topic, partition][2]


def consume_all(
    bootstrap: str, places: list[Place], *, committed: bool = False
) -> dict[Place, tuple[int, int, list[SeenRecord]]]:
    """Read partitions to their ends; return low and high watermark and the records of each."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = make_consumer(bootstrap, **{"isolation.level": level, "enable.partition.eof": True})
    read: dict[Place, tuple[int, int, list[SeenRecord]]] = {}
    for place in places:
        low, high = _ends(consumer, place)
        read[place] = (low, high, [])
    consumer.assign([TopicPartition(*place, read[place][0]) for place in places])
    _read_on(consumer, read)
    consumer.close()
    return read


def _read_on(consumer: Any, read: dict[Place, tuple[int, int, list[SeenRecord]]]) -> None:
    left = set(read)

    def go_on() -> set[Place]:
        for message in consumer.consume(5000, timeout=0.2):
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                read[place][2].append(_convert(message))
            elif error.name() == "_PARTITION_EOF":
                left.discard(place)
            elif not error.retriable():
                raise KafkaException(error)
        return left

    if left:
        wait_until(go_on, "partitions without an end", accepts=operator.not_)


def _convert(message: Any) -> SeenRecord:
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return SeenRecord(message.offset(), timestamp, kind, message.key(), message.value(), headers)


def make_consumer(bootstrap: str, **settings: Any) -> Any:
    """Make a consumer that joins no group and commits only on request."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "kafkadir-unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
            **settings,
        }
    )


def watermarks(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Return the low and the high watermark of a partition."""
    consumer = make_consumer(bootstrap)
    low, high = _ends(consumer, (topic, partition))
    consumer.close()
    return low, high


def _ends(consumer: Any, place: Place) -> tuple[int, int]:
    # A broker that has just started may not lead yet.
    watermarks: tuple[int, int] = retry(
        lambda: consumer.get_watermark_offsets(TopicPartition(*place), timeout=SECONDS)
    )
    return watermarks


def retry(work: Callable[[], Any]) -> Any:
    """Repeat a call that can fail while a start or a deletion is under way."""
    errors: list[KafkaException] = []

    def attempt() -> list[Any]:
        try:
            return [work()]
        except KafkaException as error:
            errors.append(error)
            return []

    try:
        [result] = wait_until(attempt, pause=0.1)
    except TimeoutError:
        raise errors[-1] from None
    return result
