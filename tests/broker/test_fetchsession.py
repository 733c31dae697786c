"""Fetch sessions: their contents, their responses, and when a client must start over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.broker.fetchplan import EXAMINED
from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.message import Message
from rookery.wire.messages.fetch import FetchResponse, ForgottenTopic
from tests.broker.raw import (
    Raw,
    batch,
    bytes_of,
    create,
    raw,
    until_examined,
    until_waiting,
)

# Longer than any test is patient.
WAIT_MS = 600_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder, BrokerSettings(durability="os")) as broker:
        yield broker


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    create(served, request.node.name, 3)
    name: str = request.node.name
    return name


def told(response: FetchResponse) -> dict[int, int]:
    """Return the partitions that are answered, and how many bytes each has."""
    return {
        part.partition_index: len(bytes_of(part))
        for topic in response.responses
        for part in topic.partitions
    }


async def propose(served: ServedBroker, event: Message) -> None:
    async def work() -> None:
        await served.broker.replica.propose([event])

    await asyncio.to_thread(served.do, work())


async def opened(client: Raw, topic: str, **options: Any) -> FetchResponse:
    offsets = {(topic, partition): 0 for partition in range(3)}
    return await client.fetch_all(offsets, session_epoch=0, **options)


async def test_session_returns_changed_partitions_only(served: ServedBroker, topic: str) -> None:
    data = batch(b"v")
    async with raw(served) as client:
        first = await opened(client, topic)
        assert first.session_id > 0
        assert told(first) == {0: 0, 1: 0, 2: 0}
        session = first.session_id
        quiet = await client.fetch_all({}, session_id=session, session_epoch=1)
        assert (quiet.session_id, quiet.responses) == (session, [])
        await client.produce(topic, data, partition=1)
        news = await client.fetch_all({}, session_id=session, session_epoch=2)
        assert told(news) == {1: len(data)}
        # The reader has not advanced: it gets the same again, although the end is unchanged.
        again = await client.fetch_all({}, session_id=session, session_epoch=3)
        assert told(again) == {1: len(data)}
        read = await client.fetch_all({(topic, 1): 1}, session_id=session, session_epoch=4)
        assert told(read) == {}


async def test_error_is_repeated_until_it_is_resolved(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        options: dict[str, Any] = {"session_id": session}
        for epoch in (1, 2):
            bad = await client.fetch_all({(topic, 2): 77}, session_epoch=epoch, **options)
            assert told(bad) == {2: 0}
            [part] = bad.responses[0].partitions
            assert part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        well = await client.fetch_all({(topic, 2): 0}, session_epoch=3, **options)
        assert told(well) == {2: 0}
        assert well.responses[0].partitions[0].error_code is ErrorCode.NONE
        assert told(await client.fetch_all({}, session_epoch=4, **options)) == {}


async def test_forgotten_partitions_are_no_longer_read(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        forgotten = [ForgottenTopic(topic=topic, partitions=[0, 2])]
        await client.fetch_all(
            {}, session_id=session, session_epoch=1, forgotten_topics_data=forgotten
        )
        for partition in range(3):
            await client.produce(topic, batch(b"v"), partition=partition)
        response = await client.fetch_all({}, session_id=session, session_epoch=2)
        assert list(told(response)) == [1]
        forgotten = [ForgottenTopic(topic=topic, partitions=[1])]
        last = await client.fetch_all(
            {}, session_id=session, session_epoch=3, forgotten_topics_data=forgotten
        )
        assert (last.session_id, last.error_code) == (0, ErrorCode.NONE)
        gone = await client.fetch_all({}, session_id=session, session_epoch=4)
        assert gone.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_wrong_session_ids_and_epochs_are_refused(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        for options, code in [
            ({"session_id": session, "session_epoch": 2}, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ({"session_id": session ^ 1, "session_epoch": 1}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ({"session_id": 0, "session_epoch": 1}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ]:
            response = await client.fetch_all({(topic, 0): 0}, **options)
            assert (response.error_code, response.session_id) == (code, 0)
            assert response.responses == []
        ids = await client.fetch_all({}, version=13, session_id=session, session_epoch=1)
        assert ids.error_code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # None of that has moved the session.
        fine = await client.fetch_all({}, session_id=session, session_epoch=1)
        assert fine.error_code is ErrorCode.NONE


async def test_session_can_be_closed_and_reopened(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        anew = await opened(client, topic, session_id=session)
        assert anew.session_id not in {0, session}
        closing = await client.fetch_all(
            {(topic, 0): 0}, session_id=anew.session_id, session_epoch=-1
        )
        assert (closing.session_id, told(closing)) == (0, {0: 0})
        for old in (session, anew.session_id):
            gone = await client.fetch_all({}, session_id=old, session_epoch=1)
            assert gone.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_partitions_are_served_in_rotation(served: ServedBroker, topic: str) -> None:
    data = batch(b"x" * 1000)
    async with raw(served) as client:
        for partition in range(3):
            await client.produce(topic, data, partition=partition)
        first = await opened(client, topic, max_bytes=1)
        turns = [[index for index, size in told(first).items() if size]]
        for epoch in range(1, 5):
            response = await client.fetch_all(
                {}, session_id=first.session_id, session_epoch=epoch, max_bytes=1
            )
            turns.append([index for index, size in told(response).items() if size])
    assert turns == [[0], [1], [2], [0], [1]]


async def test_session_fetch_waits_for_unchanged_partitions(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client, raw(served) as writer:
        session = (await opened(client, topic)).session_id
        waiting = asyncio.create_task(
            client.fetch_all({}, session_id=session, session_epoch=1, max_wait_ms=WAIT_MS)
        )
        await until_waiting(served, 3)
        await writer.produce(topic, batch(b"v"), partition=2)
        assert list(told(await asyncio.wait_for(waiting, PATIENCE_SECONDS))) == [2]


async def test_wakeup_examines_changed_partitions_only(served: ServedBroker) -> None:
    count = 2000
    create(served, "large", count)
    offsets = {("large", partition): 0 for partition in range(count)}
    examined = []
    async with raw(served) as client, raw(served) as writer:
        first = await client.fetch_all(offsets, session_epoch=0)
        options: dict[str, Any] = {"session_id": first.session_id, "max_wait_ms": WAIT_MS}
        await client.fetch_all({}, session_id=first.session_id, session_epoch=1)
        moved: dict[tuple[str, int], int] = {}
        for epoch in range(2, 5):
            before = EXAMINED.value
            waiting = asyncio.create_task(
                client.fetch_all(moved, session_epoch=epoch, min_bytes=1, **options)
            )
            await until_waiting(served, count)
            at_request = EXAMINED.value
            await writer.produce("large", batch(b"v"), partition=7 * epoch)
            response = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
            assert list(told(response)) == [7 * epoch]
            moved = {("large", 7 * epoch): 1}
            examined.append((at_request - before, EXAMINED.value - at_request))
    assert examined == [(0, 1), (1, 1), (1, 1)]


async def test_fetch_below_min_bytes_keeps_waiting_without_examining_others(
    served: ServedBroker,
) -> None:
    count, data = 500, batch(b"v" * 100)
    create(served, "patient", count)
    offsets = {("patient", partition): 0 for partition in range(count)}
    async with raw(served) as client, raw(served) as writer:
        session = (await client.fetch_all(offsets, session_epoch=0)).session_id
        await client.fetch_all({}, session_id=session, session_epoch=1)
        before = EXAMINED.value
        waiting = asyncio.create_task(
            client.fetch_all(
                {},
                session_id=session,
                session_epoch=2,
                min_bytes=3 * len(data),
                max_wait_ms=WAIT_MS,
            )
        )
        await until_waiting(served, count)
        for partition in (1, 2, 1):
            await writer.produce("patient", data, partition=partition)
        response = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert told(response) == {1: 2 * len(data), 2: len(data)}
    assert EXAMINED.value - before == 2


async def test_moved_log_start_of_an_idle_partition_is_reported(
    served: ServedBroker, topic: str
) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        await client.produce(topic, batch(b"v", b"w"), partition=1)
        options: dict[str, Any] = {"session_id": session}
        await client.fetch_all({(topic, 1): 2}, session_epoch=1, **options)
        assert told(await client.fetch_all({}, session_epoch=2, **options)) == {}
        event = LogStartMoved(topic_id=topic_id, partition=1, offset=1)
        await propose(served, event)
        news = await client.fetch_all({}, session_epoch=3, **options)
        assert told(news) == {1: 0}
        assert news.responses[0].partitions[0].log_start_offset == 1


async def test_recreated_topic_of_the_same_name_is_read(served: ServedBroker, topic: str) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        options: dict[str, Any] = {"session_id": session}
        await client.fetch_all({}, session_epoch=1, **options)
        event = TopicDeleted(topic_id=topic_id)
        await propose(served, event)
        gone = await client.fetch_all({}, session_epoch=2, **options)
        errors = {part.error_code for part in gone.responses[0].partitions}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await asyncio.to_thread(create, served, topic, 3)
        assert told(await client.fetch_all({}, session_epoch=3, **options)) == {0: 0, 1: 0, 2: 0}
        assert told(await client.fetch_all({}, session_epoch=4, **options)) == {}
        await client.produce(topic, batch(b"v"), partition=1)
        assert list(told(await client.fetch_all({}, session_epoch=5, **options))) == [1]


async def test_subscriptions_end_with_the_session(served: ServedBroker, topic: str) -> None:
    waiting = served.broker.waiting
    before = waiting.subscriptions
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        assert waiting.subscriptions == before + 3
        forgotten = [ForgottenTopic(topic=topic, partitions=[1])]
        await client.fetch_all(
            {}, session_id=session, session_epoch=1, forgotten_topics_data=forgotten
        )
        assert waiting.subscriptions == before + 2
        await client.fetch_all({}, session_id=session, session_epoch=-1)
        assert waiting.subscriptions == before


async def test_waiting_fetch_is_answered_when_its_session_is_closed(
    served: ServedBroker, topic: str
) -> None:
    before = served.broker.waiting.subscriptions
    async with raw(served) as client, raw(served) as other:
        session = (await opened(client, topic)).session_id
        waiting = asyncio.create_task(
            client.fetch_all({}, session_id=session, session_epoch=1, max_wait_ms=15_000)
        )
        await until_waiting(served, 3)
        closing = await other.fetch_all({}, session_id=session, session_epoch=-1)
        assert (closing.session_id, closing.error_code) == (0, ErrorCode.NONE)
        assert told(await asyncio.wait_for(waiting, 5)) == {}
    assert served.broker.waiting.subscriptions == before
    assert len(served.broker.waiting) == 0


async def test_all_partitions_are_examined_after_the_state_was_replaced(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        session = (await opened(client, topic)).session_id
        await client.fetch_all({}, session_id=session, session_epoch=1)
        waiting = asyncio.create_task(
            client.fetch_all({}, session_id=session, session_epoch=2, max_wait_ms=WAIT_MS)
        )
        await until_waiting(served, 3)
        before = EXAMINED.value

        async def replaced() -> None:
            served.broker.waiting.report_all()

        await asyncio.to_thread(served.do, replaced())
        await until_examined(served, before + 3)
        await until_waiting(served, 3)
        waiting.cancel()
