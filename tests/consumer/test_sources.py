"""Rookery's own objects as a source, with no broker running; and any Kafka over TLS."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import rookery
from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ApiError, ConfigError
from rookery.security.tls import ClientTls
from rookery.testing.kafka import KafkaServer
from tests.direct.logs import BASE, Cluster, Sent, create, send, send_by_turns


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A log that a broker has written, which has gone since."""
    made = Cluster(tmp_path)
    with made.broker() as broker:
        create(broker, "t", 2)
        create(broker, "empty", 1)
        for partition in range(2):
            rows = [Sent(b"%d" % n, b"k", partition, BASE + 2 * n + partition) for n in range(1000)]
            send(broker, "t", rows)
    return made


def test_objects_are_read_without_a_broker(cluster: Cluster) -> None:
    with rookery.read(cluster.place, ["t", "empty"]) as stream:
        table = stream.to_table()
        states = set(stream.partitions()["state"].to_pylist())
    moment = datetime.fromtimestamp((BASE + 500) / 1000, UTC)
    part = rookery.read(cluster.store, "t", start=moment).to_table()

    moments: list[datetime] = [time for time in table["timestamp"].to_pylist() if time is not None]
    assert moments == sorted(moments)
    assert table.num_rows == 2000
    assert table["value"].to_pylist()[:4] == [b"0", b"0", b"1", b"1"]
    assert states == {"done"}
    assert part.num_rows == 1500


def test_segments_give_the_same_rows_as_earlier_objects(cluster: Cluster) -> None:
    before = rookery.read(cluster.place, "t").to_table()
    cluster.rewrite()
    after = rookery.read(cluster.place, "t").to_table()

    assert after.equals(before)


def test_records_committed_after_an_abort_are_read(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        committed = send_by_turns(broker, "turns")

    assert rookery.read(cluster.place, "turns").to_table()["value"].to_pylist() == committed
    cluster.rewrite("turns")
    table = rookery.read(cluster.place, "turns", memory=1 << 20).to_table()
    assert table["value"].to_pylist() == committed


def test_direct_read_resumes_from_a_checkpoint(cluster: Cluster) -> None:
    with rookery.read(cluster.place, "t", batch_rows=300) as stream:
        first = next(stream)
        rest = sum(batch.num_rows for batch in stream)
    resumed = rookery.read(cluster.place, "t", start=first.checkpoint).to_table()

    assert first.num_rows == 300
    assert resumed.num_rows == rest == 1700


def test_rows_committed_later_are_followed(cluster: Cluster) -> None:
    with rookery.follow(cluster.place, "t") as stream, cluster.broker() as broker:
        stream.poll(10)
        send(broker, "t", [Sent(b"new", b"k", 1, BASE + 5000)])
        batch = stream.poll(60_000)

    assert batch is not None
    assert batch["value"].to_pylist() == [b"new"]


def test_direct_read_refuses_groups_and_unknown_topics(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match="does not exist"):
        rookery.read(cluster.place, "other").open()
    with rookery.read(cluster.place, "t", group="g") as stream:
        batch = next(stream)
        with pytest.raises(ConfigError, match="need a broker"):
            batch.commit()


def test_a_kafka_with_tls_and_a_login_is_read(kafka_secure: KafkaServer) -> None:
    certificates = kafka_secure.certificates
    settings = ClientSettings(
        bootstrap=kafka_secure.address("SASL_SSL"),
        tls=ClientTls(ca_file=str(certificates.ca)),
        sasl=Sasl("SCRAM-SHA-512", "admin", kafka_secure.users["admin"]),
    )

    async def fill() -> None:
        from rookery.client.client import Client  # noqa: PLC0415 (here only)

        async with Client(settings) as client:
            await client.create_topic("secured", 2, 1)
            for n in range(4):
                await client.produce("secured", b"%d" % n, partition=n % 2, timestamp=BASE + n)

    import asyncio  # noqa: PLC0415

    asyncio.run(fill())
    table = rookery.read(settings, "secured").to_table()

    assert table["value"].to_pylist() == [b"0", b"1", b"2", b"3"]
