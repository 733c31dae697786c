"""Results of fetches are held until they are asked for, once, and for the right offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ErrorCode
from rookery.proxy.nodes.fetchbuffer import (
    HOLD_MS,
    FetchBuffer,
    FetchPosition,
    PartitionKey,
    choose_results,
    topics_of,
)
from rookery.wire.message import Parts
from rookery.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

KEY: PartitionKey = ("birds", 0)
OTHER: PartitionKey = ("birds", 1)


def at(offset: int, isolation_level: int = 0) -> FetchPosition:
    return FetchPosition(offset, 4, -1, isolation_level)


def result(
    records: bytes | memoryview | Parts = b"",
    code: ErrorCode = ErrorCode.NONE,
    diverging_epoch: EpochEndOffset | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=50,
        last_stable_offset=40,
        log_start_offset=3,
        diverging_epoch=diverging_epoch,
        records=records,
    )


def arrived(*results: tuple[PartitionKey, PartitionData], is_awaited: bool = True) -> FetchBuffer:
    buffer = FetchBuffer()
    positions = {KEY: at(10)}
    buffer.begin(positions, 1_000)
    buffer.ask(1, positions)
    if not is_awaited:
        buffer.end()
    buffer.arrive(1, results, 1_000)
    return buffer


def test_records_that_arrive_late_are_held_for_the_same_offset() -> None:
    buffer = arrived((KEY, result(b"records")), is_awaited=False)

    buffer.begin({KEY: at(10)}, 2_000)

    assert buffer.find_missing([KEY]) == []
    assert buffer.take(KEY).records == b"records"
    assert buffer.find_missing([KEY]) == [KEY]


def test_result_for_another_offset_is_dropped() -> None:
    for position in (at(11), at(10, isolation_level=1), FetchPosition(10, 5, -1, 0)):
        buffer = arrived((KEY, result(b"records")))
        buffer.begin({KEY: position}, 1_000)
        assert buffer.find_missing([KEY]) == [KEY]


def test_late_result_for_another_offset_than_the_waiting_fetch_wants_is_dropped() -> None:
    """The client has gone back: records from the later offset would hide those before it."""
    for is_probe in (False, True):
        for wanted in ({KEY: at(7)}, {KEY: at(12)}, {OTHER: at(10)}):
            buffer = FetchBuffer()
            buffer.begin({KEY: at(10)}, 1_000)
            buffer.ask(1, {KEY: at(10)})
            buffer.end()
            buffer.begin(wanted, 1_000)

            buffer.arrive(1, [(KEY, result(b"records"))], 1_000, is_probe=is_probe)

            assert buffer.find_held(KEY) is None


def test_probe_that_finds_nothing_leaves_the_partition_to_be_asked_for() -> None:
    buffer = FetchBuffer()
    buffer.begin({KEY: at(10)}, 1_000)
    buffer.ask(1, {KEY: at(10)})

    buffer.arrive(1, [(KEY, result())], 1_000, is_probe=True)

    assert buffer.find_missing([KEY]) == [KEY]
    assert buffer.is_known(KEY)


def test_result_of_a_partition_that_is_not_read_any_more_is_dropped() -> None:
    buffer = arrived((KEY, result(b"records")))

    buffer.begin({OTHER: at(0)}, 1_000)

    assert buffer.held_bytes == 0
    assert not buffer.is_known(KEY)


def test_old_result_is_dropped() -> None:
    buffer = arrived((KEY, result(b"records")))

    buffer.begin({KEY: at(10)}, 1_000 + HOLD_MS)
    assert buffer.held_bytes == 7
    buffer.begin({KEY: at(10)}, 1_001 + HOLD_MS)
    assert buffer.held_bytes == 0


def test_partition_that_was_not_asked_for_is_dropped() -> None:
    buffer = arrived((OTHER, result(b"records")))

    assert buffer.find_held(OTHER) is None
    assert not buffer.is_asked(1)


def test_late_result_without_records_is_asked_for_again() -> None:
    for late in (result(), result(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        assert arrived((KEY, late), is_awaited=False).find_missing([KEY]) == [KEY]


def test_errors_and_divergence_are_urgent() -> None:
    for data, is_urgent in (
        (result(b"records"), False),
        (result(code=ErrorCode.OFFSET_OUT_OF_RANGE), True),
        (result(diverging_epoch=EpochEndOffset(epoch=3, end_offset=7)), True),
    ):
        held = arrived((KEY, data)).find_held(KEY)
        assert held is not None
        assert held.is_urgent is is_urgent


def test_last_watermarks_stand_in_for_a_result() -> None:
    buffer = arrived((KEY, result(b"records")))
    buffer.take(KEY)

    data = buffer.nothing_new(0, KEY)

    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (50, 40, 3)
    assert not data.records


sizes = st.lists(st.integers(0, 100), max_size=8)


@given(sizes=sizes, limit=st.integers(1, 200))
def test_results_fit_the_limit_but_for_the_first(sizes: list[int], limit: int) -> None:
    rows: list[tuple[PartitionKey, int]] = [
        (("birds", number), size) for number, size in enumerate(sizes)
    ]

    chosen = choose_results(rows, limit)

    taken = [size for key, size in rows if key in chosen and size]
    assert sum(taken) <= max(limit, taken[0] if taken else 0)
    assert all(key in chosen for key, size in rows if not size)
    if any(sizes):
        assert next(key for key, size in rows if size) in chosen


def test_partitions_of_a_topic_are_asked_together() -> None:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic_id = b"fish".ljust(16, b".")

    topics = topics_of([(KEY, asked), ((topic_id, 0), asked), (OTHER, asked)])

    assert [
        (topic.topic, topic.topic_id.strip(b"\0"), len(topic.partitions)) for topic in topics
    ] == [
        ("birds", b"", 2),
        ("", topic_id, 1),
    ]


def test_results_that_stay_do_not_keep_the_whole_answer_of_a_broker_in_memory() -> None:
    answer = bytearray(b"many records, of which few stay")
    buffer = arrived((KEY, result(memoryview(answer)[-4:])))

    buffer.end()

    answer.clear()  # impossible while a view of it exists
    assert buffer.held_bytes == 4
    assert buffer.take(KEY).records == b"stay"


def test_dropped_results_are_asked_for_again() -> None:
    buffer = arrived((KEY, result(b"records")))

    buffer.drop()

    assert buffer.held_bytes == 0
    assert buffer.find_missing([KEY]) == [KEY]
