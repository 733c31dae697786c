"""The contract of every cluster log; the tests of a backend subclass it and open its log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from rookery.cluster.open import open_log
from rookery.cluster.port import MAX_ENTRY_BYTES, ClusterLog, EntriesTrimmed, LogEntry
from rookery.errors import Conflict, Unavailable
from rookery.testing.cluster import AppendFault, FaultyLog

Opener = Callable[[], ClusterLog]


async def read_all(log: ClusterLog, after: int = 0, max_bytes: int = 4096) -> list[LogEntry]:
    """Read to the log's end in small steps."""
    entries_read: list[LogEntry] = []
    while entries := await log.read(after, max_bytes):
        entries_read += entries
        after = entries[-1].number
    return entries_read


async def append_many(log: ClusterLog, name: str, count: int) -> dict[int, bytes]:
    """Append entries one after the other; return what was acknowledged, by number."""
    acked = {}
    for index in range(count):
        data = f"{name}-{index}".encode()
        acked[await log.append(data)] = data
    return acked


class ClusterLogContract:
    """The promises of `rookery.cluster.port`, one test each."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def opened(self, url: str) -> AsyncIterator[Opener]:
        logs: list[ClusterLog] = []

        def opener() -> ClusterLog:
            logs.append(open_log(url, durability="os"))
            return logs[-1]

        yield opener
        for log in logs:
            await log.close()

    # Appending and reading.

    async def test_a_new_log_is_empty(self, opened: Opener) -> None:
        log = opened()
        assert await log.head() == 0
        assert await log.floor() == 0
        assert await log.read(0) == []

    async def test_numbers_are_dense_from_one(self, opened: Opener) -> None:
        log = opened()
        numbers = [await log.append(b"%d" % index) for index in range(100)]
        assert numbers == list(range(1, 101))
        assert await read_all(log) == [LogEntry(n, b"%d" % (n - 1)) for n in numbers]

    async def test_appends_that_wait_together_keep_their_order(self, opened: Opener) -> None:
        log = opened()
        datas = [b"%d" % index for index in range(200)]
        numbers = await asyncio.gather(*map(log.append, datas))
        assert numbers == list(range(1, 201))
        assert [entry.data for entry in await read_all(log)] == datas

    async def test_any_bytes_are_preserved(self, opened: Opener) -> None:
        log = opened()
        datas = [b"", b"\0", bytes(range(256)), b"\xff" * 70_000]
        for data in datas:
            await log.append(data)
        assert [entry.data for entry in await read_all(log)] == datas

    async def test_entry_can_be_as_large_as_the_bound(self, opened: Opener) -> None:
        log = opened()
        data = b"x" * MAX_ENTRY_BYTES
        assert await log.append(data) == 1
        with pytest.raises(ValueError, match="stage it in parts"):
            await log.append(data + b"x")
        assert await log.head() == 1

    async def test_read_is_bounded_in_bytes_but_returns_at_least_one_entry(
        self, opened: Opener
    ) -> None:
        log = opened()
        for _ in range(5):
            await log.append(b"x" * 100)
        assert [e.number for e in await log.read(0, 250)] == [1, 2]
        assert [e.number for e in await log.read(2, 300)] == [3, 4, 5]
        assert [e.number for e in await log.read(4, 1)] == [5]

    async def test_reading_beyond_the_end_returns_nothing(self, opened: Opener) -> None:
        log = opened()
        await log.append(b"x")
        assert await log.read(1) == []
        assert await log.read(99) == []

    async def test_a_slow_reader_misses_nothing(self, opened: Opener) -> None:
        writer, reader = opened(), opened()

        async def follow() -> list[LogEntry]:
            entries: list[LogEntry] = []
            while len(entries) < 300:
                after = entries[-1].number if entries else 0
                await reader.wait(after)
                entries += await reader.read(after, 1)
            return entries

        follower = asyncio.create_task(follow())
        acked = await append_many(writer, "a", 300)
        assert dict(await follower) == acked

    # Several writers.

    async def test_concurrent_writers_get_distinct_numbers(self, opened: Opener) -> None:
        logs = [opened() for _ in range(4)]
        acked = await asyncio.gather(
            *(append_many(log, f"writer {index}", 25) for index, log in enumerate(logs))
        )
        expected = {number: data for part in acked for number, data in part.items()}
        assert sorted(expected) == list(range(1, 101))
        for log in logs:
            assert dict(await read_all(log)) == expected

    async def test_concurrent_threads_get_distinct_numbers(self, url: str, opened: Opener) -> None:
        acked: list[dict[int, bytes]] = []

        async def write(name: str) -> None:
            log = open_log(url, durability="os")
            acked.append(await append_many(log, name, 50))
            await log.close()

        def work(name: str) -> None:
            asyncio.run(write(name))

        log = opened()
        threads = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        assert await log.wait(149) == 150
        for thread in threads:
            await asyncio.to_thread(thread.join)
        expected = {number: data for part in acked for number, data in part.items()}
        assert sorted(expected) == list(range(1, 151))
        assert dict(await read_all(log)) == expected

    async def test_head_includes_every_finished_append(self, opened: Opener) -> None:
        first, second = opened(), opened()
        for _ in range(40):
            number = await first.append(b"x")
            assert await second.head() == number
            number = await second.append(b"y")
            assert await first.head() == number

    # Waiting.

    async def test_waiting_for_an_existing_entry_returns_immediately(self, opened: Opener) -> None:
        first, second = opened(), opened()
        number = await first.append(b"x")
        assert await first.wait(0) == number
        assert await second.wait(0) == number

    async def test_every_handle_is_woken(self, opened: Opener) -> None:
        logs = [opened() for _ in range(3)]
        for number in range(1, 8):
            waiting = [asyncio.create_task(log.wait(number - 1)) for log in logs]
            await asyncio.sleep(0)
            assert await logs[number % 3].append(b"x") == number
            assert await asyncio.gather(*waiting) == [number] * 3

    async def test_waiting_beyond_the_next_entry_is_not_woken_by_it(self, opened: Opener) -> None:
        log = opened()
        far = asyncio.create_task(log.wait(2))
        near = asyncio.create_task(log.wait(1))
        await log.append(b"x")
        await log.append(b"x")
        assert await near == 2
        assert not far.done()
        await log.append(b"x")
        assert await far == 3

    async def test_a_cancelled_wait_leaves_the_log_usable(self, opened: Opener) -> None:
        log = opened()
        waiting = asyncio.create_task(log.wait(0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await log.append(b"x") == 1
        assert await log.wait(0) == 1

    async def test_a_cancelled_append_leaves_the_log_usable(self, opened: Opener) -> None:
        log = opened()
        appending = asyncio.create_task(log.append(b"perhaps"))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        number = await log.append(b"surely")
        assert (await read_all(log))[-1] == LogEntry(number, b"surely")

    # Trimming.

    async def test_trimmed_log_starts_after_its_floor(self, opened: Opener) -> None:
        log, other = opened(), opened()
        acked = await append_many(log, "a", 10)
        await log.trim(6)
        assert await other.floor() == 5
        assert [e.number for e in await other.read(5)] == [6, 7, 8, 9, 10]
        assert dict(await other.read(5)) == {n: acked[n] for n in range(6, 11)}

    async def test_lagging_reader_gets_the_floor_to_start_after(self, opened: Opener) -> None:
        writer, reader = opened(), opened()
        await append_many(writer, "a", 10)
        assert len(await reader.read(0, 1)) == 1
        await writer.trim(6)
        for after in range(5):
            with pytest.raises(EntriesTrimmed) as caught:
                await reader.read(after)
            assert caught.value.floor == 5

    async def test_trimming_runs_concurrently_with_readers_and_writers(
        self, opened: Opener
    ) -> None:
        writer, trimmer, reader = opened(), opened(), opened()

        async def trim() -> None:
            while True:
                head = await trimmer.wait(await trimmer.floor() + 10)
                await trimmer.trim(head - 5)

        async def follow() -> int:
            after = seen = 0
            while after < 150:
                await reader.wait(after)
                try:
                    entries = await reader.read(after, 20)
                except EntriesTrimmed as error:
                    after = error.floor
                    continue
                assert [e.number for e in entries] == list(
                    range(after + 1, after + 1 + len(entries))
                )
                after, seen = after + len(entries), seen + len(entries)
            return seen

        follower, trimming = asyncio.create_task(follow()), asyncio.create_task(trim())
        assert sorted(await append_many(writer, "a", 150)) == list(range(1, 151))
        assert await follower > 0
        trimming.cancel()
        await asyncio.gather(trimming, return_exceptions=True)
        # However far it came: what it began can be ended.
        await trimmer.trim(140)
        assert await reader.floor() >= 139

    async def test_floor_never_decreases(self, opened: Opener) -> None:
        log = opened()
        await append_many(log, "a", 10)
        await log.trim(8)
        await log.trim(3)
        await log.trim(-1)
        assert await log.floor() == 7

    async def test_unwritten_entries_cannot_be_trimmed(self, opened: Opener) -> None:
        log = opened()
        await append_many(log, "a", 3)
        with pytest.raises(ValueError, match="ends at 3"):
            await log.trim(5)
        assert await log.floor() == 0

    async def test_numbers_are_never_reused(self, opened: Opener) -> None:
        log = opened()
        await append_many(log, "a", 5)
        await log.trim(6)
        assert (await log.head(), await log.floor()) == (5, 5)
        assert await log.read(5) == []
        with pytest.raises(EntriesTrimmed):
            await log.read(4)
        await log.close()
        again = opened()
        assert (await again.head(), await again.floor()) == (5, 5)
        assert await again.append(b"next") == 6
        assert await again.read(5) == [LogEntry(6, b"next")]

    # Faults.

    async def test_entry_with_a_lost_answer_is_found_by_reading(self, opened: Opener) -> None:
        log = FaultyLog(opened())
        await log.append(b"before")
        log.order(AppendFault.LOST_ANSWER)
        with pytest.raises(Unavailable):
            await log.append(b"mine")
        assert LogEntry(2, b"mine") in await read_all(log)
        assert await log.append(b"after") == 3

    async def test_unsent_entry_is_not_found(self, opened: Opener) -> None:
        log = FaultyLog(opened())
        log.order(AppendFault.NOT_SENT)
        with pytest.raises(Unavailable):
            await log.append(b"mine")
        assert await read_all(log) == []
        assert await log.append(b"after") == 1

    async def test_delayed_append_follows_those_that_overtake_it(self, opened: Opener) -> None:
        slow, fast = FaultyLog(opened()), opened()
        slow.hold()
        held = asyncio.create_task(slow.append(b"slow"))
        assert await fast.append(b"fast") == 1
        slow.let_through()
        assert await held == 2

    async def test_unreachable_log_fails_calls_until_it_returns(self, opened: Opener) -> None:
        log = FaultyLog(opened())
        await log.append(b"before")
        log.cut()
        for call in (log.append(b"x"), log.read(0), log.head(), log.wait(0), log.trim(1)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await call
        log.mend()
        assert await log.append(b"after") == 2

    # Beginning elsewhere.

    async def test_empty_log_can_start_after_a_given_number(self, opened: Opener) -> None:
        log = opened()
        await log.begin_after(1_000_000_007)
        assert await log.head() == await log.floor() == 1_000_000_007
        assert await log.read(1_000_000_007) == []
        with pytest.raises(EntriesTrimmed):
            await log.read(0)
        other = opened()
        assert await other.head() == await other.floor() == 1_000_000_007
        assert await other.append(b"first") == 1_000_000_008
        assert await log.append(b"second") == 1_000_000_009
        assert [e.data for e in await read_all(opened(), 1_000_000_007)] == [b"first", b"second"]

    async def test_log_started_after_a_number_can_be_trimmed(self, opened: Opener) -> None:
        log = opened()
        await log.begin_after(500)
        await append_many(log, "a", 5)
        await log.trim(504)
        assert await log.floor() == 503
        assert await log.append(b"x") == 506

    async def test_only_a_log_that_never_had_entries_can_start_after_a_number(
        self, opened: Opener
    ) -> None:
        log = opened()
        await log.append(b"x")
        with pytest.raises(Conflict, match="has had entries"):
            await log.begin_after(500)
        await log.trim(2)
        with pytest.raises(Conflict, match="has had entries"):
            await opened().begin_after(500)
        assert await log.append(b"y") == 2

    async def test_log_can_be_started_after_a_number_only_once(self, opened: Opener) -> None:
        log = opened()
        await log.begin_after(500)
        with pytest.raises(Conflict, match="has had entries"):
            await opened().begin_after(600)
        with pytest.raises(ValueError, match="begin after 0"):
            await log.begin_after(0)
        assert await log.head() == 500

    async def test_waiter_on_a_log_started_after_a_number_is_woken(self, opened: Opener) -> None:
        log, other = opened(), opened()
        await log.begin_after(500)
        waiting = asyncio.create_task(other.wait(500))
        await log.append(b"x")
        assert await waiting == 501

    # Closing.

    async def test_closing_wakes_waiters(self, opened: Opener) -> None:
        log, other = opened(), opened()
        waiting = asyncio.create_task(log.wait(0))
        others = asyncio.create_task(other.wait(0))
        await asyncio.sleep(0)
        await log.close()
        with pytest.raises(Unavailable, match="closed"):
            await waiting
        assert await other.append(b"x") == 1
        assert await others == 1

    async def test_closing_completes_appends_in_flight(self, opened: Opener) -> None:
        log, other = opened(), opened()
        appends = [asyncio.create_task(log.append(b"%d" % index)) for index in range(100)]
        await asyncio.sleep(0)
        await log.close()
        assert await asyncio.gather(*appends) == list(range(1, 101))
        assert await other.head() == 100

    async def test_a_closed_handle_refuses(self, opened: Opener) -> None:
        log = opened()
        await log.close()
        await log.close()
        for call in (log.append(b"x"), log.read(0), log.head(), log.wait(0), log.trim(0)):
            with pytest.raises(Unavailable, match="closed"):
                await call
        with pytest.raises(Unavailable, match="closed"):
            await log.floor()

    async def test_log_survives_the_close_of_its_handles(self, opened: Opener) -> None:
        log = opened()
        acked = await append_many(log, "a", 20)
        await log.close()
        again = opened()
        assert dict(await read_all(again)) == acked
        assert await again.append(b"x") == 21
