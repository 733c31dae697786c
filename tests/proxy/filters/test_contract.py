"""The contract of filters, for those of Rookery and those of installed packages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rookery.errors import ConfigError, ErrorCode, Unavailable, code_of
from rookery.net.session import ClientSession
from rookery.proxy.filterapi import (
    Answer,
    Filter,
    FilterContext,
    FilterUpstream,
    Forward,
    Verdict,
    needs_note,
    on_request,
)
from rookery.proxy.filterchain import FilterFailure, FilterOutcome, FilterStep, run_filters
from rookery.proxy.filterload import filter_types
from rookery.proxy.passage import PassageTable, mirror_passages
from rookery.records import recordcodec
from rookery.records.recordcodec import Record
from rookery.testing.clock import ManualClock
from rookery.testing.messages import random_message
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.catalog import kafka_apis
from rookery.wire.codec import encode_bytes
from rookery.wire.message import Message
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import PRODUCE, ProduceRequest
from tests.kafkapython import KafkaConsumer, KafkaProducer
from tests.proxy.filters.conftest import read
from tests.proxy.filters.samples import Sample, make, samples

TYPES = filter_types()
UNRESOLVED = code_of(Unavailable("there is no broker"))
IDLE = pytest.mark.parametrize(
    "kind", [name for name in TYPES if name != "topic_prefix"], indirect=True
)
"""The types of filters that apply to nothing with some options; prefixes always apply."""
SEES_ALL_RESPONSES = {"deny", "topic_prefix", "topic_rename", "encryption"}
"""Filters that look at the names or records of responses; others decode only those they note."""


@pytest.fixture(params=TYPES)
def kind(request: pytest.FixtureRequest) -> str:
    """Each type of filter."""
    return str(request.param)


@pytest.fixture
def sample(kind: str, tmp_path: Path) -> Sample:
    """The options of the type."""
    return samples(tmp_path)[kind]


@pytest.fixture
def idle(kind: str, sample: Sample) -> Filter:
    """A filter that applies to nothing."""
    assert sample.idle is not None
    return make(kind, sample.idle)


class AbsentUpstream:
    """A broker that does not answer."""

    async def send(self, *_arguments: object) -> Message:
        raise Unavailable("there is no broker")


def context_of(table: PassageTable, key: int, version: int) -> FilterContext:
    passage = table.find((key, version))
    assert passage is not None
    upstream: FilterUpstream = AbsentUpstream()  # type: ignore[assignment] # it never answers
    return FilterContext(
        cluster="c",
        node_id=None,
        session=ClientSession(principal="User:ANONYMOUS", host="127.0.0.1"),
        api=passage.api,
        version=version,
        client_id="test",
        clock=ManualClock(),
        open_upstream=lambda _context: upstream,
        mute=lambda _duration_ms: None,
    )


async def decide(
    steps: tuple[FilterStep, ...], context: FilterContext, message: Message
) -> FilterOutcome:
    seen = [step for step in steps if step.applies(context)]
    outcome = run_filters(seen, context, message, 10_000)
    return await outcome if inspect.isawaitable(outcome) else outcome


def sound(message: Message) -> Message:
    """Give produce requests records that brokers accept."""
    if isinstance(message, ProduceRequest):
        message.acks = -1
        for topic in message.topic_data:
            for partition in topic.partition_data:
                partition.records = recordcodec.build([Record(None, b'{"id": 1}', (), 5)])
    return message


def test_unknown_option_is_refused_by_its_name(kind: str, sample: Sample) -> None:
    with pytest.raises(ConfigError, match="no option 'nonsense'"):
        make(kind, {**sample.busy, "nonsense": 1})


def test_options_are_documented(kind: str, sample: Sample) -> None:
    options = type(make(kind, sample.busy)).OPTIONS

    assert set(sample.busy) <= set(options)
    assert all(options.values())


@IDLE
@pytest.mark.parametrize("side", ["request", "response"])
def test_messages_that_do_not_concern_it_pass_unchanged(idle: Filter, side: str) -> None:
    table = mirror_passages([idle])

    async def pass_all() -> list[str]:
        changed = []
        await idle.start()
        for api in kafka_apis().values():
            for version in table.versions(api.key):
                context = context_of(table, api.key, version)
                passage = table.find((api.key, version))
                assert passage is not None
                is_request = side == "request"
                made = random_message(api.request if is_request else api.response, version, 1)
                steps = passage.request_filters if is_request else passage.response_filters
                before = encode_bytes(sound(made), version)
                outcome = await decide(steps, context, made)
                verdict = outcome.verdict
                if isinstance(verdict, FilterFailure) and verdict.code is UNRESOLVED:
                    # It must know the name of a topic whose id it sees.
                    continue
                if not isinstance(verdict, Forward):
                    changed.append(f"{api.name} v{version}: {verdict}")
                elif encode_bytes(verdict.message or made, version) != before:
                    changed.append(f"{api.name} v{version}")
        await idle.close()
        return changed

    assert not asyncio.run(pass_all())


def test_every_version_of_every_api_is_decided(kind: str, sample: Sample) -> None:
    busy = make(kind, sample.busy)
    table = mirror_passages([busy])

    async def decide_all() -> None:
        await busy.start()
        for api in kafka_apis().values():
            for version in table.versions(api.key):
                passage = table.find((api.key, version))
                assert passage is not None
                for seed in range(3):
                    context = context_of(table, api.key, version)
                    request = random_message(api.request, version, seed)
                    outcome = await decide(passage.request_filters, context, sound(request))
                    if isinstance(outcome.verdict, Forward):
                        encode_bytes(outcome.verdict.message or request, version)
                    elif isinstance(outcome.verdict, Answer):
                        encode_bytes(outcome.verdict.response, version)
                        continue
                    elif isinstance(outcome.verdict, FilterFailure):
                        # Only because it could not ask the broker.
                        assert outcome.verdict.code in {UNRESOLVED, ErrorCode.UNKNOWN_TOPIC_ID}
                        continue
                    response = api.refuse(request, ErrorCode.NONE)
                    outcome = await decide(passage.response_filters, context, response)
                    if isinstance(outcome.verdict, Forward):
                        encode_bytes(outcome.verdict.message or response, version)
        await busy.close()

    asyncio.run(decide_all())


@IDLE
def test_nothing_is_decoded_that_it_does_not_want(kind: str, idle: Filter) -> None:
    table = mirror_passages([idle])
    produced = table.find((PRODUCE.key, 9))
    groups = table.find((LIST_GROUPS.key, 4))

    assert produced is not None
    assert groups is not None
    if kind not in SEES_ALL_RESPONSES:
        assert all(needs_note(step.function) for step in produced.response_filters)
    if kind not in {"access_rules", "audit", "rate_limit"}:
        assert not groups.is_filtered


class Broken(Filter):
    """Fails on one API."""

    @on_request(LIST_GROUPS)
    def fail(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        raise ValueError("a mistake in a filter")


@pytest.fixture
def passed(server: str, idle: Filter) -> Iterator[ServedProxy]:
    """A proxy with the filter before a broken one."""
    with ServedProxy(server, filters=[idle, Broken()]) as proxy:
        yield proxy


@IDLE
def test_clients_see_no_difference(server: str, passed: ServedProxy, topic: str) -> None:
    values = [b"value-%d" % number for number in range(20)]
    producer = Producer(
        {
            "bootstrap.servers": passed.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
        }
    )
    for value in values[:10]:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    by_python = KafkaProducer(bootstrap_servers=passed.bootstrap)
    for value in values[10:]:
        by_python.send(topic, value)
    by_python.flush(20)
    by_python.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=passed.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    fetched = [next(consumer).value for _ in values]
    consumer.close()

    assert fetched == values
    assert [message.value() for message in read(passed.bootstrap, topic, 20)] == values
    assert [message.value() for message in read(server, topic, 20)] == values
    names = AdminClient({"bootstrap.servers": passed.bootstrap}).list_topics(timeout=20).topics
    assert topic in names


@IDLE
def test_filter_after_it_that_fails_costs_its_own_request(passed: ServedProxy) -> None:
    failed = ask(passed.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))
    served = ask(passed.bootstrap, METADATA, 9, MetadataRequest(topics=[]))

    assert failed.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert served.brokers
