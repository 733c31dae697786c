"""The coordinator: it reports only what is committed, and answers every waiting request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from rookery.broker.coordination.machine import (
    ClientGone,
    Effect,
    Event,
    MachineRequest,
    Persist,
    Reply,
    Tick,
)
from rookery.broker.coordination.seats import HeldRequest, Seat, WaitingWork
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.kind import GroupKind, GroupSettings
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.offsets import CommitAuthor, commit
from rookery.broker.groups.subject import GroupSeat
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.groupevents import GroupDeleted, OffsetCommitted
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.errors import ApiError, ErrorCode
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import FaultyLog
from rookery.wire.message import Api
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.join_group import JOIN_GROUP, JoinGroupRequest
from rookery.wire.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse

TOPIC = bytes(range(16))
OK = HeartbeatResponse(error_code=ErrorCode.NONE)
OFFSET = OffsetCommitted(
    topic_id=TOPIC, partition=0, offset=5, leader_epoch=-1, metadata="", retention_ms=-1
)


class Scripted:
    """A machine that holds joins, answers heartbeats, and persists what a sync brings."""

    kind = protocol_type = "scripted"
    epoch = 1

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.events: list[Event] = []
        self.deadline_ms: int | None = None
        self.is_empty = False
        self.state_name = "Stable"
        self.is_broken = False

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        if self.is_broken:
            raise ZeroDivisionError
        self.events.append(event)
        match event:
            case MachineRequest(message=HeartbeatRequest()):
                self.deadline_ms = now_ms + 10_000
                return [Reply(event.token, OK)]
            case MachineRequest(message=SyncGroupRequest() as message):
                self.body = message.member_id.encode()
                answer = SyncGroupResponse(error_code=ErrorCode.NONE, assignment=self.body[:5])
                return [Reply(event.token, answer), Persist(self.body)]
            case Tick():
                self.deadline_ms = None
            case _:
                pass  # a join is held
        return []

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool = False,
        version: int = 9,
    ) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if generation > 1 else ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def subscribes(self, topic: str) -> bool:
        return False


class Scripts(Kinds):
    """A table of one kind, which makes such machines and remembers them."""

    def __init__(self) -> None:
        self.made: list[Scripted] = []
        row = GroupKind(
            name=Scripted.kind,
            joined_by=JOIN_GROUP,
            answers=(JOIN_GROUP, SYNC_GROUP, HEARTBEAT),
            new=lambda *_: self._make(b""),
            load=lambda stored, *_: self._make(stored.body),
            is_initial=True,
        )
        super().__init__(GroupSettings(), [row])

    def _make(self, body: bytes) -> Scripted:
        self.made.append(Scripted(body))
        return self.made[-1]


class Site:
    """A broker's replica, its coordinator, and the responses to its clients."""

    def __init__(self, replica: Replica, log: FaultyLog, clock: ManualClock) -> None:
        self.replica, self.log, self.clock = replica, log, clock
        self.scripts = Scripts()
        self.coordinator = GroupCoordinator(replica, clock, self.scripts)
        self.lost: list[Callable[[], None]] = []
        self.group_id = "g"

    @property
    def machine(self) -> Scripted:
        return self.scripts.made[-1]

    def ask(self, api: Api[Any, Any], request: Any) -> Any:
        event = MachineRequest(HeldRequest(api, request), request, 3, "client", "/host", "new")
        return self.coordinator.ask(
            self.group_id, event, self._when_lost, creates=api is JOIN_GROUP
        )

    def beat(self) -> Any:
        return self.ask(HEARTBEAT, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

    def sync(self, member_id: str) -> Any:
        request = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=member_id, assignments=[]
        )
        return self.ask(SYNC_GROUP, request)

    def join(self) -> Any:
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=[]
        )
        return self.ask(JOIN_GROUP, request)

    def _when_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.lost.append(callback)
        return lambda: self.lost.remove(callback)

    async def lead(self) -> None:
        """Have the group, with a join that is held."""
        self.held = self.join()
        await asyncio.wait_for(_until(lambda: bool(self.scripts.made)), 10)
        await self.coordinator.run(self.group_id, lambda seat: None)


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (nothing tells when)
        await asyncio.sleep(0)


