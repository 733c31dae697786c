"""Serves one client's requests where topics have virtual partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from rookery.client.connect.versions import Versions
from rookery.errors import Error, ErrorCode
from rookery.net.connection import Connection
from rookery.proxy.clientgate import ClientGate
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.passage import PassageTable
from rookery.proxy.virtual.apirules import VirtualRoute, route_of
from rookery.proxy.virtual.commits.groupcommits import GroupCommits
from rookery.proxy.virtual.commits.shadowgroups import is_shadow
from rookery.proxy.virtual.commits.transactioncommits import TransactionCommits
from rookery.proxy.virtual.offsetlookup import look_up_offsets
from rookery.proxy.virtual.partitionview import show_partitions
from rookery.proxy.virtual.topicbook import TOPIC_RESOURCE, TopicKind
from rookery.proxy.virtual.topicchange import TopicCreation, explain, find_bad_change
from rookery.proxy.virtual.transactions.transactionpartitions import add_partitions
from rookery.proxy.virtual.virtualfetch import VirtualFetch
from rookery.proxy.virtual.virtualproduce import VirtualProduce
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Api, GroupId, Message, TopicName
from rookery.wire.messages.create_topics import CreateTopicsResponse
from rookery.wire.messages.list_groups import ListGroupsResponse
from rookery.wire.messages.metadata import MetadataRequest, MetadataResponse
from rookery.wire.partition import cut, join
from rookery.wire.walk import visit

_REASON: Final = "is not supported for topics with virtual partitions"
_FIRST_WITH_IDS: Final = 10
"""The first version of Metadata with the ids of topics."""
_ALWAYS: Final = frozenset({"DeleteGroups", "ListGroups", "OffsetFetch", "Produce"})
"""APIs that are served here also if they name no topic with virtual partitions.

