"""Members of a cluster: they register, beat, notice their expiry, rejoin and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from itertools import count

import pytest

from rookery.broker.process.membership import Membership
from rookery.broker.settings import BrokerSettings
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokerevents import BrokerBeat, BrokerExpired, ClusterCreated
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.member import ClusterMember, process_registration
from rookery.cluster.numbers import Numbers
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.settings import MemberSettings
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.state import EntryOutcome
from rookery.errors import ConfigError, Conflict, Corrupt, Error, Unavailable
from rookery.formats.keys import NUMBER_LIMIT, split_object_id
from rookery.net.reach import Reach
from rookery.testing.clock import ManualClock, SeededRandom
from rookery.testing.cluster import AppendFault, FaultyLog
from rookery.testing.virtualtime import run_virtually

BEAT_SECONDS = 1
SESSION_SECONDS = 10
_names = count(1)
_seeds = count(1)


def topic(name: str) -> TopicCreated:
    return TopicCreated(
        topic_id=name.encode().ljust(16), name=name, partitions=1, replication_factor=1, configs=[]
    )


class Process:
    """A member with a log that can fail, and what its owner was notified of."""

    def __init__(self, url: str, clock: ManualClock, settings: MemberSettings) -> None:
        self.log = FaultyLog(open_log(url))
        self.replica = Replica(self.log, clock)
        registration = process_registration("test", SeededRandom(next(_seeds)))
        self.member = ClusterMember(self.replica, clock, registration, settings)
        self.member.when_joined = self._joined
        self.member.when_lost = self._lost
        self.member.when_failed = self._failed
        self.joined: list[int] = []
        self.lost: list[int] = []
        self.failures: list[Exception] = []

    @property
    def incarnation(self) -> int:
        return self.replica.incarnation

    def _joined(self, numbers: Numbers) -> None:
        self.joined.append(numbers.incarnation)

    async def _lost(self) -> None:
        self.lost.append(self.incarnation)

    def _failed(self, error: Exception) -> None:
        self.failures.append(error)


class Site:
    """A cluster in virtual time with one member that expires the silent ones."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._url = f"memory:member-{next(_names)}"
        self._processes: list[Process] = []
        self.beats: list[int] = []
        """The incarnations of all beats that the observer has read."""

    async def start(self) -> None:
        self.observer = await self.process(is_eager=True)
        replica = self.observer.replica
        await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        replica.listen(self._applied)
        await self.observer.member.join()
        session = BrokerSettings(session_timeout_ms=SESSION_SECONDS * 1000)
        self._membership = Membership(replica, self.clock, session, _unknown)
        self._watch = asyncio.create_task(self._look())

    async def process(
        self, *, is_follower: bool = True, is_eager: bool = False, max_registrations: int = 1
    ) -> Process:
        """Return a process that has not joined yet."""
        settings = MemberSettings(
            beat_ms=BEAT_SECONDS * 1000,
            retry_ms=500,
            leave_ms=3_000,
            max_registrations=max_registrations,
            is_eager=is_eager,
        )
        made = Process(self._url, self.clock, settings)
        self._processes.append(made)
        await made.replica.open(follow=is_follower)
        return made

    async def expire(self, incarnation: int) -> None:
        """Have the observer expire a member at once."""
        await self.observer.replica.barrier()
        last = self.observer.replica.state.brokers.sequences[incarnation]
        expired = BrokerExpired(incarnation=incarnation, last_sequence=last)
        [outcome] = await self.observer.replica.propose([expired])
        assert not outcome.error

    async def members(self) -> set[int]:
        """Return all live incarnations but the observer's."""
        await self.observer.replica.barrier()
        return {*self.observer.replica.state.brokers.sequences} - {self.observer.incarnation}

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        for process in self._processes:
            await process.member.close()
            await process.replica.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            await self._membership.look()

    def _applied(self, _applied: EntryOutcome, entry: Entry) -> None:
        if any(event.key == BrokerBeat.KEY for event in entry.events):
            self.beats.append(entry.incarnation)


async def _unknown(_: LiveBroker) -> Reach:
    return Reach.UNKNOWN


Scenario = Callable[[Site], Awaitable[None]]


