"""The block cache: reads, limits and concurrent loads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ConfigError, Corrupt, Unavailable
from rookery.formats.keys import STORED, object_id
from rookery.log.read import cache as cache_module
from rookery.log.read.cache import BlockCache
from rookery.log.settings import CacheSettings

A, B = object_id(1, 0), object_id(1, 1)
STEP = 100


def content(identity: int, size: int) -> bytes:
    """Bytes that contain their origin."""
    return bytes((identity * 31 + at * 7 + at // 251) % 256 for at in range(size))


class Source:
    """Objects in memory, whose reads can be held up, counted and made to fail."""

    def __init__(self) -> None:
        self.objects = {A: content(A, 2050), B: content(B, 2050)}
        self.reads: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []

    async def read(self, identity: int, position: int, size: int) -> bytes:
        self.reads.append((identity, position))
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self.objects[identity][position : position + size]


def make(source: Source, *, blocks: int = 8, ahead: int = 0, percent: int = 25) -> BlockCache:
    bounds = CacheSettings(
        max_bytes=blocks * STEP, block_bytes=STEP, probation_percent=percent, max_ahead=ahead
    )
    return BlockCache(source.read, bounds)


async def settle() -> None:
    """Let everything that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_read_within_a_block_is_a_view_of_it() -> None:
    source = Source()
    cache = make(source)
    first = await cache.read(A, 210, 20)
    second = await cache.read(A, 290, 10)
    assert first == source.objects[A][210:230]
    assert second == source.objects[A][290:300]
    assert first.obj is second.obj
    assert first.readonly
    assert source.reads == [(A, 200)]
    assert (cache.hits, cache.misses, cache.held_bytes) == (1, 1, STEP)


async def test_cached_bytes_are_returned_without_waiting() -> None:
    source = Source()
    cache = make(source)
    assert cache.find_cached(A, 210, 20) is None
    await cache.read(A, 210, 20)
    assert bytes(cache.find_cached(A, 220, 30) or b"") == source.objects[A][220:250]
    assert cache.find_cached(A, 280, 30) is None
    assert cache.find_cached(A, 210, 0) is None
    assert cache.find_cached(A, -10, 5) is None
    assert (cache.hits, cache.misses) == (1, 1)
    await cache.read(A, 2010, 10)
    assert cache.find_cached(A, 2015, 10) is None


async def test_read_across_blocks_is_joined_or_returned_in_parts() -> None:
    source = Source()
    cache = make(source)
    assert await cache.read(A, 150, 300) == source.objects[A][150:450]
    views = await cache.views(A, 150, 300)
    assert [len(view) for view in views] == [50, 100, 100, 50]
    assert sorted(source.reads) == [(A, 100), (A, 200), (A, 300), (A, 400)]


async def test_blocks_of_one_read_are_fetched_concurrently() -> None:
    source = Source()
    cache = make(source)
    source.gate.clear()
    reading = asyncio.ensure_future(cache.read(A, 0, 300))
    await settle()
    assert len(source.reads) == 3
    source.gate.set()
    assert await reading == source.objects[A][:300]


async def test_empty_read_fetches_nothing() -> None:
    source = Source()
    cache = make(source)
    assert len(await cache.read(A, 50, 0)) == 0
    assert await cache.views(A, 50, 0) == []
    assert source.reads == []


@pytest.mark.parametrize(("position", "size"), [(-1, 4), (0, -1)])
async def test_invalid_ranges_are_refused(position: int, size: int) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        await make(Source()).read(A, position, size)


@pytest.mark.parametrize(
    "bad",
    [
        CacheSettings(block_bytes=0),
        CacheSettings(stored_block_bytes=0),
        CacheSettings(max_bytes=-1),
        CacheSettings(probation_percent=101),
    ],
)
async def test_invalid_settings_are_refused(bad: CacheSettings) -> None:
    with pytest.raises(ConfigError, match="it must be"):
        BlockCache(Source().read, bad)


async def test_concurrent_readers_of_a_block_share_one_fetch() -> None:
    source = Source()
    cache = make(source)
    source.gate.clear()
    readers = [asyncio.ensure_future(cache.read(A, at, 10)) for at in range(0, 50, 10)]
    await settle()
    source.gate.set()
    assert b"".join(await asyncio.gather(*readers)) == source.objects[A][:50]
    assert source.reads == [(A, 0)]
    assert (cache.misses, cache.joined, cache.hits) == (1, 4, 0)


