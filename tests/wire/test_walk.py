"""Rewriting fields by their kind, in any message."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from rookery.testing.messages import random_message
from rookery.wire import message as marks
from rookery.wire import resources
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    BrokerId,
    ClientHost,
    ClientId,
    FieldKind,
    GroupId,
    Message,
    Principal,
    TopicName,
    TransactionalId,
    User,
    i32,
    kind_of,
)
from rookery.wire.messages.alter_client_quotas import EntityData
from rookery.wire.messages.create_acls import AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DeleteAclsFilter
from rookery.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from rookery.wire.messages.fetch import FetchRequest
from rookery.wire.messages.find_coordinator import FindCoordinatorRequest
from rookery.wire.messages.metadata import MetadataResponse
from rookery.wire.neighbour import KindByNeighbour
from rookery.wire.resources import ResourcePattern, TopicPattern
from rookery.wire.table import shape_of, structures
from rookery.wire.walk import REWRITE, VISIT, has_kind, rewrite, visit, write_source
from tests.wire import interpreted

KINDS: Final = sorted(
    {
        entry
        for value in (*vars(marks).values(), *vars(resources).values())
        for entry in getattr(value, "__metadata__", ())
        if isinstance(entry, FieldKind)
    }
)
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
TOPIC, GROUP, CLUSTER, BROKER = 2, 3, 4, 4


def all_messages() -> Iterator[tuple[type[Message], int]]:
    for api in apis().values():
        for version in api.versions:
            yield api.request, version
            yield api.response, version


def test_names_are_found_at_any_depth() -> None:
    response = random_message(MetadataResponse, 8, 4)
    expected = [topic.name for topic in response.topics]
    assert expected
    assert visit(response, TopicName) == expected


def test_a_rewrite_reaches_lists_of_numbers() -> None:
    response = random_message(MetadataResponse, 8, 4)
    before = visit(response, BrokerId)
    assert rewrite(response, BrokerId, lambda node: node // 2) is response
    assert visit(response, BrokerId) == [node // 2 for node in before]


def test_a_rewrite_replaces_lists_instead_of_changing_them() -> None:
    response = random_message(MetadataResponse, 8, 4)
    partition = next(p for topic in response.topics for p in topic.partitions)
    partition.replica_nodes = partition.isr_nodes = shared = [1, 2, 3]
    rewrite(response, BrokerId, lambda node: node + 1)
    assert partition.replica_nodes == partition.isr_nodes == [2, 3, 4]
    assert shared == [1, 2, 3]


def test_a_rewrite_asks_once_for_each_distinct_value() -> None:
    response = random_message(MetadataResponse, 8, 4)
    asked: list[int] = []

    def change(node: int) -> int:
        asked.append(node)
        return node

    rewrite(response, BrokerId, change)
    assert sorted(asked) == sorted(set(visit(response, BrokerId)))


def test_nulls_are_skipped() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    rewrite(request, TopicName, str.upper)
    assert visit(request, TopicName) == []


def test_a_mark_without_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="marks no kind"):
        kind_of(i32)


def test_a_rewritten_message_still_encodes() -> None:
    for api in apis().values():
        for cls in (api.request, api.response):
            if not has_kind(cls, TopicName):
                continue
            version = api.versions[-1]
            message = rewrite(random_message(cls, version, 2), TopicName, lambda name: f"x-{name}")
            back = decode(cls, version, encode_bytes(message, version))
            assert all(name.startswith("x-") for name in visit(back, TopicName) if name)


def test_generated_source_of_a_walk_equals_the_expected_text() -> None:
    text, _ = write_source(MetadataResponse, kind_of(BrokerId), VISIT)
    assert (
        text
        == """\
def walk(message, values):
    add, extend = values.append, values.extend
    for item1 in message.brokers or ():
        add(item1.node_id)
    add(message.controller_id)
    for item1 in message.topics or ():
        for item2 in item1.partitions or ():
            add(item2.leader_id)
            extend(item2.replica_nodes or ())
            extend(item2.isr_nodes or ())
            extend(item2.offline_replicas or ())
"""
    )
    text, scope = write_source(DescribeConfigsRequest, kind_of(BrokerId), REWRITE)
    assert (
        text
        == """\
def walk(message, changes):
    change, known = changes.__getitem__, changes.known
    for item1 in message.resources or ():
        if (item1.resource_type,) in known2:
            if (value := number(item1.resource_name)) is not None: \
