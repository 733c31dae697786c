"""Puts the parts together: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from rookery.broker import configs
from rookery.broker.call import Services
from rookery.broker.chores import Chores
from rookery.broker.dispatch import Dispatcher
from rookery.broker.membership import Membership
from rookery.broker.producerids import ProducerIds
from rookery.broker.settings import BrokerSettings
from rookery.broker.waiting import Waiting
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokers import BrokerLeft, BrokerRegistered, ClusterCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL, Applied
from rookery.errors import ConfigError, Error, Unavailable
from rookery.log import snapshots
from rookery.log.cache import BlockCache
from rookery.log.files import Files
from rookery.log.journal import Journal
from rookery.log.reader import Reader
from rookery.log.settings import CacheSettings
from rookery.log.survey import Survey
from rookery.log.tail import Tail
from rookery.log.upkeep import Upkeep
from rookery.log.writer import Writer
from rookery.model.address import parse_address
from rookery.model.uuid import uuid_text
from rookery.net.budget import Budget
from rookery.net.listener import Listener, ListenerSettings
from rookery.store.open import open_store

log = logging.getLogger(__name__)

# The newest payloads stay in their entries: most of them are read again soon, or never.
_PAYLOADS_KEPT: Final = 64


class Broker:
    """One broker: made, then started, then stopped; in one event loop."""

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
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has an exception when the broker cannot go on."""
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._folder = Path(settings.data).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self.cluster_log = open_log(
            f"sqlite://{self._folder / 'cluster.sqlite'}", durability=settings.durability
        )
        self._store = open_store(f"file://{self._folder / 'store'}")
        self.replica = Replica(self.cluster_log, self._clock, lambda: snapshots.load(self._store))
        self.replica.when_failed = self._fail
        self.replica.when_jumped = self._drop_clients
        self.tail = Tail(settings.tail_bytes)
        self._files = Files(self._folder / "journal")
        self.cache = BlockCache(self._files.read, CacheSettings(max_bytes=settings.cache_bytes))
        self.waiting = Waiting()
        self.chores = Chores()
        self.membership = Membership(self.replica, self._clock, settings)
        self.upkeep = Upkeep(
            self.replica,
            self.cluster_log,
            self._files,
            self.cache,
            self._clock,
            lambda topic: configs.of(self.replica.state, topic),
        )
        self.listeners: list[Listener] = []
        self.snapshot_at = 0
        self._snapshot_bytes = 0
        self.lost_records = 0
        """Records that were acknowledged without a sync and did not survive the machine."""
        self._is_stopping = False
        self._rejoining: asyncio.Task[None] | None = None
        self.replica.listen(self._applied)

    async def start(self) -> None:
        """Join the cluster and serve."""
        await self.replica.open()
        # Not what is applied: a broker that is restarted often would never write a snapshot.
        self.snapshot_at = self.replica.opened_at
        if not self.replica.state.cluster_id:
            cluster_id = uuid_text(self._random.token(16))
            await self.replica.create_cluster(
                ClusterCreated(cluster_id=cluster_id, feature_level=FEATURE_LEVEL)
            )
        self.services = Services(
            settings=self.settings,
            clock=self._clock,
            random=self._random,
            replica=self.replica,
            writer=Writer(self.replica, self.tail),
            reader=Reader(self.cluster_log, self.cache, self.tail, self._files.read),
            waiting=self.waiting,
            producer_ids=ProducerIds(self.replica),
        )
        await self._listen()
        await self._join()
        await self._survey()
        self._begin_chores()

    async def stop(self) -> None:
        """Refuse new clients, finish what is in flight, leave the cluster."""
        self._is_stopping = True
        self.services.is_draining = True
        await self.chores.stop()
        self.waiting.hurry_all()
        grace_ms = self.settings.drain_timeout_ms
        await asyncio.gather(*(listener.stop(grace_ms) for listener in self.listeners))
        await self.services.writer.drain()
        try:
            await self.replica.propose([BrokerLeft()])
        except Error as error:
            log.warning("could not leave the cluster in order: %s", error)
        await self.replica.close()
        await self.journal.close()
        await self.cache.close()
        await self._files.close()
        await self._store.close()
        await self.cluster_log.close()

    async def _listen(self) -> None:
        settings = self.settings
        dispatcher, budget = Dispatcher(self.services), Budget(settings.request_bytes)
        # The own port first: it is the one that clients are told.
        for name, text in (("listen", settings.listen), ("bootstrap", settings.bootstrap)):
            if not text:
                continue
            address = parse_address(text, name, lowest_port=0)
            options = ListenerSettings(
                host=address.host,
                port=address.port,
                reuse_port=name == "bootstrap",
                max_connections=settings.max_connections,
            )
            listener = Listener(dispatcher, options, budget=budget)
            await listener.start()
            self.listeners.append(listener)

    @property
    def listener(self) -> Listener:
        """The broker's own port, which clients are told."""
        return self.listeners[0]

    async def _join(self) -> None:
        """Register, and write into a journal of the new incarnation from now on."""
        address = parse_address(
            self.settings.advertise or self.settings.listen, "advertise", lowest_port=0
        )
        port = address.port if self.settings.advertise else self.listener.port
        incarnation = await self.replica.register(
            BrokerRegistered(
                process_id=self._random.token(16),
                node_id=self._node_id(address.host, port),
                host=address.host,
                port=port,
                rack=self.settings.rack or None,
            )
        )
        self.journal = Journal(
            self._folder / "journal", incarnation, self.settings.durability, clock=self._clock
        )
        self.services.writer.use(self.journal)
        broker = self.replica.state.brokers.of(incarnation)
        self.services.node_id = broker.node_id if broker else -1
        log.info("broker %d serves on port %d", self.services.node_id, self.listener.port)

    def _node_id(self, host: str, port: int) -> int:
        """Take the place of a broker that had our port: it is dead, or we would not have it."""
        if self.settings.node_id >= 0 or self.settings.advertise:
            return self.settings.node_id
        brokers = self.replica.state.brokers.by_node.values()
        return next((one.node_id for one in brokers if (one.host, one.port) == (host, port)), -1)

    async def _rejoin(self) -> None:
        """Come back as a new incarnation: the others took us for dead."""
        log.warning("broker %d was expired and joins again", self.services.node_id)
        await self.journal.close()
        await self._join()

    async def _survey(self) -> None:
        """Look for what a machine that went down may have taken along, if that is possible."""
        if self.settings.durability == "disk":
            return
        survey = Survey(self.replica, self._files, self._folder / "boot-id")
        if survey.is_due:
            log.warning("the machine was started anew: all journals are checked")
            self.lost_records = await survey.run()
        survey.remember()

    def _begin_chores(self) -> None:
        settings, chores = self.settings, self.chores
        chores.every(settings.beat_interval_ms, "beat", self.membership.beat)
        chores.every(settings.beat_interval_ms, "looking for the dead", self.membership.look)
        chores.every(settings.upkeep_interval_ms, "upkeep of the log", self._tidy)
        chores.every(1000, "a look at the disk", self._try_disk)
        # Looked at often: a broker that is killed again and again must not replay ever more.
        chores.every(min(settings.upkeep_interval_ms, 1000), "snapshot", self._snapshot)

    async def _try_disk(self) -> None:
        """Find out that a disk that failed works again, also if no client writes much."""
        if self.journal.failure:
            with suppress(Unavailable):
                await self.journal.append([b"a look at the disk"])

    async def _tidy(self) -> None:
        if not self.membership.is_caretaker or not self.membership.is_clock_sound:
            return
        await self.upkeep.retain()
        await self.upkeep.move_payloads(self.journal, keep=_PAYLOADS_KEPT)
        await self.upkeep.drop_journals(self.journal, self.settings.delete_delay_ms)
        await self.upkeep.expire_producers(self.settings.producer_expiration_ms)

    async def _snapshot(self) -> None:
        """Write a snapshot when the log has grown, and let go what it covers."""
        settings, replica = self.settings, self.replica
        is_long = (
            replica.state.applied - self.snapshot_at >= settings.snapshot_entries
            or replica.log_bytes - self._snapshot_bytes >= settings.snapshot_bytes
        )
        if not is_long or not self.membership.is_caretaker:
            return
        self._snapshot_bytes = replica.log_bytes
        await self.upkeep.move_payloads(self.journal)
        number = await snapshots.save(self._store, self.replica.state)
        self.snapshot_at = number
        await snapshots.prune(self._store)
        oldest_payload = min((-one for one in self.replica.state.payloads), default=number + 1)
        await self.cluster_log.trim(min(number + 1, oldest_payload))

    def _applied(self, applied: Applied, _entry: Entry) -> None:
        if applied.grown:
            self.waiting.grown(applied.grown)
        replica = self.replica
        if replica.incarnation and replica.incarnation not in replica.state.brokers.sequences:
            self._fenced()

    def _fenced(self) -> None:
        """Come back, unless another process has this broker's place: they would fight for it."""
        if self._is_stopping or (self._rejoining is not None and not self._rejoining.done()):
            return
        node_id = self.services.node_id
        if node_id in self.replica.state.brokers.by_node:
            self._fail(
                ConfigError(
                    f"another process has joined as node id {node_id}; give each broker its own"
                )
            )
            return
        self._rejoining = asyncio.create_task(self._rejoin())

    def _drop_clients(self) -> None:
        for listener in self.listeners:
            for connection in list(listener.connections):
                connection.abort()

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
