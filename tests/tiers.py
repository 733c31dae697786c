"""Assign each test to a tier and to an xdist group, from the fixtures and parameters it uses.

`make test` runs the first tier, `make test-peers` and `make test-faults` the other two. No test is
assigned by hand: a test that needs a heavier server asks for it by fixture, and moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import pytest

from rookery.testing.backends import ETCD
from tests.proxies import through
from tests.sweep.asking import Case


class Tier(StrEnum):
    """When a test runs."""

    TEST = "test"
    """With every change: no server, or one of the servers that the whole run shares."""
    PEERS = "peers"
    """Java tools, further servers, the second backend of suites that run on two."""
    FAULTS = "faults"
    """Processes killed, paused, cut off or abused under load."""


class Group(StrEnum):
    """Tests that share a server run on one worker, so that it is started once."""

    SPARK = "spark"
    KAFKA = "kafka"
    OBJECTS = "objects"


# The fixtures that start the servers which a whole run shares.
SERVERS: Final[Mapping[Group, frozenset[str]]] = {
    Group.SPARK: frozenset({"shared_spark"}),
    Group.KAFKA: frozenset({"kafka"}),
    Group.OBJECTS: frozenset({"backend"}),
}
# The servers that parameters choose, by the name of a parametrised fixture and its value.
_CHOICES: Final[Mapping[tuple[str, str], Group]] = {
    ("bootstrap", "kafka"): Group.KAFKA,
    ("logs", "kafka"): Group.KAFKA,
    ("server", "kafka"): Group.KAFKA,
    ("bootstrap", ETCD): Group.OBJECTS,
    ("broker", ETCD): Group.OBJECTS,
    ("served", ETCD): Group.OBJECTS,
    **{("bootstrap", way): Group.KAFKA for way in through("kafka", "cluster")},
}
PEERS: Final = frozenset(
    {
        "franz",
        "java",
        "kcat",
        "kafka_cluster",
        "kafka_secure",
        "kroxylicious",
        "logins",
        "made",
        "moto",
        "own_kafka",
        "own_processes",
        "own_spark",
    }
)
_PEER_CHOICES: Final = frozenset({("make", "Java")})
# The suites of clients run again through proxies; `tests/proxy` has the smoke tests.
# The suites of our client and of librdkafka are quick enough to do it before one Kafka at once.
_THROUGH_PROXY: Final = frozenset(
    (name, way) for name in ("bootstrap", "way") for way in through("rookery", "cluster")
)
FAULTS: Final = frozenset({"victim", "members", "own_victim"})
# Suites that run on two event loops run on the second with the peers; `net` depends on both.
_LOOP: Final = "_asyncio_loop_factory"
_BOTH_LOOPS: Final = "tests/net/"

KAFKA: Final = frozenset({"kafka", "kafka_secure", "kafka_cluster", "java", "made", "own_kafka"})
"""Fixtures that fetch or start an Apache Kafka."""


def find_tier(item: pytest.Item) -> Tier:
    """Return the tier of a test."""
    fixtures = _fixtures(item)
    if fixtures & FAULTS:
        return Tier.FAULTS
    if fixtures & PEERS or len(_groups(item)) > 1 or _is_second_half(item):
        return Tier.PEERS
    return Tier.TEST


def find_group(item: pytest.Item) -> str:
    """Return the group of a test: its heaviest server, or else its file."""
    return next(iter(_groups(item)), item.nodeid.partition("::")[0])


def rank_group(group: str) -> int:
    """Order groups so that the longest start first and files fill the gaps."""
    order: list[str] = list(Group)
    return order.index(group) if group in order else len(order)


def _groups(item: pytest.Item) -> list[Group]:
    needed = {group for group, names in SERVERS.items() if names & _fixtures(item)}
    for name, value in _params(item).items():
        if isinstance(value, str) and (name, value) in _CHOICES:
            needed.add(_CHOICES[name, value])
    return sorted(needed, key=rank_group)


def _is_second_half(item: pytest.Item) -> bool:
    """Return whether this is the second run of a suite: another backend, event loop or client."""
    params = _params(item)
    if any(params.get(name) == value for name, value in _PEER_CHOICES | _THROUGH_PROXY):
        return True
    if params.get(_LOOP) is asyncio.new_event_loop:
        return not item.nodeid.startswith(_BOTH_LOOPS)
    return ETCD in params.values() and not _is_smoke_test(params)


def _is_smoke_test(params: Mapping[str, object]) -> bool:
    """Return whether this is the sweep's request in the newest version of an API."""
    case = params.get("case")
    return isinstance(case, Case) and case.version == case.route.versions[-1]


def _fixtures(item: pytest.Item) -> frozenset[str]:
    return frozenset(getattr(item, "fixturenames", ()))


def _params(item: pytest.Item) -> Mapping[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params
