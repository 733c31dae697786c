"""The etcd log while members of etcd fail, pause or are cut off."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from rookery.cluster.etcd.appender import MAX_RUNGS
from rookery.cluster.open import open_log
from rookery.cluster.port import ClusterLog
from rookery.errors import Unavailable
from rookery.testing.etcd import EtcdCluster, EtcdMember, EtcdSettings
from tests.cluster.processes import child, line, rest
from tests.contracts.cluster_log import append_many, read_all

_names = (f"log-{number}" for number in itertools.count())
Open = Callable[[str], ClusterLog]


@pytest.fixture(scope="module")
def members() -> Iterator[EtcdCluster]:
    with EtcdCluster(3) as cluster:
        yield cluster


@pytest.fixture
def etcd(members: EtcdCluster) -> Iterator[EtcdCluster]:
    """Return three sound members; what a test does to them is undone."""
    yield members
    members.mend()
    for member in members.members:
        member.resume()
    members.start()


@pytest.fixture
def name() -> str:
    return next(_names)


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


def by_way_of(etcd: EtcdCluster, first: EtcdMember, name: str) -> str:
    """Return a URL whose first endpoint is a certain member's."""
    others = [member for member in etcd.members if member is not first]
    endpoints = ",".join(member.endpoint for member in (first, *others))
    return f"etcd://{endpoints}/{name}"


class Race:
    """Writers in processes and on a handle here, all of which write until they have written all."""

    def __init__(self, log: ClusterLog, urls: list[str], count: int) -> None:
        self._log = log
        self._urls = urls
        self._count = count

    async def run(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Let something happen once every writer has begun; then nothing is lost or doubled."""
        with ExitStack() as stack:
            writers = [
                stack.enter_context(child("append", url, f"process-{index}", self._count))
                for index, url in enumerate(self._urls)
            ]
            lines = [f"{await self._first(writer)}\n" for writer in writers]
            here = asyncio.create_task(append_many(self._log, "here", self._count))
            await meanwhile()
            expected = await here
            for writer, first in zip(writers, lines, strict=True):
                said = (first + await rest(writer)).split()
                expected |= {
                    int(number): data.encode()
                    for number, data in zip(said[::2], said[1::2], strict=True)
                }
                assert writer.wait() == 0
        await self._check(expected)

    async def _first(self, writer: subprocess.Popen[str]) -> str:
        assert await line(writer) == "ready"
        return await line(writer)

    async def _check(self, expected: dict[int, bytes]) -> None:
        total = self._count * (len(self._urls) + 1)
        assert sorted(expected) == list(range(1, total + 1))
        assert dict(await read_all(self._log, max_bytes=1 << 20)) == expected
        assert await self._log.head() == total


async def test_writers_survive_the_kill_of_the_leader(
    etcd: EtcdCluster, name: str, opening: Open
) -> None:
    leader = etcd.leader()
    urls = [by_way_of(etcd, leader, name), etcd.url(name)]

    async def kill() -> None:
        leader.kill()
        await asyncio.to_thread(etcd.leader)
        leader.launch()

    await Race(opening(urls[0]), urls, 200).run(kill)


async def test_writers_survive_a_paused_leader(etcd: EtcdCluster, name: str, opening: Open) -> None:
    leader = etcd.leader()
    urls = [by_way_of(etcd, leader, name), etcd.url(name)]

    async def pause() -> None:
        leader.pause()
        # When it resumes, it believes that it leads, and has what clients sent it meanwhile.
        await asyncio.to_thread(etcd.leader)
        leader.resume()

    await Race(opening(urls[0]), urls, 200).run(pause)


async def test_writers_survive_an_isolated_leader(
    etcd: EtcdCluster, name: str, opening: Open
) -> None:
    leader = etcd.leader()
    urls = [by_way_of(etcd, leader, name), etcd.url(name)]

    async def cut() -> None:
        etcd.cut(leader)
        await asyncio.to_thread(etcd.leader)
        etcd.mend()

    await Race(opening(urls[0]), urls, 200).run(cut)


async def test_isolated_member_serves_no_stale_data(
    etcd: EtcdCluster, name: str, opening: Open
) -> None:
    lone, other = etcd.followers()
    log, elsewhere = opening(by_way_of(etcd, lone, name)), opening(by_way_of(etcd, other, name))
    assert await log.append(b"first") == 1
    etcd.cut(lone)
    assert await elsewhere.append(b"second") == 2
    assert await log.head() == 2
    assert [e.data for e in await log.read(0)] == [b"first", b"second"]


@pytest.mark.parametrize("trouble", ["cut", "pause", "kill"])
async def test_waiter_is_woken_when_its_member_fails(
    etcd: EtcdCluster, name: str, opening: Open, trouble: str
) -> None:
    lone, other = etcd.followers()
    log, elsewhere = opening(by_way_of(etcd, lone, name)), opening(by_way_of(etcd, other, name))
    assert await elsewhere.append(b"first") == 1
    waiting = asyncio.create_task(log.wait(2))
    assert await log.wait(0) == 1
    match trouble:
        case "cut":
            etcd.cut(lone)
        case "pause":
            lone.pause()
        case _:
            lone.kill()
    assert await elsewhere.append(b"second") == 2
    assert await elsewhere.append(b"third") == 3
    assert await waiting == 3


async def test_without_a_majority_every_call_fails(
    etcd: EtcdCluster, name: str, opening: Open
) -> None:
    log = opening(etcd.url(name, timeout=1))
    assert await log.append(b"before") == 1
    for member in etcd.followers():
        member.kill()
    for call in (log.append(b"during"), log.head(), log.read(0), log.wait(1)):
        with pytest.raises(Unavailable, match="majority"):
            await call
    await asyncio.to_thread(etcd.start)
    stored = [e.data for e in await read_all(log)]
    # Whether the append that got no answer is there is not known.
    assert stored in ([b"before"], [b"before", b"during"])
    assert await log.append(b"after") == len(stored) + 1
    assert [e.data for e in await read_all(log)] == [*stored, b"after"]


async def fill(log: ClusterLog, data: bytes) -> None:
    while True:
        await log.append(data)


@pytest.mark.usefixtures("own_processes")
async def test_full_etcd_is_reported_and_can_be_trimmed(name: str, opening: Open) -> None:
    with EtcdCluster(settings=EtcdSettings(quota_bytes=8 << 20)) as etcd:
        log, other, member = opening(etcd.url(name)), opening(etcd.url(name)), etcd.members[0]
        data = b"x" * 200_000
        assert await other.append(data) == 1
        with pytest.raises(Unavailable, match=r"alarm NOSPACE.*etcdctl defrag.*alarm disarm"):
            await fill(log, data)
        last = await log.head()
        assert last > MAX_RUNGS
        assert [e.number for e in await read_all(log)] == list(range(1, last + 1))
        await log.trim(last)
        assert (await log.floor(), await log.head()) == (last - 1, last)
        # What the text says to do.
        member.call("maintenance/defragment")
        for alarm in member.call("maintenance/alarm", action="GET")["alarms"]:
            member.call("maintenance/alarm", action="DEACTIVATE", **alarm)
        assert await log.append(data) == last + 1
        assert await other.append(data) == last + 2
        assert [e.number for e in await log.read(last - 1)] == [last, last + 1, last + 2]
