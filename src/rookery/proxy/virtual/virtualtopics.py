"""The topics, logs and connections that all clients share for virtual partitions."""

from __future__ import annotations

from rookery.clock import Clock
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.virtual.physicallog import PhysicalLog
from rookery.proxy.virtual.rules import VirtualRules
from rookery.proxy.virtual.stretchcache import StretchCache
from rookery.proxy.virtual.topicbook import TopicBook, TopicEntry, TopicKind
from rookery.proxy.virtual.transactions.transactionstream import TransactionStreams
from rookery.proxy.virtual.upstreamcalls import LogPlace, UpstreamCalls


class VirtualTopics:
    """The topics, the logs, and the connections for them."""

    def __init__(self, rules: VirtualRules, directory: NodeDirectory, clock: Clock) -> None:
        """Open nothing yet.

        Args:
            rules: determines which topics have virtual partitions.
            directory: the upstream.
            clock: times checks of topics.
        """
        self.rules = rules
        self.calls = UpstreamCalls(directory)
        self.book = TopicBook(rules, self.calls, clock)
        self.streams = TransactionStreams()
        """The batches of transactional producers."""
        self._cache = StretchCache()
        self._logs: dict[str, dict[int, PhysicalLog]] = {}

    def log(self, entry: TopicEntry, partition: int) -> PhysicalLog:
        """Return the log of a physical partition of a topic.

        Requests can hold an entry for longer than the topic exists: they get the log of the topic
        that has its name now.
        """
        current = self.book.find(entry.name)
        if current is not None and current.kind is TopicKind.VIRTUAL:
            entry = current
        logs = self._logs.setdefault(entry.name, {})
        log = logs.get(partition)
        if log is not None and log.place.topic_id != entry.topic_id:
            # The topic was deleted and created again.
            for each in logs.values():
                each.close()
            logs.clear()
            log = None
        if log is None:
            place = LogPlace(entry.name, entry.topic_id, partition)
            rule = entry.rule
            log = logs[partition] = PhysicalLog(
                place, rule.remapper.slots, rule.untagged, self.calls, self._cache
            )
        return log

    def close(self) -> None:
        """Stop reading, and close all connections."""
        for logs in self._logs.values():
            for log in logs.values():
                log.close()
        self._logs.clear()
        self.calls.close()
