"""The whole import: topics, partitions, groups and transactions, and verification.

It can be interrupted at any time and started again: the cluster's state shows what was already
imported, and nothing is imported twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rookery.clock import Random
from rookery.cluster.events.brokerevents import SettingChange
from rookery.cluster.events.topicevents import PartitionsAdded, TopicCreated
from rookery.errors import ConfigError
from rookery.log.maintain.newobjects import Publisher
from rookery.logdir.directory import LogDirectory
from rookery.logdir.importer import states
from rookery.logdir.importer.defaults import keeps_for, read_inherited
from rookery.logdir.importer.partition import PartitionImport
from rookery.logdir.importer.report import ImportReport, Progress
from rookery.logdir.importer.target import ImportSettings, ImportTarget, happen
from rookery.logdir.importer.verification import verify
from rookery.logdir.internal import read_groups, read_transactions
from rookery.logdir.partition import PartitionLog
from rookery.model.topicname import INTERNAL_TOPICS
from rookery.model.uuid import random_uuid


@dataclass(kw_only=True, slots=True)
class DirectoryImport:
    """Imports a broker's directory into a cluster."""

    directory: LogDirectory
    target: ImportTarget
    random: Random
    settings: ImportSettings = field(default_factory=ImportSettings)
    progress: Progress = lambda _bytes, _records: None
    report: ImportReport = field(default_factory=ImportReport)
    _ids: dict[str, bytes] = field(default_factory=dict)

    @property
    def logs(self) -> list[PartitionLog]:
        """The partitions to import."""
        chosen = self.settings.topics
        return [
            log
            for name, log in self.directory.partitions.items()
            if name.topic not in INTERNAL_TOPICS and (chosen is None or name.topic in chosen)
        ]

    @property
    def total_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(log.size_bytes for log in self.logs)

    async def run(self) -> ImportReport:
        """Import everything.

        Raises:
            ConfigError: the cluster has a different topic with the same name.
            Conflict: another writer has written to one of the partitions.
            Corrupt: a batch is damaged, and must not be skipped.
            Unavailable: the store or the cluster log cannot be reached; run it again.
        """
        numbers = await self.target.numbers()
        await self.target.barrier()
        publisher = Publisher(
            replica=self.target.replica,
            store=self.target.store,
            clock=self.target.clock,
            next_id=numbers,
            namespace=self.target.namespace,
        )
        await self._make_topics()
        await self._import_partitions(publisher)
        transactions = await asyncio.to_thread(read_transactions, self.directory)
        groups = await asyncio.to_thread(read_groups, self.directory)
        committed = states.committed_producers(transactions)
        groups.settle(committed)
        await states.import_producer_ids(self.target, self.directory.image.next_producer_id)
        await states.end_open(self.target, committed, self.report)
        await states.import_transactional_ids(self.target, transactions, self.report)
        await states.import_groups(self.target, groups, self._ids, self.report)
        if self.settings.topics is None:
            await states.import_security(self.target, self.directory.image, self.report)
        self.report.left_out += groups.damaged + transactions.damaged
        self._tell_what_is_old()
        return self.report

    async def verify(self, progress: Progress) -> int:
        """Read everything back and compare it; return the number of equal batches.

        Raises:
            Corrupt: data differs or is missing; the text names it.
        """
        await self.target.barrier()
        for log in self.logs:
            topic_id = self._ids[log.name.topic]
            self.report.verified += await verify(self.target, log, topic_id, progress)
        return self.report.verified

    async def _import_partitions(self, publisher: Publisher) -> None:
        work = iter(self.logs)

        async def some() -> None:
            for log in work:
                topic_id = self._ids[log.name.topic]
                partition = PartitionImport(log, topic_id, self.target, self.settings, self.report)
                await partition.run(publisher, self.progress)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.settings.at_once):
                    group.create_task(some())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    # Topics.

    async def _make_topics(self) -> None:
        for name in dict.fromkeys(log.name.topic for log in self.logs):
            known = self.target.state.topics.by_name.get(name)
            topic_id = self.directory.topic_id(name)
            if known is None:
                await self._make_topic(name, topic_id or random_uuid(self.random.token))
            elif topic_id not in (None, known.id):
                raise ConfigError(
                    f"topic {name!r}: the cluster has another topic of this name; delete it, or "
                    "leave this one out with --topic"
                )
            self._ids[name] = self.target.state.topics.by_name[name].id
            await self._grow(name)
            self.report.topics += 1

    async def _make_topic(self, name: str, topic_id: bytes) -> None:
        image = self.directory.image.topics.by_name.get(name)
        replicas = (
            [len(partition.replicas) for partition in image.partitions.values()] if image else []
        )
        configs = self._configs(name)
        event = TopicCreated(
            topic_id=topic_id,
            name=name,
            partitions=self._partitions(name),
            replication_factor=max(replicas, default=1),
            configs=[SettingChange(name=key, value=value) for key, value in configs.items()],
        )
        await happen(self.target, [event], f"topic {name!r}")

    async def _grow(self, name: str) -> None:
        """Add missing partitions, after an import of another broker of the same cluster."""
        topic = self.target.state.topics.by_name[name]
        if len(topic.partitions) < self._partitions(name):
            event = PartitionsAdded(topic_id=topic.id, partitions=self._partitions(name))
            await happen(self.target, [event], f"topic {name!r}")

    def _configs(self, name: str) -> dict[str, str]:
        meta, image = self.directory.meta, self.directory.image
        node_id = meta.node_id if meta is not None else None
        by_broker = read_inherited(image, node_id, self.settings.properties)
        return by_broker | image.topic_configs(name)

    def _tell_what_is_old(self) -> None:
        """Report topics whose newest record is so old that retention would delete all records."""
        now_ms = self.target.clock.now_ms()
        newest: dict[str, int] = {}
        for place, time_ms in self.report.newest.items():
            newest[place.topic] = max(newest.get(place.topic, -1), time_ms)
        for name, time_ms in newest.items():
            kept_ms = keeps_for(self.target.state.topics.by_name[name].configs)
            if 0 <= time_ms < now_ms - kept_ms and kept_ms >= 0:
                self.report.old_topics.append(name)

    def _partitions(self, name: str) -> int:
        image = self.directory.image.topics.by_name.get(name)
        known = list(image.partitions) if image else []
        known += [log.name.partition for log in self.logs if log.name.topic == name]
        return max(known) + 1
