"""Any Kafka cluster as a source, through Rookery's own client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from rookery.client.client import Client
from rookery.client.connect.cluster import ClusterView
from rookery.client.connect.connections import Lane
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.retry import PersistentError
from rookery.client.settings import ClientSettings
from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.consumer.fetch import budget
from rookery.consumer.fetch.session import Session, has_ids
from rookery.consumer.fetch.source import PartitionAnswer, Want
from rookery.consumer.settings import MIB
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.model.topicname import INTERNAL_TOPICS
from rookery.records import batches
from rookery.wire.message import Parts, Records
from rookery.wire.messages.fetch import FETCH, FetchResponse, PartitionData

_OLDEST: Final = 4  # the first version with batches of magic 2
_SESSIONS: Final = 7
_LAST_BY_NAME: Final = 12
# The bytes of a response in addition to records.
_AROUND: Final = MIB


class KafkaSource:
    """Reads from partition leaders, with one fetch session per leader."""

    def __init__(self, settings: ClientSettings, *, is_committed: bool, memory: int) -> None:
        """Read from a cluster, with responses that fit the memory of the stream."""
        self.client = Client(replace(settings, kept_bytes=budget.of_answer(memory) + _AROUND))
        self._is_committed = is_committed
        self._sessions: dict[Hashable, Session] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._view: ClusterView | None = None
        self._places: dict[TopicPartition, PartitionLeader] = {}

    async def topics(
        self, names: Sequence[str], pattern: re.Pattern[str] | None
    ) -> dict[str, list[int]]:
        """Return the partitions of topics, by name or by pattern."""
        if pattern is not None:
            names = await self._find_matching(pattern)
        router = self.client.router
        deadline = router.retrier.deadline()

        async def attempt() -> dict[str, list[int]]:
            # One metadata request for all of them.
            await router.metadata.refresh(names, deadline)
            topics = [await router.metadata.topic(name, deadline) for name in names]
            for topic in topics:
                self._topic_ids.setdefault(topic.name, topic.id)
            return {topic.name: sorted(topic.partitions) for topic in topics}

        what = f"look at {', '.join(names[:3])}"
        partitions = await router.retrier.run(what, deadline, attempt) if names else {}
        self._warm_up()
        return partitions

    async def _find_matching(self, pattern: re.Pattern[str]) -> list[str]:
        metadata = self.client.metadata
        view = await metadata.fetch_all(self.client.router.retrier.deadline())
        return sorted(
            name
            for name, topic in view.topics.items()
            if pattern.fullmatch(name) and not topic.is_internal and name not in INTERNAL_TOPICS
        )

    def _warm_up(self) -> None:
        """Open fetch connections while offsets are requested, which saves two round trips."""
        for node in self.client.metadata.view.nodes.values():
            task = asyncio.create_task(self.client.router.connections.get(node.address, Lane.FETCH))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def find(
        self, specs: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offsets for EARLIEST, LATEST or times."""
        if not specs:
            return {}
        rows = await self.client.offsets.find(specs, committed=is_committed)
        return {place: row.offset for place, row in rows.items()}

    async def committed(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        """Return a group's committed positions."""
        commits = await self.client.groups.committed_offsets(group, places, stable=True)
        return {place: PartitionMark.of_commit(row) for place, row in commits.items()}

    async def commit(self, group: str, checkpoint: Checkpoint) -> None:
        """Commit a group's positions; the group must have no members."""
        await self.client.groups.commit_offsets(group, checkpoint.commits())

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        """Return the leaders' nodes; partitions without a leader are left out."""
        metadata = self.client.metadata
        deadline = self.client.router.retrier.deadline()
        try:
            await metadata.locate(places, deadline)
        except ApiError as error:
            if isinstance(error, PersistentError) or not error.code.retriable:
                raise
        nodes: dict[TopicPartition, Hashable] = {}
        problem: Error | None = None
        for place in places:
            try:
                located = metadata.find(place)
            except (ApiError, Unavailable) as error:
                problem = error
                continue
            self._check_id(located)
            nodes[place] = located.node
        if not nodes and problem is not None:
            raise problem
        return nodes

    def _check_id(self, located: PartitionLeader) -> None:
        first = self._topic_ids.setdefault(located.place.topic, located.topic_id)
        if first != located.topic_id:
            raise PersistentError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {located.place.topic!r} was deleted, and another of its name created",
            )

    def forget(self, place: TopicPartition) -> None:
        """Discard the known leader."""
        self.client.metadata.forget(place.topic)

    async def fetch(
        self, lane: Hashable, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer]:
        """Read from the partitions of one leader."""
        node = cast("Node", lane)
        session = self._sessions.setdefault(node.id, Session())
        try:
            answers = await self._fetch(node, session, wants, max_bytes, wait_ms)
            if answers is None:  # the session was lost and another has started
                answers = await self._fetch(node, session, wants, max_bytes, wait_ms)
        except (Error, asyncio.CancelledError):
            session.reset()
            raise
        if answers is None:
            raise Unavailable(f"broker {node.text} drops every fetch session that is begun")
        return answers

    async def _fetch(
        self, node: Node, session: Session, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer] | None:
        router = self.client.router
        link = await router.connections.get(node.address, Lane.FETCH)
        located = self._locate(wants)
        by_name = None if has_ids(located) else _LAST_BY_NAME
        version = link.versions.choose(FETCH, lowest=_OLDEST, highest=by_name)
        if version < _SESSIONS:
            session.reset()
        request = session.request(wants, located)
        if version < _SESSIONS:
            request.session_epoch = -1
        request.max_wait_ms = wait_ms
        request.max_bytes = max_bytes
        request.isolation_level = int(self._is_committed)
        timeout_ms = wait_ms + router.settings.request_timeout_ms
        response = await link.call(FETCH, version, request, timeout_ms)
        if session.on_answer(response):
            return None
        if response.error_code is not ErrorCode.NONE:
            raise ApiError(response.error_code, f"broker {link.name} refused to fetch")
        return self._answers(response, wants, located)

    def _locate(self, wants: Sequence[Want]) -> list[PartitionLeader]:
        """Look up partitions in the metadata, which rarely changes between fetches."""
        metadata = self.client.metadata
        if self._view is not metadata.view:
            self._view, self._places = metadata.view, {}
        for want in wants:
            if want.place not in self._places:
                self._places[want.place] = metadata.find(want.place)
        return [self._places[want.place] for want in wants]

    def _answers(
        self, response: FetchResponse, wants: Sequence[Want], located: Sequence[PartitionLeader]
    ) -> list[PartitionAnswer]:
        metadata = self.client.metadata
        metadata.learn_nodes(
            [Node(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints]
        )
        names = {row.topic_id: row.place.topic for row in located}
        asked = {want.place: want for want in wants}
        answers = []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                want = asked.get(TopicPartition(name, data.partition_index))
                if want is not None:
                    answers.append(self._answer(want, data))
        return answers

    def _answer(self, want: Want, data: PartitionData) -> PartitionAnswer:
        place, code = want.place, data.error_code
        if code is not ErrorCode.NONE:
            hint = data.current_leader
            if hint is not None:
                self.client.metadata.learn_leader(place, hint.leader_id, hint.leader_epoch)
            text = f"{place.text} at offset {want.offset}: {code.sentence}"
            return PartitionAnswer(place, want.offset, error=ApiError(code, text))
        diverging = data.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            return PartitionAnswer(place, want.offset, cut_back_to=diverging.end_offset)
        view = _view(data.records)
        headers, fault = batches.sound(view)
        return PartitionAnswer(
            place,
            want.offset,
            view,
            headers,
            [(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()],
            data.high_watermark,
            data.last_stable_offset,
            error=fault,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()


def _view(records: Records | None) -> memoryview:
    # Only requests consist of several parts; a response is always in one piece.
    assert not isinstance(records, Parts)  # noqa: S101 (for the type checker)
    return memoryview(records or b"")
