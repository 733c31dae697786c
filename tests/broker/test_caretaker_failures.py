"""A caretaker whose cluster log fails for a moment, or whose replica has stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage import caretaker
from rookery.broker.storage.objectlog import open_handles, replica_of
from rookery.clock import SystemClock
from rookery.cluster.entry import Entry, EventBytes
from rookery.cluster.events.brokerevents import BrokerBeat, ClusterCreated, ProcessRegistered
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.errors import Corrupt
from rookery.testing.cluster import AppendFault, FaultyLog
from rookery.testing.wait import wait_until_async
from rookery.wire.codec import encode_bytes


class Site:
    """A caretaker's rounds in this process, and another process that writes to the log."""

    def __init__(self, name: str) -> None:
        url = f"memory:{name}"
        self.settings = BrokerSettings(
            store=url, cluster=url, upkeep_interval_ms=20, beat_interval_ms=10
        )
        self.handles = open_handles(self.settings)
        self.log = FaultyLog(self.handles.cluster_log)
        self.handles.cluster_log = self.log
        self.replica = replica_of(self.handles, SystemClock())
        self.other = Replica(open_log(url), SystemClock())

    async def start(self) -> None:
        await self.other.open()
        await self.other.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        await self.other.register(ProcessRegistered(process_id=bytes(16), purpose="test"))
        await self.replica.open(follow=False)
        self.rounds = asyncio.create_task(
            caretaker._rounds(self.settings, self.handles, self.replica, caretaker.BrokerMessages())
        )

    async def close(self) -> None:
        self.rounds.cancel()
        await asyncio.gather(self.rounds, return_exceptions=True)
        for replica in (self.replica, self.other):
            await replica.close()
        await self.handles.close()


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    made = Site(request.node.nodeid)
    await made.start()
    yield made
    await made.close()


async def test_rounds_continue_after_a_failed_read(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    reports: list[dict[str, object]] = []

    def more(than: int) -> bool:
        reports.extend(map(json.loads, capsys.readouterr().out.splitlines()))
        return len(reports) > than

    await wait_until_async(lambda: more(0))
    for _ in range(5):
        # Armed first: the entry of the other process is read as soon as it is there.
        site.log.failing_reads = 1
        await site.other.propose([BrokerBeat()])
        await wait_until_async(lambda: site.log.failing_reads == 0)
    done = len(reports)
    await wait_until_async(lambda: more(done + 1))
    assert site.replica.failure is None


async def test_caretaker_ends_when_its_replica_has_stopped(site: Site) -> None:
    unknown = EventBytes(key=32_000, version=0, body=b"")
    entry = Entry(
        incarnation=0, sequence=0, stamp_ms=1, seen=0, digest=0, events=[unknown], payload=b""
    )
    await site.log.append(encode_bytes(entry, 0))
    with pytest.raises(Corrupt, match="start a newer Rookery"):
        async with asyncio.timeout(30):
            await site.rounds


async def test_caretaker_waits_for_a_log_that_refuses_its_registration(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(caretaker, "_JOIN_MS", 1)
    site = Site(request.node.nodeid)
    site.log.order(*[AppendFault.NOT_SENT] * 10, AppendFault.LOST_ANSWER)
    await site.start()
    try:
        await wait_until_async(lambda: bool(capsys.readouterr().out))
        assert site.log.arrived > 11
        assert caplog.text.count("the registration fails") == 1
    finally:
        await site.close()