item1.resource_name = str(change(value))
"""
    )
    assert scope["known2"] == {(4,), (8,)}


def change_of(kind: FieldKind) -> Any:
    """A change that keeps values in the range of their wire type."""
    if "id" in kind.name.split() and kind.name.startswith("topic"):
        return lambda value: value[::-1]
    return lambda value: value // 2 if isinstance(value, int) else value.upper()


def settle_neighbours(message: Message, random: Random) -> None:
    """Give neighbours values that mean something, which random numbers hardly ever do."""
    for cls, item in parts(message):
        for name, entry in cls.__fields__.items():
            mark = shape_of(cls, entry).mark
            if isinstance(mark, KindByNeighbour) and random.random() < 0.9:
                near = random.choice(list(mark.kinds))
                for neighbour, value in zip(mark.neighbours, near, strict=True):
                    setattr(item, neighbour, value)
                if isinstance(getattr(item, name), str):
                    setattr(item, name, random.choice(("a", "*", "7", "", "٣")))


def parts(message: Message) -> Iterator[tuple[type[Message], Message]]:
    yield type(message), message
    for name, entry in message.__fields__.items():
        shape = shape_of(type(message), entry)
        if shape.message is not None:
            for item in interpreted.items(getattr(message, name), shape):
                yield from parts(item)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_compiled_walk_equals_the_interpreted_one(kind: FieldKind) -> None:
    random, seen = Random(kind.name), 0
    for cls, version in all_messages():
        if not has_kind(cls, kind):
            assert visit(random_message(cls, version, random), kind) == []
            continue
        message: Message = random_message(cls, version, random)
        settle_neighbours(message, random)
        values = visit(message, kind)
        assert values == list(interpreted.visit(message, kind)), cls
        seen += len(values)
        twin = copy.deepcopy(message)
        interpreted.rewrite(twin, kind, change_of(kind))
        assert rewrite(message, kind, change_of(kind)) == twin, cls
    assert seen, "no message with a value of this kind was made"


# Names whose meaning a neighbour gives.


def test_config_resource_has_the_kind_of_its_type() -> None:
    types_and_names = [(2, "t"), (32, "g"), (4, "1"), (8, "2"), (4, ""), (4, "x"), (16, "metrics")]
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=number, resource_name=name)
            for number, name in types_and_names
        ]
    )
    assert visit(request, TopicName) == ["t"]
    assert visit(request, GroupId) == ["g"]
    assert visit(request, BrokerId) == [1, 2]
    rewrite(request, BrokerId, lambda node: node + 10)
    rewrite(request, TopicName, lambda name: f"x-{name}")
    names = [resource.resource_name for resource in request.resources]
    assert names == ["x-t", "g", "11", "12", "", "x", "metrics"]


def acl(resource: int, pattern: int, name: str) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )


def test_acl_names_a_resource_only_if_its_pattern_is_literal() -> None:
    request = CreateAclsRequest(
        creations=[
            acl(TOPIC, LITERAL, "a"),
            acl(TOPIC, PREFIXED, "b"),
            acl(TOPIC, LITERAL, "*"),
            acl(GROUP, LITERAL, "g"),
            acl(CLUSTER, LITERAL, "kafka-cluster"),
        ]
    )
    assert visit(request, TopicName) == ["a"]
    assert visit(request, TopicPattern) == ["b", "*"]
    assert visit(request, GroupId) == ["g"]
    assert visit(request, Principal) == ["User:alice"] * 5
    assert visit(request, ClientHost) == ["*"] * 5


@pytest.mark.parametrize(
    ("resource", "pattern", "name", "kind"),
    [
        (TOPIC, MATCH, "a", TopicName),
        (TOPIC, ANY, "a", TopicPattern),
        (TOPIC, MATCH, "*", TopicPattern),
        (1, LITERAL, "a", ResourcePattern),
        (TOPIC, LITERAL, None, None),
        (CLUSTER, LITERAL, "kafka-cluster", None),
    ],
)
def test_acl_filter_names_a_resource_by_its_type(
    resource: int, pattern: int, name: str | None, kind: object
) -> None:
    asked = DeleteAclsFilter(
        resource_type_filter=resource,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    visited = {known.name for known in KINDS if visit(asked, known)}
    assert visited == (set() if kind is None else {kind_of(kind).name})


def test_coordinator_keys_are_groups_or_transactional_ids() -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    assert visit(request, TransactionalId) == ["", "a", "b"]
    assert visit(request, GroupId) == []
    request.key_type = 0
    rewrite(request, GroupId, str.upper)
    assert request.coordinator_keys == ["A", "B"]


def test_quota_entities_have_the_kind_of_their_type() -> None:
    entity = EntityData(entity_type="user", entity_name="alice")
    assert visit(entity, User) == ["alice"]
    entity.entity_type = "client-id"
    assert (visit(entity, User), visit(entity, ClientId)) == ([], ["alice"])


def test_neighbour_fields_are_in_the_same_structure() -> None:
    for cls in {cls for message, _ in all_messages() for cls in structures(message)}:
        for entry in cls.__fields__.values():
            mark = shape_of(cls, entry).mark
            if isinstance(mark, KindByNeighbour):
                assert set(mark.neighbours) <= set(cls.__fields__), (cls, entry.name)
