"""The position of a stream, and resuming from it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import rookery
from rookery.consumer.checkpoint import NO_TIME, Checkpoint, PartitionMark
from rookery.consumer.faults import OffsetTruncated
from rookery.errors import ConfigError
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows

Seen = list[tuple[int, int, int]]


def seen(batch: rookery.OrderedStream | object) -> Seen:
    columns = [batch[name].to_pylist() for name in ("partition", "offset", "lateness")]  # type: ignore[index]
    return [(p, o, late // timedelta(milliseconds=1)) for p, o, late in zip(*columns, strict=True)]


def disordered(topics: Logs, stem: str, seed: int = 1) -> str:
    """Make a topic of four partitions whose times go up, with some disorder."""
    chance = random.Random(seed)
    topic = topics.create(stem, 4)
    for partition in range(3):
        clock, moments = NOON, []
        for _ in range(60):
            clock += chance.randrange(5)
            moments.append(clock - chance.choice([0, 0, 0, chance.randrange(20)]))
        for start in range(0, 60, 7):
            topics.append(topic, {partition: pack_rows(rows(moments[start : start + 7]))})
    return topic


@pytest.mark.parametrize("lateness_ms", [0, 10])
def test_stream_resumes_after_every_batch(topics: Logs, lateness_ms: int) -> None:
    topic = disordered(topics, "resume")
    lateness = timedelta(milliseconds=lateness_ms)
    with rookery.read(topics.bootstrap, topic, batch_rows=17, lateness=lateness) as stream:
        batches = [(seen(batch), batch.checkpoint.to_json()) for batch in stream]
    whole = [row for read, _ in batches for row in read]
    assert len(whole) == 180

    done: Seen = []
    for read, text in batches:
        done += read
        start = Checkpoint.from_json(text)
        with rookery.read(topics.bootstrap, topic, start=start, lateness=lateness) as stream:
            rest = [row for batch in stream for row in seen(batch)]
        assert done + rest == whole


def test_stream_resumes_after_every_row(topics: Logs) -> None:
    topic = topics.create("hops", 2)
    topics.write(topic, 0, rows([NOON + ms for ms in (5000, 1000, 3000, 2000, 4000)]))
    topics.write(topic, 1, rows([NOON + ms for ms in (0, 2500, 6000)]), size=1)
    for lateness in (timedelta(0), timedelta(seconds=5)):
        whole = seen(rookery.read(topics.bootstrap, topic, lateness=lateness).to_table())
        hopped: Seen = []
        start: rookery.Checkpoint | None = None
        while len(hopped) < len(whole):
            stream = rookery.read(
                topics.bootstrap, topic, start=start or "earliest", lateness=lateness, max_rows=1
            )
            with stream:
                hopped += seen(next(stream))
                start = stream.checkpoint
        assert hopped == whole


def test_checkpoint_survives_json() -> None:
    place = TopicPartition("birds", 3)
    made = Checkpoint({place: PartitionMark(7, 8, ((9, 10),))}, ("birds",), 5, 99, 11, 12)

    assert Checkpoint.from_json(made.to_json()) == made
    assert made.offsets() == {place: 7}
    assert PartitionMark.of_commit(made.commits()[place]) == PartitionMark(7, 8, ((9, 10),))


def test_commit_note_holds_as_much_as_its_size_allows() -> None:
    little = PartitionMark(7, -8, tuple((2 * n, 2 * n + 1) for n in range(100)))
    much = PartitionMark(7, -8, tuple((2 * n, 2 * n + 1) for n in range(1000)))

    assert little.has_room
    assert PartitionMark.of_commit(little.to_commit()) == little
    assert not much.has_room
    assert PartitionMark.of_commit(much.to_commit()) == PartitionMark(7, -8)


@pytest.mark.parametrize(
    "note", ["", "x", "rookery-clock=", "rookery-clock=1;passed=", f"rookery-clock={'9' * 30}"]
)
def test_foreign_commit_note_is_ignored(note: str) -> None:
    assert PartitionMark.of_commit(CommittedOffset(7, note)) == PartitionMark(7)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version":1,"topics":1}'])
def test_invalid_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        Checkpoint.from_json(text)


def test_a_checkpoint_of_another_order_is_refused(topics: Logs) -> None:
    topic = topics.create("other", 1)
    place = TopicPartition(topic, 0)

    for made, text in (
        (Checkpoint({place: PartitionMark(0)}, (topic,), lateness_ms=5), "lateness"),
        (Checkpoint({place: PartitionMark(0)}, ("else",)), "topics"),
    ):
        with pytest.raises(ConfigError, match=text):
            rookery.read(topics.bootstrap, topic, start=made).open()


def test_commits_store_offsets_and_clocks_for_the_group(topics: Logs) -> None:
    topic, group = disordered(topics, "commits"), "group-of-commits"

    def read() -> rookery.OrderedStream:
        return rookery.read(topics.bootstrap, topic, start="committed", group=group, batch_rows=50)

    with rookery.read(topics.bootstrap, topic, batch_rows=50) as stream:
        whole = [row for batch in stream for row in seen(batch)]
    committed: Seen = []
    while len(committed) < len(whole):
        with read() as stream:
            batch = next(stream)
            committed += seen(batch)
            batch.commit()

    assert committed == whole
    with pytest.raises(StopIteration):
        next(read())


def test_fetching_a_batch_can_commit_the_previous_one(topics: Logs) -> None:
    topic, group = disordered(topics, "next"), "group-of-next"
    options = {"group": group, "start": "committed", "batch_rows": 50}

    with rookery.read(topics.bootstrap, topic, commit="on_next", **options) as stream:  # type: ignore[arg-type]
        next(stream)
        next(stream)
    with rookery.read(topics.bootstrap, topic, **options) as stream:  # type: ignore[arg-type]
        rest = sum(batch.num_rows for batch in stream)

    assert rest == 130


def test_commit_without_a_group_is_refused(topics: Logs) -> None:
    topic = disordered(topics, "none")
    with (
        rookery.read(topics.bootstrap, topic) as stream,
        pytest.raises(ConfigError, match="name the group"),
    ):
        next(stream).commit()


def test_start_deleted_by_retention_is_an_error(topics: Logs) -> None:
    topic = topics.create("passed", 1)
    topics.write(topic, 0, rows([NOON + ms for ms in range(100)]), size=10)
    _delete_records(topics, topic, 40)

    start = rookery.Offsets({(topic, 0): 5})
    with rookery.read(topics.bootstrap, topic, start=start) as stream:
        with pytest.raises(OffsetTruncated) as caught:
            next(stream)
        with pytest.raises(OffsetTruncated):
            next(stream)
    going_on = rookery.read(topics.bootstrap, topic, start=start, on_truncation="earliest")
    with going_on:
        rest = going_on.to_table()
        lost = going_on.partitions()["lost"].to_pylist()

    fault = caught.value
    assert (fault.wanted, fault.earliest, fault.lost_count) == (5, 40, 35)
    assert rest["offset"].to_pylist() == list(range(40, 100))
    assert lost == [35]


def _delete_records(topics: Logs, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition as Place  # noqa: PLC0415 (here only)
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    for future in admin.delete_records([Place(topic, 0, before)]).values():
        future.result(60)


def test_partition_without_rows_has_no_clock() -> None:
    assert PartitionMark(5).clock == NO_TIME
