"""kcat, a stock client in C, produces, consumes and lists metadata."""

from __future__ import annotations

import asyncio
import json

import pytest

from rookery.client.client import Client
from tests.clients.peers import CODECS, new_topic, stored_codecs
from tests.kcat.conftest import Kcat
from tests.proxies import Proxies

COUNT = 10_000


def test_lists_brokers_topics_and_partitions(bootstrap: str, kcat: Kcat, proxies: Proxies) -> None:
    topic = new_topic(bootstrap, partitions=3)

    seen = json.loads(kcat("-L", "-J"))

    rows = {row["topic"]: row for row in seen["topics"]}
    assert [broker["name"] for broker in seen["brokers"]] == proxies.brokers(bootstrap)
    assert [part["partition"] for part in rows[topic]["partitions"]] == [0, 1, 2]
    leaders = {part["leader"] for part in rows[topic]["partitions"]}
    assert leaders == {broker["id"] for broker in seen["brokers"]}


@pytest.mark.parametrize("codec", CODECS)
def test_ten_thousand_messages_survive_a_round_trip(bootstrap: str, kcat: Kcat, codec: str) -> None:
    topic = new_topic(bootstrap)
    sent = b"".join(b"message number %d of some length\n" % number for number in range(COUNT))

    kcat("-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true", data=sent)

    assert kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q") == sent
    assert stored_codecs(bootstrap, topic) == {codec}


def test_keys_and_headers_survive_a_round_trip(bootstrap: str, kcat: Kcat) -> None:
    topic = new_topic(bootstrap)

    kcat("-P", "-t", topic, "-K", ":", "-H", "seen=today", data=b"corvus:jackdaw\n")

    got = json.loads(kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"))
    assert (got["key"], got["payload"], got["offset"]) == ("corvus", "jackdaw", 0)
    assert got["headers"] == ["seen", "today"]


def test_tombstone_survives_a_round_trip(bootstrap: str, kcat: Kcat) -> None:
    topic = new_topic(bootstrap)

    kcat("-P", "-t", topic, "-K", ":", "-Z", data=b"corvus:\n")

    got = json.loads(kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"))
    assert (got["key"], got["payload"]) == ("corvus", None)


def _produce_at(bootstrap: str, topic: str, times: list[int]) -> None:
    async def produce() -> None:
        async with Client(bootstrap) as client:
            for time in times:
                await client.produce(topic, b"at %d" % time, timestamp=time)

    asyncio.run(produce())


@pytest.mark.parametrize(
    ("time", "offset"),
    [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (3_000, 2), (-2, 0), (-1, 3), (3_001, 3)],
)
def test_offsets_are_found_by_time(bootstrap: str, kcat: Kcat, time: int, offset: int) -> None:
    topic = new_topic(bootstrap, retention_ms="-1")
    _produce_at(bootstrap, topic, [1_000, 2_000, 3_000])

    answer = kcat("-Q", "-t", f"{topic}:0:{time}").decode().split()

    # After the last record librdkafka reports the end, which it calls -1.
    assert answer[:3] == [topic, "[0]", "offset"]
    assert int(answer[3]) in ({offset, -1} if time == 3_001 else {offset})


def test_reading_starts_at_a_time_and_relative_to_the_end(bootstrap: str, kcat: Kcat) -> None:
    topic = new_topic(bootstrap, retention_ms="-1")
    _produce_at(bootstrap, topic, [1_000, 2_000, 3_000])

    assert kcat("-C", "-t", topic, "-o", "s@1500", "-e", "-q") == b"at 2000\nat 3000\n"
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q") == b"at 3000\n"
    assert kcat("-C", "-t", topic, "-o", "1", "-c", "1", "-q") == b"at 2000\n"


@pytest.mark.parametrize("acks", ["1", "all"])
def test_every_level_of_acknowledgement_works(bootstrap: str, kcat: Kcat, acks: str) -> None:
    topic = new_topic(bootstrap, partitions=4)

    kcat("-P", "-t", topic, "-X", f"acks={acks}", data=b"one\ntwo\nthree\n")

    got = kcat("-C", "-t", topic, "-o", "beginning", "-c", "3", "-q")
    assert sorted(got.split()) == [b"one", b"three", b"two"]
