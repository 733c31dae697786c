"""The topics of the upstream that have virtual partitions, checked before they are served."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from rookery.clock import Clock
from rookery.errors import Error, ErrorCode
from rookery.proxy.virtual.rules import TopicRule, VirtualRules
from rookery.proxy.virtual.upstreamcalls import UpstreamCalls
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from rookery.wire.messages.metadata import MetadataResponseTopic

log = logging.getLogger(__name__)

TOPIC_RESOURCE: Final = 2
REQUIRED_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # These would change or remove tags.
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        # Virtual offsets are counted from the start of the log, so nothing may be deleted there.
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "remote.storage.enable": "false",
    }
)
"""The settings that a topic with virtual partitions must have."""
_FRESH_MS: Final = 5_000
_MISSING_MS: Final = 100


class TopicKind(Enum):
    """How requests that name a topic are served."""

    PLAIN = "plain"
    """As a topic without virtual partitions."""
    VIRTUAL = "virtual"
    REFUSED = "refused"
    """It has a rule, but does not fit it."""
    MISSING = "missing"
    """The upstream does not have it."""


class TopicEntry(NamedTuple):
    """The result of the last check of a topic that a rule names."""

    name: str
    kind: TopicKind
    rule: TopicRule
    topic_id: bytes = b""
    reason: str = ""
    """Why it is refused."""
    checked_ms: int = 0


class TopicBook:
    """The topics that rules name."""

    def __init__(self, rules: VirtualRules, calls: UpstreamCalls, clock: Clock) -> None:
        self.rules = rules
        self._calls = calls
        self._clock = clock
        self._entries: dict[str, TopicEntry] = {}

    def select_governed(self, names: Iterable[str]) -> list[str]:
        """Return the names that match a rule."""
        return [name for name in dict.fromkeys(names) if self.rules.find(name) is not None]

    def find(self, name: str) -> TopicEntry | None:
        """Return the entry of a topic; None if no rule is for it, or it is plain."""
        entry = self._entries.get(name)
        if entry is None:
            rule = self.rules.find(name)
            return None if rule is None else TopicEntry(name, TopicKind.MISSING, rule)
        return None if entry.kind is TopicKind.PLAIN else entry

    def stale(self, names: Iterable[str]) -> list[str]:
        """Return the names that must be checked before they are served."""
        now_ms = self._clock.monotonic_ms()
        return [name for name in names if not self._is_fresh(name, now_ms)]

    async def check(self, names: Collection[str]) -> None:
        """Check topics; if the upstream does not answer, earlier results remain."""
        names = self.stale(names)
        if not names:
            return
        try:
            await self.examine(await self._calls.describe_topics(names))
        except Error as error:
            log.warning("topics with virtual partitions cannot be checked: %s", error)

    async def examine(self, rows: Iterable[MetadataResponseTopic]) -> None:
        """Check the topics in an answer of the upstream that has their ids.

        Raises:
            Unavailable: the upstream does not answer.
        """
        now_ms = self._clock.monotonic_ms()
        fitting: list[TopicEntry] = []
        for row in rows:
            rule = None if row.name is None else self.rules.find(row.name)
            if row.name is None or rule is None:
                continue
            if self._is_fresh(row.name, now_ms) and not self._is_new(row):
                continue
            entry = self._judge(row, rule, row.name)._replace(checked_ms=now_ms)
            if entry.kind is TopicKind.VIRTUAL:
                fitting.append(entry)
            else:
                self._note(entry)
        if fitting:
            reasons = await self._find_obstacles([entry.name for entry in fitting])
            for entry in fitting:
                self._note(self._decide(entry, reasons[entry.name]))

    def _is_fresh(self, name: str, now_ms: int) -> bool:
        entry = self._entries.get(name)
        if entry is None:
            return False
        limit_ms = _MISSING_MS if entry.kind is TopicKind.MISSING else _FRESH_MS
        return now_ms - entry.checked_ms < limit_ms

    def _is_new(self, row: MetadataResponseTopic) -> bool:
        """Return whether a topic was created since it was checked."""
        entry = self._entries.get(row.name or "")
        return not row.error_code and (entry is None or entry.topic_id != row.topic_id)

    def _judge(self, row: MetadataResponseTopic, rule: TopicRule, name: str) -> TopicEntry:
        """Return an entry by the number of partitions alone."""
        entry = TopicEntry(name, TopicKind.VIRTUAL, rule, row.topic_id)
        if row.error_code:
            is_gone = row.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            before = self._entries.get(name)
            if before is not None and not is_gone:
                return before
            return entry._replace(kind=TopicKind.MISSING)
        count, wanted = len(row.partitions), rule.remapper.physical_partitions
        if count == wanted:
            return entry
        before = self._entries.get(name)
        was_virtual = (
            before is not None
            and before.topic_id == row.topic_id
            and before.kind in {TopicKind.VIRTUAL, TopicKind.REFUSED}
        )
        if rule.is_default and not was_virtual:
            return entry._replace(kind=TopicKind.PLAIN)
        reason = f"it has {count} partitions, and physical_partitions is {wanted}"
        return entry._replace(kind=TopicKind.REFUSED, reason=reason)

    def _decide(self, entry: TopicEntry, reason: str | None) -> TopicEntry:
        """Return an entry by the settings of its topic, too."""
        if reason is None:
            before = self._entries.get(entry.name)
            if before is not None and before.topic_id == entry.topic_id:
                return before
            return entry._replace(kind=TopicKind.MISSING)
        kind = TopicKind.REFUSED if reason else TopicKind.VIRTUAL
        return entry._replace(kind=kind, reason=reason)

    async def _find_obstacles(self, names: list[str]) -> dict[str, str | None]:
        """Return why topics cannot be served, by their settings.

        It is None for topics that the broker cannot describe at the moment: one that was just
        created is not known to all brokers at once.
        """
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=list(REQUIRED_SETTINGS),
            )
            for name in names
        ]
        response = await self._calls.ask_any(
            DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources)
        )
        reasons: dict[str, str | None] = dict.fromkeys(names)
        for result in response.results:
            if result.error_code.retriable:
                continue
            if result.error_code:
                reasons[result.resource_name] = f"its settings: {result.error_message}"
                continue
            wrong = [
                f"{each.name} is {each.value} and must be {REQUIRED_SETTINGS[each.name]}"
                for each in result.configs
                if each.name in REQUIRED_SETTINGS and each.value != REQUIRED_SETTINGS[each.name]
            ]
            reasons[result.resource_name] = "; ".join(wrong)
        return reasons

    def _note(self, entry: TopicEntry) -> None:
        before = self._entries.get(entry.name)
        self._entries[entry.name] = entry
        if entry.reason and (before is None or before.reason != entry.reason):
            log.warning("topic %s cannot have virtual partitions: %s", entry.name, entry.reason)