async def test_cancelled_reader_does_not_cancel_the_fetch_for_others() -> None:
    source = Source()
    cache = make(source)
    source.gate.clear()
    first, second = (asyncio.ensure_future(cache.read(A, 0, 10)) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    source.gate.set()
    assert await second == source.objects[A][:10]
    assert source.reads == [(A, 0)]


async def test_failure_reaches_all_waiting_readers_and_is_not_cached() -> None:
    source = Source()
    cache = make(source)
    source.gate.clear()
    source.failures = [Unavailable("the disk is away")]
    readers = [asyncio.ensure_future(cache.read(A, 0, 10)) for _ in range(3)]
    await settle()
    source.gate.set()
    outcomes = await asyncio.gather(*readers, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["the disk is away"] * 3
    assert cache.held_bytes == 0
    assert await cache.read(A, 0, 10) == source.objects[A][:10]


async def test_failed_block_fails_the_read_and_other_blocks_stay_cached() -> None:
    source = Source()
    cache = make(source)
    source.failures = [Unavailable("one"), Unavailable("two")]
    with pytest.raises(Unavailable, match="one"):
        await cache.read(A, 0, 300)
    await cache.close()
    assert cache.held_bytes == STEP
    assert await cache.read(A, 0, 300) == source.objects[A][:300]


async def test_file_that_is_too_short_is_corrupt() -> None:
    source = Source()
    cache = make(source)
    assert await cache.read(A, 2040, 10) == source.objects[A][2040:]
    with pytest.raises(Corrupt, match=r"-00000000\.log ends at or before position 2050.*2051"):
        await cache.read(A, 2040, 11)
    with pytest.raises(Corrupt, match="3010"):
        await cache.read(A, 3000, 10)


async def test_end_of_a_growing_file_is_read_again() -> None:
    source = Source()
    source.objects[A] = content(A, 30)
    cache = make(source)
    assert await cache.read(A, 0, 30) == content(A, 30)
    source.objects[A] = content(A, 80)
    assert await cache.read(A, 20, 60) == content(A, 80)[20:]
    assert await cache.read(A, 0, 80) == content(A, 80)
    assert len(source.reads) == 2
    assert cache.held_bytes == 80


async def test_unrequested_bytes_at_the_end_of_a_file_are_not_cached() -> None:
    source = Source()
    source.objects[A] = content(A, 30) + b"half written"
    cache = make(source)
    assert await cache.read(A, 0, 30) == content(A, 30)
    source.objects[A] = content(A, 42)
    assert await cache.read(A, 30, 12) == content(A, 42)[30:]


async def test_reader_that_needs_more_than_the_fetch_in_flight_starts_another() -> None:
    source = Source()
    source.objects[A] = content(A, 30)
    cache = make(source)
    source.gate.clear()
    early = asyncio.ensure_future(cache.read(A, 0, 30))
    await settle()
    late = [asyncio.ensure_future(cache.read(A, 0, size)) for size in (60, 50, 80)]
    await settle()
    source.objects[A] = content(A, 80)
    source.gate.set()
    assert await early == content(A, 30)
    assert [bytes(await each) for each in late] == [content(A, size) for size in (60, 50, 80)]
    assert cache.held_bytes == 80


async def test_sequential_reader_has_the_next_block_read_ahead() -> None:
    source = Source()
    cache = make(source, blocks=20, ahead=2)
    for at in range(0, 2000, 50):
        assert await cache.read(A, at, 50) == source.objects[A][at : at + 50]
        await settle()
    assert [at for _, at in source.reads] == list(range(0, 2100, 100))
    assert cache.misses == 2
    assert cache.ahead == 19


async def test_random_reader_triggers_no_read_ahead() -> None:
    source = Source()
    cache = make(source, blocks=20, ahead=2)
    for at in (1500, 300, 900, 320, 310, 1700):
        await cache.read(A, at, 10)
    await settle()
    assert cache.ahead == 0


async def test_read_ahead_outlives_the_request_and_is_bounded() -> None:
    source = Source()
    cache = make(source, blocks=20, ahead=1)
    await cache.read(A, 0, 10)
    await cache.read(B, 0, 10)
    source.gate.clear()
    readers = [asyncio.ensure_future(cache.read(each, 100, 10)) for each in (A, B)]
    await settle()
    assert source.reads[2:] == [(A, 100), (B, 100), (A, 200)] or source.reads[2:] == [
        (A, 100),
        (A, 200),
        (B, 100),
    ]
    for reader in readers:
        reader.cancel()
    await settle()
    source.gate.set()
    await cache.close()
    hits = cache.hits
    assert await cache.read(A, 200, 10) == source.objects[A][200:210]
    assert cache.hits == hits + 1


async def test_failed_read_ahead_fails_no_reader() -> None:
    source = Source()
    cache = make(source, ahead=2)
    await cache.read(A, 0, 10)
    source.gate.clear()
    reading = asyncio.ensure_future(cache.read(A, 100, 10))
    await settle()
    source.objects[A] = source.objects[A][:200]
    source.gate.set()
    assert await reading == source.objects[A][100:110]
    await cache.close()
    assert cache.held_bytes == 2 * STEP


async def test_invalidated_file_is_evicted() -> None:
    source = Source()
    cache = make(source)
    await cache.read(A, 0, 200)
    await cache.read(B, 0, 100)
    cache.invalidate(A)
    assert cache.held_bytes == STEP
    source.reads.clear()
    await cache.read(A, 0, 10)
    await cache.read(B, 0, 10)
    assert source.reads == [(A, 0)]


async def test_fetch_in_flight_is_not_cached_after_an_invalidation() -> None:
    source = Source()
    cache = make(source)
    source.gate.clear()
    reading = asyncio.ensure_future(cache.read(A, 0, 10))
    await settle()
    cache.invalidate(A)
    again = asyncio.ensure_future(cache.read(A, 0, 10))
    await settle()
    assert source.reads == [(A, 0), (A, 0)]
    cache.invalidate(A)
    source.gate.set()
    assert await reading == await again == source.objects[A][:10]
    assert cache.held_bytes == 0


async def test_cold_scan_does_not_evict_hot_blocks() -> None:
    source = Source()
    cache = make(source, blocks=8)
    for _ in range(3):
        await cache.read(B, 0, 400)
    misses = cache.misses
    for at in range(0, 2000, 10):
        await cache.read(A, at, 10)
    assert cache.misses == misses + 20
    assert await cache.read(B, 0, 400) == source.objects[B][:400]
    assert cache.misses == misses + 20
    assert cache.held_bytes == 8 * STEP


async def test_block_requested_again_after_eviction_is_hot() -> None:
    source = Source()
    cache = make(source, blocks=4)
    await cache.read(B, 0, 10)
    for at in range(0, 500, 100):
        await cache.read(A, at, 10)
    await cache.read(B, 0, 10)
    for at in range(500, 2000, 100):
        await cache.read(A, at, 10)
    misses = cache.misses
    await cache.read(B, 0, 10)
    assert cache.misses == misses


async def test_cache_without_capacity_still_reads() -> None:
    source = Source()
    cache = make(source, blocks=0)
    assert await cache.read(A, 50, 500) == source.objects[A][50:550]
    assert cache.held_bytes == 0


Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("read"), st.sampled_from([A, B]), st.integers(0, 700), st.integers(0, 350)
        ),
        st.tuples(st.just("grow"), st.sampled_from([A, B]), st.integers(1, 260), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from([A, B]), st.just(0), st.just(0)),
        st.tuples(st.just("fail"), st.just(A), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Checked(Source):
    """Objects of which only a part is committed; what follows is half written, and changes."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = {A: 0, B: 0}
        self.turn = 0

    async def read(self, identity: int, position: int, size: int) -> bytes:
        self.turn += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        end = self.committed[identity]
        tail = bytes([self.turn % 256]) * (self.turn % 7 if end % STEP < 90 else 0)
        return (content(identity, 1100)[:end] + tail)[position : position + size]


async def check(source: Checked, cache: BlockCache, step: Step) -> None:
    kind, identity, number, size = step
    if kind == "grow":
        source.committed[identity] = min(1100, source.committed[identity] + number)
    elif kind == "drop":
        cache.invalidate(identity)
    elif kind == "fail":
        source.failures.append(Unavailable("now and then"))
    else:
        size = max(0, min(size, source.committed[identity] - number))
        expected = content(identity, 1100)[number : number + size] if size else b""
        with contextlib.suppress(Unavailable):
            assert await cache.read(identity, number, size) == expected


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@given(steps=STEPS, blocks=st.integers(0, 6), ahead=st.integers(0, 3), width=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_reads_always_return_committed_bytes(
    factory: Callable[[], asyncio.AbstractEventLoop],
    steps: list[Step],
    blocks: int,
    ahead: int,
    width: int,
) -> None:
    async def scenario() -> None:
        source = Checked()
        cache = make(source, blocks=blocks, ahead=ahead)
        for at in range(0, len(steps), width):
            await asyncio.gather(*(check(source, cache, step) for step in steps[at : at + width]))
            assert cache.held_bytes <= blocks * STEP
        await cache.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


S, T = object_id(1, STORED), object_id(1, STORED + 1)


def make_stored(source: Source, *, blocks: int = 16, percent: int = 50) -> BlockCache:
    bounds = CacheSettings(
        max_bytes=blocks * STEP,
        block_bytes=7,
        stored_block_bytes=STEP,
        probation_percent=percent,
        ahead_blocks=4,
    )
    source.objects |= {S: content(S, 2050), T: content(T, 2050)}
    return BlockCache(source.read, bounds)


async def test_stored_objects_have_their_own_block_size() -> None:
    source = Source()
    cache = make_stored(source)
    assert await cache.read(S, 90, 20) == source.objects[S][90:110]
    assert await cache.read(A, 7, 3) == source.objects[A][7:10]
    assert source.reads == [(S, 0), (S, 100), (A, 7)]
    assert (cache.stored_block_bytes, cache.ahead_bytes) == (STEP, 4 * STEP)


async def test_end_of_a_stored_object_is_final() -> None:
    source = Source()
    cache = make_stored(source)
    assert await cache.read(S, 2000, 10) == source.objects[S][2000:2010]
    assert await cache.read(S, 2010, 40) == source.objects[S][2010:]
    assert source.reads == [(S, 2000)]
    with pytest.raises(Corrupt, match=r"object _rookery/objects/.* 2051 were committed"):
        await cache.read(S, 2010, 41)


async def test_wanted_blocks_are_fetched_once_and_concurrently() -> None:
    source = Source()
    cache = make_stored(source)
    source.gate.clear()
    cache.want(S, 150, 250)
    cache.want(S, 150, 250)
    reading = asyncio.ensure_future(cache.read(S, 200, 50))
    await settle()
    assert source.reads == [(S, 100), (S, 200), (S, 300)]
    source.gate.set()
    assert await reading == source.objects[S][200:250]
    await cache.close()
    assert (cache.ahead, cache.joined, cache.misses) == (3, 1, 0)


async def test_unread_blocks_read_ahead_are_bounded() -> None:
    source = Source()
    cache = make_stored(source)
    cache.want(S, 0, 2000)
    await cache.close()
    # Half of probation, which is half of 16 blocks.
    assert len(source.reads) == 4
    cache.want(T, 0, 2000)
    await cache.close()
    assert len(source.reads) == 4
    await cache.read(S, 0, 10)
    cache.want(T, 0, 2000)
    await cache.close()
    assert source.reads[4:] == [(T, 0)]


async def test_failed_or_invalidated_read_ahead_frees_its_budget() -> None:
    source = Source()
    cache = make_stored(source)
    source.failures = [Unavailable("away"), Unavailable("away")]
    cache.want(S, 0, 400)
    await cache.close()
    cache.want(T, 0, 200)
    await cache.close()
    assert cache.held_bytes == 4 * STEP
    cache.invalidate(T)
    cache.want(S, 0, 200)
    await cache.close()
    assert cache.held_bytes == 4 * STEP


async def test_abandoned_read_ahead_does_not_block_later_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_module, "_ABANDONED_S", -1.0)
    source = Source()
    cache = make_stored(source)
    cache.want(S, 0, 400)
    await cache.close()
    cache.want(T, 0, 400)
    await cache.close()
    assert len(source.reads) == 8


async def test_cold_scan_with_read_ahead_does_not_evict_hot_blocks() -> None:
    source = Source()
    cache = make_stored(source, percent=25)
    for _ in range(3):
        await cache.read(T, 0, 1000)
    misses = cache.misses
    for at in range(0, 2000, 50):
        cache.want(S, at + 50, 200)
        await cache.read(S, at, 50)
        await settle()
    # No block that was read ahead was pushed out before its turn.
    assert len([1 for identity, _ in source.reads if identity == S]) <= 22
    assert cache.misses == misses
    await cache.read(T, 0, 1000)
    assert cache.misses == misses


async def test_damaged_bytes_are_evicted() -> None:
    source = Source()
    cache = make_stored(source)
    await cache.read(S, 0, 400)
    cache.drop(S, 150, 100)
    source.reads.clear()
    await cache.read(S, 0, 400)
    assert source.reads == [(S, 100), (S, 200)]
