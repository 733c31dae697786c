"""Iterates over several partitions: the next fetch runs while the current one is processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from rookery.client.client import Client
from rookery.client.fetch import FetchResult, FetchSettings
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import LATEST
from rookery.model.partition import TopicPartition


async def places_of(
    client: Client, topic: str, wanted: Sequence[int] | None = None
) -> list[TopicPartition]:
    """Return the requested partitions, or all of a topic.

    Raises:
        ApiError: the topic has no such partition; the text lists those that it has.
    """
    numbers = sorted((await client.topic(topic)).partitions)
    missing = sorted(set(wanted or ()) - set(numbers))
    if missing:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} has no partition {missing[0]}: it has 0 to {len(numbers) - 1}",
        )
    return [TopicPartition(topic, number) for number in wanted or numbers]


async def ends_of(
    client: Client, places: list[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the current ends of partitions, or the offset of the first open transaction."""
    offsets = await client.offsets.find(dict.fromkeys(places, LATEST), committed=committed)
    return {place: row.offset for place, row in offsets.items()}


async def fetch_all(
    client: Client,
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    settings: FetchSettings,
) -> AsyncGenerator[FetchResult, None]:
    """Yield the records of partitions up to their ends; without ends, indefinitely."""
    left = {
        place: position
        for place, position in positions.items()
        if ends is None or position < ends[place]
    }
    upcoming = _start(client, left, settings)
    try:
        while upcoming is not None:
            answer = await upcoming
            for place, fetched in answer.items():
                left[place] = fetched.next_offset
                if ends is not None and left[place] >= ends[place]:
                    del left[place]
            upcoming = _start(client, left, settings)
            for fetched in answer.values():
                if fetched.data:
                    yield fetched
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


def _start(
    client: Client, left: Mapping[TopicPartition, int], settings: FetchSettings
) -> asyncio.Task[dict[TopicPartition, FetchResult]] | None:
    if not left:
        return None
    return asyncio.create_task(client.fetcher.fetch(dict(left), settings))
