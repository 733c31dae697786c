"""The writes of one client where topics have virtual partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Protocol

from rookery.errors import Error
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.backends import BackendPool
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.producerelay import UnconfirmedWrites
from rookery.proxy.virtual.physicallog import PhysicalLog
from rookery.proxy.virtual.producewaves import ProduceWaves
from rookery.proxy.virtual.topicbook import TopicKind
from rookery.proxy.virtual.transactions.transactionwrites import TransactionWrites
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Message, TopicName
from rookery.wire.messages.produce import ProduceRequest
from rookery.wire.partition import cut, join


class ProduceOptions(Protocol):
    """What writes need of the virtual cluster."""

    request_options: CallOptions
    one_way_options: CallOptions


class VirtualProduce:
    """The writes of one client."""

    def __init__(
        self,
        topics: VirtualTopics,
        target: ProduceOptions,
        directory: NodeDirectory,
        backends: BackendPool,
        unconfirmed: UnconfirmedWrites,
    ) -> None:
        """Prepare for one client.

        Args:
            topics: with virtual partitions.
            target: the virtual cluster.
            directory: the upstream.
            backends: the client's connections to brokers.
            unconfirmed: records writes without acknowledgement.
        """
        self._topics = topics
        self._target = target
        self._directory = directory
        self._waves = ProduceWaves(topics, directory, backends, unconfirmed)
        self._transactions = TransactionWrites(topics, directory, backends)

    def is_ready(self, request: ProduceRequest) -> bool:
        """Return whether the leaders and logs of a request are known."""
        return all(
            self._directory.topology.is_certain(name, partitions)
            or not self._directory.may_look_up(name)
            for name, partitions in self._physical(request).items()
        ) and all(log.is_checked or log.trouble for log in self._logs(request))

    async def prepare(self, request: ProduceRequest) -> None:
        """Find leaders, and check logs; what cannot be found is answered with its error."""
        try:
            await self._topics.calls.describe_topics(list(self._physical(request)))
            for log in self._logs(request):
                await log.check()
        except Error:
            return

    def start(self, call: NodeCall) -> Awaitable[Message | None]:
        """Send a request; return its response, or nothing for acks=0."""
        book = self._topics.book
        halves = cut(
            call.api, call.version, call.request, lambda name: book.find(name) is None, TopicName
        )
        if call.request.transactional_id is None or halves.denied is None:
            return self._start_plain(call)
        if call.api.is_one_way(call.request):
            return self._transactions.refuse_one_way()
        plain = None
        if halves.kept is not None:
            plain = self._start_plain(NodeCall(call.passage, call.client_id, halves.kept))
        part = NodeCall(call.passage, call.client_id, halves.denied)
        own = self._transactions.start(part, self._target.request_options)

        async def finish() -> Message | None:
            answer = None if plain is None else await plain
            joined: Message = join(halves, answer, await own)
            return joined

        return finish()

    def _start_plain(self, call: NodeCall) -> Awaitable[Message | None]:
        target = self._target
        return self._waves.start(call, target.request_options, target.one_way_options)

    def _physical(self, request: ProduceRequest) -> dict[str, list[int]]:
        """Return the physical partitions of a request by topic."""
        indexes_by_topic: dict[str, list[int]] = {}
        for topic in request.topic_data:
            entry = self._topics.book.find(topic.name)
            indexes = [part.index for part in topic.partition_data]
            if entry is not None:
                if entry.kind is not TopicKind.VIRTUAL:
                    continue
                remapper = entry.rule.remapper
                indexes = [
                    remapper.virtual_to_physical(index).physical_partition
                    for index in indexes
                    if 0 <= index < remapper.virtual_partitions
                ]
            indexes_by_topic[topic.name] = list(dict.fromkeys(indexes))
        return indexes_by_topic

    def _logs(self, request: ProduceRequest) -> Iterator[PhysicalLog]:
        for name, partitions in self._physical(request).items():
            entry = self._topics.book.find(name)
            if entry is not None:
                yield from (self._topics.log(entry, partition) for partition in partitions)