Those of groups can ask for all topics. Writes to a plain topic must keep their order, with and
without virtual partitions in the same request.
"""

Pass = Callable[[NodeCall], Awaitable[Message | None]]


class LinkTraits(Protocol):
    """The part of the virtual cluster that a link uses."""

    passages: PassageTable


class VirtualLink:
    """The requests of one client that concern virtual partitions."""

    def __init__(  # noqa: PLR0913, PLR0917 (the parts of the client's link)
        self,
        topics: VirtualTopics,
        target: LinkTraits,
        connection: Connection,
        produces: VirtualProduce,
        gate: ClientGate,
        pass_on: Pass,
        find_versions: Callable[[], Awaitable[Versions]],
    ) -> None:
        """Create it for one client.

        Args:
            topics: the topics with virtual partitions.
            target: the virtual cluster.
            connection: of the client.
            produces: the client's writes.
            gate: holds the client's later requests.
            pass_on: serves a request without virtual partitions.
            find_versions: returns the versions of the upstream.
        """
        self._topics = topics
        self._book = topics.book
        self._target = target
        self._gate = gate
        self._pass = pass_on
        self._find_versions = find_versions
        self._produces = produces
        self._fetches = VirtualFetch(topics, connection.answers.room, pass_on)
        commits = GroupCommits(topics, self._ask)
        self._unchecked: dict[str, Pass] = {
            "CreateTopics": self._create,
            "Fetch": self._fetches.fetch,
            "Metadata": self._show_metadata,
        }
        transactions = TransactionCommits(topics, self._ask)
        self._checked: dict[str, Pass] = {
            "AddPartitionsToTxn": self._add_partitions,
            "AlterConfigs": self._change_settings,
            "DeleteGroups": lambda call: commits.delete_groups(call.request),
            "IncrementalAlterConfigs": self._change_settings,
            "ListGroups": self._list_groups,
            "ListOffsets": lambda call: self._divide(call, self._look_up_offsets),
            "OffsetCommit": lambda call: commits.commit(call.request, call.version),
            "OffsetFetch": lambda call: commits.fetch(call.request, call.version),
            "Produce": produces.start,
            "TxnOffsetCommit": lambda call: transactions.commit(call.request, call.version),
        }

    def start(self, call: NodeCall) -> Awaitable[Message | None] | None:
        """Start a request; return None if it does not concern virtual partitions."""
        name = call.api.name
        if any(is_shadow(group) for group in visit(call.request, GroupId)):
            return _given(call.api.refuse(call.request, ErrorCode.INVALID_GROUP_ID))
        if route_of(name) is VirtualRoute.PASSED:
            return None
        serve = self._unchecked.get(name)
        if serve is not None:
            return serve(call)
        governed = self._book.select_governed(visit(call.request, TopicName))
        if not governed and name not in _ALWAYS:
            return None
        if not self._book.stale(governed) and (
            name != "Produce" or self._produces.is_ready(call.request)
        ):
            return self._dispatch(call)
        self._gate.begin_lookup()
        return self._prepare(call, governed)

    async def _prepare(self, call: NodeCall, governed: Sequence[str]) -> Message | None:
        """Check the topics of a request, while later requests wait; then start it."""
        try:
            await self._book.check(governed)
            if call.api.name == "Produce":
                await self._produces.prepare(call.request)
            work = self._dispatch(call)
        finally:
            self._gate.end_lookup()
        return await work

    def _dispatch(self, call: NodeCall) -> Awaitable[Message | None]:
        return self._checked.get(call.api.name, self._refuse_topics)(call)

    # Topics.

    async def _show_metadata(self, call: NodeCall) -> Message:
        request: MetadataRequest = call.request
        names = visit(request, TopicName)
        if self._book.select_governed(names):
            # Brokers would create them with another number of partitions.
            request = request.replace(allow_auto_topic_creation=False)
        response = await self._pass(NodeCall(call.passage, call.client_id, request))
        assert isinstance(response, MetadataResponse)  # noqa: S101 (the API's own response)
        if call.version >= _FIRST_WITH_IDS:
            with suppress(Error):
                await self._book.examine(response.topics)
        # Topics that were never checked are shown without partitions.
        await self._book.check(
            self._book.select_governed(topic.name or "" for topic in response.topics)
        )
        show_partitions(response, self._book)
        return response

    async def _create(self, call: NodeCall) -> Message:
        creation = TopicCreation(self._topics.rules, call.request)
        response: Any = CreateTopicsResponse(topics=[])
        if creation.request.topics:
            part = NodeCall(call.passage, call.client_id, creation.request)
            response = await self._pass(part)
        return creation.finish(response)

    async def _change_settings(self, call: NodeCall) -> Message:
        is_whole = call.api.name == "AlterConfigs"
        reasons: list[str] = []

        def keep(resource: Any) -> bool:
            is_topic = resource.resource_type == TOPIC_RESOURCE
            entry = self._book.find(resource.resource_name) if is_topic else None
            if entry is None or entry.kind is not TopicKind.VIRTUAL:
                return True
            reason = find_bad_change(resource, is_whole=is_whole)
            if reason:
                reasons.append(reason)
            return not reason

        halves = cut(call.api, call.version, call.request, keep)
        refusal = None
        if halves.denied is not None:
            refusal = call.refuse(halves.denied, ErrorCode.INVALID_CONFIG)
            explain(refusal.responses, reasons[0])  # type: ignore[attr-defined] # both APIs have it
        joined: Message = join(halves, await self._pass_half(call, halves.kept), refusal)
        return joined

    async def _add_partitions(self, call: NodeCall) -> Message:
        async def ask(request: Any) -> Any:
            return await self._pass_half(call, request)

        return await add_partitions(self._book, call.request, ask)

    async def _list_groups(self, call: NodeCall) -> Message:
        response: ListGroupsResponse = await self._pass(call)  # type: ignore[assignment] # the API's own response
        response.groups = [each for each in response.groups if not is_shadow(each.group_id)]
        return response

    # Requests that are divided by topic.

    def _refuse_topics(self, call: NodeCall) -> Awaitable[Message | None]:
        return self._divide(call, self._refuse)

    async def _divide(
        self, call: NodeCall, serve: Callable[[NodeCall, Any], Awaitable[Message]]
    ) -> Message:
        """Serve the topics with virtual partitions here, and pass the others on."""
        halves = cut(
            call.api,
            call.version,
            call.request,
            lambda name: self._book.find(name) is None,
            TopicName,
        )
        own = None if halves.denied is None else await serve(call, halves.denied)
        joined: Message = join(halves, await self._pass_half(call, halves.kept), own)
        return joined

    async def _pass_half(self, call: NodeCall, half: Message | None) -> Message | None:
        if half is None:
            return None
        return await self._pass(NodeCall(call.passage, call.client_id, half))

    async def _look_up_offsets(self, call: NodeCall, half: Any) -> Message:
        return await look_up_offsets(self._topics, half, call.version)

    async def _refuse(self, call: NodeCall, half: Any) -> Message:
        kinds = {
            entry.kind
            for name in visit(half, TopicName)
            if (entry := self._book.find(name)) is not None
        }
        code = ErrorCode.POLICY_VIOLATION
        if kinds == {TopicKind.MISSING}:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = call.refuse(half, code)
        for name in ("results", "topics", "responses"):
            rows = getattr(refusal, name, [])
            explain(
                (row for row in rows if hasattr(row, "error_code")), f"{call.api.name} {_REASON}"
            )
        return refusal

    async def _ask(self, api: Api[Any, Any], request: Message, highest: int | None = None) -> Any:
        """Send a request of the proxy's own on the client's connections."""
        version = (await self._find_versions()).choose(api, highest=highest)
        passage = self._target.passages.find((api.key, version))
        assert passage is not None  # noqa: S101 (the common versions are those that pass)
        return await self._pass(NodeCall(passage, None, request))


async def _given(response: Message) -> Message:
    return response