def virtually(scenario: Scenario) -> Callable[[], None]:
    """Make a test of a scenario: it runs in virtual time, at a site of its own."""

    @wraps(scenario)
    def test() -> None:
        clock = ManualClock()
        run_virtually(play(clock), clock)

    async def play(clock: ManualClock) -> None:
        site = Site(clock)
        await site.start()
        try:
            await scenario(site)
        finally:
            await site.close()

    del test.__wrapped__  # pytest would take its parameter for a fixture
    return test


async def pass_time(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)


# Joining, beating and leaving.


@virtually
async def test_member_is_alive_from_join_to_leave(site: Site) -> None:
    process = await site.process()
    assert await site.members() == set()
    numbers = await process.member.join()

    assert process.member.is_alive
    assert numbers.incarnation == process.incarnation
    assert process.joined == [process.incarnation]
    assert await site.members() == {process.incarnation}
    await pass_time(SESSION_SECONDS * 3)
    assert await site.members() == {process.incarnation}

    await process.member.leave()

    assert await site.members() == set()
    assert process.joined == [numbers.incarnation]
    assert not process.lost


@virtually
async def test_silent_member_beats_once_per_interval(site: Site) -> None:
    process = await site.process()
    await process.member.join()
    await pass_time(BEAT_SECONDS * 10.5)
    assert site.beats.count(process.incarnation) == 10
    await process.member.close()
    await pass_time(BEAT_SECONDS * 5)
    assert site.beats.count(process.incarnation) == 10


@virtually
async def test_member_that_writes_does_not_beat(site: Site) -> None:
    process = await site.process()
    await process.member.join()
    for number in range(30):
        await process.replica.propose([topic(f"t{number}")])
        await pass_time(BEAT_SECONDS * 0.6)
    assert process.incarnation not in site.beats
    # Its next beat follows its last entry by one interval, whenever that was.
    await pass_time(BEAT_SECONDS * 0.5)
    assert site.beats.count(process.incarnation) == 1


@virtually
async def test_no_beat_is_sent_while_one_has_no_answer(site: Site) -> None:
    process = await site.process()
    await process.member.join()
    arrived = process.log.arrived
    process.log.hold()
    await pass_time(SESSION_SECONDS * 0.9)
    assert process.log.arrived == arrived + 1
    process.log.let_through()
    await pass_time(BEAT_SECONDS * 0.1)
    assert site.beats.count(process.incarnation) == 1
    assert process.member.is_alive


@virtually
async def test_process_that_never_joined_leaves_without_an_entry(site: Site) -> None:
    process = await site.process()
    await process.member.leave()
    assert process.log.arrived == 0


@virtually
async def test_object_ids_are_those_of_the_present_incarnation(site: Site) -> None:
    process = await site.process(is_eager=True)
    with pytest.raises(Unavailable, match="not a member of the cluster"):
        process.member.next_id()
    numbers = await process.member.join()
    assert await process.member.join() is numbers
    ids = [process.member.next_id(), numbers(), process.member.next_id()]
    await site.expire(process.incarnation)
    await pass_time(0.1)
    ids.append(process.member.next_id())
    incarnations = [split_object_id(object_id)[0] for object_id in ids]
    assert incarnations == [process.joined[0]] * 3 + [process.joined[1]]
    assert len({*ids}) == 4


# Expiry.


