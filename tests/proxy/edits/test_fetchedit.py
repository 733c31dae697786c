"""Changed records in responses of fetches, and of share groups."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.errors import Corrupt, ErrorCode
from rookery.proxy.edits.fetchedit import edit_fetched
from rookery.proxy.edits.topicchoice import TopicChoice
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import BatchSettings, Record
from rookery.wire.messages import fetch, share_fetch
from rookery.wire.messages.fetch import FetchResponse
from rookery.wire.messages.share_fetch import ShareFetchResponse

TOPIC_ID = bytes(range(16))


def batch(offset: int, value: bytes) -> bytes:
    return recordcodec.build([Record(None, value, (), 5)], BatchSettings(base_offset=offset))


def fetched(records: bytes) -> FetchResponse:
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=9,
        aborted_transactions=None,
        records=records,
    )
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition])
    return FetchResponse(responses=[topic])


def shared(records: bytes) -> ShareFetchResponse:
    partition = share_fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=share_fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
        records=records,
        acquired_records=[
            share_fetch.AcquiredRecords(first_offset=0, last_offset=1, delivery_count=1)
        ],
    )
    topic = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=1,
        responses=[topic],
        node_endpoints=[],
    )


def upper(records: Buffer, header: BatchHeader) -> bytes | None:
    """Change a batch with lower-case letters; refuse one with `bad`."""
    [record] = recordcodec.read(records, header)
    value = record.value or b""
    if value == b"bad":
        raise Corrupt("it is bad")
    if value.isupper():
        return None
    return batch(header.base_offset, value.upper())


def values(response: Any) -> list[bytes | None]:
    records = response.responses[0].partitions[0].records
    return [record.value for record in recordcodec.read_all(records)]


@pytest.mark.parametrize("make", [fetched, shared])
def test_batches_change_on_their_own(make: Any) -> None:
    response = make(batch(0, b"a") + batch(1, b"B"))

    assert edit_fetched(response, TopicChoice({}), upper) == (True, [])
    assert values(response) == [b"A", b"B"]


@pytest.mark.parametrize("make", [fetched, shared])
def test_unchanged_response_keeps_its_bytes_and_its_cut_off_end(make: Any) -> None:
    records = batch(0, b"A") + batch(1, b"B")[:-3]
    response = make(records)

    assert edit_fetched(response, TopicChoice({}), upper) == (False, [])
    assert response.responses[0].partitions[0].records is records


def test_batches_before_a_refused_one_are_delivered() -> None:
    response = fetched(batch(0, b"a") + batch(1, b"bad") + batch(2, b"c"))

    is_changed, problems = edit_fetched(response, TopicChoice({}), upper)

    assert is_changed
    assert problems == ["t-0: offset 1: it is bad"]
    assert values(response) == [b"A"]
    assert response.responses[0].partitions[0].error_code is ErrorCode.NONE


@pytest.mark.parametrize("make", [fetched, shared])
def test_refused_first_batch_is_an_error_without_records(make: Any) -> None:
    response = make(batch(0, b"bad") + batch(1, b"b"))

    edit_fetched(response, TopicChoice({}), upper)

    partition = response.responses[0].partitions[0]
    assert partition.error_code is ErrorCode.CORRUPT_MESSAGE
    assert partition.records == b""
    assert not getattr(partition, "acquired_records", [])


def test_member_of_a_share_group_gets_all_that_it_acquired_or_an_error() -> None:
    response = shared(batch(0, b"a") + batch(1, b"bad"))

    edit_fetched(response, TopicChoice({}), upper)

    assert response.responses[0].partitions[0].error_code is ErrorCode.CORRUPT_MESSAGE
    assert not response.responses[0].partitions[0].acquired_records


def test_topic_whose_name_is_not_known_is_not_delivered() -> None:
    topics = TopicChoice({"topics": ["t"]})
    response = shared(batch(0, b"a"))
    edit_fetched(response, topics, upper)
    assert response.responses[0].partitions[0].error_code is ErrorCode.CORRUPT_MESSAGE

    topics.names.learn(TOPIC_ID, "t")
    response = shared(batch(0, b"a"))
    edit_fetched(response, topics, upper)
    assert values(response) == [b"A"]


def test_damaged_batch_is_an_error() -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-1] ^= 1
    response = fetched(bytes(damaged))

    edit_fetched(response, TopicChoice({}), upper)

    assert response.responses[0].partitions[0].error_code is ErrorCode.CORRUPT_MESSAGE


def test_older_formats_pass() -> None:
    older = bytearray(batch(0, b"a"))
    older[16] = 1
    response = fetched(batch(0, b"a") + bytes(older))

    edit_fetched(response, TopicChoice({}), upper)

    records: Any = response.responses[0].partitions[0].records
    assert records.endswith(bytes(older))
    assert batches.parse(records).base_offset == 0
