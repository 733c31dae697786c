"""The etcd log: the contract of all cluster logs, and its limits."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import signal
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from rookery.clock import SystemRandom
from rookery.cluster.etcd.address import parse
from rookery.cluster.etcd.appender import MAX_RUNGS, EtcdAppender
from rookery.cluster.etcd.client import EtcdClient
from rookery.cluster.etcd.layout import EtcdKeys, write_value
from rookery.cluster.etcd.messages import TXN, WatchResult, read_txn, read_watch, watch_request
from rookery.cluster.etcd.watch import HeadWatch
from rookery.cluster.open import open_log
from rookery.cluster.port import MAX_ENTRY_BYTES, ClusterLog, LogEntry
from rookery.errors import Corrupt, Unavailable
from rookery.testing.etcd import EtcdCluster, EtcdMember
from rookery.testing.ports import HOST, free_port
from tests.cluster.detour import detour
from tests.cluster.processes import child, line, rest
from tests.contracts.cluster_log import ClusterLogContract, append_many, read_all

_names = (f"log-{number}" for number in itertools.count())
Open = Callable[[str], ClusterLog]


@pytest.fixture
def member(etcd: EtcdCluster) -> EtcdMember:
    return etcd.members[0]


@pytest.fixture
def name() -> str:
    """Return the name of an unused log."""
    return next(_names)


@pytest.fixture
def url(etcd: EtcdCluster, name: str) -> str:
    return etcd.url(name)


@pytest_asyncio.fixture
async def opening() -> AsyncIterator[Open]:
    """Open handles that are closed when the test ends."""
    logs: list[ClusterLog] = []

    def opened(url: str) -> ClusterLog:
        logs.append(open_log(url))
        return logs[-1]

    yield opened
    for log in logs:
        await log.close()


class TestEtcd(ClusterLogContract):
    @pytest.fixture
    def url(self, etcd: EtcdCluster, name: str) -> str:
        return etcd.url(name)


def revision(member: EtcdMember) -> int:
    return int(member.call("maintenance/status")["header"]["revision"])


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def acked(lines: str) -> dict[int, bytes]:
    """Read what writers said; a line that was cut off by a kill does not count."""
    whole = [said.split() for said in lines.splitlines(keepends=True) if said.endswith("\n")]
    return {int(number): data.encode() for number, data in whole}


# Several logs, several processes.


async def test_logs_in_one_etcd_are_separate(etcd: EtcdCluster, name: str, opening: Open) -> None:
    names = [name, f"{name}0", f"{name}/inner", f"{name}/head", f"{name}/entry0"]
    logs = [opening(etcd.url(log_name)) for log_name in names]
    for log_name, log in zip(names, logs, strict=True):
        assert await log.append(log_name.encode()) == 1
    await logs[0].append(b"second")
    await logs[0].trim(2)
    assert [await log.head() for log in logs] == [2, 1, 1, 1, 1]
    for log_name, log in zip(names[1:], logs[1:], strict=True):
        assert await log.read(0) == [LogEntry(1, log_name.encode())]


async def test_concurrent_processes_get_distinct_numbers(url: str, opening: Open) -> None:
    log = opening(url)
    with (
        child("append", url, "a", 100) as first,
        child("append", url, "b", 100) as second,
        child("append", url, "c", 100) as third,
    ):
        writers = (first, second, third)
        for writer in writers:
            assert await line(writer) == "ready"
        said = [await rest(writer) for writer in writers]
    expected = {number: data for out in said for number, data in acked(out).items()}
    assert sorted(expected) == list(range(1, 301))
    assert dict(await read_all(log)) == expected


async def test_other_processes_are_woken(url: str, opening: Open) -> None:
    log = opening(url)
    with child("echo", url) as other:
        assert await line(other) == "ready"
        for index in range(50):
            number = await log.append(b"ping %d" % index)
            assert await log.wait(number) == number + 1
            assert (await log.read(number))[0].data == b"pong %d" % index


async def test_killed_writers_neither_lose_nor_duplicate_entries(url: str, opening: Open) -> None:
    log, chance = opening(url), random.Random(7)
    expected: dict[int, bytes] = {}
    for round_ in range(3):
        with (
            child("append", url, f"a{round_}", 100_000) as first,
            child("append", url, f"b{round_}", 100_000) as second,
        ):
            for process in (first, second):
                assert await line(process) == "ready"
            for process in (first, second):
                for _ in range(chance.randrange(10, 40)):
                    number, data = (await line(process)).split()
                    expected[int(number)] = data.encode()
                process.send_signal(signal.SIGKILL)
                expected |= acked(await rest(process))
        entries = await read_all(log, max_bytes=1 << 20)
        assert [e.number for e in entries] == list(range(1, len(entries) + 1))
        assert len({e.data for e in entries}) == len(entries)
        assert expected.items() <= dict(entries).items()


# What goes into a transaction.


async def test_waiting_appends_share_transactions(
    member: EtcdMember, url: str, opening: Open
) -> None:
    log = opening(url)
    before = revision(member)
    assert await asyncio.gather(*(log.append(b"x") for _ in range(500))) == list(range(1, 501))
    assert revision(member) - before < 10


async def test_many_of_the_largest_entries_can_wait_together(url: str, opening: Open) -> None:
    log = opening(url)
    datas = [b"%d" % index * MAX_ENTRY_BYTES for index in range(7)]
    assert await asyncio.gather(*map(log.append, datas)) == list(range(1, 8))
    assert [e.data for e in await read_all(log, max_bytes=1)] == datas
    assert [e.number for e in await log.read(0)] == [1, 2]


async def test_large_entries_after_small_ones_are_read(url: str, opening: Open) -> None:
    log = opening(url)
    datas = [b"", *(b"%d" % index for index in range(300)), *(b"x" * 100_000 for _ in range(30))]
    await asyncio.gather(*map(log.append, datas))
    assert [e.data for e in await read_all(log, max_bytes=1 << 20)] == datas


# Lost answers.


@pytest.fixture
def other(member: EtcdMember, name: str) -> str:
    """Return a URL that does not lead through the detour."""
    return f"etcd://{member.endpoint}/{name}"


async def test_append_with_a_lost_answer_is_found(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.append(b"before") == 1
        way.answers.clear()
        appending = asyncio.create_task(log.append(b"mine"))
        assert await witness.wait(1) == 2
        assert await witness.append(b"another's") == 3
        assert await appending == 2
        assert await log.append(b"after") == 4
    assert [e.data for e in await read_all(witness)] == [b"before", b"mine", b"another's", b"after"]


async def test_lost_request_is_repeated(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.append(b"before") == 1
        way.requests.clear()
        appending = asyncio.create_task(log.append(b"mine"))
        await way.held.wait()
        assert await witness.append(b"faster") == 2
        way.drop()
        assert await appending == 3
    assert [e.data for e in await read_all(witness)] == [b"before", b"faster", b"mine"]


async def test_delayed_request_has_no_effect(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.append(b"before") == 1
        way.requests.clear()
        # Past the patience with one member: it is made again at the other, and succeeds.
        assert await log.append(b"mine") == 2
        before = revision(member)
        way.requests.set()
        assert await log.append(b"after") == 3
        assert [e.data for e in await read_all(witness)] == [b"before", b"mine", b"after"]
        assert revision(member) == before + 1


async def test_append_with_a_lost_answer_is_found_after_a_trim(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.append(b"before") == 1
        way.answers.clear()
        appending = asyncio.create_task(log.append(b"mine"))
        assert await witness.wait(1) == 2
        await witness.trim(3)
        assert await appending == 2


async def test_repeated_append_request_has_no_effect(name: str, url: str, opening: Open) -> None:
    log, client, layout = opening(url), EtcdClient(parse(url)), EtcdKeys(name)
    appender = EtcdAppender(client, layout, SystemRandom(), HeadWatch(client, layout))
    ladder = appender._ladder(1, MAX_RUNGS, [write_value(b"mine")])
    assert read_txn((await client.call(TXN, ladder)).data).succeeded
    assert not read_txn((await client.call(TXN, ladder)).data).succeeded
    assert await log.append(b"another's") == 2
    await client.call(TXN, ladder)
    assert [e.data for e in await read_all(log)] == [b"mine", b"another's"]
    await client.close()


async def test_append_with_a_lost_answer_is_unknown_once_all_trace_is_trimmed(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.append(b"before") == 1
        way.answers.clear()
        appending = asyncio.create_task(log.append(b"mine"))
        assert await witness.wait(1) == 2
        last = max(await append_many(witness, "another's", MAX_RUNGS))
        await witness.trim(last)
        with pytest.raises(Unavailable, match="has been trimmed since: read on after 1"):
            await appending
        assert await log.append(b"after") == last + 1


async def test_abandoned_append_is_not_stored_after_a_later_one(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint}/{name}?timeout=0.5"), opening(other)
        assert await log.append(b"before") == 1
        way.requests.clear()
        with pytest.raises(Unavailable, match=r"has not answered within 0\.5 s"):
            await log.append(b"given up")
        way.requests.set()
        assert await log.append(b"after") in {2, 3}
        stored = [e.data for e in await read_all(witness)]
        assert await log.append(b"last") == len(stored) + 1
        # It may have been late, but then it came before what was appended later.
        assert stored in ([b"before", b"after"], [b"before", b"given up", b"after"])
        assert [e.data for e in await read_all(witness)] == [*stored, b"last"]


async def test_writer_that_lags_needs_no_second_attempt(
    member: EtcdMember, url: str, opening: Open
) -> None:
    behind, ahead = opening(url), opening(url)
    assert await behind.append(b"1") == 1
    # This one finds out that others write …
    assert await ahead.append(b"2") == 2
    assert await ahead.append(b"3") == 3
    assert await behind.append(b"4") == 4
    assert await ahead.append(b"5") == 5
    # … and from then on reckons with it.
    before = int(member.call("maintenance/status")["raftIndex"])
    assert await behind.append(b"6") == 6
    assert int(member.call("maintenance/status")["raftIndex"]) == before + 1


async def test_records_of_silent_writers_are_trimmed(
    member: EtcdMember, name: str, url: str, opening: Open
) -> None:
    def writers() -> int:
        prefix = {
            "key": text(f"{name}/writer/".encode()),
            "range_end": text(f"{name}/writer0".encode()),
        }
        return int(member.call("kv/range", **prefix).get("count", 0))

    silent, log = opening(url), opening(url)
    await silent.append(b"only one")
    last = max(await append_many(log, "a", 50))
    assert writers() == 2
    await log.trim(last)
    assert writers() == 1
    # One who speaks again does so as if for the first time.
    assert await silent.append(b"another") == last + 1
    assert await silent.append(b"and another") == last + 2


async def test_start_number_with_a_lost_answer_is_found(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        assert await log.head() == 0
        way.answers.clear()
        beginning = asyncio.create_task(log.begin_after(500))
        assert await witness.wait(0) == 500
        await beginning
        assert await log.append(b"first") == 501


@pytest.mark.usefixtures("own_victim")
async def test_waiter_on_a_silent_member_is_woken_by_another(
    member: EtcdMember, name: str, other: str, opening: Open
) -> None:
    async with detour(member.port) as way:
        log, witness = opening(f"etcd://{way.endpoint},{member.endpoint}/{name}"), opening(other)
        waiting = asyncio.create_task(log.wait(1))
        assert await witness.append(b"first") == 1
        assert await log.wait(0) == 1
        way.answers.clear()
        assert await witness.append(b"second") == 2
        await way.held.wait()
        assert await waiting == 2


# Trimming.


async def test_trimming_compacts_the_history(
    member: EtcdMember, name: str, url: str, opening: Open
) -> None:
    log = opening(url)
    await asyncio.gather(*(log.append(b"x" * 100) for _ in range(2500)))
    before, first = revision(member), f"{name}/entry/{1:020d}".encode()
    assert member.call("kv/range", key=text(first), revision=before)["count"] == "1"
    await log.trim(2400)
    assert (await log.floor(), await log.head()) == (2399, 2500)
    with pytest.raises(Unavailable, match="compacted"):
        member.call("kv/range", key=text(first), revision=before)
    assert [e.number for e in await read_all(log, 2399)] == list(range(2400, 2501))


async def test_process_paused_during_compaction_is_woken(url: str, opening: Open) -> None:
    log = opening(url)
    await append_many(log, "a", 100)
    with child("echo", url) as other:
        assert await line(other) == "ready"
        other.send_signal(signal.SIGSTOP)
        await append_many(log, "b", 500)
        await log.trim(101)
        other.send_signal(signal.SIGCONT)
        number = await log.append(b"ping")
        assert await log.wait(number) == number + 1
        assert (await log.read(number))[0].data == b"pong"


async def test_watch_from_before_the_compaction_is_cancelled(
    name: str, url: str, opening: Open
) -> None:
    log = opening(url)
    await append_many(log, "a", 10)
    await log.trim(6)
    client = EtcdClient(parse(url))
    stream = client.watch(watch_request(EtcdKeys(name).head, 1))
    told = [watched async for watched in map_watched(stream) if watched.is_canceled]
    assert told[0].compact_revision > 1
    await client.close()


async def map_watched(stream: AsyncIterator[bytes]) -> AsyncIterator[WatchResult]:
    """Yield what a watch tells, until it ends."""
    async for data in stream:
        watched = read_watch(data)
        yield watched
        if watched.is_canceled:
            return


# A log that has changed.


async def test_changed_entry_is_not_served(
    member: EtcdMember, name: str, url: str, opening: Open
) -> None:
    log = opening(url)
    await append_many(log, "a", 3)
    key = f"{name}/entry/{2:020d}".encode()
    stored = base64.b64decode(member.call("kv/range", key=text(key))["kvs"][0]["value"])
    for changed, words in (
        (stored[:-1] + b"?", "checksum"),
        (b"\x09" + stored[1:], "form"),
        (b"", "form"),
    ):
        member.call("kv/put", key=text(key), value=text(changed))
        with pytest.raises(Corrupt, match=words):
            await log.read(0)
    member.call("kv/deleterange", key=text(key))
    with pytest.raises(Corrupt, match=r"entry 2 of the cluster log .* is missing"):
        await log.read(0)


@pytest.mark.parametrize("head", [b"1", b"0", b"two", None])
async def test_decreased_head_stops_all_calls(
    member: EtcdMember, name: str, url: str, opening: Open, head: bytes | None
) -> None:
    log = opening(url)
    await append_many(log, "a", 3)
    key = text(f"{name}/head".encode())
    if head is None:
        member.call("kv/deleterange", key=key)
    else:
        member.call("kv/put", key=key, value=text(head))
    for call in (log.head(), log.append(b"x")):
        with pytest.raises(Corrupt):
            await call


# No server there.


async def test_unreachable_etcd_is_reported(opening: Open) -> None:
    log = opening(f"etcd://{HOST}:{free_port()}/none?timeout=0.3")
    for call in (log.append(b"x"), log.read(0), log.head(), log.wait(0), log.trim(1), log.floor()):
        with pytest.raises(Unavailable, match="check that a majority of its members runs"):
            await call