Open = Callable[[int], Awaitable[Site]]


@pytest.fixture
async def sites(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens sites of one cluster, each as a node of its own."""
    opened: list[Site] = []

    async def begin(node_id: int) -> Site:
        clock = ManualClock()
        log = FaultyLog(open_log(f"memory:{request.node.nodeid}"))
        replica = Replica(log, clock)
        site = Site(replica, log, clock)
        opened.append(site)
        await replica.open()
        await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        event = BrokerRegistered(process_id=bytes(16), node_id=node_id, host="h", port=1)
        await replica.register(event)
        return site

    yield begin
    for site in opened:
        site.coordinator.stop()
        await site.replica.close()


@pytest.fixture
async def site(sites: Open) -> Site:
    site = await sites(1)
    await site.lead()
    return site


async def test_heartbeats_are_answered_immediately_without_log_entries(site: Site) -> None:
    before = site.replica.state.applied

    answers = [site.beat() for _ in range(100)]

    assert answers == [OK] * 100
    assert site.replica.waiting == 0
    assert site.replica.state.applied == before


async def test_answers_wait_until_the_state_is_persisted(site: Site) -> None:
    arrived = site.log.arrived
    site.log.hold()
    synced = site.sync("alpha")
    beaten = site.beat()
    await _until(lambda: site.log.arrived > arrived)
    assert not synced.done()
    # What comes meanwhile waits: the machine is ahead of what is agreed on.
    assert not beaten.done()
    late = site.beat()
    assert len(site.machine.events) == 3

    site.log.let_through()

    assert (await synced).assignment == b"alpha"
    assert await beaten == await late == OK
    assert site.replica.state.groups.by_id["g"].body == b"alpha"


async def test_large_group_is_persisted_in_parts(site: Site) -> None:
    name = "x" * 700_000

    assert (await site.sync(name)).assignment == b"xxxxx"

    assert site.replica.state.groups.by_id["g"].body == name.encode()
    assert (await site.sync("small")).assignment == b"small"


async def test_fenced_coordinator_answers_not_coordinator(site: Site, sites: Open) -> None:
    arrived = site.log.arrived
    site.log.hold()
    synced = site.sync("zombie")
    await _until(lambda: site.log.arrived > arrived)
    # It is the same broker, started again: the hash chooses it, and its claim is the newest.
    successor = await sites(1)
    await successor.lead()
    assert (await successor.sync("alive")).error_code is ErrorCode.NONE
    site.log.let_through()

    assert (await synced).error_code is ErrorCode.NOT_COORDINATOR
    assert (await site.held).error_code is ErrorCode.NOT_COORDINATOR
    assert successor.replica.state.groups.by_id["g"].body == b"alive"
    assert (await site.beat()).error_code is ErrorCode.NOT_COORDINATOR


async def test_successor_starts_with_the_persisted_state(site: Site, sites: Open) -> None:
    await site.sync("kept")
    successor = await sites(1)

    await successor.lead()

    assert successor.machine.body == b"kept"
    assert successor.replica.state.groups.by_id["g"].epoch == 2


async def test_group_moves_to_the_broker_that_the_hash_chooses(site: Site, sites: Open) -> None:
    others = []
    for node in count(2):
        others.append(await sites(node))
        await site.replica.barrier()
        if not site.coordinator.is_ours("g"):
            break

    assert (await site.held).error_code is ErrorCode.NOT_COORDINATOR
    assert len(site.coordinator) == 0
    # One that is asked by mistake says so, and does not take the group back.
    assert (await site.beat()).error_code is ErrorCode.NOT_COORDINATOR
    [owner] = [other for other in others if other.coordinator.is_ours("g")]
    await owner.lead()


async def test_unreachable_log_is_answered_coordinator_not_available(sites: Open) -> None:
    site = await sites(1)
    site.log.cut()

    answer = await site.join()

    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    site.log.mend()
    await site.lead()


async def test_fault_of_one_group_does_not_affect_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.beat()
    site.machine.is_broken = True

    assert site.beat().error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await site.held).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "a group cannot be coordinated: ZeroDivisionError" in caplog.text
    # The next one that asks finds it as it was agreed on.
    await site.lead()
    assert site.beat() == OK
    site.machine.is_broken = True
    _pass(site, 11_000)
    assert len(site.coordinator) == 0


async def test_commit_with_unknown_outcome_is_refused(site: Site) -> None:
    site.log.cut()

    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        await commit(site.coordinator, site.replica, CommitAuthor("g", "m", 1, None), [OFFSET])


async def test_pending_request_of_a_disconnected_client_is_dropped(site: Site) -> None:
    [lost] = site.lost

    lost()

    assert site.held.result() is None
    [_, gone] = site.machine.events
    assert isinstance(gone, ClientGone)


async def test_client_that_disconnects_while_the_group_is_busy_is_dropped(site: Site) -> None:
    site.log.hold()
    synced = site.sync("alpha")
    for lost in list(site.lost):
        lost()
    site.log.let_through()

    await site.coordinator.run("g", lambda seat: None)

    assert synced.result() is None
    # The sync was answered meanwhile, but its client is gone; only the join was still held.
    assert [type(event) for event in site.machine.events] == [
        MachineRequest,
        MachineRequest,
        ClientGone,
    ]


async def test_stopping_broker_answers_not_coordinator(site: Site) -> None:
    site.coordinator.stop()

    assert (await site.held).error_code is ErrorCode.NOT_COORDINATOR
    assert site.beat().error_code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await site.coordinator.run("g", lambda seat: None)


def _pass(site: Site, ms: int) -> list[Event]:
    """Let time pass as it does, a second at a time; return the ticks that came of it."""
    for _ in range(ms // 1000):
        site.clock.advance(1000)
        site.coordinator.timer.look()
    return [event for event in site.machine.events if isinstance(event, Tick)]


async def test_expired_deadline_fires_once(site: Site) -> None:
    site.beat()
    assert _pass(site, 9_000) == []
    site.beat()
    assert _pass(site, 9_000) == []

    assert len(_pass(site, 5_000)) == 1


async def test_time_while_the_process_was_stopped_expires_no_member(site: Site) -> None:
    site.beat()
    assert _pass(site, 5_000) == []
    # The process was stopped: heartbeats wait unread in its sockets.
    site.clock.advance(60_000)
    site.coordinator.timer.look()
    assert _pass(site, 4_000) == []

    assert len(_pass(site, 2_000)) == 1


async def test_commits_of_many_groups_share_an_entry(sites: Open) -> None:
    site = await sites(1)
    topic = TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])
    await site.replica.propose([topic])
    before = site.replica.state.applied

    answers = await asyncio.gather(
        *(
            commit(
                site.coordinator, site.replica, CommitAuthor(f"g{number}", "", -1, None), [OFFSET]
            )
            for number in range(200)
        )
    )

    assert answers == [[ErrorCode.NONE]] * 200
    assert site.replica.state.applied - before < 20
    offsets = [group.offset(TOPIC, 0) for group in site.replica.state.groups]
    assert [offset.offset for offset in offsets if offset is not None] == [5] * 200


async def test_commit_under_a_lost_claim_is_refused(site: Site, sites: Open) -> None:
    topic = TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])
    await site.replica.propose([topic])
    who = CommitAuthor("g", "m", 1, None)
    site.log.hold()
    committing = asyncio.create_task(commit(site.coordinator, site.replica, who, [OFFSET]))
    arrived = site.log.arrived
    await _until(lambda: site.log.arrived > arrived)
    successor = await sites(1)
    await successor.lead()
    site.log.let_through()

    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await committing
    await successor.replica.barrier()
    assert successor.replica.state.groups.by_id["g"].offset(TOPIC, 0) is None


async def test_state_machine_authorises_commits(site: Site) -> None:
    with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
        await commit(site.coordinator, site.replica, CommitAuthor("g", "m", 2, None), [])


async def test_exception_reaches_its_caller_and_the_next_request_is_served(sites: Open) -> None:
    site = await sites(1)

    def fail(_seat: GroupSeat) -> None:
        raise ValueError("more than an entry holds")

    while_loading = [
        site.coordinator.run("g", fail, creates=True),
        site.coordinator.run("g", lambda seat: None),
    ]
    results = await asyncio.gather(*while_loading, return_exceptions=True)
    when_loaded = site.coordinator.run("g", fail)

    assert [type(result) for result in results] == [ValueError, type(None)]
    with pytest.raises(ValueError, match="more than an entry holds"):
        await when_loaded


def test_failed_queued_request_is_refused_and_the_next_is_served() -> None:
    reported: list[Exception] = []
    seat: GroupSeat = Seat("g", lambda _key, _problem, error: reported.append(error))
    refused: list[ErrorCode] = []
    served: list[str] = []

    def fail(_seat: GroupSeat) -> None:
        raise ZeroDivisionError

    seat.waiting += [
        WaitingWork(fail, refused.append),
        WaitingWork(lambda seat: served.append(seat.key), refused.append),
    ]
    seat.is_busy = False

    seat.go_on()

    assert (refused, served) == ([ErrorCode.UNKNOWN_SERVER_ERROR], ["g"])
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_state_too_large_for_an_entry_releases_the_group(sites: Open) -> None:
    site = await sites(1)
    site.group_id = "g" * 300_000  # every part of the group's state names it
    await site.lead()

    answer = await site.sync("x" * 120_000)

    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await site.held).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(site.coordinator) == 0


async def test_group_deleted_with_an_unknown_outcome_can_be_committed_to_again(
    site: Site,
) -> None:
    await site.replica.propose(
        [TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])]
    )
    who = CommitAuthor("g", "", -1, None)
    assert await commit(site.coordinator, site.replica, who, [OFFSET]) == [ErrorCode.NONE]
    group = site.replica.state.groups.by_id["g"]
    # As DeleteGroups does, but its caller got an unknown outcome.
    event = GroupDeleted(group_id="g", epoch=group.epoch, version=group.version)
    [outcome] = await site.replica.propose([event])
    assert outcome.error is ErrorCode.NONE

    assert "g" not in site.coordinator
    assert await commit(site.coordinator, site.replica, who, [OFFSET]) == [ErrorCode.NONE]


async def test_concurrent_requests_share_a_proposal(site: Site) -> None:
    before, arrived = site.replica.state.applied, site.log.arrived

    answers = await asyncio.gather(*(site.sync(f"m{number}") for number in range(5)))

    assert [answer.assignment for answer in answers] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert site.replica.state.groups.by_id["g"].body == b"m4"
    assert (site.replica.state.applied - before, site.log.arrived - arrived) == (1, 1)


async def test_queued_requests_share_proposals_of_bounded_size(site: Site) -> None:
    arrived = site.log.arrived
    site.log.hold()
    first = site.sync("first")
    await _until(lambda: site.log.arrived > arrived)
    before = site.replica.state.groups.by_id["g"].version
    rest = [site.sync(f"m{number}") for number in range(50)]
    assert len(site.machine.events) == 2
    site.log.let_through()

    await asyncio.gather(first, *rest)

    # Twenty at a time, each kept as the last one left the group.
    assert site.replica.state.groups.by_id["g"].version - before == 4
    assert site.replica.state.groups.by_id["g"].body == b"m49"


async def test_work_on_a_group_sees_persisted_state_only(site: Site) -> None:
    group = site.replica.state.groups.by_id["g"]
    before = site.sync("before")
    seen = site.coordinator.run("g", lambda seat: (group.body, len(site.machine.events)))
    after = site.sync("after")

    assert await seen == (b"before", 2)
    assert (await before).assignment == b"befor"
    assert (await after).assignment == b"after"


async def test_group_lost_before_its_proposal_refuses_all_queued_requests(site: Site) -> None:
    answers = [site.sync("a"), site.sync("b")]

    site.coordinator.drop_all()

    for answer in answers:
        assert (await answer).error_code is ErrorCode.NOT_COORDINATOR
    assert site.replica.state.groups.by_id["g"].body == b""
