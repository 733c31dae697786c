"""Wires the parts of the broker: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from rookery.broker.acls import open_guard, visibility_of
from rookery.broker.call import Services, hidden_when_read_only
from rookery.broker.checks import rules_of
from rookery.broker.config.configs import TopicCache
from rookery.broker.fetchservice import FetchService, PartitionWatch
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.kind import GroupSettings
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.process.clientports import ClientPorts
from rookery.broker.process.duties import ClusterDuties
from rookery.broker.process.liveness import reach_broker
from rookery.broker.process.membership import Membership
from rookery.broker.process.nodeidentity import NodeIdentity
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.producerids import ProducerIds
from rookery.broker.rulelease import RuleLease, new_agreement
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import Backing
from rookery.broker.storage.caretakerkeeper import CaretakerKeeper
from rookery.broker.storage.open import open_backing
from rookery.broker.tokens.delegationtokens import DelegationTokens
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.entry import Entry
from rookery.cluster.member import ClusterMember
from rookery.cluster.numbers import Numbers
from rookery.cluster.replica import Replica
from rookery.cluster.resources import GROUP_RESOURCE, resource_key
from rookery.cluster.state.state import EntryOutcome
from rookery.log.read.tail import Tail
from rookery.log.write.journal import Journal
from rookery.log.write.writer import LogWriter
from rookery.model.uuid import random_uuid, uuid_text
from rookery.net.listener import Listener
from rookery.service.periodic import PeriodicTasks
from rookery.service.quotas.clientquotas import ClientQuotas
from rookery.service.stalls import LOOK_MS, StallMetrics, StallWatch

log = logging.getLogger(__name__)

STALLS: Final = StallMetrics("broker")

# A call that has waited less than this is not reported as the cause of a slow start.
_WAIT_MS: Final = 1_000


class Broker:
    """One broker; it is created, started and stopped in one event loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Open the folder, but do not join the cluster yet.

        Raises:
            ConfigError: a setting cannot be used.
        """
        # Otherwise a client could create a topic by asking for its metadata.
        settings = replace(settings, auto_create_topics=False) if settings.read_only else settings
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets an exception when the broker cannot continue."""
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self.tail = Tail(settings.tail_bytes)
        self._rules = TopicCache(rules_of)
        self.backing: Backing = open_backing(
            settings,
            self._clock,
            self.tail,
            lambda state, topic: self._rules.of(state, topic).configs,
        )
        self.replica = self.backing.replica
        self.replica.when_failed = self._fail
        self.replica.when_jumped = self._on_jumped
        self.periodic_tasks = PeriodicTasks()
        self.member = self._new_member()
        self.membership = Membership(
            self.replica, self._clock, settings, lambda other: reach_broker(self.node_lock, other)
        )
        kinds = Kinds(_group_settings(settings, self.replica))
        self.groups = GroupCoordinator(self.replica, self._clock, kinds)
        self.caretaking = CaretakerKeeper(
            settings, lambda: self.membership.keeps_caretaker, self._agrees
        )
        self._duties = ClusterDuties(
            settings, self.replica, self._clock, self.membership, self.groups
        )
        self.quotas = ClientQuotas(self._clock)
        self.node_lock = NodeLock(None, "", self._random)
        self.ports = ClientPorts(settings)
        self.is_stopping = False
        self._agreement = new_agreement(settings, self.replica, self._clock, lambda: self.node_lock)
        self.waiting = PartitionWatch(self.replica)
        self.replica.listen(self._refresh_quotas)

    def _new_member(self) -> ClusterMember:
        member = ClusterMember(
            self.replica,
            self._clock,
            lambda: self.identity.registration(),  # noqa: PLW0108 (it exists only after a start)
            self.settings.member(),
        )
        member.when_lost = self._on_lost
        member.when_joined = self._on_joined
        member.when_failed = self._fail
        return member

    @cached_property
    def stalls(self) -> StallWatch:
        """Watches for dependencies that do not answer."""
        backing, least_ms = self.backing, self.settings.stall_timeout_ms
        return StallWatch(backing.dependencies, least_ms, STALLS, backing.probes)

    async def start(self) -> None:
        """Join the cluster and serve."""
        await self.backing.open(lambda: uuid_text(random_uuid(self._random.token)))
        reader, replica, clock = self.backing.reader, self.replica, self._clock
        self.services = Services(
            settings=self.settings,
            clock=clock,
            random=self._random,
            replica=replica,
            writer=LogWriter(replica, self.tail, self.backing.traits.flush),
            reader=reader,
            waiting=self.waiting,
            fetches=FetchService(self.waiting, reader, replica, clock, self._random),
            producer_ids=ProducerIds(replica),
            groups=self.groups,
            quotas=self.quotas,
            delegation_tokens=DelegationTokens(self.settings, replica, clock),
            hidden=_find_hidden_apis(self.settings, self.backing),
            rules=self._rules,
            guard=open_guard(self.settings, replica),
            agreement=self._agreement,
            lease=RuleLease(self.member),
        )
        self.groups.topics.visibility = visibility_of(self.services.guard)
        self.node_lock = self.backing.node_lock(self._random)
        self.identity = NodeIdentity(
            self.settings, replica, clock, self.node_lock, self.backing.traits.node_id
        )
        await self.identity.claim()
        await self.ports.start(self.services)
        self.identity.endpoints = self.ports.endpoints
        await self.member.join()
        await self.ports.prepare_logins()
        await self.backing.start(self.periodic_tasks)
        self._start_tasks()

    def waits_for(self) -> str:
        """Return the dependency or step that a start in progress waits for."""
        stuck = [
            (stall.ms, f"{calls.name}: {stall}")
            for calls in self.backing.dependencies.values()
            if (stall := calls.stall(_WAIT_MS)) is not None
        ]
        if stuck:
            return max(stuck)[1]
        return f"reading the cluster log, at entry {self.replica.state.applied}"

    async def stop(self) -> None:
        """Leave the cluster, redirect clients to the other brokers, then close."""
        self.is_stopping = True
        grace_ms = self.settings.drain_timeout_ms
        end_ms = self._clock.monotonic_ms() + grace_ms
        caretaking = asyncio.create_task(self.caretaking.stop())
        await self.member.close()
        await self.periodic_tasks.stop()
        await self.stalls.stop()
        await self._hand_over()
        await self.ports.redirect_clients(self.services)
        grace_ms = min(grace_ms, max(0, end_ms - self._clock.monotonic_ms()))
        await self.ports.stop(grace_ms)
        await caretaking
        await self.replica.close()
        await self.flush_target.close()
        await self.backing.close()
        self.node_lock.close()

    async def abandon(self) -> None:
        """Close everything that a failed or cancelled start has opened."""
        await self.ports.stop(grace_ms=0)
        await self.member.close()
        await self.replica.close()
        await self.backing.cluster_log.close()
        self.node_lock.close()

    async def _hand_over(self) -> None:
        """Commit batches in flight, then leave; other brokers lead and coordinate from now on."""
        handover = self.services.handover = asyncio.Event()
        await self.member.leave(self._finish)
        self.services.is_draining = True
        handover.set()
        self.waiting.hurry_all()
        self.groups.stop()

    async def _finish(self) -> None:
        await self.services.writer.drain()
        await self.flush_target.flush_notes()

    @property
    def listener(self) -> Listener:
        """The listener on the broker's own port, which is advertised to clients."""
        return self.ports.own

    @property
    def journal(self) -> Journal | None:
        """The current journal; None if this broker does not write to one."""
        return self.flush_target.journal

    def _on_joined(self, numbers: Numbers) -> None:
        """Write as a new incarnation from now on.

        Raises:
            Conflict: journals of that incarnation exist, so the cluster log does not belong to this
                folder.
        """
        self.flush_target = self.backing.flush_target(numbers)
        self.services.writer.use(self.flush_target)
        broker = self.replica.state.brokers.of(numbers.incarnation)
        self.services.registration = broker
        self.services.node_id = broker.node_id if broker else -1
        self.identity.hold(self.services.node_id)
        log.info("broker %d serves on port %d", self.services.node_id, self.listener.port)

    async def _on_lost(self) -> None:
        """Release the resources of an incarnation that has ended.

        Raises:
            ConfigError: another process has taken this broker's node id.
        """
        node_id = self.services.node_id
        self.identity.check_free(node_id)
        if self.replica.state.brokers.of(self.replica.incarnation) is None:
            log.warning("broker %d was expired and joins again", node_id)
        else:
            log.info("broker %d joins again, to have new ids for objects", node_id)
            await self.services.writer.drain()
        await self.flush_target.close()

    def _start_tasks(self) -> None:
        settings, tasks = self.settings, self.periodic_tasks
        self._duties.start(tasks, expires_offsets=self.backing.traits.expires_offsets)
        tasks.every(LOOK_MS, "detection of stalled dependencies", self.stalls.look)
        tasks.every(1000, "upkeep of the node id and the flush target", self._look_after)
        self.ports.start_tasks(tasks)
        maintenance = self.backing.maintenance
        if maintenance is None:
            return
        if settings.caretaker == "process":
            self.caretaking.start()
        elif settings.caretaker == "inline":
            self.caretaker = maintenance.caretaker(self.member.next_id)
            tasks.every(settings.upkeep_interval_ms, "maintenance of the log", self._round)

    async def _round(self) -> None:
        """Run one round of maintenance if this broker keeps the caretaker."""
        if self.membership.keeps_caretaker:
            done = await self.caretaker.round()
            self.caretaking.take(done.as_json())
            if await self._agrees(done.snapshot):
                self.caretaker.confirm(done.snapshot)

    async def _agrees(self, snapshot: int) -> bool:
        maintenance = self.backing.maintenance
        return maintenance is not None and await maintenance.agrees(snapshot)

    async def _look_after(self) -> None:
        """Renew the claim on the node id, and retry a flush target that has failed."""
        if self.member.is_alive:
            self.identity.hold(self.services.node_id)
            await self.flush_target.maintain()

    def _refresh_quotas(self, _applied: EntryOutcome, _entry: Entry) -> None:
        self.quotas.refresh(self.replica.state.security)

    def _on_jumped(self) -> None:
        """Reset everything that depends on events that the replica skipped; clients reconnect."""
        self.member.look()
        self.groups.drop_all()
        self.quotas.refresh(self.replica.state.security)
        self.waiting.report_all()
        self.ports.abort_connections()

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _group_settings(settings: BrokerSettings, replica: Replica) -> GroupSettings:
    def configs_of(group_id: str) -> Mapping[str, str]:
        return replica.state.broker_configs.get(resource_key(GROUP_RESOURCE, group_id), {})

    return GroupSettings(settings.classic_groups, settings.consumer_groups, configs_of)


def _find_hidden_apis(settings: BrokerSettings, backing: Backing) -> frozenset[int]:
    """Return the keys of the APIs that this broker does not serve."""
    hidden = backing.traits.hidden_apis
    return hidden | hidden_when_read_only() if settings.read_only else hidden