@virtually
async def test_eager_member_rejoins_once_when_another_expires_it(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    await site.expire(first)
    await pass_time(0.1)

    assert process.member.is_alive
    assert process.joined == [first, process.incarnation]
    assert process.lost == [first]
    assert (await process.member.join()).incarnation == process.incarnation
    assert await site.members() == {process.incarnation}
    await pass_time(SESSION_SECONDS * 2)
    assert len(process.joined) == 2
    assert site.beats.count(process.joined[1]) == SESSION_SECONDS * 2 // BEAT_SECONDS


@virtually
async def test_other_member_rejoins_with_its_next_join(site: Site) -> None:
    process = await site.process(is_follower=False)
    first = await process.member.join()
    await site.expire(first.incarnation)
    await pass_time(SESSION_SECONDS)
    assert not process.member.is_alive  # it learned this from its beat
    assert process.joined == [first.incarnation]

    second = await process.member.join()

    assert second.incarnation > first.incarnation
    assert process.joined == [first.incarnation, second.incarnation]
    assert process.lost == [first.incarnation]
    await pass_time(SESSION_SECONDS * 2)
    assert await site.members() == {second.incarnation}


@virtually
async def test_member_that_was_expired_while_the_log_was_away_rejoins_once(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    process.log.cut()
    late = [process.replica.propose([topic(f"late{number}")]) for number in range(3)]
    await pass_time(SESSION_SECONDS * 3)
    assert await site.members() == set()
    assert process.joined == [first]
    assert process.member.trouble
    late.append(process.replica.propose([topic("later")]))

    process.log.mend()
    await pass_time(SESSION_SECONDS)

    assert process.member.is_alive
    assert process.joined == [first, process.incarnation]
    assert process.lost == [first]
    assert not process.failures
    for result in await asyncio.gather(*late, return_exceptions=True):
        assert isinstance(result, Unavailable | IncarnationFenced)
    # What the old incarnation sent counts for nothing, and the new one can write.
    await process.replica.propose([topic("new")])
    await site.observer.replica.barrier()
    assert [*site.observer.replica.state.topics.by_name] == ["new"]
    assert await site.members() == {process.incarnation}
    assert not process.member.trouble


@virtually
async def test_late_append_of_an_expired_incarnation_is_void(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    process.log.hold()
    late = process.replica.propose([topic("late")])
    await pass_time(SESSION_SECONDS * 1.5)
    assert await site.members() == set()
    process.log.let_through()
    await pass_time(1)

    with pytest.raises(IncarnationFenced):
        await late
    assert process.joined == [first, process.incarnation]
    await site.observer.replica.barrier()
    assert not site.observer.replica.state.topics.by_name


@virtually
async def test_member_keeps_its_incarnation_if_the_log_is_away_for_less_than_a_session(
    site: Site,
) -> None:
    process = await site.process(is_eager=True)
    numbers = await process.member.join()
    for _ in range(3):
        process.log.cut()
        await pass_time(SESSION_SECONDS * 0.7)
        assert process.member.trouble
        process.log.mend()
        await pass_time(SESSION_SECONDS)

    assert process.joined == [numbers.incarnation]
    assert not process.lost
    assert await process.member.join() is numbers
    assert not process.member.trouble
    assert await site.members() == {numbers.incarnation}


@virtually
async def test_rejoining_waits_for_the_log(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    process.log.order(*[AppendFault.NOT_SENT] * 5)
    await site.expire(first)
    await pass_time(2)
    assert process.joined == [first]
    await pass_time(2)
    assert process.joined == [first, process.incarnation]
    assert process.lost == [first]


@virtually
async def test_rejoins_do_not_overlap(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    process.log.hold()
    arrived = process.log.arrived
    await site.expire(first)
    await pass_time(0.1)
    joins = [asyncio.create_task(process.member.join()) for _ in range(3)]
    for _ in range(5):
        process.member.look()
        await pass_time(BEAT_SECONDS)
    assert process.log.arrived == arrived + 1
    process.log.let_through()

    numbers = await asyncio.gather(*joins)

    assert {number.incarnation for number in numbers} == {process.incarnation}
    assert process.joined == [first, process.incarnation]
    assert process.lost == [first]
    assert await site.members() == {process.incarnation}


@virtually
async def test_member_that_expires_repeatedly_rejoins_each_time(site: Site) -> None:
    process = await site.process(is_eager=True)
    await process.member.join()
    for _ in range(5):
        await site.expire(process.incarnation)
        await pass_time(BEAT_SECONDS * 1.5)
    assert len(process.joined) == 6
    assert process.lost == process.joined[:-1]


@virtually
async def test_eager_member_that_runs_out_of_object_ids_gets_a_new_incarnation(site: Site) -> None:
    process = await site.process(is_eager=True)
    numbers = await process.member.join()
    numbers.last = NUMBER_LIMIT
    await pass_time(BEAT_SECONDS * 2)
    assert process.joined == [numbers.incarnation, process.incarnation]
    assert process.lost == [numbers.incarnation]
    assert not (await process.member.join()).is_nearly_spent


@virtually
async def test_owner_can_refuse_to_rejoin(site: Site) -> None:
    process = await site.process(is_eager=True)
    refusals = count()

    async def refuse() -> None:
        next(refusals)
        raise ConfigError("another process has this place")

    process.member.when_lost = refuse
    first = (await process.member.join()).incarnation
    await site.expire(first)
    await pass_time(SESSION_SECONDS)
    assert [str(error) for error in process.failures] == ["another process has this place"]
    assert next(refusals) == 1
    assert process.joined == [first]
    assert await site.members() == set()


# Registrations that go wrong.


@virtually
async def test_registration_with_a_lost_answer_leaves_a_harmless_incarnation(site: Site) -> None:
    process = await site.process()
    process.log.order(AppendFault.LOST_ANSWER)
    with pytest.raises(Unavailable):
        await process.member.join()
    assert not process.member.is_alive
    [ghost] = await site.members()

    numbers = await process.member.join()

    assert numbers.incarnation != ghost
    assert process.joined == [numbers.incarnation]
    assert not process.lost
    assert ghost in await site.members()
    await pass_time(SESSION_SECONDS * 1.5)
    assert await site.members() == {numbers.incarnation}
    assert ghost not in site.beats


@virtually
async def test_patient_join_waits_for_the_log(site: Site) -> None:
    process = await site.process()
    process.log.cut()
    joining = asyncio.create_task(process.member.join_patiently())
    await pass_time(SESSION_SECONDS * 10)
    assert not joining.done()
    process.log.mend()
    numbers = await joining
    assert process.joined == [numbers.incarnation]
    assert await site.members() == {numbers.incarnation}


@pytest.mark.parametrize(("tries", "refused"), [(1, 1), (3, 2), (3, 3)])
def test_incarnation_that_the_owner_cannot_use_is_followed_by_another(
    tries: int, refused: int
) -> None:
    async def scenario(site: Site) -> None:
        process = await site.process(max_registrations=tries)
        seen: list[int] = []

        def joined(numbers: Numbers) -> None:
            seen.append(numbers.incarnation)
            if len(seen) <= refused:
                raise Conflict("there are journals of this incarnation")

        process.member.when_joined = joined
        if refused < tries:
            assert (await process.member.join()).incarnation == seen[-1]
        else:
            with pytest.raises(Conflict):
                await process.member.join()
        assert process.member.is_alive is (refused < tries)
        assert len(seen) == min(tries, refused + 1)

    virtually(scenario)()


# Leaving.


@virtually
async def test_member_leaves_after_its_last_work(site: Site) -> None:
    process = await site.process()
    await process.member.join()

    async def finish() -> None:
        await process.replica.propose([topic("last")])

    await process.member.leave(finish)
    assert await site.members() == set()
    assert "last" in site.observer.replica.state.topics.by_name


@pytest.mark.parametrize("is_cut", [False, True])
def test_member_leaves_although_the_log_is_away(
    caplog: pytest.LogCaptureFixture, *, is_cut: bool
) -> None:
    async def scenario(site: Site) -> None:
        process = await site.process(is_eager=True)
        incarnation = (await process.member.join()).incarnation
        if is_cut:
            process.log.cut()
        else:
            process.log.hold()
        async with asyncio.timeout(4):
            await process.member.leave()
        assert await site.members() == {incarnation}
        await process.replica.close()
        process.log.mend()
        process.log.let_through()
        await pass_time(SESSION_SECONDS * 2)
        assert await site.members() == set()
        assert process.joined == [incarnation]

    virtually(scenario)()
    assert caplog.text.count("could not leave the cluster in order") == 1


@virtually
async def test_member_that_rejoins_can_be_closed(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    process.log.hold()
    await site.expire(first)
    await pass_time(0.1)
    await process.member.leave()
    process.log.let_through()
    await pass_time(SESSION_SECONDS * 2)
    assert process.joined == [first]
    assert not process.failures


@virtually
async def test_closed_member_does_not_rejoin(site: Site) -> None:
    process = await site.process(is_eager=True)
    first = (await process.member.join()).incarnation
    await process.member.close()
    await site.expire(first)
    await pass_time(SESSION_SECONDS)
    assert process.joined == [first]
    assert await site.members() == set()


# The owner's check.


@virtually
async def test_failing_check_suspends_beats_and_joins(site: Site) -> None:
    process = await site.process()
    problem: Error | None = None

    async def check() -> None:
        if problem is not None:
            raise problem

    process.member.check = check
    await process.member.join()
    problem = Unavailable("the store cannot be reached")
    await pass_time(BEAT_SECONDS * 3.5)
    assert process.incarnation not in site.beats
    with pytest.raises(Unavailable):
        await process.member.join()
    problem = None
    await pass_time(BEAT_SECONDS)
    assert site.beats.count(process.incarnation) == 1
    # The log is another cluster's from now on.
    problem = ConfigError("this is the log of another cluster")
    await pass_time(BEAT_SECONDS * 3)
    problem = None
    await pass_time(BEAT_SECONDS * 3)
    assert site.beats.count(process.incarnation) == 1


@virtually
async def test_beats_end_when_the_replica_has_stopped(site: Site) -> None:
    process = await site.process()
    await process.member.join()
    process.replica._follower.stop(Corrupt("a fault"))
    arrived = process.log.arrived
    await pass_time(SESSION_SECONDS * 2)
    assert process.log.arrived == arrived
    beating = process.member._beating
    assert beating is not None
    assert beating.done()
    await process.member.leave()
    assert await site.members() == set()


# The lease.


@virtually
async def test_lease_begins_with_the_registration_and_lasts_while_the_member_beats(
    site: Site,
) -> None:
    process = await site.process(is_eager=True)
    assert not process.member.has_lease
    await process.member.join()
    for _ in range(SESSION_SECONDS * 3):
        await pass_time(1)
        assert process.member.has_lease


@virtually
async def test_lease_of_a_member_that_is_cut_off_ends_until_it_joins_again(site: Site) -> None:
    process = await site.process(is_eager=True)
    await process.member.join()
    await pass_time(BEAT_SECONDS * 3.7)
    process.log.cut()
    leases = []
    while process.incarnation in await site.members():
        leases.append(process.member.has_lease)
        await pass_time(0.1)
    assert leases[0]
    assert not leases[-1]
    await pass_time(SESSION_SECONDS)
    leases.append(process.member.has_lease)
    assert not leases[-1]

    process.log.mend()
    await pass_time(SESSION_SECONDS / 2)

    assert process.member.has_lease
    assert len(process.joined) == 2


@virtually
async def test_entry_that_was_appended_late_extends_the_lease_from_when_it_was_made(
    site: Site,
) -> None:
    process = await site.process(is_eager=True)
    await process.member.join()
    ages: list[int | None] = []

    def note_age(_applied: EntryOutcome, entry: Entry) -> None:
        if entry.incarnation == process.incarnation:
            ages.append(process.member.silent_ms)

    process.replica.listen(note_age)
    process.log.hold()
    made = process.replica.propose([topic("late")])
    await pass_time(SESSION_SECONDS * 0.9)
    process.log.let_through()
    await made
    assert ages[0] == SESSION_SECONDS * 900
    assert process.member.has_lease
    # The heartbeats continue at once.
    await pass_time(BEAT_SECONDS * 1.1)
    assert (process.member.silent_ms or 0) <= BEAT_SECONDS * 1000


@virtually
async def test_expired_member_has_no_lease_while_it_joins_again(site: Site) -> None:
    process = await site.process(is_eager=True)
    await process.member.join()
    process.log.hold()
    await site.expire(process.incarnation)
    await pass_time(BEAT_SECONDS)
    # The registration of another process is not an entry of this one.
    other = await site.process()
    await other.member.join()
    await process.replica.barrier()
    assert not process.member.has_lease
    process.log.let_through()
    await pass_time(1)
    assert process.member.has_lease


@virtually
async def test_member_that_leaves_keeps_its_lease_for_a_session(site: Site) -> None:
    process = await site.process()
    await process.member.join()
    await process.member.leave()
    assert process.member.has_lease
    await pass_time(SESSION_SECONDS)
    assert not process.member.has_lease
