"""Rewriting fields by their kind, in any message."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import BrokerId, GroupId, Message, TopicName, i32, structures
from rookery.wire.messages.fetch import FetchRequest
from rookery.wire.messages.metadata import MetadataResponse
from rookery.wire.table import shape_of
from rookery.wire.walk import has_kind, kind_of, rewrite, visit


def test_names_are_found_however_deep() -> None:
    response = random_message(MetadataResponse, 8, 4)
    expected = [topic.name for topic in response.topics]
    assert expected
    assert list(visit(response, TopicName)) == expected


def test_a_rewrite_reaches_lists_of_numbers() -> None:
    response = random_message(MetadataResponse, 8, 4)
    before = list(visit(response, BrokerId))
    assert rewrite(response, BrokerId, lambda node: node // 2) is response
    assert list(visit(response, BrokerId)) == [node // 2 for node in before]


def test_nulls_are_left_alone() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    rewrite(request, TopicName, str.upper)
    assert list(visit(request, TopicName)) == []


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


def suspicious(cls: type[Message], names: set[str], kind: Any) -> list[str]:
    """Fields whose name says that they are of a kind, but which do not bear its mark."""
    wanted = kind_of(kind)
    return [
        f"{cls.__name__}.{name}"
        for name, entry in cls.__fields__.items()
        if name in names and shape_of(cls, entry).kind != wanted
    ]


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ({"topic_name"}, TopicName),
        ({"group_id"}, GroupId),
        ({"broker_id", "leader_id", "replica_nodes", "isr_nodes", "offline_replicas"}, BrokerId),
    ],
)
def test_no_field_of_a_kind_is_unmarked(names: set[str], kind: Any) -> None:
    for api in apis().values():
        for message in (api.request, api.response):
            for cls in structures(message):
                assert suspicious(cls, names, kind) == []
