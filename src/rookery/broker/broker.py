"""Puts the parts together: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from rookery.broker.call import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.producerids import ProducerIds
from rookery.broker.settings import BrokerSettings
from rookery.broker.waiting import Waiting
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.entry import Entry
from rookery.cluster.events.brokers import BrokerLeft, BrokerRegistered, ClusterCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL, Applied
from rookery.errors import Error
from rookery.log.cache import BlockCache
from rookery.log.files import Files
from rookery.log.journal import Journal
from rookery.log.reader import Reader
from rookery.log.settings import CacheSettings
from rookery.log.tail import Tail
from rookery.log.writer import Writer
from rookery.model.address import parse_address
from rookery.model.uuid import uuid_text
from rookery.net.budget import Budget
from rookery.net.listener import Listener, ListenerSettings

log = logging.getLogger(__name__)


class Broker:
    """One broker: made by `start`, ended by `stop`."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has an exception when the broker cannot go on."""
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        folder = Path(settings.data).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = open_log(
            f"sqlite://{folder / 'cluster.sqlite'}", durability=settings.durability
        )
        self.replica = Replica(self._log, self._clock)
        self.replica.when_failed = self._fail
        self._tail = Tail(settings.tail_bytes)
        self._files = Files(folder / "journal")
        self._cache = BlockCache(self._files.read, CacheSettings(max_bytes=settings.cache_bytes))
        self.waiting = Waiting()
        self.replica.listen(self._applied)

    async def start(self) -> None:
        """Join the cluster and serve."""
        await self.replica.open()
        if not self.replica.state.cluster_id:
            cluster_id = uuid_text(self._random.token(16))
            await self.replica.create_cluster(
                ClusterCreated(cluster_id=cluster_id, feature_level=FEATURE_LEVEL)
            )
        self.listener = await self._listen()
        address = parse_address(self.settings.advertise or self.settings.listen, "advertise")
        event = BrokerRegistered(
            process_id=self._random.token(16),
            node_id=self.settings.node_id,
            host=address.host,
            port=address.port if self.settings.advertise else self.listener.port,
            rack=self.settings.rack or None,
        )
        incarnation = await self.replica.register(event)
        self._journal = Journal(
            self._folder / "journal", incarnation, self.settings.durability, clock=self._clock
        )
        writer = Writer(self.replica, self._tail)
        writer.use(self._journal)
        broker = self.replica.state.brokers.of(incarnation)
        self.services.writer = writer
        self.services.node_id = broker.node_id if broker else -1
        log.info("broker %d serves on %s:%d", self.services.node_id, event.host, event.port)

    async def stop(self) -> None:
        """Refuse new clients, finish what is in flight, leave the cluster."""
        self.services.is_draining = True
        await self.listener.stop(self.settings.drain_timeout_ms)
        await self.services.writer.drain()
        try:
            await self.replica.propose([BrokerLeft()])
        except Error as error:
            log.warning("could not leave the cluster in order: %s", error)
        await self.replica.close()
        await self._journal.close()
        await self._cache.close()
        await self._files.close()
        await self._log.close()

    async def _listen(self) -> Listener:
        settings = self.settings
        address = parse_address(settings.listen, "listen")
        reader = Reader(self._log, self._cache, self._tail)
        self.services = Services(
            settings=settings,
            clock=self._clock,
            random=self._random,
            replica=self.replica,
            writer=None,  # type: ignore[arg-type] # set before the first client is answered
            reader=reader,
            waiting=self.waiting,
            producer_ids=ProducerIds(self.replica),
        )
        listener = Listener(
            Dispatcher(self.services),
            ListenerSettings(
                host=address.host, port=address.port, max_connections=settings.max_connections
            ),
            budget=Budget(settings.request_bytes),
        )
        await listener.start()
        return listener

    def _applied(self, applied: Applied, _entry: Entry) -> None:
        if applied.grown:
            self.waiting.grown(applied.grown)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
