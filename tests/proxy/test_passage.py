"""Which requests pass unread, and whose responses are read for addresses."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.proxy.filters.deny import Deny
from rookery.proxy.passage import Passage, mirror_passages
from rookery.wire.message import Api
from rookery.wire.messages.api_versions import API_VERSIONS
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.metadata import METADATA
from rookery.wire.messages.produce import PRODUCE


def passage(api: Api[Any, Any], version: int) -> Passage:
    known = mirror_passages().find((api.key, version))
    assert known is not None
    return known


@pytest.mark.parametrize(("api", "first"), [(PRODUCE, 10), (FETCH, 16)])
def test_responses_are_read_only_in_versions_with_addresses(
    api: Api[Any, Any],
    first: int,
) -> None:
    assert [v for v in api.versions if passage(api, v).has_hints] == list(
        range(first, api.versions.stop)
    )


def test_plain_requests_are_those_that_nothing_reads() -> None:
    assert passage(HEARTBEAT, 4).is_plain
    assert passage(JOIN_GROUP, 5).is_plain
    assert passage(FETCH, 15).is_plain
    assert not passage(FETCH, 16).is_plain
    assert not passage(METADATA, 12).is_plain
    # Its acks are read.
    assert not passage(PRODUCE, 9).is_plain
    assert not passage(API_VERSIONS, 3).is_plain


def test_filtered_requests_are_not_plain() -> None:
    passages = mirror_passages([Deny({"apis": ["Heartbeat"]})])
    filtered, other = passages.find((HEARTBEAT.key, 4)), passages.find((JOIN_GROUP.key, 5))

    assert filtered is not None
    assert not filtered.is_plain
    assert other is not None
    assert other.is_plain
