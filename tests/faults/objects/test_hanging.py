"""A server that hangs while clients write: it is reported, and writing resumes by itself."""

from __future__ import annotations

import re
from typing import Final

import pytest

from rookery.testing.backends import ETCD, STORE
from rookery.testing.brokers import Host
from rookery.testing.server import TestServer
from rookery.testing.wait import wait_until
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, verify
from tests.faults.objects.scene import Scene
from tests.faults.probe import metrics, problems

SEED = 24
_SILENCE: Final = re.compile(r"no answer to (?P<call>.+) for (?P<seconds>[0-9.]+) s")
# The default of `stall_timeout_ms`, which these tests do not set.
STALL_SECONDS = 5.0


def find_server(scene: Scene, dependency: str) -> TestServer:
    """Return the server that a broker depends on by this name."""
    if dependency == "store" or scene.kind == STORE:
        return scene.backend.seaweed
    assert scene.backend.etcd is not None
    [member] = scene.backend.etcd.members
    return member


def stalled(broker: Host, dependency: str) -> tuple[float, float]:
    """Return for how long a dependency has been stuck, and how often it has been."""
    values, label = metrics(broker), f'{{dependency="{dependency}"}}'
    return (
        values[f"rookery_broker_stalled_seconds{label}"],
        values.get(f"rookery_broker_stalls_total{label}", 0.0),
    )


@pytest.mark.parametrize(
    ("kind", "dependency", "call"),
    [
        (ETCD, "store", "create '.*objects/.*"),
        # Whichever call has waited longest: a read of the log can have begun before the append.
        (ETCD, "cluster log", "an append|a read"),
        (STORE, "cluster log", "an append|a look at its end"),
    ],
)
def test_hanging_server_is_reported_until_it_answers(
    scene: Scene, dependency: str, call: str
) -> None:
    [host] = hosts = scene.hosts(1, "--inline-bytes", "0")
    create_topic(hosts.bootstrap)
    server = find_server(scene, dependency)
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        load.wait_for(20)
        server.pause()
        try:
            problem = wait_until(lambda: _SILENCE.match(problems(host).get(dependency, "")))
            assert problem is not None
            assert re.fullmatch(call, problem["call"])
            assert float(problem["seconds"]) >= STALL_SECONDS
            # The broker looks once a second, and must report only once.
            wait_until(lambda: stalled(host, dependency)[0] >= STALL_SECONDS + 3)
        finally:
            server.resume()
        wait_until(lambda: problems(host), accepts=lambda left: not left)
        load.wait_for(20)
        wait_until(lambda: stalled(host, dependency), accepts=(0, 1).__eq__)
    lines = [line for line in host.words().splitlines() if "logger=service.stalls" in line]
    lines = [line for line in lines if f"the {dependency} " in line]
    assert [("is stuck: no answer to" in line, "answers again" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
